"""The trash and quarantine: what was taken out of a thread goes back as it was, and is nowhere to be seen meanwhile."""

from __future__ import annotations

from typing import Any

from ...base.checkpoint import Config
from ...chunks.gather import chunk_place
from ...errors import Conflict, Corrupt, InvalidRequest, NotFound
from ...ports.checkpoints import ChunkRow
from ..half import Half
from ..making import everything, id_of, ids_of, place, put, values_at
from ..raising import refused


async def _talk(saver: Half, thread: str, turns: int = 8) -> list[Config]:
    configs: list[Config] = []
    for turn in range(turns):
        at = configs[-1] if configs else place(thread)
        values = {"turn": turn, "words": [f"word {n} of {thread} " * 20 for n in range(turn * 3)]}
        configs.append(await put(saver, at, values, step=turn))
        await saver.put_writes(configs[-1], [("turn", turn + 1), ("words", [f"{turn}" * 200])], f"task-{turn}")
    return configs


async def _all_of(saver: Half, thread: str) -> list[Any]:
    """Everything that can be read of a thread."""
    return [
        (one.config, one.parent_config, dict(one.checkpoint["channel_values"]), one.checkpoint["channel_versions"],
         one.metadata, one.pending_writes)
        for one in await everything(saver, place(thread))
    ]  # fmt: skip


async def _entries(saver: Half, thread: str) -> list[Any]:
    return [one for one in await saver.trash() if one.thread_id == thread]


async def test_a_thread_comes_back_from_the_trash_as_it_was(saver: Half, thread: str) -> None:
    configs = await _talk(saver, thread)
    inner = await put(saver, place(thread), {"inner": 1}, ns="child:1", parents={"": id_of(configs[2])})
    handle = saver.of(thread)
    await handle.create(metadata={"who": "ada"}, ttl="30d")
    await handle.tag("good", configs[3])
    await handle.pin(configs[1])
    # Writes of a checkpoint that never came are of the thread, too.
    late = {"configurable": {**place(thread)["configurable"], "checkpoint_id": id_of(configs[-1])[:-1] + "x"}}
    await saver.put_writes(late, [("turn", 99)], "early")
    before, info = await _all_of(saver, thread), await handle.info()
    await handle.delete(trash="7d")
    assert await saver.get_tuple(place(thread)) is None
    assert await saver.get_tuple(inner) is None
    with refused(NotFound):
        await handle.info()
    [entry] = await _entries(saver, thread)
    assert (entry.is_thread, entry.checkpoints, entry.writes) == (True, 9, 17)
    assert entry.until - entry.trashed == 7 * 86_400
    assert (await saver.restore_trash(entry.id)).id == entry.id
    assert await _all_of(saver, thread) == before
    again = await handle.info()
    assert (again.created, again.tags, again.metadata, again.expires, again.status, again.forked_from) == (
        info.created, info.tags, info.metadata, info.expires, info.status, info.forked_from
    )  # fmt: skip
    late_values = await put(saver, configs[-1], {"turn": 8, "words": []}, step=8)
    assert (await saver.get_tuple(late_values)).parent_config == configs[-1]
    assert await _entries(saver, thread) == []
    assert (await saver.fsck([thread])).ok


async def test_what_is_in_the_trash_is_nowhere_else(saver: Half, thread: str) -> None:
    await _talk(saver, thread, 3)
    await put(saver, place(f"{thread}-stays"), {"here": 1})
    count = await saver.count_threads(prefix=thread)
    checkpoints = (await saver.stats()).checkpoints
    await saver.of(thread).delete(trash="7d")
    assert [info.thread_id async for info in saver.threads(prefix=thread)] == [f"{thread}-stays"]
    assert thread not in [info.thread_id async for info in saver.threads()]
    assert await saver.count_threads(prefix=thread) == count - 1
    listed = [one async for one in saver.list(None)]
    assert thread not in {one.config["configurable"]["thread_id"] for one in listed}
    assert all("\U0010ffff" not in one.config["configurable"]["thread_id"] for one in listed)
    assert await saver.latest([thread]) == {}
    stats = await saver.stats()
    assert stats.checkpoints == checkpoints - 3
    assert stats.trash_entries >= 1
    assert stats.trash_checkpoints >= 3
    assert stats.trash_bytes > 0
    assert all("\U0010ffff" not in name for name, _ in stats.busiest_threads)
    await saver.collect()
    assert (await saver.fsck()).leaked_pools == ()
    await saver.restore_trash(thread)
    assert len((await values_at(saver, place(thread)))["words"]) == 6


async def test_pruned_checkpoints_come_back_to_their_thread(saver: Half, thread: str) -> None:
    configs = await _talk(saver, thread)
    await saver.put_writes(configs[-1], [("turn", 1)], "last")
    before = await _all_of(saver, thread)
    plan = await saver.of(thread).prune(keep_last=2, drop_settled_writes=True, trash="1h")
    assert ids_of(await everything(saver, place(thread))) == [key.id for key in reversed(plan.keeps)]
    await saver.collect()
    newer = await put(saver, configs[-1], {"turn": 8, "words": []}, step=8)
    [entry] = await _entries(saver, thread)
    assert not entry.is_thread
    assert entry.checkpoints == len(plan.removes)
    await saver.restore_trash(thread)
    assert [one for one in await _all_of(saver, thread) if one[0] != newer] == before
    assert (await saver.fsck([thread])).ok


async def test_a_deleted_checkpoint_comes_back_with_its_tags(saver: Half, thread: str) -> None:
    configs = await _talk(saver, thread, 4)
    await saver.of(thread).tag("here", configs[1])
    before = await _all_of(saver, thread)
    await saver.of(thread).delete(configs[1], trash=3600)
    assert await saver.get_tuple(configs[1]) is None
    await saver.restore_trash(thread)
    assert await _all_of(saver, thread) == before
    assert (await saver.of(thread).at("here")).id == id_of(configs[1])


async def test_a_thread_that_was_begun_anew_is_not_overwritten(saver: Half, thread: str) -> None:
    await _talk(saver, thread, 3)
    await saver.of(thread).delete(trash="7d")
    await put(saver, place(thread), {"anew": True})
    with refused(Conflict):
        await saver.restore_trash(thread)
    assert await values_at(saver, place(thread)) == {"anew": True}
    # The second life is deleted restorably as well: each is an entry of its own.
    await saver.of(thread).delete(trash="7d")
    entries = await _entries(saver, thread)
    assert sorted(entry.checkpoints for entry in entries) == [1, 3]
    with refused(Conflict):
        await saver.restore_trash(thread)
    await saver.restore_trash(next(entry.id for entry in entries if entry.checkpoints == 3))
    assert len(await everything(saver, place(thread))) == 3
    with refused(NotFound):
        await saver.restore_trash("nothing")


async def test_erasing_a_thread_erases_what_the_trash_has_of_it(saver: Half, thread: str) -> None:
    configs = await _talk(saver, thread, 4)
    await _talk(saver, f"{thread}-other", 2)
    await saver.of(f"{thread}-other").delete(trash="7d")
    await saver.of(thread).delete(configs[0], trash="7d")
    await saver.of(thread).delete(trash="7d")
    assert len(await _entries(saver, thread)) == 2
    await saver.delete_thread(thread)
    assert await _entries(saver, thread) == []
    assert len(await _entries(saver, f"{thread}-other")) == 1
    report = await saver.fsck()
    assert (report.leaked_pools, report.orphaned_chunks) == ((), 0)


async def test_the_trash_is_emptied_on_request_and_when_its_time_is_over(saver: Half, thread: str) -> None:
    for name in ("a", "b", "c"):
        await _talk(saver, f"{thread}-{name}", 2)
        await saver.of(f"{thread}-{name}").delete(trash=0.001 if name == "c" else "7d")
    names = [f"{thread}-{name}" for name in ("a", "b")]
    await saver.sleep(0.01)
    await saver.sweep(prefix=thread)
    assert sorted(one.thread_id for one in await saver.trash(prefix=thread)) == names
    assert await saver.empty_trash([names[0]]) == 1
    assert [one.thread_id for one in await saver.trash(prefix=thread)] == names[1:]
    assert await saver.empty_trash(prefix=thread) == 1
    assert await saver.trash(prefix=thread) == []


async def test_a_sweep_may_put_what_expired_into_the_trash(saver: Half, thread: str) -> None:
    configs = await _talk(saver, thread, 3)
    await saver.of(thread).create(ttl=0.0)
    swept = await saver.sweep(prefix=thread, trash="7d")
    assert swept.expired == (thread,)
    await saver.restore_trash(thread)
    assert ids_of(await everything(saver, place(thread))) == [id_of(config) for config in reversed(configs)]
    # A time that is over would delete it again.
    assert (await saver.sweep(prefix=thread)).expired == ()


async def test_a_view_of_some_threads_has_a_trash_of_its_own(saver: Half, thread: str) -> None:
    view = saver.view(saver.saver.within(f"{thread}/a/"))
    for name in (f"{thread}/a/1", f"{thread}/b/1"):
        await _talk(saver, name, 2)
    await view.of(f"{thread}/a/1").delete(trash="7d")
    await saver.of(f"{thread}/b/1").delete(trash="7d")
    assert [one.thread_id for one in await view.trash()] == [f"{thread}/a/1"]
    with refused(NotFound):
        await view.restore_trash(f"{thread}/b/1")
    await view.restore_trash(f"{thread}/a/1")
    assert len(await everything(saver, place(f"{thread}/a/1"))) == 2


async def _spoil(saver: Half, thread: str, item: Any) -> None:
    """Make the chunk that holds an item unreadable, as it is stored: one of its own, or a pack."""
    tools = saver.saver._tools

    async def spoil(backend: Any) -> None:
        pool = (await backend.thread(thread)).pool
        content, spoilt = tools.codec.encode(item), 0
        digests = [digest for digest, *_ in await backend.chunk_sizes(pool, b"", 10_000)]
        for found in await backend.chunks(pool, digests):
            chunk = ChunkRow(*found)
            if content in tools.envelope.unwrap(chunk.form, chunk.data, chunk_place(pool, chunk.digest)):
                await backend.rewrap(pool, [(chunk, chunk._replace(data=b"\0" * 40))])
                spoilt += 1
        assert spoilt

    if saver.is_async:
        await saver.saver._engine.arun(spoil)
    else:
        saver.saver._engine.run(spoil)
    await saver.clear_cache()


async def test_a_branch_that_was_discarded_into_the_trash_comes_back(saver: Half, thread: str) -> None:
    first = await put(saver, place(thread), {"n": 0}, step=0)
    one = await put(saver, first, {"n": 1}, step=1)
    other = await put(saver, first, {"n": 2}, step=1)
    assert await saver.of(thread).discard(id_of(one), trash="7d") == 1
    assert await saver.get_tuple(one) is None
    [entry] = await saver.trash(prefix=thread)
    assert (entry.is_thread, entry.checkpoints) == (False, 1)
    await saver.restore_trash(entry.id)
    assert await values_at(saver, one) == {"n": 1}
    assert await values_at(saver, other) == {"n": 2}
    with refused(InvalidRequest):
        await saver.of(thread).discard(id_of(one), trash="soon")


async def test_fsck_looks_into_the_trash(saver: Half, thread: str) -> None:
    item = f"{thread} will be damaged " * 30
    first = await put(saver, place(thread), {"bad": [item], "good": ["a"]}, step=0)
    await saver.put_writes(first, [("bad", [item])], "task")
    await put(saver, first, {"good": ["a", "b"]}, step=1)
    await saver.of(thread).prune(keep_last=1, trash="7d")
    [entry] = await saver.trash(prefix=thread)
    assert (await saver.fsck([thread])).ok
    await _spoil(saver, thread, item)
    report = await saver.fsck([thread])
    assert (report.ok, report.damaged, list(report.damaged_trash)) == (False, (), [entry.id])
    assert {(one.thread_id, one.checkpoint_id) for one in report.damaged_trash[entry.id]} == {(thread, id_of(first))}
    assert f"damaged in the trash, entry {entry.id}: thread {thread!r}" in str(report)
    assert await saver.empty_trash([entry.id]) == 1
    await saver.collect()
    assert (await saver.fsck([thread])).ok


async def test_what_was_set_aside_is_listed_and_goes_back(saver: Half, thread: str) -> None:
    at = await put(saver, place(thread), {"good": [f"{thread} {n} " * 30 for n in range(50)], "bad": ["fine"]}, step=0)
    item = f"{thread} will be damaged " * 30
    head = await put(saver, at, {"good": [f"{n} of {thread} " * 30 for n in range(50)], "bad": [item]}, step=1)
    good = (await values_at(saver, head))["good"]
    await _spoil(saver, thread, item)
    report = await saver.fsck([thread])
    assert [damage.checkpoint_id for damage in report.damaged] == [id_of(head)]
    assert await saver.quarantine(report.damaged, dry_run=True) == 1
    assert await saver.quarantine(report.damaged) == 1
    assert id_of((await saver.get_tuple(place(thread))).config) == id_of(at)
    assert (await saver.fsck([thread])).ok
    [aside] = await saver.quarantined(thread)
    assert (aside.checkpoint_id, aside.writes) == (id_of(head), 0)
    assert await saver.unquarantine([aside]) == 1
    assert await saver.quarantined(thread) == []
    state = await saver.of(thread).state()
    assert state["good"] == good
    with refused(Corrupt, saying="bad"):
        _ = state["bad"]


async def test_what_was_set_aside_is_not_put_into_another_life_of_its_thread(saver: Half, thread: str) -> None:
    at = await put(saver, place(thread), {"good": [f"{thread} {n} " * 30 for n in range(50)]}, step=0)
    item = f"{thread} will be damaged " * 30
    await put(saver, at, {"good": [f"{n} of {thread} " * 30 for n in range(50)], "bad": [item]}, step=1)
    await _spoil(saver, thread, item)
    await saver.quarantine((await saver.fsck([thread])).damaged)
    aside = await saver.quarantined(thread)
    await saver.of(thread).delete(trash="7d")
    with refused(Conflict):
        await saver.unquarantine(aside)
    await put(saver, place(thread), {"anew": True})
    with refused(Conflict):
        await saver.unquarantine(aside)
    await saver.delete_thread(thread)
    assert await saver.quarantined(thread) == []


async def test_what_is_in_the_trash_is_no_thread_of_any_list(saver: Half, thread: str) -> None:
    await put(saver, place(thread), {"n": 1})
    await put(saver, place(thread + "-kept"), {"n": 1})
    await saver.of(thread).delete(trash="7d")
    listed = [one.thread_id async for one in saver.threads()]
    assert thread + "-kept" in listed
    assert await saver.count_threads() == len(listed)
    assert not [name for name in listed if name.startswith("\U0010ffff")]
