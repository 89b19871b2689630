"""Lists and dicts of every length through every kind of edit: each checkpoint reads as it was put."""

from __future__ import annotations

import copy
import random
from collections.abc import Callable
from typing import Any

from ..half import Half
from ..making import everything, place, put, values_at

# Around the sizes at which runs and levels of the tree end.
_LENGTHS = (0, 1, 2, 7, 8, 9, 10, 16, 31, 32, 33, 64, 127, 128, 129, 255, 256, 257, 600, 1024, 2000)


def _small(at: int) -> Any:
    """An item that stands in its leaf."""
    return {"at": at}


def _medium(at: int) -> Any:
    """An item that is a chunk."""
    return {"at": at, "text": f"{at} " * 50}


def _same(at: int) -> Any:
    """An item that is equal to all others, so that boundaries come from lengths alone."""
    return "x" * 200


def _mixed(at: int) -> Any:
    """Items of all sizes and kinds."""
    kinds = (at, f"{at} " * 40, [at] * (at % 70), {"k": "v" * (at % 300)}, None, (at, b"b" * (at % 200)))
    return kinds[at % len(kinds)]


async def _check(saver: Half, thread: str, states: list[Any], channel: str = "items") -> None:
    """Put the states one after another, and find each as it was, at once and in the end."""
    config, expected = place(thread), []
    for state in states:
        config = await put(saver, config, {channel: state})
        expected.append(copy.deepcopy(state))
        assert await values_at(saver, config) == {channel: state}
    await saver.clear_cache()
    found = [one.checkpoint["channel_values"][channel] for one in await everything(saver, place(thread))]
    assert found == expected[::-1]
    for one, other in zip(found, reversed(expected), strict=True):
        if isinstance(other, dict):
            assert [*one] == [*other]


async def test_lists_of_every_length_come_back(saver: Half, thread: str) -> None:
    for make in (_small, _medium, _same, _mixed):
        states = [[make(at) for at in range(length)] for length in _LENGTHS]
        await _check(saver, f"{thread}-{make.__name__}", states)


async def test_a_list_grows_item_by_item(saver: Half, thread: str) -> None:
    """Every length once: an append lands on every boundary there is."""
    items: list[Any] = []
    config = place(thread)
    for at in range(140):
        items.append(_medium(at) if at % 3 else _small(at))
        config = await put(saver, config, {"items": items})
    found = await everything(saver, place(thread))
    assert [one.checkpoint["channel_values"]["items"] for one in found] == [
        items[:count] for count in range(140, 0, -1)
    ]


async def test_a_list_shrinks_from_either_end(saver: Half, thread: str) -> None:
    items = [_medium(at) for at in range(300)]
    await _check(saver, thread + "-front", [items[at:] for at in (0, 1, 2, 40, 41, 150, 292, 299, 300)])
    await _check(saver, thread + "-end", [items[: 300 - at] for at in (0, 1, 2, 40, 41, 150, 292, 299, 300)])


async def test_a_list_is_edited_in_the_middle_and_reordered(saver: Half, thread: str) -> None:
    for make in (_medium, _mixed):
        items = [make(at) for at in range(500)]
        shuffled = random.Random(1).sample(items, len(items))
        await _check(
            saver,
            f"{thread}-{make.__name__}",
            [
                items,
                [*items[:250], "edited", *items[251:]],
                [*items[:250], "inserted", *items[250:]],
                [*items[:100], *items[400:], *items[100:400]],
                items[::-1],
                shuffled,
                [*shuffled, *items],
                items * 2,
                [],
                items,
            ],
        )


async def test_a_list_changed_in_place_is_stored_as_it_is_at_each_put(saver: Half, thread: str) -> None:
    chance = random.Random(7)
    items: list[Any] = [_medium(at) for at in range(120)]
    config, expected = place(thread), []

    def edit() -> None:
        items[chance.randrange(len(items))]["text"] = f"edited {chance.random()} " * 12

    acts: list[Callable[[], Any]] = [
        edit,
        lambda: items.append(_medium(chance.randrange(10**6))),
        lambda: items.insert(chance.randrange(len(items)), _medium(chance.randrange(10**6))),
        lambda: items.pop(chance.randrange(len(items))),
        lambda: items.__delitem__(slice(0, chance.randrange(5))),
        lambda: items.extend(copy.deepcopy(items[:20])),
    ]
    for _ in range(60):
        for _ in range(chance.randrange(3)):
            chance.choice(acts)()
        config = await put(saver, config, {"items": items})
        expected.append(copy.deepcopy(items))
    found = await everything(saver, place(thread))
    assert [one.checkpoint["channel_values"]["items"] for one in found] == expected[::-1]


async def test_a_list_turns_into_something_else_and_back(saver: Half, thread: str) -> None:
    items = [_medium(at) for at in range(80)]
    as_dict = {str(at): item for at, item in enumerate(items)}
    others: list[Any] = [tuple(items), as_dict, None, "text", {}, [], [[]], [items]]
    await _check(saver, thread, [items, *(state for other in others for state in (other, items))])


async def test_dicts_of_every_length_keep_their_order(saver: Half, thread: str) -> None:
    for make in (_small, _medium):
        states = [{f"key {at}": make(at) for at in range(length)} for length in _LENGTHS[:-2]]
        await _check(saver, f"{thread}-{make.__name__}", states)


async def test_dicts_through_every_kind_of_edit(saver: Half, thread: str) -> None:
    files = {f"key {at}": _medium(at) for at in range(150)}
    moved = {key: files[key] for key in files if key != "key 70"} | {"key 70": files["key 70"]}
    renamed = {("new" if key == "key 70" else key): value for key, value in files.items()}
    await _check(
        saver,
        thread,
        [
            files,
            {**files, "key 70": "edited " * 40},
            {**files, "more": 1},
            {key: value for key, value in files.items() if key != "key 70"},
            moved,
            renamed,
            dict(reversed(files.items())),
            {**files, "": 0, "é\0\n": 1, "\U0001f600": 2},
            {},
            files,
        ],
    )


async def test_keys_that_are_not_text_come_back(saver: Half, thread: str) -> None:
    states: list[Any] = [
        {at: _medium(at) for at in range(60)},
        {**{at: _medium(at) for at in range(60)}, "text": 1, (1, 2): 2, None: 3, 1.5: 4, True: 5},
        {"\ud800": _medium(1), "plain": _medium(2)},
        {"1": _medium(1), 1: _medium(2)},
    ]
    await _check(saver, thread, states)


async def test_lists_inside_lists_come_back(saver: Half, thread: str) -> None:
    deep: Any = "core"
    for level in range(30):
        deep = [deep, level, {"level": [level] * 5}]
    wide = [[_medium(at + 100 * row) for at in range(100)] for row in range(5)]
    edited = copy.deepcopy(wide)
    edited[2][50] = "edited"
    await _check(saver, thread, [deep, wide, edited, [wide, edited], wide])
