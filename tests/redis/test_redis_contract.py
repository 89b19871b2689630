"""The contract of the saver and LangGraph's conformance suite, on one server and on a cluster, through both halves."""

import asyncio

import pytest
import redis
from langgraph.checkpoint.conformance import validate
from langgraph.checkpoint.conformance.capabilities import Capability
from langgraph.checkpoint.conformance.initializer import RegisteredCheckpointer

import threadline
from threadline.langgraph import Checkpointer
from threadline.testing import CONTRACT, Store, run_promise

# What changes threads of several pools in one piece, which a cluster cannot: it is refused there.
ACROSS_POOLS = {"test_many_puts_return_their_configs_in_order", "test_a_batch_is_stored_whole_or_not_at_all"}


@pytest.mark.parametrize("half", ["sync", "async"])
@pytest.mark.parametrize("promise", CONTRACT, ids=lambda promise: promise.__name__[5:])
def test_the_contract_is_kept(promise, half, url, prefix):
    store = Store(connect=lambda **options: threadline.connect(url, **{"key_prefix": prefix, **options}))
    if promise.__name__ in ACROSS_POOLS and "cluster" in url:
        with pytest.raises(threadline.InvalidRequest, match="a cluster cannot change several threads"):
            run_promise(promise, store, is_async=half == "async")
    else:
        run_promise(promise, store, is_async=half == "async")
