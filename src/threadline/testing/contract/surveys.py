"""Looking over many threads, and along one channel."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Coroutine
from functools import partial
from typing import Any

from ...base.checkpoint import ERROR, INTERRUPT, RESUME, Config
from ...errors import InvalidRequest
from ...ports.checkpoints import ChunkRow, Query
from ..half import Half
from ..making import checkpoint, id_of, place, put, values_at
from ..raising import refused

_LOOP = {"source": "loop", "step": 0, "parents": {}}


async def _named(saver: Half, **options: Any) -> list[str]:
    return [info.thread_id async for info in saver.threads(**options)]


async def _ask(saver: Half, act: Callable[[Any], Coroutine[Any, Any, None]]) -> None:
    engine = saver.saver._engine
    await engine.arun(act) if saver.is_async else engine.run(act)


async def test_threads_are_listed_by_id(saver: Half, thread: str) -> None:
    names = [f"{thread}/{end}" for end in ("", " ", "%", "A", "Z", "_", "a", "a/b", "é", "\uffff", "\U0001f600")]
    for name in reversed(names):
        await put(saver, place(name), {})
    assert await _named(saver, prefix=thread) == names
    assert [name for name in await _named(saver) if name in names] == names


async def test_a_prefix_is_text_and_no_pattern(saver: Half, thread: str) -> None:
    names = [f"{thread}{end}" for end in ("%x", "_x", "*x", "?x", "ax", "AX", "[a]x")]
    for name in names:
        await put(saver, place(name), {})
    for name in names:
        assert await _named(saver, prefix=name[:-1]) == [name]
        assert await saver.count_threads(prefix=name[:-1]) == 1
    assert await saver.count_threads(prefix=thread) == len(names)
    assert await _named(saver, prefix=thread + "none") == []
    assert await saver.count_threads(prefix=thread + "none") == 0


async def test_a_prefix_of_any_length_finds_longer_ids_and_no_others(saver: Half, thread: str) -> None:
    # Around the lengths at which a key of MySQL, or an index, could hold no more; one id is as long as its prefix.
    sizes = (1, 100, 983, 984, 985, 1000, 1003, 1004, 1015, 1016, 1017, 1100)
    for size in sizes:
        head = (thread + "x" * size)[: max(size, len(thread) + 1)]
        names = {head, head + "y", head + "x" * 200, head + "\U0010ffff" * 9}
        for name in names:
            await put(saver, place(name), {})
        found = await _named(saver, prefix=head)
        assert names <= set(found), size
        assert all(name.startswith(head) for name in found)
        assert len(found) == len(set(found)) == await saver.count_threads(prefix=head)
        assert await _named(saver, prefix=head + "y") == [head + "y"]
        assert set(await _named(saver.view(saver.saver.within(head)), limit=len(found) + 1)) == set(found)


async def test_a_prefix_may_end_in_any_character(saver: Half, thread: str) -> None:
    ends = ["\0", "\1", "\x7f", "\x80", "ÿ", "\ud7ff", "\ue000", "\uffff", "\U00010000", "💬", "\U0010ffff", "%", "_"]
    long = thread + "l" * (998 - len(thread))
    for end in ends:
        for start in (thread, long):
            names = {start + end, start + end * 2, start + end + "more", start + end + "\U0010ffff" * 4}
            for name in names:
                await put(saver, place(name), {})
    for end in ends:
        for start in (thread, long):
            names = {start + end, start + end * 2, start + end + "more", start + end + "\U0010ffff" * 4}
            assert set(await _named(saver, prefix=start + end)) == names, (end, len(start))
            assert await saver.count_threads(prefix=start + end) == len(names)


async def test_threads_are_paged_by_after_and_limit(saver: Half, thread: str) -> None:
    names = [f"{thread}-{at:02}" for at in range(11)]
    for name in names:
        await put(saver, place(name), {})
    assert await _named(saver, prefix=thread, limit=4) == names[:4]
    assert await _named(saver, prefix=thread, limit=0) == []
    assert await _named(saver, prefix=thread, limit=100) == names
    assert await _named(saver, prefix=thread, after=names[3], limit=3) == names[4:7]
    assert await _named(saver, prefix=thread, after=names[-1]) == []
    assert await _named(saver, prefix=thread, after=thread) == names


async def test_more_threads_than_a_page_are_all_listed(saver: Half, thread: str) -> None:
    names = [f"{thread}-{at:04}" for at in range(1030)]
    await saver.put_many([(place(name), checkpoint({}), _LOOP, {}) for name in names])
    assert await _named(saver, prefix=thread) == names
    assert await _named(saver, prefix=thread, limit=700) == names[:700]
    assert await saver.count_threads(prefix=thread) == 1030


async def test_a_listed_thread_tells_its_life(saver: Half, thread: str) -> None:
    before = time.time()
    await put(saver, place(thread), {"a": 1})
    [info] = [info async for info in saver.threads(prefix=thread)]
    assert info.status == "active"
    assert before - 1 <= info.created <= info.last_active <= time.time() + 1
    assert info.forked_from is None
    assert await values_at(saver, info.config) == {"a": 1}


async def test_deleted_threads_are_not_listed(saver: Half, thread: str) -> None:
    for end in "abc":
        await put(saver, place(thread + end), {})
    count = await saver.count_threads()
    await saver.delete_thread(thread + "b")
    assert await _named(saver, prefix=thread) == [thread + "a", thread + "c"]
    assert await saver.count_threads() == count - 1


async def test_the_versions_of_a_channel_are_newest_first_where_they_came_in(saver: Half, thread: str) -> None:
    configs: list[Config] = [place(thread)]
    for step, version in enumerate((1, 1, 2, 2, 2, 3)):
        made = checkpoint({"a": [version] * 60, "n": step}, {"a": version, "n": step})
        configs.append(await saver.put(configs[-1], made, {**_LOOP, "step": step}, made["channel_versions"]))

    found = await saver.of(thread).versions("a")

    assert [(one.version, one.value, one.step) for one in found] == [
        (3, [3] * 60, 5), (2, [2] * 60, 2), (1, [1] * 60, 0),
    ]  # fmt: skip
    assert [one.checkpoint_id for one in found] == [id_of(configs[at]) for at in (6, 3, 1)]
    assert [one.config for one in found] == [configs[at] for at in (6, 3, 1)]
    assert [one.value for one in await saver.of(thread).versions("a", limit=2)] == [[3] * 60, [2] * 60]
    assert [one.value for one in await saver.of(thread).versions("n", limit=100)] == [5, 4, 3, 2, 1, 0]


async def test_the_versions_of_two_branches_are_all_told(saver: Half, thread: str) -> None:
    """Both branches count on from the version that they share."""
    root = await saver.put(place(thread), checkpoint({"a": "root"}, {"a": 1}), _LOOP, {"a": 1})
    for value in ("left", "right"):
        await saver.put(root, checkpoint({"a": value}, {"a": 2}), _LOOP, {"a": 2})
    assert [one.value for one in await saver.of(thread).versions("a")] == ["right", "left", "root"]


async def test_versions_are_those_of_one_namespace(saver: Half, thread: str) -> None:
    await put(saver, place(thread), {"a": "root"})
    await put(saver, place(thread), {"a": "inner"}, ns="child:1")
    assert [one.value for one in await saver.of(thread).versions("a")] == ["root"]
    assert [one.value for one in await saver.of(thread).versions("a", namespace="child:1")] == ["inner"]
    assert await saver.of(thread).versions("other") == []
    assert await saver.of(thread + "?").versions("a") == []
    for limit in (0, -1):
        with refused(InvalidRequest):
            await saver.of(thread).versions("a", limit=limit)


async def test_more_versions_than_a_page_are_all_told(saver: Half, thread: str) -> None:
    made = [checkpoint({"a": at}, {"a": at + 1}) for at in range(600)]
    await saver.put_many([(place(thread), one, _LOOP, one["channel_versions"]) for one in made])
    assert [one.value for one in await saver.of(thread).versions("a")] == [*range(599, -1, -1)]
    assert [one.value for one in await saver.of(thread).versions("a", limit=300)] == [*range(599, 299, -1)]


async def test_latest_gives_the_newest_values_of_many_threads(saver: Half, thread: str) -> None:
    names = [f"{thread}-{at}" for at in range(4)]
    for at, name in enumerate(names):
        config = await put(saver, place(name), {"old": 1})
        await put(saver, config, {"n": at, "words": ["w" * 200] * at, "none": None})
        await put(saver, place(name), {"in": "child"}, ns="child:1")

    found = await saver.latest([*names, thread + "-unknown"])
    assert found == {name: {"n": at, "words": ["w" * 200] * at, "none": None} for at, name in enumerate(names)}
    some = await saver.latest(names[1:3], ["n", "missing"])
    assert some == {names[1]: {"n": 1}, names[2]: {"n": 2}}
    assert await saver.latest([]) == {}
    assert await saver.latest(names, []) == {name: {} for name in names}


async def test_interrupts_are_told_over_all_threads(saver: Half, thread: str) -> None:
    for at in range(3):
        old = await put(saver, place(f"{thread}-{at}"), {"n": at})
        await saver.put_writes(old, [(INTERRUPT, ["an old question"])], "old")
        config = await put(saver, old, {"n": at + 1})
        await saver.put_writes(config, [(INTERRUPT, [{"ask": at}, "twice"])], "task")
        await saver.put_writes(config, [("n", 5)], "sibling")
    quiet = await put(saver, place(f"{thread}-quiet"), {})
    await saver.put_writes(quiet, [(ERROR, "failed")], "task")

    waiting = [one async for one in saver.interrupts(prefix=thread)]

    assert [(one.thread_id, one.task_id, one.value) for one in waiting] == [
        (f"{thread}-{at}", "task", value) for at in range(3) for value in ({"ask": at}, "twice")
    ]
    assert await values_at(saver, waiting[0].config) == {"n": 1}
    assert [one async for one in saver.interrupts(prefix=thread + "-quiet")] == []


async def test_a_task_that_was_answered_and_finished_waits_no_more(saver: Half, thread: str) -> None:
    """Two tasks asked, one was answered and ran to its end; the checkpoint waits for the other."""
    config = await put(saver, place(thread), {})
    for task in ("answered", "waiting"):
        await saver.put_writes(config, [(INTERRUPT, [f"ask of {task}"])], task)
    await saver.put_writes(config, [(RESUME, ["yes"])], "answered")
    await saver.put_writes(config, [("n", 1)], "answered")
    assert [one.task_id async for one in saver.interrupts(prefix=thread)] == ["waiting"]


async def test_a_pool_tells_its_roots_and_what_it_holds(saver: Half, thread: str) -> None:
    """What collecting and all figures rely on: the links of every row, and how many checkpoints have them."""
    config = place(thread)
    for turn in range(3):
        config = await put(saver, config, {"text": ["a word " * 200], "turn": turn})
    await saver.put_writes(config, [("text", "another " * 200)], "task")

    async def look(backend: Any) -> None:
        row = await backend.thread(thread)
        rows = await backend.page(Query(thread_id=thread))
        expected = Counter(found.row.links for found in rows)
        expected.update({write.links: 0 for write in rows[0].writes})
        assert await backend.roots(row.pool) == expected
        assert 0 in expected.values()
        weights = await backend.weights([row.pool], 0.0)
        assert [(one.thread, one.rows) for one in weights.checkpoints] == [(row.serial, 3)]
        assert sorted(weights.recent) == sorted(found.row.created for found in rows)
        later = await backend.weights([row.pool], max(weights.recent) + 1.0)
        assert (later.checkpoints, later.recent) == (weights.checkpoints, [])
        assert (await backend.weights([row.pool])).recent == []
        assert await backend.roots(row.pool + 1_000_000) == {}

    await _ask(saver, look)


async def test_rows_are_rewrapped_only_where_they_are_what_was_read(saver: Half, thread: str) -> None:
    config = await put(saver, place(thread), {"turn": 0})
    await saver.put_writes(config, [("turn", 1)], "task")

    async def rewrap(backend: Any) -> None:
        thread_row = await backend.thread(thread)
        act = partial(backend.rewrap, thread_row.pool, thread=thread_row.serial)
        [found] = await backend.page(Query(thread_id=thread))
        row, [write] = found.row, found.writes
        await act(checkpoints=[(row._replace(document=b"other"), row._replace(metadata=b"late"))])
        await act(writes=[(write._replace(data=b"other"), write._replace(data=b"late"))])
        gone = row._replace(id=row.id + "0")
        await act(checkpoints=[(gone, gone)], writes=[(write._replace(idx=7), write)])
        assert await backend.page(Query(thread_id=thread)) == [found]
        new, anew = row._replace(document=row.document + b"\0"), write._replace(data=write.data + b"\0")
        await act(checkpoints=[(row, new)], writes=[(write, anew)])
        assert await backend.page(Query(thread_id=thread)) == [found._replace(row=new, writes=[anew])]
        await act(checkpoints=[(new, row)], writes=[(anew, write)])

    await _ask(saver, rewrap)
    await saver.clear_cache()
    assert await values_at(saver, place(thread)) == {"turn": 0}


async def test_rows_of_chunks_are_swapped_only_where_they_are_what_was_read(saver: Half, thread: str) -> None:
    """What the cold tier and the rotation of keys rely on: a row that changed, or is gone, stays so."""
    await put(saver, place(thread), {"text": ["a word " * 200, "another " * 200]})

    async def swap(backend: Any) -> None:
        pool = (await backend.thread(thread)).pool
        told = await backend.chunk_sizes(pool, b"", 1000)
        rows = {row[0]: ChunkRow(*row) for row in await backend.chunks(pool, [one[0] for one in told])}
        for at, one in enumerate(told):
            assert await backend.chunk_sizes(pool, one[0], 1) == told[at + 1 : at + 2]
        assert [tuple(one) for one in told] == [
            (row.digest, row.links, row.form, len(row.data)) for row in sorted(rows.values())
        ]
        one = next(iter(rows.values()))
        far = one._replace(form=one.form | 1 << 30, data=b"somewhere else")
        gone = one._replace(digest=bytes(16))
        await backend.rewrap(pool, [(one._replace(data=b"not this"), far), (gone, far._replace(digest=bytes(16)))])
        assert [ChunkRow(*row) for row in await backend.chunks(pool, [one.digest, bytes(16)])] == [one]
        for before, after in ((one, far), (one, one._replace(data=b"late")), (far, one)):
            await backend.rewrap(pool, [(before, after)])
            held = [ChunkRow(*row) for row in await backend.chunks(pool, [one.digest])]
            assert held == [far if after is not one else one]
            forms = await backend.forms()
            assert (far.form in forms) is (after is not one)

    await _ask(saver, swap)
    await saver.clear_cache()
    assert (await values_at(saver, place(thread)))["text"] == ["a word " * 200, "another " * 200]
