"""Branches: forks, roll backs, merges and discards; nothing that others need is ever lost."""

from __future__ import annotations

from functools import partial
from typing import Any, NamedTuple

from ...base.checkpoint import Config
from ...errors import Conflict, InvalidRequest, MergeConflict, NotFound
from ..half import Half
from ..making import id_of, place, put, values_at
from ..raising import refused


def _message(name: str, text: str = "") -> dict[str, Any]:
    return {"id": name, "text": (text or name) * 40}


async def _talk(saver: Half, thread: str, turns: int = 3) -> list[Config]:
    configs: list[Config] = []
    for turn in range(turns):
        at = configs[-1] if configs else place(thread)
        values = {"messages": [_message(f"m{n}") for n in range(turn + 1)], "files": {"a": "1", "b": "2"}, "turn": turn}
        configs.append(await put(saver, at, values, step=turn))
    return configs


async def test_a_fork_is_a_copy_under_the_parent_of_its_target(saver: Half, thread: str) -> None:
    configs = await _talk(saver, thread)
    point = await saver.of(thread).fork("head~1")
    found = await saver.get_tuple(place(thread))
    assert found.config == point.config
    assert found.checkpoint["channel_values"] == await values_at(saver, configs[1])
    assert found.parent_config == configs[0]
    assert found.metadata["source"] == "fork"
    assert found.metadata["forked_from"] == {"thread_id": thread, "checkpoint_id": id_of(configs[1])}
    assert id_of(point.config) > id_of(configs[-1])
    assert (await saver.of(thread).rollback(0)).id > point.id
    assert (await values_at(saver, place(thread)))["turn"] == 0
    assert len(await saver.of(thread).log()) == 5


async def test_a_fork_to_a_new_thread_shares_everything(saver: Half, thread: str) -> None:
    configs = await _talk(saver, thread, 6)
    chunks = (await saver.stats()).chunks
    point = await saver.of(thread).fork("head~2", to=thread + "-new")
    assert point.config == place(thread + "-new", id_of(configs[3]))
    assert (await saver.stats()).chunks == chunks
    assert await values_at(saver, place(thread + "-new")) == await values_at(saver, configs[3])
    await saver.delete_thread(thread)
    assert (await values_at(saver, place(thread + "-new")))["turn"] == 3
    await put(saver, point.config, {"turn": 4}, step=4)
    assert (await values_at(saver, place(thread + "-new")))["turn"] == 4


async def test_a_fork_onto_a_living_thread_or_itself_changes_nothing(saver: Half, thread: str) -> None:
    await _talk(saver, thread)
    await _talk(saver, thread + "-b", 1)
    with refused(Conflict):
        await saver.of(thread).fork(to=thread + "-b")
    with refused(InvalidRequest):
        await saver.of(thread).fork(to=thread)
    with refused(NotFound):
        await saver.of(thread).fork("no such place")
    assert len(await saver.of(thread).log()) == 3
    assert len(await saver.of(thread + "-b").log()) == 1


async def _branches(saver: Half, thread: str) -> tuple[Config, Config]:
    """Two branches from one checkpoint: both add a message, one changes a file, the other another."""
    base = (await _talk(saver, thread, 2))[-1]
    values = await values_at(saver, base)
    left = {**values, "messages": [*values["messages"], _message("left")], "files": {"a": "left", "b": "2"}}
    right = {**values, "messages": [*values["messages"], _message("right")], "files": {"a": "1", "b": "right", "c": ""}}
    ours = await put(saver, base, {**left, "turn": 8}, step=2)
    theirs = await put(saver, base, {**right, "extra": "new"}, step=2)
    return ours, theirs


async def test_a_merge_takes_what_each_side_changed(saver: Half, thread: str) -> None:
    ours, theirs = await _branches(saver, thread)
    point = await saver.of(thread).merge(ours)
    found = await saver.get_tuple(place(thread))
    values = found.checkpoint["channel_values"]
    assert found.config == point.config
    assert [one["id"] for one in values["messages"]] == ["m0", "m1", "right", "left"]
    assert values["files"] == {"a": "left", "b": "right", "c": ""}
    assert (values["turn"], values["extra"]) == (8, "new")
    assert found.parent_config == theirs
    assert found.metadata["merged_from"] == [{"thread_id": thread, "checkpoint_id": id_of(ours)}]
    for config in (ours, theirs):
        below = (await saver.get_tuple(config)).checkpoint["channel_versions"]
        for name in ("messages", "files", "turn"):
            assert found.checkpoint["channel_versions"][name] > below[name] or name == "extra"


async def test_a_merge_that_cannot_decide_names_the_channels_and_changes_nothing(saver: Half, thread: str) -> None:
    ours, theirs = await _branches(saver, thread)
    await put(saver, theirs, {**await values_at(saver, theirs), "turn": 9}, step=3)
    with refused(MergeConflict, saying="turn"):
        await saver.of(thread).merge(ours)
    assert len(await saver.of(thread).log()) == 5
    for strategy, turn in (("ours", 9), ("theirs", 8), ("latest", 9), ({"turn": lambda b, o, t: [b, o, t]}, [1, 9, 8])):
        point = await saver.of(thread).merge(ours, strategy=strategy)
        assert (await values_at(saver, point.config))["turn"] == turn
        await saver.delete_checkpoint(point.config)
    with refused(InvalidRequest, saying="strategy"):
        await saver.of(thread).merge(ours, strategy="mine")


async def test_threads_of_one_history_merge_and_others_do_not(saver: Half, thread: str) -> None:
    await _talk(saver, thread)
    fork = await saver.of(thread).fork(to=thread + "-fork")
    values = await values_at(saver, fork.config)
    await put(saver, fork.config, {**values, "messages": [*values["messages"], _message("forked")]}, step=3)
    await saver.of(thread).merge(saver.saver.thread(thread + "-fork"))
    merged = await values_at(saver, place(thread))
    assert [one["id"] for one in merged["messages"]] == ["m0", "m1", "m2", "forked"]
    await _talk(saver, thread + "-stranger")
    with refused(InvalidRequest, saying="common ancestor"):
        await saver.of(thread).merge(saver.saver.thread(thread + "-stranger"))


async def test_a_branch_merged_twice_brings_only_what_is_new(saver: Half, thread: str) -> None:
    base = await put(saver, place(thread), {"lines": ["a"]})
    theirs = await put(saver, base, {"lines": ["a", "theirs"]})
    await put(saver, base, {"lines": ["a", "ours"]})
    await saver.of(thread).merge(theirs)
    more = await put(saver, theirs, {"lines": ["a", "theirs", "more"]}, id="0-later")
    merged = await saver.of(thread).merge(more, strategy={"lines": lambda b, o, t: [b, o, t]})
    [was, ours, now] = (await values_at(saver, merged.config))["lines"]
    assert (was, ours, now) == (["a", "theirs"], ["a", "ours", "theirs"], ["a", "theirs", "more"])


async def test_discarding_a_branch_leaves_the_others_whole(saver: Half, thread: str) -> None:
    ours, theirs = await _branches(saver, thread)
    kept = await values_at(saver, theirs)
    assert await saver.of(thread).discard(ours) == 1
    assert await saver.get_tuple(ours) is None
    assert await values_at(saver, theirs) == kept
    await saver.of(thread).tag("gone", theirs)
    await saver.of(thread).tag("here", "head~1")
    with refused(Conflict, saying="only branch"):
        await saver.of(thread).discard("head")
    await saver.of(thread).delete("gone")
    assert [info.tags async for info in saver.threads(prefix=thread)] == [("here",)]


async def test_an_archived_thread_takes_no_put_until_it_is_restored(saver: Half, thread: str) -> None:
    [config] = await _talk(saver, thread, 1)
    await saver.of(thread).archive()
    with refused(Conflict, saying="restore"):
        await put(saver, config, {"turn": 1})
    assert (await values_at(saver, place(thread)))["turn"] == 0
    assert [info.status async for info in saver.threads(prefix=thread, status="archived")] == ["archived"]
    await saver.of(thread).restore()
    await put(saver, config, {"turn": 1})


async def test_a_thread_can_be_created_with_words_about_it(saver: Half, thread: str) -> None:
    await saver.of(thread).create(metadata={"user": "ann", "level": 3}, ttl="30d")
    [info] = [info async for info in saver.threads(prefix=thread)]
    assert info.metadata == {"user": "ann", "level": 3}
    assert info.expires is not None
    assert info.expires > info.created + 29 * 86_400
    assert [one.thread_id async for one in saver.threads(prefix=thread, filter={"level": {"$gt": 2}})] == [thread]
    assert [one async for one in saver.threads(prefix=thread, filter={"user": "bob"})] == []
    assert await saver.get_tuple(place(thread)) is None


async def test_a_view_refuses_threads_outside(saver: Half, thread: str) -> None:
    inside = await _talk(saver, thread + "/a", 1)
    await _talk(saver, thread + "-b", 1)
    view = saver.view(saver.saver.within(thread + "/"))
    assert await values_at(view, inside[0])
    assert [info.thread_id async for info in view.threads()] == [thread + "/a"]
    assert [one.config async for one in view.list(None)] == inside
    for refuse in (
        lambda: view.get_tuple(place(thread + "-b")),
        lambda: view.delete_thread(thread + "-b"),
        lambda: put(view, place(thread + "-b"), {}),
        lambda: view.of(thread + "/a").fork(to=thread + "-c"),
    ):
        with refused(InvalidRequest, saying="sees only"):
            await refuse()


async def test_a_thread_is_suspended_while_an_interrupt_waits(saver: Half, thread: str) -> None:
    [config] = await _talk(saver, thread, 1)
    assert (await saver.of(thread).info()).status == "active"
    await saver.put_writes(config, [("__interrupt__", [_Interrupt("ask-1", "ok?")])], "task")
    assert (await saver.of(thread).info()).status == "suspended"
    assert [info.thread_id async for info in saver.threads(prefix=thread, status="suspended")] == [thread]
    with refused(NotFound, saying="ask-1"):
        await saver.of(thread).answer({"other": "yes"})
    await saver.of(thread).answer({"ask-1": "yes"})
    written = (await saver.get_tuple(config)).pending_writes
    assert ("task", "__resume__", ["yes"]) in written
    assert [one async for one in saver.interrupts(prefix=thread)] == []
    with refused(Conflict, saying="answered"):
        await saver.of(thread).answer({"ask-1": "again"})
    await put(saver, config, {"turn": 1})
    assert (await saver.of(thread).info()).status == "active"
    assert [info.thread_id async for info in saver.threads(prefix=thread, status="active")] == [thread]


async def test_of_two_answers_at_once_one_is_stored_and_the_other_refused(saver: Half, thread: str) -> None:
    for turn in range(8):
        config = await put(saver, place(f"{thread}-{turn}"), {"turn": 1})
        await saver.put_writes(config, [("__interrupt__", [_Interrupt("ask", "ok?")])], "task")
        tried = [partial(_answered, saver, f"{thread}-{turn}", value) for value in ("yes", "no")]
        taken = [value for value in await saver.together(*tried) if value is not None]
        written = (await saver.get_tuple(config)).pending_writes
        assert [value for _, channel, value in written if channel == "__resume__"] == [taken]


async def _answered(saver: Half, thread: str, value: str) -> str | None:
    try:
        await saver.of(thread).answer({"ask": value})
    except Conflict:
        return None
    return value


class _Interrupt(NamedTuple):
    """What a graph asks, in the shape that LangGraph gives it."""

    id: str
    value: Any
