"""Object stores: real servers of S3, one that heeds nothing, wrong places and wrong keys; the cache before them."""

from __future__ import annotations

import asyncio
import logging
import os
import traceback
from pathlib import Path

import pytest
from heedless import Heedless
from tier_stores import converse, messages, object_paths, read

import threadline
from tests.servers.s3 import BUCKET, KEY, SECRET
from threadline import InvalidRequest, KeyRing, Unavailable
from threadline.backends.layers.tiered import TieredLayer
from threadline.backends.memory.backend import MemoryBackend
from threadline.backends.objects.cache import CachedObjects
from threadline.backends.objects.folder import FolderObjects, here
from threadline.backends.objects.opening import check_place, open_objects
from threadline.base.drive import run_now

NOW = "0s"


def test_a_thread_goes_to_s3_and_comes_back(s3, connect, tmp_path, half):
    saver = connect(f"sqlite:///{tmp_path / 'a.db'}", cold=s3.url)
    said = converse(saver)
    done = half.call(saver, "tier", NOW)
    assert done.chunks > 0
    saver.clear_cache()
    assert half.call(saver.thread("t"), "state")["messages"] == said
    saver.thread("t").prune(keep_last=2)
    saver.collect()
    half.call(saver, "tier", NOW, grace=NOW)
    assert read(saver)["messages"] == said
    assert half.call(saver, "fsck").ok
    assert half.call(saver, "tier_restore").lost == 0
    assert half.call(saver, "tier", "7d", grace=NOW).deleted > 0
    assert saver.tier_status().objects == 0
    assert read(saver)["messages"] == said


def test_the_async_half_reads_objects_on_its_loop(s3, connect):
    saver = connect("memory://", cold=s3.url)

    async def on_loop():
        said = messages(60)
        await saver.thread("t").aput({"messages": said})
        assert (await saver.atier(NOW)).chunks > 0
        await saver.aclear_cache()
        assert (await saver.thread("t").astate())["messages"] == said
        assert (await saver.afsck()).ok
        assert (await saver.atier_restore()).lost == 0

    asyncio.run(on_loop())


def test_a_forked_child_is_told_that_it_cannot_use_what_its_parent_used(connect, tmp_path, monkeypatch):
    with Heedless() as server:
        for name, value in server.environment.items():
            monkeypatch.setenv(name, value)
        objects = open_objects("s3://bucket/p", is_of_loop=False, cache_bytes=0)
        run_now(objects.put("a", b"content"))
        child = os.fork()
        if not child:
            try:
                run_now(objects.read("a", [(0, 1)]))
            except Unavailable as told:
                os._exit(0 if "forked" in str(told) else 2)
            os._exit(1)
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
        assert run_now(objects.read("a", [(0, 7)])) == [b"content"]


def test_a_put_passes_the_layer_by():
    """No function more than without a cold tier: the layer hands out the backend's own methods."""
    backend = MemoryBackend()
    layer = TieredLayer(backend, open_objects("file:///nowhere", is_of_loop=False))
    for name in ("apply", "find", "links", "collect", "chunk_sizes", "write_records"):
        assert getattr(layer, name) == getattr(backend, name)


def test_objects_keep_the_promises_of_their_port(s3):
    objects = open_objects(s3.url, is_of_loop=False, cache_bytes=0)
    _keeps_promises(objects)

    async def on_loop():
        objects = open_objects(s3.url, is_of_loop=True, cache_bytes=0)
        await objects.put("b", b"0123456789")
        assert await objects.read("b", [(8, 2), (0, 1)]) == [b"89", b"0"]
        assert await objects.read("none", [(0, 1)]) is None
        await objects.delete(["b"])
        assert await objects.size("b") is None

    asyncio.run(on_loop())


def test_a_folder_keeps_the_promises_of_the_port(cold):
    _keeps_promises(open_objects(cold, is_of_loop=False))
    assert object_paths(cold) == []


def _keeps_promises(objects):
    content = bytes(range(256)) * 40
    run_now(objects.put("a", content))
    run_now(objects.put("a", content))
    assert run_now(objects.size("a")) == len(content)
    assert run_now(objects.read("a", [(3, 4), (5_000, 100), (0, len(content))])) == [
        content[3:7],
        content[5_000:5_100],
        content,
    ]
    [short, nothing] = run_now(objects.read("a", [(len(content) - 2, 10), (len(content) + 5_000_000, 10)]))
    assert (short, nothing) == (content[-2:], b"")
    assert run_now(objects.read("none", [(0, 1)])) is None
    assert run_now(objects.size("none")) is None
    run_now(objects.delete(["a", "none"]))
    assert run_now(objects.read("a", [(0, 1)])) is None


def test_no_such_bucket_and_wrong_keys_are_told_without_the_keys(s3, connect, tmp_path, monkeypatch, caplog):
    caplog.set_level(logging.DEBUG)
    said = {}
    places = []
    if s3.server.kind != "seaweedfs":  # which makes the buckets that it lacks
        places.append((s3.url.replace(BUCKET, "no-such-bucket"), KEY, SECRET))
    if s3.server.kind != "moto":  # which lets everybody in
        places += [(s3.url, KEY, "no-such-secret"), (s3.url, "no-such-key", SECRET)]
    for at, (url, key, secret) in enumerate(places):
        monkeypatch.setenv("AWS_ACCESS_KEY_ID", key)
        monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", secret)
        saver = connect(f"sqlite:///{tmp_path / f'{at}.db'}", cold=url, cold_cache_bytes=0)
        converse(saver, turns=3)
        with pytest.raises(Unavailable) as caught:
            saver.tier(NOW)
        told = "".join(traceback.format_exception(caught.value)) + caplog.text
        assert not any(one in told for one in (KEY, SECRET, "no-such-key", "no-such-secret"))
        said[url, key, secret] = str(caught.value)
        # Nothing was moved, and the store works on.
        assert saver.tier_status().cold_chunks == 0
        assert read(saver)["turn"] == 3
    for (url, *_), told in said.items():
        assert ("keys were refused" if BUCKET in url else "no bucket") in told


def test_a_server_that_does_not_answer_is_unavailable_and_a_put_does_not_wait_for_it(connect, tmp_path, monkeypatch):
    with Heedless() as server:
        for name, value in server.environment.items():
            monkeypatch.setenv(name, value)
        saver = connect(f"sqlite:///{tmp_path / 'a.db'}", cold="s3://bucket/p", cold_cache_bytes=0)
        said = converse(saver)
        saver.tier(NOW)
        asked = len(server.requests)
        saver.clear_cache()
        saver.thread("t").put({"messages": [*said, "more"], "turn": 13})
        assert len(server.requests) == asked
    saver.clear_cache()
    with pytest.raises(Unavailable, match=r"object [0-9a-f]{32} of s3://bucket/p is out of reach: no connection"):
        read(saver, at="head~1")
    saver.thread("t").put({"messages": ["still"], "turn": 14})
    assert read(saver)["messages"] == ["still"]


def test_a_server_that_ignores_ranges_conditions_and_keys_serves(connect, tmp_path, monkeypatch, half):
    with Heedless() as server:
        for name, value in server.environment.items():
            monkeypatch.setenv(name, value)
        saver = connect(f"sqlite:///{tmp_path / 'a.db'}", cold="s3://bucket/p", cold_cache_bytes=0)
        said = converse(saver)
        half.call(saver, "tier", NOW)
        saver.clear_cache()
        assert half.call(saver.thread("t"), "state")["messages"] == said
        assert half.call(saver, "tier_restore").lost == 0
        half.call(saver, "tier", "7d", grace=NOW)
        assert server.objects == {}
        assert {kind for kind, _ in server.requests} <= {"PUT", "GET", "HEAD", "DELETE", "POST"}


def test_a_head_of_500_messages_is_read_in_at_most_three_requests(connect, tmp_path, monkeypatch):
    with Heedless(has_ranges=True) as server:
        for name, value in server.environment.items():
            monkeypatch.setenv(name, value)
        saver = connect(f"sqlite:///{tmp_path / 'a.db'}", cold="s3://bucket/p", cold_cache_bytes=0)
        said = converse(saver, turns=125)
        saver.tier(NOW)
        server.requests.clear()
        assert read(saver)["messages"] == said
        assert len(said) == 500
        assert 1 <= len(server.requests) <= 3


def test_an_upload_that_arrives_altered_moves_nothing(connect, tmp_path, cold, monkeypatch):
    original = FolderObjects.put

    async def altered(self, name, content):
        await original(self, name, content[:-1] + bytes([content[-1] ^ 1]))

    saver = connect(f"sqlite:///{tmp_path / 'a.db'}", cold=cold)
    said = converse(saver)
    monkeypatch.setattr(FolderObjects, "put", altered)
    with pytest.raises(Unavailable, match="is not what was written"):
        saver.tier(NOW)
    monkeypatch.undo()
    assert saver.tier_status().cold_chunks == 0
    assert read(saver)["messages"] == said
    saver.tier("7d", grace=NOW)
    assert object_paths(cold) == []


def test_objects_of_an_encrypted_store_show_nothing_and_no_equality_of_pools(connect, tmp_path, cold):
    saver = connect(f"sqlite:///{tmp_path / 'a.db'}", cold=cold, encryption=KeyRing({"k": b"k" * 32}), compression=None)
    for thread in ("one", "two"):
        converse(saver, thread, seed=1)
    saver.tier(NOW)
    first, second = (path.read_bytes() for path in object_paths(cold))
    assert b"content" not in first + second
    assert b"user" not in first + second
    words = {first[at : at + 16] for at in range(8, len(first) - 16)}
    shared = {second[at : at + 16] for at in range(8, len(second) - 16)} & words
    # Places and lengths in the index, small numbers that are mostly zeros, may meet by chance.
    assert {one for one in shared if len(set(one)) > 8} == set()


def test_equal_threads_of_two_stores_under_one_prefix_do_not_share_objects(connect, tmp_path, cold):
    savers = [connect(f"sqlite:///{tmp_path / name}.db", cold=cold) for name in "ab"]
    for saver in savers:
        converse(saver)
        saver.tier(NOW)
    assert len(object_paths(cold)) == 2
    savers[0].thread("t").delete()
    savers[0].tier(NOW, grace=NOW)
    assert len(object_paths(cold)) == 1
    assert read(savers[1])["turn"] == 12


@pytest.mark.parametrize(
    "wrong",
    [
        "s3://key:very-secret@bucket/p",
        "s3://very-secret@bucket/p",
        "s3://bucket/p?secret=very-secret",
        "s3://bucket#very-secret",
        "ftp://bucket/very-secret",
        "very-secret",
        "s3://",
        "file://relative/very-secret",
    ],
)
def test_a_place_with_keys_or_without_a_bucket_is_refused_and_not_shown(wrong):
    with pytest.raises(InvalidRequest) as caught:
        check_place(wrong)
    assert "very-secret" not in str(caught.value)
    with pytest.raises(InvalidRequest):
        threadline.connect("memory://", cold=wrong)


def test_which_options_go_together():
    with pytest.raises(InvalidRequest, match="cold="):
        threadline.connect("memory://", cold_after="7d")
    for wrong in ({"cold": 3}, {"cold_after": "soon"}, {"cold_cache_bytes": -1}, {"cold_cache": 3}):
        with pytest.raises(InvalidRequest):
            threadline.connect("memory://", **wrong)


def test_the_cache_answers_again_stays_within_its_bound_and_never_gives_damaged_bytes(cold, tmp_path):
    inner = _Counted(Path(cold.removeprefix("file://")))
    content = os.urandom(100_000)
    run_now(inner.put("a", content))
    cached = CachedObjects(inner, tmp_path / "cache", 40_000, here)
    assert run_now(cached.read("a", [(0, 10), (50, 10)])) == [content[:10], content[50:60]]
    assert run_now(cached.read("a", [(50, 10), (0, 10), (90, 5)])) == [content[50:60], content[:10], content[90:95]]
    assert inner.spans == [(0, 10), (50, 10), (90, 5)]
    for path in (tmp_path / "cache").rglob("*"):
        if path.is_file():
            path.write_bytes(b"x" + path.read_bytes()[1:])
    assert run_now(cached.read("a", [(0, 10)])) == [content[:10]]
    for at in range(0, 90_000, 3_000):
        run_now(cached.read("a", [(at, 3_000)]))
    taken = sum(path.stat().st_size for path in (tmp_path / "cache").rglob("*") if path.is_file())
    assert 3_000 < taken <= 40_000 * 17 / 16 + 3_000
    # A cache that cannot be written is as if there were none.
    broken = CachedObjects(inner, Path("/dev/null/cache"), 40_000, here)
    assert run_now(broken.read("a", [(7, 3)])) == [content[7:10]]


class _Counted(FolderObjects):
    def __init__(self, path):
        super().__init__(path, here)
        self.spans = []

    async def read(self, name, spans, *, is_fresh=False):
        self.spans += spans
        return await super().read(name, spans)


@pytest.mark.parametrize("s3", ["rclone"], indirect=True)  # its objects are files, which can be altered and mended
def test_what_a_cache_kept_of_a_damaged_object_is_read_anew(s3, connect, tmp_path):
    saver = connect(f"sqlite:///{tmp_path / 'a.db'}", cold=s3.url, cold_cache=tmp_path / "kept")
    said = converse(saver)
    saver.tier(NOW)
    [path] = (s3.server.folder / "served" / BUCKET / s3.url.rpartition("/")[2]).iterdir()
    content = path.read_bytes()
    path.write_bytes(bytes(byte ^ 1 for byte in content))
    saver.clear_cache()
    assert not saver.fsck().ok
    path.write_bytes(content)
    assert read(saver)["messages"] == said


def test_a_sweeper_moves_what_is_due(connect, tmp_path, cold):
    saver = connect(f"sqlite:///{tmp_path / 'a.db'}", cold=cold, cold_after="0s")
    converse(saver)
    with saver.sweeper("1h") as sweeper:
        for _ in range(200):
            if saver.tier_status().cold_chunks:
                break
            asyncio.run(asyncio.sleep(0.05))
    assert saver.tier_status().cold_chunks > 0
    assert sweeper is not None
