"""Cached results: what a Cache promises on every backend, tried through `saver.cache()`."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

from ....errors import InvalidRequest
from ...half import Half
from ...raising import refused

__all__: list[str] = []


async def test_a_cached_value_comes_back_until_it_is_deleted_or_cleared(saver: Half, thread: str) -> None:
    values = {"set": {1, 2}, "tuple": (1, (2,)), "none": None, "text": "é" * 3000}
    pairs = {((thread, "n"), key): (value, None) for key, value in values.items()}
    await call(saver, "set", pairs)
    keys = [*pairs, ((thread, "n"), "absent")]
    assert await call(saver, "get", keys) == {key: value for key, (value, _) in pairs.items()}
    await call(saver, "delete", [((thread, "n"), "set")])
    await call(saver, "set", {((thread, "n", "below"), "k"): (1, None), ((thread,), "k"): (2, None)})
    assert await call(saver, "clear", [(thread, "n")]) == 3
    left = await call(saver, "get", [*keys, ((thread, "n", "below"), "k"), ((thread,), "k")])
    assert left == {((thread, "n", "below"), "k"): 1, ((thread,), "k"): 2}


async def test_a_cached_value_ends_with_its_time_to_live(saver: Half, thread: str) -> None:
    short, long = ((thread,), "short"), ((thread,), "long")
    await call(saver, "set", {short: (1, 0.3), long: (2, timedelta(hours=1))})
    assert await call(saver, "get", [short, long]) == {short: 1, long: 2}
    await saver.sleep(0.4)
    assert await call(saver, "get", [short, long]) == {long: 2}
    assert await call(saver, "sweep") >= 1
    assert await call(saver, "get", [short, long]) == {long: 2}


async def test_a_time_to_live_that_is_over_is_a_miss_and_one_without_bound_is_refused(saver: Half, thread: str) -> None:
    key = ((thread,), "k")
    for over in (-1, -0.5, 0):
        await call(saver, "set", {key: (1, None)})
        await call(saver, "set", {key: (2, over)})
        assert await call(saver, "get", [key]) == {}
    for wrong in (10**400, float("inf"), float("nan"), 1e300, timedelta.max, "soon", True):
        with refused(InvalidRequest, saying="ttl"):
            await call(saver, "set", {key: (1, wrong)})


async def test_a_value_that_cannot_be_stored_is_not_cached(saver: Half, thread: str) -> None:
    bad, good = ((thread,), "bad"), ((thread,), "good")
    await call(saver, "set", {bad: (object(), None), good: (1, None)})
    assert await call(saver, "get", [bad, good]) == {good: 1}


async def test_what_is_no_pair_is_refused_with_the_shape_that_is_meant(saver: Half, thread: str) -> None:
    for name, given, shape in (
        ("get", ["k"], "namespace and key"),
        ("delete", [(thread, "n", "k")], "namespace and key"),
        ("set", {"k": (1, None)}, "namespace and key"),
        ("set", {((thread,), "k"): 1}, "value and time to live"),
    ):
        with refused(InvalidRequest, saying=shape):
            await call(saver, name, given)


async def test_keys_are_made_from_arguments_the_same_way_everywhere(saver: Half, thread: str) -> None:
    cache = saver.saver.cache()
    assert cache.key(1, {"a": [1, 2]}, b=None) == cache.key(1, {"a": [1, 2]}, b=None)
    different = [
        cache.key(1),
        cache.key(1.0),
        cache.key(True),
        cache.key("1"),
        cache.key(a=1),
        cache.key([1]),
        cache.key(),
    ]
    assert len(set(different)) == len(different)
    assert cache.key(a=1, b=2) == cache.key(b=2, a=1) == saver.saver.cache().key(a=1, b=2)
    # Equal dicts may have been filled in another order, sets too.
    assert cache.key({"a": 1, "b": {"c": [{"x": 1, "y": 2}], 1: 2}}) == cache.key(
        {"b": {1: 2, "c": [{"y": 2, "x": 1}]}, "a": 1}
    )
    assert cache.key({"b", "a", "c"}) == cache.key({"c", "b", "a"})
    assert cache.key({"a": 1}, {"b": 2}) != cache.key({"b": 2}, {"a": 1})


async def call(saver: Half, name: str, *args: Any) -> Any:
    cache = saver.saver.cache()
    if saver.is_async:
        return await getattr(cache, f"a{name}")(*args)
    return getattr(cache, name)(*args)
