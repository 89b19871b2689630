"""The contract of the saver and LangGraph's conformance suite, on one server and on a cluster, through both halves."""

import asyncio

import pytest
from langgraph.checkpoint.conformance import validate
from langgraph.checkpoint.conformance.capabilities import Capability
from langgraph.checkpoint.conformance.initializer import RegisteredCheckpointer
from redis._parsers import AsyncCommandsParser

import redis
import threadline
from threadline.langgraph import Checkpointer
from threadline.testing import CONTRACT, Store, run_promise

# What changes threads of several pools in one piece, which a cluster cannot: it is refused there.
ACROSS_POOLS = {
    "test_many_puts_return_their_configs_in_order",
    "test_a_batch_is_stored_whole_or_not_at_all",
    "test_more_threads_than_a_page_are_all_listed",
}


@pytest.fixture(scope="session")
def cluster_client(cluster_url):
    """One client of the driver for all promises: opening a cluster takes longer than keeping a promise."""
    client = redis.cluster.RedisCluster.from_url(cluster_url.replace("+cluster", ""))
    yield client
    client.close()


@pytest.fixture(scope="module", autouse=True)
def known_commands():
    """The driver's async client asks a cluster for all its commands whenever it is opened: here, once."""
    ask, known = AsyncCommandsParser.initialize, {}

    async def initialize(parser, node=None):
        if not known:
            await ask(parser, node)
            known.update(parser.commands)
        parser.node, parser.commands = node or parser.node, dict(known)

    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(AsyncCommandsParser, "initialize", initialize)
        yield


@pytest.mark.parametrize("half", ["sync", "async"])
@pytest.mark.parametrize("promise", CONTRACT, ids=lambda promise: promise.__name__[5:])
def test_the_contract_is_kept(promise, half, url, prefix, request):
    way = {"url": url}
    if "cluster" in url and half == "sync":
        way = {"connection": request.getfixturevalue("cluster_client")}
    store = Store(connect=lambda **options: threadline.connect(**way, **{"key_prefix": prefix, **options}))
    if promise.__name__ == "test_a_reader_never_sees_half_a_put" and "cluster" in url:
        pytest.skip("its readers wait for a put of several threads, which a cluster refuses")
    if promise.__name__ in ACROSS_POOLS and "cluster" in url:
        with pytest.raises(threadline.InvalidRequest, match="a cluster cannot change several threads"):
            run_promise(promise, store, is_async=half == "async")
    else:
        run_promise(promise, store, is_async=half == "async")


class SyncHalf(Checkpointer):
    """The sync methods of a saver under the names that LangGraph's suite calls."""

    async def aput(self, *args):
        return self.put(*args)

    async def aput_writes(self, *args, **options):
        return self.put_writes(*args, **options)

    async def aget_tuple(self, config):
        return self.get_tuple(config)

    async def alist(self, config, **options):
        for found in self.list(config, **options):
            yield found

    async def adelete_thread(self, thread_id):
        self.delete_thread(thread_id)

    async def adelete_for_runs(self, run_ids):
        self.delete_for_runs(run_ids)

    async def acopy_thread(self, source_thread_id, target_thread_id):
        self.copy_thread(source_thread_id, target_thread_id)

    async def aprune(self, thread_ids, *, strategy="keep_latest"):
        self.prune(thread_ids, strategy=strategy)


@pytest.mark.parametrize("half", [SyncHalf, Checkpointer])
@pytest.mark.parametrize("capability", [each.value for each in Capability])
def test_every_capability_of_langgraphs_suite_passes(capability, half, url, prefix):
    async def factory():
        saver = half(url, key_prefix=prefix)
        yield saver
        await saver.aclose()

    registered = RegisteredCheckpointer(name="redis", factory=factory)
    result = asyncio.run(validate(registered, capabilities={capability})).results[capability]
    assert result.detected
    assert result.failures == []
    assert result.tests_passed > 0
