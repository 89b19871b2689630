"""Records of the store itself, on every backend: what was set aside, and under which keys it is sealed."""

import asyncio
import uuid

import pytest

import threadline
from threadline import KeyRing
from threadline.core.rows import read_document
from threadline.core.store_records import record_names, swap_record
from threadline.testing.making import checkpoint, place

OLD, NEW = bytes(range(32)), bytes(range(32, 64))


@pytest.fixture(params=["memory", "sqlite", "postgres", "mysql", "redis_server", "redis_cluster"])
def where(request, tmp_path):
    """The URL and the options of an empty store."""
    if request.param == "memory":
        return f"memory://{uuid.uuid4()}", {}
    if request.param == "sqlite":
        return str(tmp_path / "threads.db"), {}
    server = request.getfixturevalue(request.param)
    named = uuid.uuid4().hex[:8]
    if request.param.startswith("redis"):
        return server.url, {"key_prefix": f"{server.key_prefix}{named}"}
    return server.url, {"table_prefix": f"{getattr(server, 'table_prefix', 't')}{named}_"}


def both(saver, operation):
    """What an operation on the backend gives, which must be the same in both halves."""
    blocking = saver._engine.run(operation)
    assert asyncio.run(saver._engine.arun(operation)) == blocking
    return blocking


def test_records_are_found_by_the_beginning_of_their_keys(where):
    url, options = where
    keys = ["quarantine:a", "quarantine:b", "quarantine;", "quarantin", "r"]
    with threadline.connect(url, **options) as saver:
        for key in keys:
            assert saver._engine.run(lambda backend, key=key: swap_record(backend, key, None, b"x"))
        assert both(saver, lambda backend: record_names(backend, "quarantine:")) == ["quarantine:a", "quarantine:b"]
        assert both(saver, lambda backend: record_names(backend, "none")) == []
        assert set(both(saver, lambda backend: record_names(backend, ""))) >= set(keys)


def test_the_keys_of_what_was_set_aside_are_in_use_until_it_is_rotated(where):
    url, options = where
    with threadline.connect(url, encryption=KeyRing({"old": OLD}), **options) as saver:
        config = saver.put(place("t"), checkpoint({"items": ["x" * 400, "y" * 400]}), {"step": 1}, {"items": 1})
        saver.clear_cache()
        _lose_chunks(saver, config)
        assert saver.quarantine(saver.fsck().damaged) == 1
    with threadline.connect(url, encryption=KeyRing({"new": NEW, "old": OLD}), **options) as saver:
        assert saver.keys_in_use() == {"old"}
        saver.rotate_keys()
        assert saver.keys_in_use() == {"new"}


def _lose_chunks(saver, config):
    """Make every chunk of a thread unreadable, as it is stored: its bytes are another's."""

    async def lose(backend):
        thread = config["configurable"]["thread_id"]
        found = await backend.find(thread, "", None)
        assert read_document(found, saver._tools.codec, saver._tools.envelope)
        from threadline.ports.checkpoints import ChunkRow

        digests = [digest for digest, *_ in await backend.chunk_sizes(found.pool, b"", 100)]
        rows = [ChunkRow(*row) for row in await backend.chunks(found.pool, digests)]
        assert rows
        await backend.rewrap(found.pool, [(row, row._replace(data=b"\0" * 40)) for row in rows])

    saver._engine.run(lose)
