"""`thread.put`: a few values become a checkpoint; and one version stands for one value."""

from __future__ import annotations

from typing import Any

from ...base.checkpoint import copy_checkpoint, empty_checkpoint
from ...errors import Conflict, InvalidRequest, NotFound
from ..half import Half
from ..making import checkpoint, place, stored
from ..raising import refused

__all__: list[str] = []


async def test_a_put_of_values_builds_on_the_newest_checkpoint(saver: Half, thread: str) -> None:
    handle = saver.of(thread)
    first = await handle.put({"notes": ["milk"], "owner": "ann"})
    second = await handle.put({"notes": ["milk", "bread"]}, metadata={"by": "ben"})
    found = await stored(saver, second.config)
    assert found.checkpoint["channel_values"] == {"notes": ["milk", "bread"], "owner": "ann"}
    assert found.checkpoint["channel_versions"] == {"notes": 2, "owner": 1}
    assert found.metadata == {"source": "update", "step": 1, "by": "ben"}
    assert found.parent_config == first.config
    assert (await stored(saver, first.config)).metadata["step"] == 0
    assert await handle.state() == {"notes": ["milk", "bread"], "owner": "ann"}


async def test_a_channel_that_is_given_its_value_again_keeps_its_version(saver: Half, thread: str) -> None:
    await saver.of(thread).put({"a": {"k": [1, 2]}, "b": "x" * 5000})
    again = saver.another() if saver.store.is_shared else saver
    point = await again.of(thread).put({"a": {"k": [1, 2]}, "b": "y" * 5000, "c": None})
    found = await stored(saver, point.config)
    assert found.checkpoint["channel_versions"] == {"a": 1, "b": 2, "c": 2}
    assert [past.value for past in await saver.of(thread).versions("b")] == ["y" * 5000, "x" * 5000]
    assert len(await saver.of(thread).versions("a")) == 1


async def test_a_put_at_a_place_begins_a_branch_there(saver: Half, thread: str) -> None:
    handle = saver.of(thread)
    first = await handle.put({"a": 1}, step=10)
    await handle.put({"a": 2, "b": 2})
    branch = await handle.put({"a": 3}, at=first)
    found = await stored(saver, branch.config)
    assert found.checkpoint["channel_values"] == {"a": 3}
    assert (found.parent_config, found.metadata["step"]) == (first.config, 11)
    assert (await handle.at()).id == branch.id
    with refused(NotFound):
        await saver.of(thread + "-other").put({"a": 1}, at="head")


async def test_versions_go_on_in_the_type_that_they_have(saver: Half, thread: str) -> None:
    made = checkpoint({"a": 1}, {"a": "00000000000000000000000000000007.0.5"})
    await saver.put(place(thread), made, {"source": "loop", "step": 3}, made["channel_versions"])
    point = await saver.of(thread).put({"b": 1})
    versions = (await stored(saver, point.config)).checkpoint["channel_versions"]
    assert versions["a"] == made["channel_versions"]["a"]
    assert versions["b"] > versions["a"]


async def test_puts_at_the_same_time_lose_no_channel(saver: Half, thread: str) -> None:
    handle = saver.of(thread)
    await handle.put({"start": 0})
    names = [f"channel-{number}" for number in range(6)]
    await saver.together(*[lambda name=name: handle.put({name: name}) for name in names])
    assert await handle.state() == {"start": 0, **{name: name for name in names}}
    assert len([found async for found in saver.list(place(thread))]) == 7


async def test_a_put_of_values_goes_where_the_thread_may_go(saver: Half, thread: str) -> None:
    handle = saver.of(thread)
    await handle.put({"a": 1})
    await handle.archive()
    with refused(Conflict):
        await handle.put({"a": 2})
    await handle.restore()
    await handle.delete()
    point = await handle.put({"b": 1})
    assert (await stored(saver, point.config)).checkpoint["channel_values"] == {"b": 1}


async def test_what_cannot_be_put_is_refused(saver: Half, thread: str) -> None:
    handle = saver.of(thread)
    wrong: list[tuple[Any, dict[str, Any]]] = [
        ("text", {}),
        ({1: 2}, {}),
        ({"a": 1}, {"step": "one"}),
        ({"a": 1}, {"step": True}),
        ({"a": 1}, {"metadata": [1]}),
        ({"a": 1}, {"metadata": {"step": 1}}),
        ({"a": 1}, {"metadata": {"source": "loop"}}),
    ]
    for values, options in wrong:
        with refused(InvalidRequest):
            await handle.put(values, **options)
    assert await saver.count_threads(prefix=thread) == 0


async def test_another_value_under_the_same_version_is_refused(saver: Half, thread: str) -> None:
    """Also where the parent is read first, where the channel is said to be new, and among the puts of one batch."""
    made = checkpoint({"notes": ["milk"], "same": [1, {"a": "x" * 3000}]})
    first = await saver.put(place(thread), made, {"source": "update", "step": 0}, made["channel_versions"])
    fresh = saver.another() if saver.store.is_shared else saver
    other = checkpoint({"notes": ["milk", "bread"], "same": [1, {"a": "x" * 3000}]})
    for one in (saver, fresh):
        for new_versions in ({}, {"notes": 1}):
            with refused(InvalidRequest, saying="'notes' has another value"):
                await one.put(first, other, {"source": "update", "step": 1}, new_versions)
    then = checkpoint({"notes": ["milk", "bread"]}, {"notes": 2, "same": 1})
    after = checkpoint({"notes": []}, {"notes": 2, "same": 1})
    at = place(thread, then["id"])
    with refused(InvalidRequest, saying="'notes' has another value"):
        await saver.put_many([(first, then, {}, {"notes": 2}), (at, after, {}, {})])
    assert await saver.of(thread).state() == made["channel_values"]


async def test_equal_values_under_the_same_version_are_put(saver: Half, thread: str) -> None:
    made = checkpoint({"a": [{"n": number, "set": {"x", "y", "z"}} for number in range(300)], "b": "x" * 9000, "c": 1})
    first = await saver.put(place(thread), made, {"source": "update", "step": 0}, made["channel_versions"])
    fresh = saver.another() if saver.store.is_shared else saver
    for one in (saver, fresh):
        copied = copy_checkpoint((await stored(one, first)).checkpoint)
        copied["id"] = empty_checkpoint()["id"]
        copied["channel_values"]["c"] = 2
        copied["channel_versions"]["c"] = 2
        then = await one.put(first, copied, {"source": "update", "step": 1}, {"c": 2})
        assert (await stored(saver, then)).checkpoint["channel_values"] == {**made["channel_values"], "c": 2}
