"""What a Store is asked for: filters that look into values, and requests that cannot be meant."""

from __future__ import annotations

import math
import time
from datetime import datetime, timedelta, timezone
from typing import Any

from ....core.records.batch import ListNamespacesOp, MatchCondition
from ....errors import InvalidRequest
from ...half import Half
from ...raising import refused
from .items import INDEX, Items, vectors_of

__all__: list[str] = []


async def test_a_filter_looks_into_nested_dicts(saver: Half, thread: str) -> None:
    store = Items(saver, index=INDEX, index_fields=("v",))
    await store.put((thread,), "5", {"u": {"age": 5, "name": {"first": "ann"}}, "v": [1, 2], "text": "a"})
    await store.put((thread,), "2", {"u": {"age": 2}, "v": [1, {"x": 1, "y": 2}], "text": "a"})
    await store.put((thread,), "none", {"u": [5], "v": 1, "text": "a"})
    for filter, expected in (
        ({"u": {"age": {"$gt": 3}}}, ["5"]),
        ({"u": {"age": 5}}, ["5"]),
        ({"u": {"age": 2}}, ["2"]),
        ({"u": {"age": 5, "name": {"first": "ann"}}}, ["5"]),
        ({"u": {"age": 5, "name": {"first": "bob"}}}, []),
        ({"u": {"name": None}}, ["2"]),
        ({"u": {"name": {"$exists": True}}}, ["5"]),
        ({"u": {}}, ["2", "5"]),
        ({"u": {"$eq": {"age": 2}}}, ["2"]),
        ({"u": {"$eq": {"age": 5}}}, []),
        ({"v": (1, 2)}, ["5"]),
        ({"v": [1, {"x": {"$lte": 1}}]}, ["2"]),
        ({"v": {"$in": [(1, 2), 1]}}, ["5", "none"]),
        ({"v": {"$ne": (1, 2)}}, ["2", "none"]),
        ({"v": 1}, ["none"]),
    ):
        for query in (None, "a"):
            found = await store.search((thread,), filter=filter, query=query)
            assert sorted(item.key for item in found) == expected, filter
        assert await store.count((thread,), filter=filter) == len(expected)
    for wrong in ({"u": {"age": {"$near": 3}}}, {"u": {"age": {"$in": 3}}}, {"v": [{"$no": 1}]}):
        with refused(InvalidRequest):
            await store.search((thread,), filter=wrong)


async def test_a_list_of_namespaces_that_cannot_be_meant_is_refused(saver: Half, thread: str) -> None:
    store = Items(saver)
    await store.put((thread, "a"), "k", {"n": 1})
    wrong: list[dict[str, Any]] = [{name: -1} for name in ("limit", "offset", "max_depth")]
    wrong += [{name: "1"} for name in ("limit", "offset", "max_depth")]
    wrong += [{"prefix": (1,)}, {"prefix": "ab"}, {"suffix": "ab"}, {"prefix": ("",)}, {"suffix": [None]}]
    for options in wrong:
        with refused(InvalidRequest):
            await store.list_namespaces(**options)
    for kind, path in (("prefix", "ab"), ("within", ("ab",)), ("suffix", (1,))):
        with refused(InvalidRequest):
            await store.batch([ListNamespacesOp([MatchCondition(kind, path)])])  # type: ignore[arg-type]
    assert await store.list_namespaces(prefix=[thread], max_depth=2) == [(thread, "a")]


async def test_a_time_to_live_or_a_moment_beyond_all_calendars_is_refused(saver: Half, thread: str) -> None:
    store = Items(saver, keep_versions=True)
    for wrong in (10**15, 10**400, 1e300, math.inf, timedelta.max, "99999999999d"):
        with refused(InvalidRequest, saying="ttl"):
            await store.put((thread,), "k", {"n": 1}, ttl=wrong)
    await store.put((thread,), "k", {"n": 1}, ttl=timedelta(days=365 * 900))
    assert (await store.search((thread,)))[0].expires_at.year > 2900
    for moment in (10**400, math.nan, math.inf, datetime.min, datetime.max.replace(tzinfo=timezone.utc), "soon", True):
        if moment == datetime.max.replace(tzinfo=timezone.utc):
            assert await store.get((thread,), "k", as_of=moment) is None
            continue
        with refused(InvalidRequest, saying="as_of"):
            await store.get((thread,), "k", as_of=moment)
    assert await store.get((thread,), "k", as_of=time.time()) is not None


async def test_fields_are_found_as_langgraph_finds_them(saver: Half, thread: str) -> None:
    calls: list[list[str]] = []

    def embed(texts: list[str]) -> list[list[float]]:
        calls.append(list(texts))
        return vectors_of(texts)

    fields = ["{s, deep.n,list,no}", "list[-1]", "list[-9]", "flag", "none"]
    store = Items(saver, index={"dims": 3, "embed": embed, "fields": fields})
    value = {"s": "text", "deep": {"n": 1.5}, "list": ["a", "b"], "flag": True, "none": None}
    await store.put((thread,), "k", value)
    assert calls == [["text", "1.5", '["a", "b"]', "b", "True"]]
    for wrong in ("text", [5], ["a["], ["a[x]"], ["{a"], {"a": 1}):
        with refused(InvalidRequest):
            Items(saver, index={"dims": 3, "embed": vectors_of, "fields": wrong})


async def test_vectors_of_any_length_have_a_direction(saver: Half, thread: str) -> None:
    lengths = {"long": 1e38, "short": 1e-30, "usual": 1.0}

    def embed(texts: list[str]) -> Any:
        return [[lengths[text], lengths[text], 0.0] for text in texts]

    store = Items(saver, index={"dims": 3, "embed": embed, "fields": ["text"]})
    for text in lengths:
        await store.put((thread,), text, {"text": text})
    for query in lengths:
        assert [round(item.score, 4) for item in await store.search((thread,), query=query)] == [1.0, 1.0, 1.0]
    unfit: list[Any] = [None, 5, [None], ["abc"], [["a", "b", "c"]], [[1.0, None, 2.0]], [[10**400, 1, 1]], [{}]]
    for made in unfit:
        wrong = Items(saver, index={"dims": 3, "embed": lambda texts, made=made: made, "fields": ["text"]})
        with refused(InvalidRequest, saying="embed"):
            await wrong.put((thread,), "wrong", {"text": "usual"})
    assert await store.get((thread,), "wrong") is None
