"""Deleting threads, runs and single checkpoints: what goes is gone, what stays is whole."""

from __future__ import annotations

from collections.abc import Callable, Coroutine, Sequence
from functools import partial
from typing import Any

from ...base.checkpoint import Config
from ...base.ids import new_id
from ...errors import Conflict, InvalidRequest, NotFound
from ...ports.checkpoints import Backend, CheckpointKey, Found, Guard, Query
from ..half import Half
from ..making import checkpoint, everything, id_of, ids_of, place, put, stored, values_at
from ..marks import two_savers
from ..raising import refused

_LOOP = {"source": "loop", "step": 0, "parents": {}}


def _words(count: int) -> list[str]:
    return [f"word {at} " * 30 for at in range(count)]


async def _talk(saver: Half, thread: str, turns: int, **metadata: Any) -> list[Config]:
    """A thread whose list of words grows, with a write at every checkpoint."""
    configs: list[Config] = []
    for turn in range(turns):
        at = configs[-1] if configs else place(thread)
        configs.append(await put(saver, at, {"words": _words(20 + turn), "turn": turn}, step=turn, **metadata))
        await saver.put_writes(configs[-1], [("words", _words(turn + 1)[-1])], "task")
    return configs


async def test_a_deleted_thread_is_gone_with_everything(saver: Half, thread: str) -> None:
    before = await saver.stats()
    configs = await _talk(saver, thread, 3)
    await put(saver, configs[-1], {"in": "child"}, ns="child:1")

    await saver.delete_thread(thread)

    assert await saver.get_tuple(place(thread)) is None
    assert await saver.get_tuple(configs[0]) is None
    assert await saver.get_tuple(place(thread, None, "child:1")) is None
    assert await everything(saver, {"configurable": {"thread_id": thread}}) == []
    assert [info async for info in saver.threads(prefix=thread)] == []
    after = await saver.stats()
    assert (after.threads, after.checkpoints, after.writes, after.chunks) == (
        before.threads, before.checkpoints, before.writes, before.chunks,
    )  # fmt: skip


async def test_deleting_leaves_other_threads_alone(saver: Half, thread: str) -> None:
    kept = await _talk(saver, thread + "-kept", 2)
    await _talk(saver, thread, 2)
    await saver.delete_thread(thread)
    assert await values_at(saver, kept[-1]) == {"words": _words(21), "turn": 1}
    assert len(await everything(saver, place(thread + "-kept"))) == 2


async def test_deleting_what_is_not_there_does_nothing(saver: Half, thread: str) -> None:
    await saver.delete_thread(thread)
    await put(saver, place(thread), {})
    await saver.delete_thread(thread)
    await saver.delete_thread(thread)
    assert await saver.get_tuple(place(thread)) is None


async def test_an_id_can_be_used_again_at_once(saver: Half, thread: str) -> None:
    for chat in range(3):
        old = await _talk(saver, thread, 2 + chat)
        [newest, *_] = await everything(saver, place(thread))
        assert newest.checkpoint["channel_values"] == {"words": _words(21 + chat), "turn": 1 + chat}
        assert len(await everything(saver, place(thread))) == 2 + chat
        assert newest.pending_writes == [("task", "words", _words(2 + chat)[-1])]
        await saver.delete_thread(thread)
        assert await saver.get_tuple(old[-1]) is None


async def test_a_new_start_may_have_ids_from_before_the_deletion(saver: Half, thread: str) -> None:
    """The clock of the machine that starts anew may be behind."""
    early = [new_id() for _ in range(3)]
    await _talk(saver, thread, 2)
    await saver.delete_thread(thread)
    config = place(thread)
    for at, one in enumerate(early):
        config = await put(saver, config, {"words": _words(at)}, id=one)
        await saver.put_writes(config, [("a", at)], "task")
    assert ids_of(await everything(saver, place(thread))) == early[::-1]
    assert (await stored(saver, config)).pending_writes == [("task", "a", 2)]


async def test_a_run_that_was_going_on_is_refused_after_the_deletion(saver: Half, thread: str) -> None:
    [*_, last] = await _talk(saver, thread, 2)
    await saver.delete_thread(thread)
    with refused(Conflict):
        await put(saver, last, {"words": _words(5)})
    with refused(Conflict):
        await saver.put_writes(last, [("a", 1)], "task")
    assert await saver.get_tuple(place(thread)) is None

    restarted = await put(saver, place(thread), {"words": ["new"]})
    with refused(Conflict):
        await put(saver, last, {"words": _words(5)})
    with refused(Conflict):
        await saver.put_writes(last, [("a", 1)], "task")
    assert ids_of(await everything(saver, place(thread))) == [id_of(restarted)]
    assert (await stored(saver, restarted)).pending_writes == []


async def test_writes_from_before_a_deletion_are_refused_where_nothing_else_was(saver: Half, thread: str) -> None:
    """The saver knows the thread as it is now, and no put of the old run has been refused yet."""
    [*_, last] = await _talk(saver, thread, 2)
    await saver.delete_thread(thread)
    restarted = await put(saver, place(thread), {"words": ["new"]})
    with refused(Conflict):
        await saver.put_writes(last, [("a", 1)], "task")
    assert await saver.get_tuple(last) is None
    await saver.put_writes(restarted, [("a", 2)], "task")
    assert (await stored(saver, restarted)).pending_writes == [("task", "a", 2)]


async def test_nothing_of_a_run_that_was_refused_brings_a_deleted_thread_back(saver: Half, thread: str) -> None:
    [*_, last] = await _talk(saver, thread, 2)
    await saver.delete_thread(thread)
    coming = new_id()
    with refused(Conflict):
        await put(saver, last, {"words": _words(3)}, id=coming)
    with refused(Conflict):
        await saver.put_writes(place(thread, coming), [("words", _words(1))], "task")
    with refused(Conflict):
        await put(saver, place(thread, coming), {"words": _words(4)})
    with refused(Conflict):
        await put(saver, place(thread), {"in": "child"}, ns="child:1", parents={"": coming})
    with refused(Conflict):
        await put(saver, place(thread), {"in": "child"}, ns="child:1", parents={"": id_of(last)})
    assert [info async for info in saver.threads(prefix=thread)] == []

    # Nor does it get into the thread that somebody begins under the same id.
    anew = await put(saver, place(thread), {"new": 1})
    with refused(Conflict):
        await saver.put_writes(place(thread, coming), [("words", _words(1))], "task")
    with refused(Conflict):
        await put(saver, place(thread), {"in": "child"}, ns="child:1", parents={"": id_of(last)})
    assert ids_of(await everything(saver, {"configurable": {"thread_id": thread}})) == [id_of(anew)]


async def test_writes_may_begin_a_deleted_thread_anew(saver: Half, thread: str) -> None:
    """Under async durability the first writes of a run may come before its first checkpoint."""
    await _talk(saver, thread, 1)
    await saver.delete_thread(thread)
    coming = new_id()
    await saver.put_writes(place(thread, coming), [("a", 1)], "task")
    config = await put(saver, place(thread), {"b": 2}, id=coming)
    assert (await stored(saver, config)).pending_writes == [("task", "a", 1)]


@two_savers
async def test_another_saver_learns_of_a_deletion(saver: Half, thread: str) -> None:
    other = saver.another()
    [*_, last] = await _talk(saver, thread, 3)
    assert await values_at(other, last) == {"words": _words(22), "turn": 2}
    await other.delete_thread(thread)

    assert await saver.get_tuple(last) is None
    with refused(Conflict):
        await put(saver, last, {"words": _words(23)})
    # What the first saver remembers as stored went with the thread.
    anew = await put(saver, place(thread), {"words": _words(22), "turn": 2})
    await saver.clear_cache()
    assert await values_at(saver, anew) == await values_at(other, anew) == {"words": _words(22), "turn": 2}


async def test_the_checkpoints_of_runs_are_deleted_in_every_thread(saver: Half, thread: str) -> None:
    run, kept = f"{thread}-run", f"{thread}-kept"
    names = [f"{thread}-{at}" for at in range(3)]
    for name in names:
        first = await put(saver, place(name), {"words": _words(20)}, run_id=kept)
        doomed = await put(saver, first, {"words": _words(21)}, run_id=run)
        await saver.put_writes(doomed, [("a", 1)], "task")
        await put(saver, place(name), {"words": _words(3)}, run_id=run, ns="child:1")
        await put(saver, doomed, {"words": _words(22)}, run_id=f"{thread}-third")

    await saver.delete_for_runs([run, f"{thread}-unknown"])

    for name in names:
        found = await everything(saver, {"configurable": {"thread_id": name}})
        assert [one.metadata["run_id"] for one in found] == [f"{thread}-third", kept]
        assert [len(one.checkpoint["channel_values"]["words"]) for one in found] == [22, 20]
        assert await values_at(saver, found[0].config) == {"words": _words(22)}


async def test_deleting_no_runs_deletes_nothing(saver: Half, thread: str) -> None:
    config = await put(saver, place(thread), {"a": 1})
    await saver.delete_for_runs([])
    await saver.delete_for_runs([f"{thread}-unknown"])
    assert await values_at(saver, config) == {"a": 1}


async def test_deleting_one_checkpoint_leaves_all_others_whole(saver: Half, thread: str) -> None:
    configs = await _talk(saver, thread, 6)
    for doomed in (3, 0, 5):
        await saver.delete_checkpoint(configs[doomed])
        await saver.clear_cache()
    assert ids_of(await everything(saver, place(thread))) == [id_of(configs[at]) for at in (4, 2, 1)]
    for at in (1, 2, 4):
        found = await stored(saver, configs[at])
        assert found.checkpoint["channel_values"] == {"words": _words(20 + at), "turn": at}
        assert found.parent_config == configs[at - 1]
    assert id_of((await stored(saver, place(thread))).config) == id_of(configs[4])
    assert (await stored(saver, configs[4])).pending_writes == [("task", "words", _words(5)[-1])]


async def test_a_value_handed_down_outlives_the_checkpoint_it_came_from(saver: Half, thread: str) -> None:
    parent = await saver.put(place(thread), checkpoint({"a": _words(40)}), _LOOP, {"a": 1})
    child = await saver.put(parent, checkpoint({"b": 1}, {"a": 1, "b": 1}), _LOOP, {"b": 1})
    await saver.delete_checkpoint(parent)
    await saver.clear_cache()
    assert await values_at(saver, child) == {"a": _words(40), "b": 1}
    grandchild = await saver.put(child, checkpoint({"b": 2}, {"a": 1, "b": 2}), _LOOP, {"b": 2})
    assert await values_at(saver, grandchild) == {"a": _words(40), "b": 2}


async def test_deleting_an_unknown_checkpoint_is_not_found(saver: Half, thread: str) -> None:
    with refused(NotFound):
        await saver.delete_checkpoint(place(thread, new_id()))
    config = await put(saver, place(thread), {})
    with refused(NotFound):
        await saver.delete_checkpoint(place(thread, new_id()))
    with refused(NotFound):
        await saver.delete_checkpoint(place(thread, id_of(config), "child:1"))
    with refused(InvalidRequest):
        await saver.delete_checkpoint(place(thread))
    assert await saver.get_tuple(config) is not None


async def test_what_was_deleted_can_be_put_again(saver: Half, thread: str) -> None:
    """What is remembered as stored must not be left out once it was collected."""
    first, second = await _talk(saver, thread, 2)
    await saver.delete_checkpoint(second)
    again = await put(saver, first, {"words": _words(21), "turn": 1}, id=id_of(second))
    await saver.clear_cache()
    found = await stored(saver, again)
    assert found.checkpoint["channel_values"] == {"words": _words(21), "turn": 1}
    assert found.pending_writes == []


async def test_what_somebody_went_on_from_since_it_was_looked_at_is_not_deleted(saver: Half, thread: str) -> None:
    engine = saver.saver._engine

    async def removed(
        keys: Sequence[CheckpointKey], settled: Sequence[CheckpointKey] = (), *, seen: list[CheckpointKey]
    ) -> int | None:
        def act(backend: Backend) -> Coroutine[Any, Any, int | None]:
            return backend.remove_checkpoints(thread, keys, settled, Guard(seen))

        return await engine.arun(act) if saver.is_async else engine.run(act)

    for namespace in ("", "odd\0|name:1", "odd\0|name:10"):
        early, first_id = new_id(), new_id()
        first = await put(saver, place(thread, namespace=namespace), {"turn": 0}, id=first_id)
        late_id = new_id()
        newest = await put(saver, first, {"turn": 1})
        keys = [CheckpointKey(namespace, first_id)]
        seen = [*keys, CheckpointKey(namespace, id_of(newest))]
        # Ids are made before their puts arrive, and by clocks that differ: one that comes late may lie anywhere.
        for number, checkpoint_id in enumerate((new_id(), late_id, early)):
            late = await put(saver, first, {"turn": 2 + number}, id=checkpoint_id)
            assert await removed(keys, seen=seen) is None
            assert await removed((), keys, seen=seen) is None
            assert await removed(keys, seen=[]) is None
            assert await saver.get_tuple(first) is not None
            seen.append(CheckpointKey(namespace, id_of(late)))
        assert await removed([CheckpointKey(namespace, id_of(newest))], seen=seen[:2]) == 1
        assert await removed(keys, seen=seen) == 1
        assert await saver.get_tuple(first) is None
        assert await saver.get_tuple(late) is not None


async def test_a_walk_gives_every_checkpoint_of_a_thread_once(saver: Half, thread: str) -> None:
    expected: list[CheckpointKey] = []
    for namespace in ("", "odd\0|name:1", "odd\0|name:10", "z"):
        at = place(thread, namespace=namespace)
        for turn in range(4):
            at = await put(saver, at, {"turn": turn})
            await saver.put_writes(at, [("turn", turn)], "task")
            expected.append(CheckpointKey(namespace, id_of(at)))
    await put(saver, place(f"{thread}-other"), {"turn": 9})
    for limit in (1, 3, 16, 100):
        found: list[Found] = []
        after: CheckpointKey | None = None
        while page := await _asked(saver, partial(_walked, thread, after, limit)):
            assert len(page) <= limit
            found += page
            after = CheckpointKey(page[-1].row.namespace, page[-1].row.id)
        assert sorted(CheckpointKey(one.row.namespace, one.row.id) for one in found) == sorted(expected)
        assert [write.channel for one in found for write in one.writes] == ["turn"] * 16


async def test_the_children_of_checkpoints_are_known(saver: Half, thread: str) -> None:
    first = await put(saver, place(thread), {"turn": 0})
    below = await put(saver, place(thread, id_of(first), "child:1"), {"turn": 0})
    children = [id_of(await put(saver, first, {"turn": turn})) for turn in range(3)]
    last = await put(saver, place(thread, children[0]), {"turn": 9})
    # Put again under another parent, it is the other's child alone.
    await put(saver, place(thread, children[1]), {"turn": 8}, id=children[2])

    async def of(*keys: CheckpointKey) -> set[str]:
        found: list[Found] = await _asked(saver, lambda backend: backend.children(thread, keys))
        return {one.row.id for one in found}

    assert await of(CheckpointKey("", id_of(first))) == set(children[:2])
    assert await of(CheckpointKey("child:1", id_of(first))) == {id_of(below)}
    assert await of(*(CheckpointKey("", one) for one in children)) == {id_of(last), children[2]}
    assert await of() == await of(CheckpointKey("", new_id())) == set()
    await saver.delete_checkpoint(last)
    assert await of(CheckpointKey("", children[0])) == set()


def _walked(thread: str, after: CheckpointKey | None, limit: int, backend: Backend) -> Coroutine[Any, Any, list[Found]]:
    cursor = (after.id, thread, after.namespace) if after is not None else None
    return backend.page(Query(thread_id=thread, as_they_lie=True, after=cursor, limit=limit))


async def _asked(saver: Half, act: Callable[[Backend], Coroutine[Any, Any, Any]]) -> Any:
    """What a backend answers, in the half that is tested."""
    engine = saver.saver._engine
    return await engine.arun(act) if saver.is_async else engine.run(act)
