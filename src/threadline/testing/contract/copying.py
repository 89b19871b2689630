"""Copies of threads, and pruning: what shares state with something else is never hurt by it."""

from __future__ import annotations

from typing import Any

from ...base.checkpoint import Config
from ...errors import Conflict, InvalidRequest, NotFound
from ..half import Half
from ..making import everything, id_of, ids_of, place, put, stored, values_at
from ..marks import two_savers
from ..raising import refused


def _words(count: int) -> list[str]:
    return [f"word {at} " * 30 for at in range(count)]


async def _talk(saver: Half, thread: str, turns: int) -> list[Config]:
    """A thread whose list of words grows, with a subgraph and a write at the end."""
    configs: list[Config] = []
    for turn in range(turns):
        at = configs[-1] if configs else place(thread)
        configs.append(await put(saver, at, {"words": _words(20 + turn), "turn": turn}, step=turn))
    inner = await put(saver, place(thread), {"words": _words(3)}, ns="child:1")
    await put(saver, inner, {"words": _words(4)}, ns="child:1")
    await saver.put_writes(configs[-1], [("words", _words(70)[-1])], "task", "p")
    return configs


async def _whole(saver: Half, thread: str) -> list[tuple[Any, ...]]:
    """Everything of a thread but its name."""
    found = await everything(saver, {"configurable": {"thread_id": thread}})
    return [
        (
            one.config["configurable"]["checkpoint_ns"],
            id_of(one.config),
            one.checkpoint,
            one.metadata,
            id_of(one.parent_config) if one.parent_config else None,
            one.pending_writes,
        )
        for one in found
    ]


async def test_a_copy_has_everything_of_its_source(saver: Half, thread: str) -> None:
    await _talk(saver, thread, 3)
    target = thread + "-copy"
    chunks = (await saver.stats()).chunks

    await saver.copy_thread(thread, target)

    assert await _whole(saver, target) == await _whole(saver, thread)
    assert len(await _whole(saver, target)) == 5
    for one in await everything(saver, place(target)):
        assert one.config["configurable"]["thread_id"] == target
        if one.parent_config:
            assert one.parent_config["configurable"]["thread_id"] == target
    assert (await saver.stats()).chunks == chunks
    [info] = [info async for info in saver.threads(prefix=target)]
    assert info.forked_from == thread


async def test_a_copy_and_its_source_go_their_own_ways(saver: Half, thread: str) -> None:
    target = thread + "-copy"
    [*_, last] = await _talk(saver, thread, 2)
    await saver.copy_thread(thread, target)
    here = await put(saver, last, {"words": _words(30)})
    there = await put(saver, place(target, id_of(last)), {"words": [*_words(21), "other"]})
    await saver.put_writes(there, [("a", 1)], "task")
    await saver.put_writes(last, [("late", 1)], "late")

    assert await values_at(saver, place(thread)) == {"words": _words(30)}
    assert await values_at(saver, place(target)) == {"words": [*_words(21), "other"]}
    assert await saver.get_tuple(place(target, id_of(here))) is None
    assert await saver.get_tuple(place(thread, id_of(there))) is None
    assert len((await stored(saver, last)).pending_writes) == 2
    assert len((await stored(saver, place(target, id_of(last)))).pending_writes) == 1


async def test_a_copy_outlives_its_source_and_a_source_its_copy(saver: Half, thread: str) -> None:
    await _talk(saver, thread, 3)
    copies = [f"{thread}-{at}" for at in range(3)]
    for copy in copies:
        await saver.copy_thread(thread, copy)
    whole = await _whole(saver, thread)

    await saver.delete_thread(copies[0])
    await saver.clear_cache()
    assert await _whole(saver, thread) == await _whole(saver, copies[1]) == whole
    await saver.delete_thread(thread)
    await saver.clear_cache()
    assert await _whole(saver, copies[1]) == whole
    await saver.prune([copies[1]])
    await saver.clear_cache()
    assert await _whole(saver, copies[2]) == whole

    grown = await put(saver, place(copies[2], whole[0][1]), {"words": _words(50)}, ns="child:1")
    assert await values_at(saver, grown) == {"words": _words(50)}


async def test_the_last_of_a_family_takes_all_chunks_along(saver: Half, thread: str) -> None:
    before = (await saver.stats()).chunks
    await _talk(saver, thread, 2)
    await saver.copy_thread(thread, thread + "-copy")
    await saver.delete_thread(thread)
    assert (await saver.stats()).chunks > before
    await saver.delete_thread(thread + "-copy")
    assert (await saver.stats()).chunks == before


async def test_a_copy_of_a_copy_is_a_thread_like_any_other(saver: Half, thread: str) -> None:
    await _talk(saver, thread, 2)
    await saver.copy_thread(thread, thread + "-1")
    await saver.copy_thread(thread + "-1", thread + "-2")
    await saver.delete_thread(thread + "-1")
    assert await _whole(saver, thread + "-2") == await _whole(saver, thread)


async def test_only_what_exists_is_copied_to_where_nothing_is(saver: Half, thread: str) -> None:
    target = thread + "-copy"
    with refused(NotFound):
        await saver.copy_thread(thread, target)
    [last] = await _talk(saver, thread, 1)
    existing = await put(saver, place(target), {"mine": 1})
    with refused(Conflict):
        await saver.copy_thread(thread, target)
    assert await _whole(saver, target) != await _whole(saver, thread)
    assert await values_at(saver, existing) == {"mine": 1}
    with refused(InvalidRequest):
        await saver.copy_thread(thread, thread)
    await saver.delete_thread(target)
    await saver.copy_thread(thread, target)
    assert await _whole(saver, target) == await _whole(saver, thread)
    # A run that began before the copy goes on in it.
    assert await values_at(saver, await put(saver, place(target, id_of(last)), {"n": 1})) == {"n": 1}
    await saver.delete_thread(thread)
    with refused(NotFound):
        await saver.copy_thread(thread, thread + "-late")


async def test_pruning_keeps_the_newest_of_each_namespace(saver: Half, thread: str) -> None:
    configs = await _talk(saver, thread, 5)
    await _talk(saver, thread + "-other", 3)
    chunks = (await saver.stats()).chunks

    await saver.prune([thread, thread + "-unknown"])

    [inner, last] = await everything(saver, {"configurable": {"thread_id": thread}})
    assert inner.checkpoint["channel_values"] == {"words": _words(4)}
    assert last.config == configs[-1]
    assert last.parent_config == configs[-2]
    assert last.checkpoint["channel_values"] == {"words": _words(24), "turn": 4}
    assert last.pending_writes == [("task", "words", _words(70)[-1])]
    assert await saver.get_tuple(configs[0]) is None
    assert len(await everything(saver, place(thread + "-other"))) == 3
    assert (await saver.stats()).chunks <= chunks


async def test_pruning_collects_what_only_the_pruned_had(saver: Half, thread: str) -> None:
    old = await put(saver, place(thread), {"words": _words(200)})
    await saver.put_writes(old, [("words", ["w" * 500] * 50)], "task")
    await put(saver, old, {"words": ["short"]})
    before = await saver.stats()
    await saver.prune([thread], strategy="keep_latest")
    after = await saver.stats()
    assert before.chunks - after.chunks >= 20
    assert (after.checkpoints, after.writes) == (before.checkpoints - 1, before.writes - 1)


async def test_pruning_again_changes_nothing(saver: Half, thread: str) -> None:
    await _talk(saver, thread, 3)
    await saver.prune([thread])
    whole, figures = await _whole(saver, thread), await saver.stats()
    await saver.prune([thread])
    assert await _whole(saver, thread) == whole
    assert (await saver.stats()).chunks == figures.chunks


async def test_a_pruned_thread_goes_on(saver: Half, thread: str) -> None:
    """Chunks that this saver knew to be stored may be gone."""
    [*_, last] = await _talk(saver, thread, 3)
    for turn in range(4):
        last = await put(saver, last, {"words": _words(40 - turn * 5), "turn": turn})
        await saver.prune([thread])
        last = await put(saver, last, {"words": [*_words(40 - turn * 5), "more"], "turn": turn})
        await saver.clear_cache()
        assert await values_at(saver, last) == {"words": [*_words(40 - turn * 5), "more"], "turn": turn}
    back = await put(saver, last, {"words": _words(40)})
    await saver.clear_cache()
    assert await values_at(saver, back) == {"words": _words(40)}


async def test_pruning_with_delete_deletes_the_threads(saver: Half, thread: str) -> None:
    names = [f"{thread}-{at}" for at in range(3)]
    for name in names:
        await _talk(saver, name, 2)
    await saver.prune(names[:2], strategy="delete")
    assert [info.thread_id async for info in saver.threads(prefix=thread)] == names[2:]
    assert await saver.get_tuple(place(names[0])) is None
    await put(saver, place(names[0]), {"new": 1})
    assert await values_at(saver, place(names[0])) == {"new": 1}


async def test_an_unknown_strategy_deletes_nothing(saver: Half, thread: str) -> None:
    await _talk(saver, thread, 2)
    with refused(InvalidRequest):
        await saver.prune([thread], strategy="keep_some")
    assert len(await everything(saver, place(thread))) == 2
    await saver.prune([])


@two_savers
async def test_another_saver_learns_of_a_prune(saver: Half, thread: str) -> None:
    [*_, last] = await _talk(saver, thread, 3)
    dropped = await put(saver, last, {"words": ["x" * 200] * 3 + _words(100)})
    last = await put(saver, dropped, {"words": _words(2)})
    other = saver.another()
    await other.prune([thread])
    assert ids_of(await everything(other, place(thread))) == [id_of(last)]

    # The first saver remembers chunks of `dropped` as stored.
    back = await put(saver, last, {"words": ["x" * 200] * 3 + _words(100)})
    fresh = saver.another()
    assert await values_at(fresh, back) == {"words": ["x" * 200] * 3 + _words(100)}


@two_savers
async def test_a_value_of_a_pruned_parent_is_kept_or_refused_but_never_lost(saver: Half, thread: str) -> None:
    parent = await put(saver, place(thread), {"words": _words(60), "n": 0})
    versions = (await stored(saver, parent)).checkpoint["channel_versions"]
    newest = await put(saver, parent, {"n": 1})
    await saver.another().prune([thread])

    made = (await stored(saver, newest)).checkpoint
    child = {**made, "id": made["id"] + "z", "channel_values": {"words": _words(60), "n": 2}}
    child["channel_versions"] = {"words": versions["words"], "n": 10**9}
    metadata = {"source": "loop", "step": 1, "parents": {}}
    try:
        config = await saver.put(parent, child, metadata, {"n": 10**9})
    except Conflict:
        config = await saver.put(parent, child, metadata, {"n": 10**9})
    assert await values_at(saver.another(), config) == {"words": _words(60), "n": 2}
