"""Which objects a reader gets: its own, unless sharing was asked for."""

from __future__ import annotations

from typing import Any

from ..half import Half
from ..making import everything, place, put, stored, values_at


def _values() -> dict[str, Any]:
    return {
        "long": [{"text": "t" * 200, "at": at, "tags": ["x"]} for at in range(60)],
        "files": {f"file {at}": {"lines": ["line " * 50]} for at in range(12)},
        "small": [[1], {"a": []}],
        "set": {1, 2, 3},
    }


def _spoil(values: dict[str, Any]) -> None:
    """Change everything that can be changed."""
    for one in values["long"]:
        one["tags"].append("spoiled")
        one["text"] = "spoiled"
    for one in values["files"].values():
        one["lines"].clear()
    values["small"][0].append(2)
    values["small"][1]["a"].append(1)
    values["set"].add("spoiled")
    values.clear()


async def test_two_reads_never_share_a_mutable_object(saver: Half, thread: str) -> None:
    config = await put(saver, place(thread), _values(), notes=[[1]])
    await saver.put_writes(config, [("small", [[1]])], "task")
    for _ in range(3):
        for found in (await stored(saver, config), (await everything(saver, place(thread)))[0]):
            assert found.checkpoint["channel_values"] == _values()
            assert found.metadata["notes"] == [[1]]
            assert found.pending_writes == [("task", "small", [[1]])]
            _spoil(found.checkpoint["channel_values"])
            found.checkpoint["channel_versions"].clear()
            found.metadata["notes"][0].append(2)
            found.pending_writes[0][2][0].append(2)
    [latest] = (await saver.latest([thread])).values()
    _spoil(latest)
    [version] = await saver.of(thread).versions("small")
    version.value[0].append(2)
    assert await values_at(saver, config) == _values()


async def test_two_checkpoints_never_share_a_mutable_object(saver: Half, thread: str) -> None:
    config = place(thread)
    for _ in range(3):
        config = await put(saver, config, _values())
    first, *others = await everything(saver, place(thread))
    _spoil(first.checkpoint["channel_values"])
    for other in others:
        assert other.checkpoint["channel_values"] == _values()


async def test_equal_items_of_one_value_are_objects_of_their_own(saver: Half, thread: str) -> None:
    config = await put(saver, place(thread), {"same": [{"text": "t" * 300}] * 40, "again": [{"text": "t" * 300}]})
    values = await values_at(saver, config)
    values["same"][0]["text"] = "spoiled"
    assert values["same"][1:] == [{"text": "t" * 300}] * 39
    assert values["again"] == [{"text": "t" * 300}]


async def test_what_was_read_may_be_changed_and_put(saver: Half, thread: str) -> None:
    first = await put(saver, place(thread), _values())
    values = await values_at(saver, first)
    values["long"][30]["tags"].append("more")
    second = await put(saver, first, values)
    assert await values_at(saver, second) == values
    assert await values_at(saver, first) == _values()


async def test_sharing_gives_the_same_items_to_all_who_read(saver: Half, thread: str) -> None:
    sharing = saver.another(share_decoded=True)
    config = await put(sharing, place(thread), _values())
    config = await put(sharing, config, {**_values(), "long": [*_values()["long"], "last"]})

    newer, older = await everything(sharing, place(thread))

    assert older.checkpoint["channel_values"] == _values()
    assert newer.checkpoint["channel_values"]["long"] == [*_values()["long"], "last"]
    for at in range(60):
        assert newer.checkpoint["channel_values"]["long"][at] is older.checkpoint["channel_values"]["long"][at]
    one, two = await values_at(sharing, config), await values_at(sharing, config)
    assert one["files"]["file 3"] is two["files"]["file 3"]
    # The lists and dicts around the items are each reader's own.
    one["long"].clear()
    one["files"].clear()
    assert await values_at(sharing, config) == {**_values(), "long": [*_values()["long"], "last"]}


async def test_trusting_identity_stores_what_is_new(saver: Half, thread: str) -> None:
    trusting = saver.another(trust_identity=True)
    words: list[Any] = [{"text": f"{at} " * 60} for at in range(150)]
    config, expected = place(thread), []
    for turn in range(30):
        if turn % 3 == 0:
            words = [*words, {"text": f"new {turn} " * 60}]
        elif turn % 3 == 1:
            words = [*words[:turn], {"text": f"edited {turn} " * 60}, *words[turn + 1 :]]
        else:
            words = words[1:]
        config = await put(trusting, config, {"words": words, "turn": turn})
        expected.append({"words": words, "turn": turn})
    await trusting.clear_cache()
    found = await everything(trusting, place(thread))
    assert [one.checkpoint["channel_values"] for one in found] == expected[::-1]


async def test_trusting_identity_survives_what_others_delete(saver: Half, thread: str) -> None:
    trusting = saver.another(trust_identity=True)
    words: list[Any] = [{"text": f"{at} " * 60} for at in range(100)]
    config = await put(trusting, place(thread), {"words": words})
    config = await put(trusting, config, {"words": words[:3]})
    await trusting.prune([thread])
    config = await put(trusting, config, {"words": words})
    await trusting.clear_cache()
    assert await values_at(trusting, config) == {"words": words}
