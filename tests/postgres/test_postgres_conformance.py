"""LangGraph's published conformance suite on PostgreSQL, through both halves."""

import pytest

from tests.test_conformance import CAPABILITIES, check_capability
from threadline.langgraph import Checkpointer


@pytest.mark.parametrize("half", ["sync", "async"])
@pytest.mark.parametrize("capability", CAPABILITIES)
def test_every_capability_is_there_and_passes(capability, half, postgres_url, schema):
    check_capability(capability, half, lambda: Checkpointer(postgres_url, schema=schema, pool_size=4))
