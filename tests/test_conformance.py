"""LangGraph's published conformance suite: every capability is there, and passes, through both halves."""

import asyncio

import pytest
from langgraph.checkpoint.base import BaseCheckpointSaver
from langgraph.checkpoint.conformance import validate
from langgraph.checkpoint.conformance.capabilities import Capability
from langgraph.checkpoint.conformance.initializer import RegisteredCheckpointer

from threadline.langgraph import Checkpointer, InMemorySaver

CAPABILITIES = [each.value for each in Capability]


class SyncHalf(BaseCheckpointSaver):
    """The sync methods of a saver under the names that the suite calls."""

    def __init__(self, saver):
        super().__init__(serde=saver.serde)
        self.saver = saver

    def get_next_version(self, current, channel):
        return self.saver.get_next_version(current, channel)

    async def aput(self, *args):
        return self.saver.put(*args)

    async def aput_writes(self, *args, **options):
        return self.saver.put_writes(*args, **options)

    async def aget_tuple(self, config):
        return self.saver.get_tuple(config)

    async def alist(self, config, **options):
        for found in self.saver.list(config, **options):
            yield found

    async def adelete_thread(self, thread_id):
        self.saver.delete_thread(thread_id)

    async def adelete_for_runs(self, run_ids):
        self.saver.delete_for_runs(run_ids)

    async def acopy_thread(self, source_thread_id, target_thread_id):
        self.saver.copy_thread(source_thread_id, target_thread_id)

    async def aprune(self, thread_ids, *, strategy="keep_latest"):
        self.saver.prune(thread_ids, strategy=strategy)


def in_memory(tmp_path):
    return InMemorySaver()


def sqlite_file(tmp_path):
    return Checkpointer(f"sqlite:///{tmp_path / 'threads.db'}")


@pytest.mark.parametrize("half", ["sync", "async"])
@pytest.mark.parametrize("make", [in_memory, sqlite_file])
@pytest.mark.parametrize("capability", CAPABILITIES)
def test_every_capability_is_there_and_passes(capability, make, half, tmp_path):
    check_capability(capability, half, lambda: make(tmp_path))


def check_capability(capability, half, make):
    """A half of the savers that `make` gives has this capability, and passes all that the suite asks of it."""

    async def factory():
        saver = make()
        yield SyncHalf(saver) if half == "sync" else saver
        await saver.aclose()

    registered = RegisteredCheckpointer(name="threadline", factory=factory)
    result = asyncio.run(validate(registered, capabilities={capability})).results[capability]

    assert result.detected
    assert result.failures == []
    assert result.passed is True
    assert result.tests_passed > 0


@pytest.mark.parametrize("method", CAPABILITIES)
def test_both_halves_are_ours(method):
    for name in (method, f"a{method}"):
        assert getattr(Checkpointer, name) is not getattr(BaseCheckpointSaver, name)
