"""The values of a listed checkpoint are decoded when they are looked at, and are a dict in every other way."""

from __future__ import annotations

import copy
import json
import pickle
from typing import Any

import ormsgpack

from ...codec import Serializer
from ..half import Half
from ..making import everything, place, put, values_at

_VALUES: dict[str, Any] = {
    "words": [f"word {at} " * 20 for at in range(60)],
    "files": {f"name {at}": {"text": "t" * 150, "lines": [at]} for at in range(12)},
    "count": 3,
    "none": None,
}


async def _listed(saver: Half, thread: str) -> dict[str, Any]:
    """A mapping that nobody has looked at."""
    found = await everything(saver, place(thread), limit=1)
    if not found:
        await put(saver, place(thread), _VALUES)
        return await _listed(saver, thread)
    values: dict[str, Any] = found[0].checkpoint["channel_values"]
    return values


async def test_lazy_values_are_a_dict_to_readers(saver: Half, thread: str) -> None:
    values = await _listed(saver, thread)
    assert isinstance(values, dict)
    assert len(values) == 4
    assert [*values] == [*values.keys()] == [*_VALUES]
    assert "count" in values
    assert "other" not in values
    assert values["words"] == _VALUES["words"]
    assert values["words"] is values["words"]
    assert values.get("files") == _VALUES["files"]
    assert values.get("other", "default") == "default"
    assert values.get("other") is None
    assert [*reversed(values)] == [*reversed(_VALUES)]
    assert bool(values)


async def test_lazy_values_and_items_are_decoded(saver: Half, thread: str) -> None:
    assert [*(await _listed(saver, thread)).values()] == [*_VALUES.values()]
    assert [*(await _listed(saver, thread)).items()] == [*_VALUES.items()]
    assert repr(await _listed(saver, thread)) == str(await _listed(saver, thread)) == repr(_VALUES)


async def test_lazy_values_unpack_and_merge(saver: Half, thread: str) -> None:
    def given(**values: Any) -> dict[str, Any]:
        return values

    assert {**await _listed(saver, thread)} == _VALUES
    assert dict(await _listed(saver, thread)) == _VALUES
    assert dict((await _listed(saver, thread)).items()) == _VALUES
    assert given(**await _listed(saver, thread)) == _VALUES
    updated: dict[str, Any] = {"count": 0, "more": 1}
    updated.update(await _listed(saver, thread))
    assert updated == {"more": 1, **_VALUES}
    assert (await _listed(saver, thread)) | {"count": 4} == {**_VALUES, "count": 4}
    assert {"count": 4, "more": 1} | (await _listed(saver, thread)) == {"more": 1, **_VALUES}
    merged = {"count": 4}
    merged |= await _listed(saver, thread)
    assert merged == _VALUES
    lazy = await _listed(saver, thread)
    lazy |= {"count": 5}
    assert lazy == {**_VALUES, "count": 5}


async def test_lazy_values_equal_a_dict_of_the_same_values(saver: Half, thread: str) -> None:
    assert await _listed(saver, thread) == _VALUES
    assert await _listed(saver, thread) == _VALUES
    assert await _listed(saver, thread) == await _listed(saver, thread)
    is_different = (await _listed(saver, thread)) != _VALUES
    assert not is_different
    assert await _listed(saver, thread) != {**_VALUES, "count": 4}
    assert await _listed(saver, thread) != {}
    assert {"inside": await _listed(saver, thread)} == {"inside": _VALUES}


async def test_lazy_values_can_be_changed(saver: Half, thread: str) -> None:
    values = await _listed(saver, thread)
    values["count"] = 4
    values["new"] = 5
    del values["none"]
    assert values.pop("words") == _VALUES["words"]
    assert values.pop("words", "gone") == "gone"
    assert values.setdefault("files", {}) == _VALUES["files"]
    assert values.setdefault("set", 1) == 1
    assert values == {"files": _VALUES["files"], "count": 4, "new": 5, "set": 1}
    assert values.popitem() == ("set", 1)
    values.update(count=6)
    values.clear()
    assert values == {}
    for missing in (lambda: values["count"], lambda: values.pop("count"), values.popitem):
        try:
            missing()
        except KeyError:
            continue
        raise AssertionError("a missing key is a KeyError")


async def test_a_copy_of_lazy_values_is_independent(saver: Half, thread: str) -> None:
    for make in (lambda values: values.copy(), copy.copy, dict, lambda values: {**values}):
        values = await _listed(saver, thread)
        copied = make(values)
        copied.pop("count")
        copied["more"] = 1
        assert values == _VALUES
        assert copied == {**{key: _VALUES[key] for key in _VALUES if key != "count"}, "more": 1}


async def test_a_deep_copy_of_lazy_values_shares_nothing(saver: Half, thread: str) -> None:
    values = await _listed(saver, thread)
    copied = copy.deepcopy(values)
    copied["words"].append("more")
    copied["files"]["name 1"]["lines"].append(2)
    assert values == _VALUES
    nested = copy.deepcopy({"in": await _listed(saver, thread)})
    assert nested == {"in": _VALUES}


async def test_lazy_values_are_pickled_as_a_plain_dict(saver: Half, thread: str) -> None:
    for protocol in range(pickle.HIGHEST_PROTOCOL + 1):
        loaded = pickle.loads(pickle.dumps(await _listed(saver, thread), protocol))
        assert type(loaded) is dict
        assert loaded == _VALUES


async def test_lazy_values_are_written_as_json(saver: Half, thread: str) -> None:
    variants: list[dict[str, Any]] = [{}, {"indent": 1}, {"sort_keys": True}]
    for options in variants:
        assert json.loads(json.dumps(await _listed(saver, thread), **options)) == _VALUES


async def test_lazy_values_are_written_by_our_serializer(saver: Half, thread: str) -> None:
    serializer = Serializer()
    assert serializer.loads(serializer.dumps(await _listed(saver, thread))) == _VALUES


async def test_a_serializer_in_c_refuses_lazy_values_rather_than_write_others(saver: Half, thread: str) -> None:
    """It reads past Python and meets values that are not decoded. Writing them would be better still."""
    try:
        packed = ormsgpack.packb(await _listed(saver, thread))
    except TypeError:
        return
    assert ormsgpack.unpackb(packed) == _VALUES


async def test_lazy_values_can_be_put_again(saver: Half, thread: str) -> None:
    again = await put(saver, place(thread), await _listed(saver, thread))
    nested = await put(
        saver, place(thread), {"before": await _listed(saver, thread), "many": [await _listed(saver, thread)]}
    )
    assert await values_at(saver, again) == _VALUES
    assert await values_at(saver, nested) == {"before": _VALUES, "many": [_VALUES]}
