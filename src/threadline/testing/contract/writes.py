"""Pending writes: what a task wrote towards the next checkpoint."""

from __future__ import annotations

from typing import Any

from ...base.checkpoint import ERROR, INTERRUPT, RESUME, SCHEDULED
from ...base.ids import new_id
from ...errors import InvalidRequest
from ..half import Half
from ..making import checkpoint, everything, id_of, place, put, stored, values_at
from ..raising import refused

_LOOP = {"source": "loop", "step": 0, "parents": {}}


async def _writes(saver: Half, config: dict[str, Any]) -> list[Any]:
    return [*((await stored(saver, config)).pending_writes or ())]


async def test_writes_come_back_with_their_checkpoint(saver: Half, thread: str) -> None:
    config = await put(saver, place(thread), {"a": 1})
    large = [{"n": at, "text": "t" * 300} for at in range(60)]
    await saver.put_writes(config, [("a", 2), ("none", None), ("large", large)], "task-1", "~path")

    assert await _writes(saver, config) == [("task-1", "a", 2), ("task-1", "none", None), ("task-1", "large", large)]
    [listed] = await everything(saver, place(thread))
    assert listed.pending_writes == await _writes(saver, config)
    assert await values_at(saver, config) == {"a": 1}


async def test_a_write_again_is_ignored_and_a_new_one_is_added(saver: Half, thread: str) -> None:
    config = await put(saver, place(thread), {})
    await saver.put_writes(config, [("a", "first"), ("b", "first")], "task")
    await saver.put_writes(config, [("a", "second"), ("b", "second"), ("c", "second")], "task")
    assert await _writes(saver, config) == [("task", "a", "first"), ("task", "b", "first"), ("task", "c", "second")]


async def test_special_writes_replace_their_predecessor(saver: Half, thread: str) -> None:
    config = await put(saver, place(thread), {})
    for word in ("first", "second"):
        for channel in (ERROR, SCHEDULED, INTERRUPT, RESUME):
            await saver.put_writes(config, [(channel, word)], "task")
    assert await _writes(saver, config) == [
        ("task", channel, "second") for channel in (RESUME, INTERRUPT, SCHEDULED, ERROR)
    ]


async def test_each_write_of_a_call_follows_its_own_rule(saver: Half, thread: str) -> None:
    config = await put(saver, place(thread), {})
    for word in ("first", "second"):
        await saver.put_writes(config, [("a", word), (INTERRUPT, word), ("b", word)], "task")
    assert sorted(await _writes(saver, config)) == [
        ("task", INTERRUPT, "second"), ("task", "a", "first"), ("task", "b", "first"),
    ]  # fmt: skip


async def test_writes_are_ordered_by_path_task_and_index_as_bytes(saver: Half, thread: str) -> None:
    config = await put(saver, place(thread), {})
    paths = ["", "A", "Z", "a", "a, b", "~__pregel_pull, 10", "~__pregel_pull, 9", "é", "\uffff", "\U00010000"]
    tasks = ["Task", "task", "task-10", "task-9", "ü"]
    for path in reversed(paths):
        for task in reversed(tasks):
            await saver.put_writes(config, [("x", path), ("w", path), (ERROR, path)], task, path)

    # A task has one path; the same task under another path is ignored where it wrote before.
    expected = [(task, channel, "\U00010000") for task in tasks for channel in ("x", "w")]
    found = await _writes(saver, config)
    assert [write for write in found if write[1] != ERROR] == expected
    assert [write for write in found if write[1] == ERROR] == [(task, ERROR, "") for task in tasks]


async def test_writes_of_different_paths_are_in_the_order_of_the_paths(saver: Half, thread: str) -> None:
    config = await put(saver, place(thread), {})
    paths = ["", "A", "Z", "a", "a, b", "~__pregel_pull, 10", "~__pregel_pull, 9", "é", "\uffff", "\U00010000"]
    for at, path in enumerate(reversed(paths)):
        await saver.put_writes(config, [(ERROR, path), ("y", path)], f"task-{at:02}", path)
    found = await _writes(saver, config)
    assert [value for _, _, value in found] == [path for path in paths for _ in range(2)]
    assert [channel for _, channel, _ in found] == [ERROR, "y"] * len(paths)


async def test_writes_may_come_before_their_checkpoint(saver: Half, thread: str) -> None:
    coming = place(thread, new_id())
    await saver.put_writes(coming, [("a", ["x" * 300] * 20)], "early", "p")
    assert await saver.get_tuple(coming) is None
    assert await saver.get_tuple(place(thread)) is None
    assert await everything(saver, place(thread)) == []

    config = await put(saver, place(thread), {"a": 1}, id=id_of(coming))
    await saver.put_writes(config, [("a", "late")], "late", "q")

    assert await _writes(saver, config) == [("early", "a", ["x" * 300] * 20), ("late", "a", "late")]


async def test_early_writes_of_a_child_leave_its_parent_alone(saver: Half, thread: str) -> None:
    parent = await put(saver, place(thread), {"a": 1})
    child = new_id()
    await saver.put_writes(place(thread, child), [("a", 2)], "task")
    assert await _writes(saver, parent) == []
    await put(saver, parent, {"a": 2}, id=child)
    assert await _writes(saver, place(thread, child)) == [("task", "a", 2)]


async def test_tasks_checkpoints_and_namespaces_keep_their_writes_apart(saver: Half, thread: str) -> None:
    first = await put(saver, place(thread), {})
    second = await put(saver, first, {})
    inner = await put(saver, place(thread), {}, id=id_of(first), ns="child:1")
    for config in (first, second, inner):
        for task in ("one", "two"):
            await saver.put_writes(config, [("a", [id_of(config), config["configurable"]["checkpoint_ns"]])], task)
    for config in (first, second, inner):
        told = [id_of(config), config["configurable"]["checkpoint_ns"]]
        assert await _writes(saver, config) == [("one", "a", told), ("two", "a", told)]


async def test_writes_stay_when_their_checkpoint_is_put_again(saver: Half, thread: str) -> None:
    config = await put(saver, place(thread), {"a": 1})
    await saver.put_writes(config, [("a", 2)], "task")
    await put(saver, place(thread), {"a": 3}, id=id_of(config))
    assert await _writes(saver, config) == [("task", "a", 2)]


async def test_writes_are_not_values(saver: Half, thread: str) -> None:
    parent = await put(saver, place(thread), {"a": 1})
    await saver.put_writes(parent, [("b", 2)], "task")
    child = await saver.put(parent, checkpoint({"a": 3}, {"a": 10**6, "b": 1}), _LOOP, {"a": 10**6, "b": 1})
    assert await values_at(saver, child) == {"a": 3}
    assert await _writes(saver, child) == []


async def test_no_writes_are_fine(saver: Half, thread: str) -> None:
    config = await put(saver, place(thread), {})
    await saver.put_writes(config, [], "task")
    assert await _writes(saver, config) == []


async def test_wrong_writes_are_refused(saver: Half, thread: str) -> None:
    config = await put(saver, place(thread), {})
    with refused(InvalidRequest):
        await saver.put_writes(place(thread), [("a", 1)], "task")
    for writes in ([("a",)], ["ab"], [(1, 2)]):
        with refused(InvalidRequest):
            await saver.put_writes(config, writes, "task")
    for task in ("", None, 1.5):
        with refused(InvalidRequest):
            await saver.put_writes(config, [("a", 1)], task)
    assert await _writes(saver, config) == []
