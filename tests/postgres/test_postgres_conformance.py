"""LangGraph's published conformance suite on PostgreSQL, through both halves."""

import asyncio

import pytest
from langgraph.checkpoint.conformance import validate
from langgraph.checkpoint.conformance.capabilities import Capability
from langgraph.checkpoint.conformance.initializer import RegisteredCheckpointer

from tests.test_conformance import SyncHalf
from threadline.langgraph import Checkpointer


@pytest.mark.parametrize("half", ["sync", "async"])
@pytest.mark.parametrize("capability", [each.value for each in Capability])
def test_every_capability_is_there_and_passes(capability, half, postgres_url, schema):
    async def factory():
        saver = Checkpointer(postgres_url, schema=schema, pool_size=4)
        yield SyncHalf(saver) if half == "sync" else saver
        await saver.aclose()

    registered = RegisteredCheckpointer(name="postgres", factory=factory)
    result = asyncio.run(validate(registered, capabilities={capability})).results[capability]

    assert result.detected
    assert result.failures == []
    assert result.passed is True
    assert result.tests_passed > 0
