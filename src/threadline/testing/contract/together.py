"""Many at once: OS threads on the sync half, tasks on the async half."""

from __future__ import annotations

from functools import partial
from typing import Any

from ...base.checkpoint import Config
from ...errors import Conflict, NotSerializable
from ..half import Half
from ..making import checkpoint, everything, place, put, stored, values_at
from ..marks import two_savers

_LOOP = {"source": "loop", "step": 0, "parents": {}}


def _words(count: int) -> list[str]:
    return [f"word {at} " * 30 for at in range(count)]


async def _talk(saver: Half, thread: str, turns: int) -> Config:
    config = place(thread)
    for turn in range(turns):
        config = await put(saver, config, {"words": _words(20 + turn), "thread": thread})
        await saver.put_writes(config, [("turn", turn)], "task")
    return config


async def test_many_threads_grow_side_by_side(saver: Half, thread: str) -> None:
    names = [f"{thread}-{at}" for at in range(12)]
    heads = await saver.together(*[partial(_talk, saver, name, 4) for name in names])
    for name, head in zip(names, heads, strict=True):
        found = await everything(saver, place(name))
        assert [len(one.checkpoint["channel_values"]["words"]) for one in found] == [23, 22, 21, 20]
        assert [one.pending_writes for one in found] == [[("task", "turn", turn)] for turn in (3, 2, 1, 0)]
        assert await values_at(saver, head) == {"words": _words(23), "thread": name}


async def test_a_saver_may_be_used_by_many_from_its_first_moment(saver: Half, thread: str) -> None:
    fresh = saver.another()
    await saver.together(*[partial(_talk, fresh, f"{thread}-{at}", 1) for at in range(8)])
    assert await fresh.count_threads(prefix=thread) == 8


async def test_one_thread_takes_writes_and_branches_side_by_side(saver: Half, thread: str) -> None:
    root = await put(saver, place(thread), {"words": _words(50)})

    async def branch(at: int) -> Config:
        await saver.put_writes(root, [("words", f"from {at}")], f"task-{at:02}")
        config = await put(saver, root, {"words": [*_words(50), f"branch {at} " * 30]})
        return await put(saver, config, {"words": [*_words(50), f"branch {at} " * 30, "end"]})

    heads = await saver.together(*[partial(branch, at) for at in range(10)])

    await saver.clear_cache()
    for at, head in enumerate(heads):
        assert await values_at(saver, head) == {"words": [*_words(50), f"branch {at} " * 30, "end"]}
    writes = (await stored(saver, root)).pending_writes
    assert writes == [(f"task-{at:02}", "words", f"from {at}") for at in range(10)]
    assert len(await everything(saver, place(thread))) == 21


async def test_a_failing_put_takes_no_other_along(saver: Half, thread: str) -> None:
    doomed = await put(saver, place(thread + "-deleted"), {})
    await saver.delete_thread(thread + "-deleted")

    async def attempt(at: int) -> str:
        try:
            if at % 3 == 0:
                await put(saver, doomed, {"words": _words(5)})
            elif at % 3 == 1:
                await put(saver, place(f"{thread}-{at}"), {"words": [*_words(3), object()]})
            else:
                await put(saver, place(f"{thread}-{at}"), {"words": _words(at)})
        except (Conflict, NotSerializable) as error:
            return type(error).__name__
        return "stored"

    outcomes = await saver.together(*[partial(attempt, at) for at in range(12)])

    assert outcomes == ["Conflict", "NotSerializable", "stored"] * 4
    for at in range(2, 12, 3):
        assert await values_at(saver, place(f"{thread}-{at}")) == {"words": _words(at)}


async def test_a_reader_never_sees_half_a_put(saver: Half, thread: str) -> None:
    is_over = False

    async def write() -> None:
        nonlocal is_over
        try:
            for turn in range(15):
                puts: list[Any] = [
                    (place(f"{thread}-{half}"), checkpoint({"words": _words(10 + turn), "turn": turn}), _LOOP, {})
                    for half in "ab"
                ]
                await saver.put_many(puts)
                await saver.sleep(0)
        finally:
            is_over = True

    async def read() -> None:
        while not is_over:
            first = (await saver.latest([f"{thread}-a"])).get(f"{thread}-a", {"turn": -1})
            second = (await saver.latest([f"{thread}-b"])).get(f"{thread}-b", {"turn": -1})
            assert second["turn"] >= first["turn"]
            for values in (first, second):
                if values["turn"] >= 0:
                    assert values["words"] == _words(10 + values["turn"])
            await saver.sleep(0)

    await saver.together(write, read, read)
    assert (await saver.latest([f"{thread}-a"]))[f"{thread}-a"]["turn"] == 14


@two_savers
async def test_pruning_beside_a_writer_loses_nothing(saver: Half, thread: str) -> None:
    other, is_over = saver.another(), False

    async def write() -> Config:
        nonlocal is_over
        config = place(thread)
        for turn in range(25):
            # Grows and shrinks, so that chunks are dropped and needed again.
            config = await put(saver, config, {"words": _words(20 + turn * 7 % 40)})
        is_over = True
        return config

    async def prune() -> None:
        while not is_over:
            await other.prune([thread])
            await other.sleep(0.001)

    head, _ = await saver.together(write, prune)

    assert await values_at(other, head) == {"words": _words(20 + 24 * 7 % 40)}
    for found in await everything(saver.another(), place(thread)):
        assert found.checkpoint["channel_values"]["words"] == _words(len(found.checkpoint["channel_values"]["words"]))


async def test_forks_beside_deletions_of_their_family_stay_whole(saver: Half, thread: str) -> None:
    await _talk(saver, thread, 3)

    async def family(at: int) -> None:
        copy = f"{thread}-{at}"
        for _ in range(3):
            await saver.copy_thread(thread, copy)
            config = (await stored(saver, place(copy))).config
            await put(saver, config, {"words": [*_words(30), f"{at}"]})
            await saver.prune([copy])
            assert await values_at(saver, place(copy)) == {"words": [*_words(30), f"{at}"]}
            await saver.delete_thread(copy)

    await saver.together(*[partial(family, at) for at in range(4)])

    await saver.clear_cache()
    assert [len(one.checkpoint["channel_values"]["words"]) for one in await everything(saver, place(thread))] == [
        22,
        21,
        20,
    ]
