"""Several checkpoints in one transaction."""

from __future__ import annotations

from typing import Any

from ...base.checkpoint import Config
from ...errors import Conflict, InvalidRequest, NotSerializable
from ..half import Half
from ..making import checkpoint, everything, id_of, ids_of, place, put, stored, values_at
from ..marks import two_savers
from ..raising import refused

_LOOP = {"source": "loop", "step": 0, "parents": {}}
_LONG = [f"word {at} " * 30 for at in range(60)]

Put = tuple[Config, dict[str, Any], dict[str, Any], dict[str, Any]]


def _chain(at: Config, count: int) -> list[Put]:
    """Puts of which each is the parent of the next; `long` is in the first alone, and handed down."""
    thread, above = at["configurable"]["thread_id"], at
    puts: list[Put] = []
    for step in range(count):
        versions = {"n": step + 1, "long": 1}
        new = versions if step == 0 else {"n": step + 1}
        made = checkpoint({"n": step, **({"long": _LONG} if step == 0 else {})}, versions)
        puts.append((above, made, {**_LOOP, "step": step}, new))
        above = place(thread, made["id"])
    return puts


async def test_many_puts_return_their_configs_in_order(saver: Half, thread: str) -> None:
    puts = [(place(f"{thread}-{at % 3}"), checkpoint({"n": at}), _LOOP, {"n": 1}) for at in range(9)]
    configs = await saver.put_many(puts)
    assert configs == [place(f"{thread}-{at % 3}", puts[at][1]["id"]) for at in range(9)]
    for at, config in enumerate(configs):
        assert await values_at(saver, config) == {"n": at}


async def test_no_puts_are_fine(saver: Half, thread: str) -> None:
    assert await saver.put_many([]) == []
    assert await saver.get_tuple(place(thread)) is None


async def test_parents_may_stand_in_the_same_batch(saver: Half, thread: str) -> None:
    configs = await saver.put_many(_chain(place(thread), 5))
    await saver.clear_cache()
    for step, config in enumerate(configs):
        found = await stored(saver, config)
        assert found.checkpoint["channel_values"] == {"n": step, "long": _LONG}
        assert found.parent_config == (configs[step - 1] if step else None)


async def test_values_are_handed_down_through_a_batch_from_a_stored_parent(saver: Half, thread: str) -> None:
    [(at, made, metadata, new), *rest] = _chain(place(thread), 4)
    await saver.put(at, made, metadata, new)
    await saver.clear_cache()
    for config in await saver.put_many(rest):
        assert (await values_at(saver, config))["long"] == _LONG


async def test_a_parent_may_come_after_its_child_in_a_batch(saver: Half, thread: str) -> None:
    parent, child = checkpoint({"long": _LONG}), checkpoint({"long": _LONG, "n": 1}, {"long": 1, "n": 1})
    configs = await saver.put_many(
        [(place(thread, parent["id"]), child, _LOOP, {"n": 1}), (place(thread), parent, _LOOP, {"long": 1})]
    )
    assert await values_at(saver, configs[0]) == {"long": _LONG, "n": 1}
    assert await values_at(saver, configs[1]) == {"long": _LONG}


async def test_the_last_put_of_an_id_in_a_batch_counts(saver: Half, thread: str) -> None:
    first = checkpoint({"n": 1})
    second = {**first, "channel_values": {"n": 2}}
    configs = await saver.put_many([(place(thread), first, _LOOP, {"n": 1}), (place(thread), second, _LOOP, {"n": 1})])
    assert configs == [place(thread, first["id"])] * 2
    [found] = await everything(saver, place(thread))
    assert found.checkpoint["channel_values"] == {"n": 2}


async def test_a_batch_is_stored_whole_or_not_at_all(saver: Half, thread: str) -> None:
    deleted = await put(saver, place(thread + "-deleted"), {"n": 0})
    await saver.delete_thread(thread + "-deleted")
    chunks = (await saver.stats()).chunks
    good = (place(thread), checkpoint({"long": _LONG}), _LOOP, {"long": 1})
    refusable = (deleted, checkpoint({"n": 1}), _LOOP, {"n": 1})
    for puts in ([good, refusable], [refusable, good]):
        with refused(Conflict):
            await saver.put_many(puts)
        assert await saver.get_tuple(place(thread)) is None
        assert await saver.get_tuple(place(thread + "-deleted")) is None
    assert (await saver.stats()).chunks == chunks
    assert await saver.count_threads(prefix=thread) == 0

    with refused(NotSerializable):
        await saver.put_many([good, (place(thread), checkpoint({"bad": object()}), _LOOP, {"bad": 1})])
    assert await saver.get_tuple(place(thread)) is None

    config = await saver.put(*good)
    await saver.clear_cache()
    assert await values_at(saver, config) == {"long": _LONG}


async def test_a_batch_replaces_what_was_there(saver: Half, thread: str) -> None:
    configs = await saver.put_many(_chain(place(thread), 3))
    parents = [place(thread), *configs]
    again = [
        (parents[at], checkpoint({"n": -at}, {"n": at + 9}, id=id_of(config)), _LOOP, {"n": at + 9})
        for at, config in enumerate(configs)
    ]
    assert await saver.put_many(again) == configs
    found = await everything(saver, place(thread))
    assert ids_of(found) == [id_of(config) for config in reversed(configs)]
    assert [one.checkpoint["channel_values"] for one in found] == [{"n": -2}, {"n": -1}, {"n": 0}]


@two_savers
async def test_a_batch_survives_a_prune_by_another_saver(saver: Half, thread: str) -> None:
    """What the batch left out as stored is gone, so that it must be sent after all."""
    [(at, made, metadata, new), *rest] = _chain(place(thread), 4)
    root = await saver.put(at, made, metadata, new)
    await put(saver, root, {"long": [*_LONG, "x" * 500]}, id="0")
    other = saver.another()
    await other.delete_checkpoint(place(thread, "0"))

    configs = await saver.put_many(rest)

    for step, config in enumerate(configs, start=1):
        assert await values_at(other, config) == {"n": step, "long": _LONG}


async def test_a_batch_keeps_checkpoints_and_writes_in_one_piece(saver: Half, thread: str) -> None:
    first, second = checkpoint({"a": 1}, {"a": 1}), checkpoint({"a": 2}, {"a": 2})
    start, after = place(thread), place(thread, first["id"])
    await saver.put_batch(
        [
            ("put", start, first, {**_LOOP, "step": 1}, first["channel_versions"]),
            ("put_writes", after, [("a", 2)], "task", "path"),
            ("put", after, second, {**_LOOP, "step": 2}, second["channel_versions"]),
        ]
    )
    found = await saver.get_tuple(after)
    assert found.pending_writes == [("task", "a", 2)]
    newest = await saver.get_tuple(start)
    assert (newest.checkpoint["id"], newest.parent_config) == (second["id"], found.config)
    with refused(InvalidRequest):
        await saver.put_batch([("put", after, checkpoint({}), {}, {}), ("other", after)])
    for hostile in (None, 7, "put", [None], [7], [()], [("put",)], [("put_writes", after)]):
        with refused(InvalidRequest):
            await saver.put_batch(hostile)
    assert (await saver.get_tuple(start)).checkpoint["id"] == second["id"]


async def test_steps_that_share_a_batch_are_what_they_would_be_alone(saver: Half, thread: str) -> None:
    """A growing list, whose runs close within and between batches, beside a value that is handed down."""
    words = [f"word {at} " * 40 for at in range(60)]
    items: list[Any] = []
    above, every = place(thread), []
    for step, word in enumerate(words):
        versions = {"list": step + 1, "long": 1}
        values = {"list": words[: step + 1], **({"long": _LONG} if step == 0 else {})}
        made = checkpoint(values, versions)
        if step:
            items.append(("put_writes", above, [("list", [word]), ("other", step)], f"task-{step}", ""))
        items.append(("put", above, made, {**_LOOP, "step": step}, versions if step == 0 else {"list": step + 1}))
        above = place(thread, made["id"])
        every.append(above)
        if step % 7 in (0, 3, 6):
            await saver.put_batch(items)
            items = []
    if items:
        await saver.put_batch(items)
    await saver.clear_cache()
    for step, config in enumerate(every):
        found = await stored(saver, config)
        assert found.checkpoint["channel_values"] == {"list": words[: step + 1], "long": _LONG}
        assert found.parent_config == (every[step - 1] if step else None)
        after = step + 1
        wrote = [(f"task-{after}", "list", words[after : after + 1]), (f"task-{after}", "other", after)]
        assert found.pending_writes == (wrote if after < len(words) else [])
    assert not (await saver.fsck()).damaged


@two_savers
async def test_steps_of_a_batch_survive_a_prune_by_another_saver(saver: Half, thread: str) -> None:
    root = await put(saver, place(thread), {"long": _LONG}, id="1")
    await put(saver, root, {"long": [*_LONG, "x" * 500]}, id="2")
    other = saver.another()
    await other.delete_checkpoint(place(thread, "2"))
    items: list[Any] = []
    long, above = [*_LONG, "x" * 500, "y" * 500], root
    for step in (3, 4):
        made = checkpoint({"long": long[: 58 + step]}, {"long": 100 + step}, id=str(step))
        items += [
            ("put_writes", above, [("long", ["z" * 500])], "task", ""),
            ("put", above, made, {**_LOOP, "step": step}, {"long": 100 + step}),
        ]
        above = place(thread, str(step))
    await saver.put_batch(items)
    assert await values_at(other, place(thread, "3")) == {"long": long[:61]}
    assert await values_at(other, place(thread, "4")) == {"long": long[:62]}
    assert (await other.get_tuple(place(thread, "3"))).pending_writes == [("task", "long", ["z" * 500])]
    assert not (await other.fsck()).damaged
