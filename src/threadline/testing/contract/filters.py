"""Filters over metadata, which every backend must answer alike."""

from __future__ import annotations

from decimal import Decimal
from typing import Any

from ...errors import InvalidRequest
from ..half import Half
from ..making import everything, place, put
from ..raising import refused

_PEOPLE: dict[str, dict[str, Any]] = {
    "ann": {
        "step": 0, "source": "input", "run_id": "run-1", "age": 30, "plan": "pro", "score": 1.5, "is_new": True,
        "user-name": "ann", "org.team": "core", "address": {"city": {"name": "Bonn"}, "zip-code": "1"}, "tags": ["a"],
    },
    "bob": {
        "step": 1, "source": "loop", "run_id": "run-2", "age": 40, "plan": "free", "score": -2.0, "is_new": False,
        "user-name": "bob", "org": {"team": "core"}, "address": {"city": {"name": "Köln"}}, "tags": ["a", "b"],
    },
    "cyd": {
        "step": 2, "source": "loop", "run_id": "run-2", "age": None, "plan": "", "score": 0,
        "note": "it's \"so\" 100%",
    },
    "dan": {"step": 3, "source": "fork", "age": "40", "plan": "Pro", "tags": []},
}  # fmt: skip


async def _people(saver: Half, thread: str) -> None:
    for name, metadata in _PEOPLE.items():
        await put(saver, place(thread), {}, name=name, **metadata)


async def _names(saver: Half, thread: str, **filter: Any) -> list[str]:
    found = await everything(saver, place(thread), filter=filter)
    return sorted(one.metadata["name"] for one in found)


async def test_a_filter_matches_equal_values(saver: Half, thread: str) -> None:
    await _people(saver, thread)
    assert await _names(saver, thread) == [*_PEOPLE]
    assert await _names(saver, thread, source="loop") == ["bob", "cyd"]
    assert await _names(saver, thread, step=0) == ["ann"]
    assert await _names(saver, thread, step=-1) == []
    assert await _names(saver, thread, run_id="run-2") == ["bob", "cyd"]
    assert await _names(saver, thread, run_id="run-2", step=2) == ["cyd"]
    assert await _names(saver, thread, plan="pro") == ["ann"]
    assert await _names(saver, thread, plan="") == ["cyd"]
    assert await _names(saver, thread, note='it\'s "so" 100%') == ["cyd"]
    assert await _names(saver, thread, score=1.5) == ["ann"]
    assert await _names(saver, thread, tags=["a", "b"]) == ["bob"]
    assert await _names(saver, thread, tags=[]) == ["dan"]
    assert await _names(saver, thread, nobody="has this") == []


async def test_a_number_and_its_text_differ_in_a_filter(saver: Half, thread: str) -> None:
    await _people(saver, thread)
    assert await _names(saver, thread, age=40) == ["bob"]
    assert await _names(saver, thread, age="40") == ["dan"]
    assert await _names(saver, thread, is_new=True) == ["ann"]
    assert await _names(saver, thread, is_new="True") == []


async def test_equal_means_what_python_calls_equal(saver: Half, thread: str) -> None:
    """A database that helps to search must not lose what Python would have found."""
    stored: list[Any] = [1, 1.0, True, Decimal(1), 2**60, 2.0**60, "1"]
    for at, value in enumerate(stored):
        await put(saver, place(thread), {}, name=str(at), v=value)
    for wanted in (1, 1.0, True, 2**60, 2.0**60, "1"):
        expected = [str(at) for at, value in enumerate(stored) if value == wanted]
        assert await _names(saver, thread, v=wanted) == expected, wanted


async def test_text_that_databases_cannot_index_is_found(saver: Half, thread: str) -> None:
    odd = ["a\0b", "two\nlines", "\u00a0", "x" * 2000, "\ud800", "Köln", "\u2028"]
    for key in ("source", "run_id", "own"):
        for text in odd:
            await put(saver, place(thread), {}, **{"name": f"{key} {odd.index(text)}", key: text})
    for key in ("source", "run_id", "own"):
        for text in odd:
            assert await _names(saver, thread, **{key: text}) == [f"{key} {odd.index(text)}"], (key, text)


async def test_a_filter_reaches_into_nested_dicts(saver: Half, thread: str) -> None:
    await _people(saver, thread)
    assert await _names(saver, thread, **{"address.city.name": "Köln"}) == ["bob"]
    assert await _names(saver, thread, **{"address.zip-code": "1"}) == ["ann"]
    assert await _names(saver, thread, **{"address.city": {"name": "Bonn"}}) == ["ann"]
    assert await _names(saver, thread, address={"city": {"name": "Köln"}}) == ["bob"]
    assert await _names(saver, thread, **{"address.street": "any"}) == []
    assert await _names(saver, thread, **{"age.years": 1}) == []


async def test_dotted_and_hyphenated_keys_are_keys(saver: Half, thread: str) -> None:
    await _people(saver, thread)
    assert await _names(saver, thread, **{"user-name": "bob"}) == ["bob"]
    assert await _names(saver, thread, **{"org.team": "core"}) == ["ann", "bob"]
    assert await _names(saver, thread, **{"user-name": {"$in": ["ann", "zoe"]}}) == ["ann"]


async def test_none_matches_none_and_what_is_absent(saver: Half, thread: str) -> None:
    await _people(saver, thread)
    assert await _names(saver, thread, age=None) == ["cyd"]
    assert await _names(saver, thread, run_id=None) == ["dan"]
    assert await _names(saver, thread, **{"user-name": None}) == ["cyd", "dan"]
    assert await _names(saver, thread, age={"$eq": None}) == ["cyd"]
    assert await _names(saver, thread, **{"user-name": {"$ne": None}}) == ["ann", "bob"]


async def test_every_operator_does_what_its_name_says(saver: Half, thread: str) -> None:
    await _people(saver, thread)
    assert await _names(saver, thread, step={"$eq": 1}) == ["bob"]
    assert await _names(saver, thread, plan={"$eq": "free"}) == ["bob"]
    assert await _names(saver, thread, step={"$ne": 1}) == ["ann", "cyd", "dan"]
    assert await _names(saver, thread, step={"$gt": 1}) == ["cyd", "dan"]
    assert await _names(saver, thread, step={"$gte": 1}) == ["bob", "cyd", "dan"]
    assert await _names(saver, thread, step={"$lt": 1}) == ["ann"]
    assert await _names(saver, thread, step={"$lte": 1}) == ["ann", "bob"]
    assert await _names(saver, thread, step={"$gte": 1, "$lt": 3}) == ["bob", "cyd"]
    assert await _names(saver, thread, source={"$in": ["input", "fork"]}) == ["ann", "dan"]
    assert await _names(saver, thread, source={"$in": []}) == []
    assert await _names(saver, thread, score={"$in": (0, 1.5)}) == ["ann", "cyd"]
    assert await _names(saver, thread, run_id={"$exists": False}) == ["dan"]
    assert await _names(saver, thread, age={"$exists": True}) == [*_PEOPLE]
    assert await _names(saver, thread, **{"address.city.name": {"$gt": "C"}}) == ["bob"]


async def test_values_that_do_not_compare_do_not_match(saver: Half, thread: str) -> None:
    await _people(saver, thread)
    assert await _names(saver, thread, age={"$gte": 0}) == ["ann", "bob"]
    assert await _names(saver, thread, age={"$gte": ""}) == ["dan"]
    assert await _names(saver, thread, address={"$lt": 3}) == []
    assert await _names(saver, thread, absent={"$lt": 3}) == []


async def test_an_unknown_operator_is_refused(saver: Half, thread: str) -> None:
    for wanted in ({"$regex": "x"}, {"$gt": 1, "$where": "1"}, {"$in": "text"}, {"$": 1}):
        with refused(InvalidRequest):
            await everything(saver, place(thread), filter={"step": wanted})
        with refused(ValueError):
            await everything(saver, None, filter={"step": wanted})


async def test_a_hostile_key_is_refused(saver: Half, thread: str) -> None:
    hostile: list[Any] = ["a') OR 1=1 --", 'a"b', "a'b", "a\\b", "a;b", "", "a\0b", "$.a", "a[0]", "x" * 500, 5, None]
    for key in hostile:
        with refused(ValueError):
            await everything(saver, place(thread), filter={key: "x"})
    with refused(ValueError):
        await everything(saver, place(thread), filter=["step"])


async def test_hostile_values_are_only_values(saver: Half, thread: str) -> None:
    await _people(saver, thread)
    for value in ("' OR '1'='1", "%", "_", "*", "pro' --", {"a": "' OR 1=1"}, ["pro"], b"pro"):
        assert await _names(saver, thread, plan=value) == []
        assert await _names(saver, thread, plan={"$eq": value}) == []
