"""Listing: newest first, page by page, within a thread or over all of them."""

from __future__ import annotations

from ...base.checkpoint import Config
from ...base.ids import new_id
from ...errors import InvalidRequest
from ..half import Half
from ..making import checkpoint, everything, id_of, ids_of, place, put, values_at
from ..raising import refused


async def _line(saver: Half, thread: str, count: int, ns: str = "") -> list[Config]:
    """A thread of some checkpoints, put at once, oldest first."""
    made = [checkpoint({"n": at}, {"n": at + 1}) for at in range(count)]
    configs = [place(thread, None, ns), *(place(thread, one["id"], ns) for one in made)]
    metadata = [{"source": "loop", "step": at, "parents": {}, "even": at % 2 == 0} for at in range(count)]
    puts = zip(configs, made, metadata, ({"n": at + 1} for at in range(count)), strict=False)
    found: list[Config] = await saver.put_many([*puts])
    return found


async def test_a_list_is_newest_first_whatever_the_order_of_puts(saver: Half, thread: str) -> None:
    ids = [new_id() for _ in range(6)]
    for at in (3, 0, 5, 1, 4, 2):
        await put(saver, place(thread), {"n": at}, id=ids[at])

    found = await everything(saver, place(thread))

    assert ids_of(found) == ids[::-1]
    assert [one.checkpoint["channel_values"]["n"] for one in found] == [5, 4, 3, 2, 1, 0]


async def test_a_listed_checkpoint_equals_the_one_that_get_tuple_reads(saver: Half, thread: str) -> None:
    parent = await put(saver, place(thread), {"a": ["x" * 200] * 40, "b": {"k": [1, (2,)]}}, user="ann")
    child = await put(saver, parent, {"a": ["x" * 200] * 41, "none": None}, user="bob")
    await saver.put_writes(child, [("a", 1)], "task", "p")
    for listed in await everything(saver, place(thread)):
        assert tuple(listed) == tuple(await saver.get_tuple(listed.config))


async def test_a_list_of_many_pages_has_everything_once(saver: Half, thread: str) -> None:
    configs = await _line(saver, thread, 700)
    assert ids_of(await everything(saver, place(thread))) == [id_of(config) for config in configs][::-1]
    newest = await everything(saver, place(thread), limit=300)
    assert [one.metadata["step"] for one in newest] == [*range(699, 399, -1)]


async def test_limit_counts_what_is_yielded(saver: Half, thread: str) -> None:
    configs = await _line(saver, thread, 40)
    newest_first = [id_of(config) for config in configs][::-1]
    for limit in (0, 1, 2, 8, 9, 39, 40, 41, 1000):
        assert ids_of(await everything(saver, place(thread), limit=limit)) == newest_first[:limit]
    even = await everything(saver, place(thread), filter={"even": True}, limit=15)
    assert [one.metadata["step"] for one in even] == [*range(38, 8, -2)]


async def test_before_leaves_out_its_id_and_everything_later(saver: Half, thread: str) -> None:
    configs = await _line(saver, thread, 12)
    ids = [id_of(config) for config in configs]
    assert ids_of(await everything(saver, place(thread), before=configs[5])) == ids[4::-1]
    assert ids_of(await everything(saver, place(thread), before=configs[0])) == []
    assert ids_of(await everything(saver, place(thread), before=place(thread, new_id()), limit=2)) == ids[:9:-1]
    assert ids_of(await everything(saver, place(thread), before=place(thread))) == ids[::-1]
    # Users page with it.
    walked: list[str] = []
    before = None
    while page := await everything(saver, place(thread), before=before, limit=5):
        walked += ids_of(page)
        before = page[-1].config
    assert walked == ids[::-1]


async def test_before_limit_and_filter_work_together(saver: Half, thread: str) -> None:
    configs = await _line(saver, thread, 30)
    found = await everything(saver, place(thread), before=configs[20], limit=4, filter={"even": False})
    assert [one.metadata["step"] for one in found] == [19, 17, 15, 13]


async def test_a_config_with_an_id_lists_that_checkpoint(saver: Half, thread: str) -> None:
    configs = await _line(saver, thread, 3)
    assert ids_of(await everything(saver, configs[1])) == [id_of(configs[1])]
    assert await everything(saver, place(thread, new_id())) == []


async def test_an_unknown_thread_lists_nothing(saver: Half, thread: str) -> None:
    await put(saver, place(thread), {})
    assert await everything(saver, place(thread + "?")) == []
    assert await everything(saver, {"configurable": {"thread_id": thread, "checkpoint_ns": "child"}}) == []


async def test_the_namespace_counts_only_when_the_config_names_one(saver: Half, thread: str) -> None:
    root = await put(saver, place(thread), {"in": "root"})
    inner = await put(saver, place(thread), {"in": "inner"}, ns="child:1")
    deep = await put(saver, place(thread), {"in": "deep"}, ns="child:1|leaf:2")

    assert ids_of(await everything(saver, {"configurable": {"thread_id": thread}})) == [
        *map(id_of, (deep, inner, root))
    ]
    for config, inside in ((root, ""), (inner, "child:1"), (deep, "child:1|leaf:2")):
        [found] = await everything(saver, place(thread, None, inside))
        assert found.config == config


async def test_namespaces_are_histories_of_their_own(saver: Half, thread: str) -> None:
    shared = new_id()
    root = await put(saver, place(thread), {"in": "root"}, id=shared)
    inner = await put(saver, place(thread), {"in": "inner"}, id=shared, ns="child:1")
    later = await put(saver, inner, {"in": "later"}, ns="child:1")

    assert await values_at(saver, root) == await values_at(saver, place(thread)) == {"in": "root"}
    assert await values_at(saver, inner) == {"in": "inner"}
    assert await values_at(saver, place(thread, None, "child:1")) == {"in": "later"}
    assert id_of(later) != shared
    assert len(await everything(saver, {"configurable": {"thread_id": thread}})) == 3


async def test_listing_none_lists_all_threads_newest_first(saver: Half, thread: str) -> None:
    names = [f"{thread}-{letter}" for letter in "abc"]
    put_in_turn = [
        await put(saver, place(name), {"n": turn}, ns=ns, mine=thread)
        for turn in range(4)
        for name in names
        for ns in ("", "child:1")
    ]

    found = await everything(saver, None, filter={"mine": thread})

    assert [one.config for one in found] == put_in_turn[::-1]
    some = await everything(saver, None, filter={"mine": thread}, limit=5, before=put_in_turn[-1])
    assert [one.config for one in some] == put_in_turn[-2:-7:-1]
    everywhere = [one.config async for one in saver.list(None)]
    assert [config for config in everywhere if config in put_in_turn] == put_in_turn[::-1]


async def test_one_id_in_many_threads_is_listed_for_each(saver: Half, thread: str) -> None:
    """Copies of a thread share ids; pages must neither repeat nor lose one."""
    shared = [new_id() for _ in range(3)]
    names = [f"{thread}-{at:02}" for at in range(20)]
    for name in names:
        for one in shared:
            await put(saver, place(name), {}, id=one, mine=thread)
    found = await everything(saver, None, filter={"mine": thread})
    places = [(id_of(one.config), one.config["configurable"]["thread_id"]) for one in found]
    assert places == [(one, name) for one in reversed(shared) for name in names]


async def test_a_list_left_at_its_first_item_leaves_nothing_open(saver: Half, thread: str) -> None:
    configs = await _line(saver, thread, 30)
    for _ in range(20):
        async for first in saver.list(place(thread)):
            assert first.config == configs[-1]
            break
    await saver.delete_checkpoint(configs[-1])
    assert ids_of(await everything(saver, place(thread), limit=1)) == [id_of(configs[-2])]


async def test_a_thread_may_change_while_it_is_listed(saver: Half, thread: str) -> None:
    configs = await _line(saver, thread, 60)
    seen: list[str] = []
    async for one in saver.list(place(thread)):
        seen.append(id_of(one.config))
        if len(seen) == 3:
            newest = await put(saver, configs[-1], {"n": "new"})
            await saver.delete_checkpoint(configs[0])
    assert id_of(newest) not in seen
    assert seen == [id_of(config) for config in configs][:0:-1]


async def test_a_list_outlives_the_thread_it_began_in(saver: Half, thread: str) -> None:
    configs = await _line(saver, thread, 60)
    seen: list[str] = []
    async for one in saver.list(place(thread)):
        seen.append(id_of(one.config))
        if len(seen) == 1:
            await saver.delete_thread(thread)
    assert seen == [id_of(config) for config in configs][::-1][: len(seen)]
    assert len(seen) < 60


async def test_values_of_a_list_can_be_looked_at_after_they_are_deleted(saver: Half, thread: str) -> None:
    """A page holds its bytes, so that looking at a value later needs no store."""
    words = [f"{at} " * 50 for at in range(60)]
    await put(saver, place(thread), {"words": words, "n": 1})
    [found] = await everything(saver, place(thread))
    await saver.delete_thread(thread)
    await saver.clear_cache()
    assert found.checkpoint["channel_values"] == {"words": words, "n": 1}


async def test_a_wrong_limit_is_refused(saver: Half, thread: str) -> None:
    for limit in ("3", 1.5, True):
        with refused(InvalidRequest):
            await everything(saver, place(thread), limit=limit)
