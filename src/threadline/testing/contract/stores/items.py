"""Items across threads: what a Store promises on every backend, tried through `saver.store()`."""

from __future__ import annotations

from collections.abc import Callable, Coroutine, Sequence
from datetime import datetime, timedelta, timezone
from typing import Any

from ....core.records.batch import GetOp, PutOp, SearchOp
from ....errors import Conflict, InvalidRequest, NotFound
from ...half import Half
from ...raising import refused

__all__: list[str] = []


async def test_an_item_comes_back_with_its_times_and_version(saver: Half, thread: str) -> None:
    store = Items(saver)
    before = datetime.now(timezone.utc) - timedelta(seconds=1)
    value = {"text": "nul \0, é", "n": 10**100, "list": [1, [2.5, None]], "deep": {"a": {"b": True}}}
    await store.put((thread, "a"), "k", value)
    first = await store.get((thread, "a"), "k")
    assert first.value == value
    assert (first.namespace, first.key, first.version) == ((thread, "a"), "k", 1)
    assert before < first.created_at <= first.updated_at <= datetime.now(timezone.utc) + timedelta(seconds=1)
    await store.put((thread, "a"), "k", {"text": "new"})
    second = await store.get((thread, "a"), "k")
    assert (second.value, second.version, second.created_at) == ({"text": "new"}, 2, first.created_at)
    await store.delete((thread, "a"), "k")
    assert await store.get((thread, "a"), "k") is None
    await store.delete((thread, "a"), "k")


async def test_changing_a_value_that_was_put_or_got_changes_nothing_stored(saver: Half, thread: str) -> None:
    store, value = Items(saver), {"list": [1]}
    await store.put((thread,), "k", value)
    value["list"].append(2)
    got = await store.get((thread,), "k")
    got.value["list"].append(3)
    assert (await store.get((thread,), "k")).value == {"list": [1]}


async def test_a_search_finds_by_whole_labels_and_the_last_updated_first(saver: Half, thread: str) -> None:
    store = Items(saver)
    for label in ("acme", "acme-corp", "acme"):
        await store.put((thread, "tenant", label), label[-1], {"label": label})
    await store.put((thread, "tenant", "acme", "deep"), "d", {"label": "acme"})
    found = await store.search((thread, "tenant", "acme"))
    assert [(item.namespace[2:], item.key) for item in found] == [(("acme", "deep"), "d"), (("acme",), "e")]
    assert [item.key for item in await store.search((thread,), limit=2, offset=1)] == ["e", "p"]
    assert await store.search((thread,), limit=0) == []
    assert await store.count((thread,)) == 3


async def test_a_search_continues_after_the_last_item_of_the_page_before(saver: Half, thread: str) -> None:
    store = Items(saver)
    # Items of one batch have the same time: their names decide.
    await store.batch([PutOp((thread, label), str(n), {"n": n}) for label in ("b", "a") for n in range(3)])
    for number in range(3, 6):
        await store.put((thread, "c"), str(number), {"n": number})
    for filter in (None, {"n": {"$ne": 4}}):
        whole = await store.search((thread,), filter=filter, limit=100)
        for limit in (1, 2, 4):
            seen = page = await store.search((thread,), filter=filter, limit=limit)
            while page:
                page = await store.search((thread,), filter=filter, limit=limit, after=page[-1])
                seen = seen + page
            assert seen == whole, (filter, limit)
    assert [(item.namespace[1], item.key) for item in whole[-6:]] == [(label, k) for label in "ab" for k in "012"]
    assert await store.search((thread,), filter=filter, offset=1, limit=2, after=whole[0]) == whole[2:4]
    assert await store.search((thread, "a"), after=whole[0], limit=100) == whole[2:5]


async def test_a_page_begins_where_an_item_was_though_it_was_changed_or_deleted(saver: Half, thread: str) -> None:
    store = Items(saver)
    for number in range(6):
        await store.put((thread,), str(number), {"n": number})
    first = await store.search((thread,), limit=2)
    await store.delete((thread,), "4")
    await store.put((thread,), "3", {"n": "moved to the front"})
    rest = await store.search((thread,), after=first[-1])
    assert [item.key for item in first + rest] == ["5", "4", "2", "1", "0"]


async def test_a_page_of_the_past_continues_and_what_has_no_such_order_is_refused(saver: Half, thread: str) -> None:
    store = Items(saver, keep_versions=True, index=INDEX)
    await store.batch([PutOp((thread,), str(n), {"n": n}) for n in range(5)])
    then = (await store.search((thread,)))[0].updated_at
    await store.put((thread,), "1", {"n": "later"})
    first = await store.search((thread,), as_of=then, limit=2)
    rest = await store.search((thread,), as_of=then, after=first[-1])
    assert first + rest == await store.search((thread,), as_of=then)
    assert sorted(item.value["n"] for item in first + rest) == [0, 1, 2, 3, 4]
    with refused(InvalidRequest, saying="paged by offset"):
        await store.search((thread,), query="tea", after=first[-1])
    for wrong in ("0", 3, ((thread,), "0")):
        with refused(InvalidRequest, saying="an item of an earlier page"):
            await store.search((thread,), after=wrong)


async def test_filters_compare_nested_keys_with_operators(saver: Half, thread: str) -> None:
    store = Items(saver)
    for number in range(6):
        await store.put((thread,), str(number), {"n": number, "user": {"plan": "pro" if number % 2 else "free"}})
    await store.put((thread,), "odd", {"n": "text", "flag": True})
    for filter, expected in (
        ({"n": 3}, ["3"]),
        ({"n": {"$gte": 4}}, ["4", "5"]),
        ({"n": {"$gt": 1, "$lt": 4}}, ["2", "3"]),
        ({"n": {"$in": [0, 5, 10**100]}}, ["0", "5"]),
        ({"n": {"$ne": 3}, "user.plan": "pro"}, ["1", "5"]),
        ({"user": {"$exists": False}}, ["odd"]),
        ({"n": {"$lte": float("nan")}}, []),
        ({"n": {"$lt": float("inf")}}, ["0", "1", "2", "3", "4", "5"]),
        ({"flag": True}, ["odd"]),
        ({"n": 10**100}, []),
    ):
        found = await store.search((thread,), filter=filter, limit=100)
        assert sorted(item.key for item in found) == expected, filter
        assert await store.count((thread,), filter=filter) == len(expected)
    for hostile in ({"n'; DROP TABLE x": 1}, {"n": {"$regex": ".*"}}, {1: 2}, {"n": {"$in": 3}}, "n"):
        with refused(InvalidRequest):
            await store.search((thread,), filter=hostile)


async def test_an_indexed_field_finds_the_same_items(saver: Half, thread: str) -> None:
    plain, indexed = Items(saver), Items(saver, index_fields=("user_id", "user.plan"))
    for number in range(20):
        value = {"user_id": f"u{number % 3}", "n": number, "user": {"plan": number % 2}}
        # What a store without the option put, and what has no such field, is found as well.
        await (indexed if number % 4 else plain).put((thread,), str(number), value)
    await indexed.put((thread,), "long", {"user_id": "x" * 2000})
    await indexed.put((thread,), "none", {"n": 1})
    for filter, count in (
        ({"user_id": "u1"}, 7),
        ({"user_id": {"$eq": "u2"}, "n": {"$gt": 4}}, 5),
        ({"user_id": "nobody"}, 0),
        ({"user_id": "x" * 2000}, 1),
        ({"user_id": None}, 1),
        ({"user.plan": 1}, 10),
        ({"user.plan": True, "user_id": "u0"}, 3),
        ({"user_id": ""}, 0),
    ):
        found = [await store.search((thread,), filter=filter, limit=100) for store in (plain, indexed)]
        assert found[0] == found[1], filter
        assert len(found[0]) == count, filter
    for wrong in ("user_id", ["a'b"], ["a..b"], [""], [1], ["x" * 201]):
        with refused(InvalidRequest, saying="index_fields"):
            Items(saver, index_fields=wrong)


async def test_reads_of_a_batch_see_what_was_before_and_the_last_put_holds(saver: Half, thread: str) -> None:
    store = Items(saver)
    await store.put((thread,), "k", {"n": 0})
    results = await store.batch(
        [
            GetOp((thread,), "k"),
            PutOp((thread,), "k", {"n": 1}),
            PutOp((thread,), "k", {"n": 2}),
            SearchOp((thread,)),
            PutOp((thread,), "gone", {"n": 3}),
            PutOp((thread,), "gone", None),
        ]
    )
    assert [results[0].value, results[1], [item.value for item in results[3]]] == [{"n": 0}, None, [{"n": 0}]]
    assert (await store.get((thread,), "k")).value == {"n": 2}
    assert await store.get((thread,), "gone") is None


async def test_a_batch_with_one_wrong_operation_stores_nothing(saver: Half, thread: str) -> None:
    store = Items(saver)
    for wrong in (
        PutOp((), "k", {}),
        PutOp((thread, ""), "k", {}),
        PutOp((thread,), "", {}),
        PutOp((thread,), "k", {"a": [1, object()]}),
        PutOp((thread,), "k", {"a": {1: 2}}),
        PutOp((thread,), "k", {"a": b"bytes"}),
        PutOp((thread,), "k", {}, ttl=-1),
        PutOp(("x" * 3000,), "k", {}),
        PutOp((thread, "\ud800"), "k", {}),
    ):
        with refused(InvalidRequest):
            await store.batch([PutOp((thread,), "first", {"n": 1}), wrong])
        assert await store.count((thread,)) == 0


async def test_of_two_agents_that_update_one_memory_the_second_gets_a_conflict(saver: Half, thread: str) -> None:
    store = Items(saver)
    await store.put((thread,), "k", {"n": 0}, if_version=0)
    seen = (await store.get((thread,), "k")).version
    await store.put((thread,), "k", {"n": 1}, if_version=seen)
    for condition in (seen, 0):
        with refused(Conflict, saying="'k'"):
            await store.put((thread,), "k", {"n": 2}, if_version=condition)
    with refused(Conflict):
        await store.delete((thread,), "k", if_version=seen)
    assert (await store.get((thread,), "k")).value == {"n": 1}


async def test_expired_items_are_hidden_before_limit_and_offset_and_then_swept(saver: Half, thread: str) -> None:
    store = Items(saver)
    for number in range(4):
        await store.put((thread, str(number)), "k", {"n": number}, ttl=timedelta(seconds=0.3) if number % 2 else None)
    assert await store.count((thread,)) == 4
    await saver.sleep(0.35)
    assert [item.value["n"] for item in await store.search((thread,), limit=2)] == [2, 0]
    assert await store.get((thread, "1"), "k") is None
    assert await store.count((thread,)) == 2
    assert await store.list_namespaces(prefix=(thread,)) == [(thread, "0"), (thread, "2")]
    assert await store.sweep() >= 2
    assert await store.count((thread,)) == 2


async def test_an_expired_item_is_not_there_for_a_condition(saver: Half, thread: str) -> None:
    store = Items(saver)
    await store.put((thread,), "k", {"n": 0}, ttl=timedelta(seconds=0.1))
    await saver.sleep(0.15)
    with refused(Conflict):
        await store.put((thread,), "k", {"n": 1}, if_version=1)
    await store.put((thread,), "k", {"n": 2}, if_version=0)
    assert (await store.get((thread,), "k")).value == {"n": 2}


async def test_reading_an_item_begins_its_time_to_live_anew_unless_told_otherwise(saver: Half, thread: str) -> None:
    store = Items(saver)
    for key in ("read", "left", "looked"):
        await store.put((thread,), key, {}, ttl=timedelta(seconds=1.2))
    await saver.sleep(0.8)
    assert await store.get((thread,), "read") is not None
    assert await store.get((thread,), "looked", refresh_ttl=False) is not None
    await saver.sleep(0.6)
    assert [item.key for item in await store.search((thread,), refresh_ttl=False)] == ["read"]


async def test_namespaces_are_listed_by_prefix_suffix_wildcard_and_depth(saver: Half, thread: str) -> None:
    store = Items(saver)
    for path in (("a", "b", "c"), ("a", "b", "d"), ("a", "x", "c"), ("e", "b", "c"), ("a",)):
        await store.put((thread, *path), "k", {})
    listed = store.list_namespaces
    assert await listed(prefix=(thread,)) == [
        (thread, "a"),
        (thread, "a", "b", "c"),
        (thread, "a", "b", "d"),
        (thread, "a", "x", "c"),
        (thread, "e", "b", "c"),
    ]
    assert await listed(prefix=(thread, "a"), max_depth=3) == [(thread, "a"), (thread, "a", "b"), (thread, "a", "x")]
    assert await listed(prefix=(thread,), suffix=("b", "c")) == [(thread, "a", "b", "c"), (thread, "e", "b", "c")]
    assert await listed(prefix=(thread, "*", "b")) == [
        (thread, "a", "b", "c"),
        (thread, "a", "b", "d"),
        (thread, "e", "b", "c"),
    ]
    assert await listed(prefix=(thread,), limit=2, offset=1) == [(thread, "a", "b", "c"), (thread, "a", "b", "d")]
    assert await listed(prefix=(thread, "no")) == []


async def test_history_tells_what_was_known_when(saver: Half, thread: str) -> None:
    store = Items(saver, keep_versions=True)
    await store.put((thread,), "k", {"n": 1})
    await store.put((thread,), "other", {"n": 9})
    await saver.sleep(0.02)
    then = datetime.now(timezone.utc)
    await saver.sleep(0.02)
    await store.put((thread,), "k", {"n": 2})
    await store.delete((thread,), "k")
    history = await store.history((thread,), "k")
    assert [(one.value, one.version) for one in history] == [(None, 3), ({"n": 2}, 2), ({"n": 1}, 1)]
    assert history[0].until is None
    assert [one.until for one in history[1:]] == [one.since for one in history[:-1]]
    assert (await store.get((thread,), "k", as_of=then)).value == {"n": 1}
    assert await store.get((thread,), "k") is None
    assert {item.key: item.value["n"] for item in await store.search((thread,), as_of=then)} == {"k": 1, "other": 9}
    await store.restore((thread,), "k", version=2)
    assert (await store.get((thread,), "k")).value == {"n": 2}
    with refused(NotFound):
        await store.restore((thread,), "k", version=99)


async def test_history_is_kept_as_far_as_the_store_was_told(saver: Half, thread: str) -> None:
    store = Items(saver, keep_versions=2)
    for number in range(6):
        await store.put((thread,), "k", {"n": number})
    assert [one.value for one in await store.history((thread,), "k")] == [{"n": 5}, {"n": 4}, {"n": 3}]
    without = Items(saver)
    with refused(InvalidRequest, saying="keep_versions"):
        await without.history((thread,), "k")
    with refused(InvalidRequest, saying="keep_versions"):
        await without.get((thread,), "k", as_of=datetime.now(timezone.utc))


async def test_history_is_kept_for_as_long_as_the_store_was_told(saver: Half, thread: str) -> None:
    store = Items(saver, keep_versions=timedelta(seconds=0.5))
    for number in range(3):
        await store.put((thread,), "k", {"n": number})
    assert [one.value["n"] for one in await store.history((thread,), "k")] == [2, 1, 0]
    await saver.sleep(0.6)
    assert [one.value["n"] for one in await store.history((thread,), "k")] == [2]


async def test_what_is_no_longer_kept_is_in_no_answer_about_the_past(saver: Half, thread: str) -> None:
    store = Items(saver, keep_versions=timedelta(seconds=0.5))
    await store.put((thread,), "k", {"n": 1})
    await saver.sleep(0.02)
    then = datetime.now(timezone.utc)
    await store.put((thread,), "k", {"n": 2})
    assert (await store.get((thread,), "k", as_of=then)).value == {"n": 1}
    await saver.sleep(0.6)
    assert await store.get((thread,), "k", as_of=then) is None
    assert await store.search((thread,), as_of=then) == []


async def test_an_item_that_reads_kept_alive_was_there(saver: Half, thread: str) -> None:
    store = Items(saver, keep_versions=True)
    for key in ("read", "unread"):
        await store.put((thread,), key, {"n": 1}, ttl=timedelta(seconds=0.8))
    await saver.sleep(0.5)
    assert await store.get((thread,), "read") is not None
    await saver.sleep(0.5)
    now = datetime.now(timezone.utc)
    assert (await store.get((thread,), "read", as_of=now)).value == {"n": 1}
    assert await store.get((thread,), "unread", as_of=now) is None
    assert [item.key for item in await store.search((thread,), as_of=now)] == ["read"]


async def test_versions_of_an_item_that_was_deleted_go_on_where_history_is_kept(saver: Half, thread: str) -> None:
    store = Items(saver, keep_versions=True)
    await store.put((thread,), "k", {"n": 1})
    await store.put((thread,), "k", {"n": 2})
    read = await store.get((thread,), "k")
    await store.delete((thread,), "k")
    await store.batch([PutOp((thread,), "k", {"n": 4}), PutOp((thread,), "new", {"n": 1})])
    history = await store.history((thread,), "k")
    assert [(one.version, one.value and one.value["n"]) for one in history] == [(4, 4), (3, None), (2, 2), (1, 1)]
    assert (await store.get((thread,), "k")).version == 4
    assert (await store.get((thread,), "new")).version == 1
    with refused(Conflict):
        await store.put((thread,), "k", {"n": 5}, if_version=read.version)
    await store.restore((thread,), "k", version=1)
    assert (await store.get((thread,), "k")).value == {"n": 1}


async def test_a_forgotten_item_leaves_nothing(saver: Half, thread: str) -> None:
    store = Items(saver, keep_versions=True, index=INDEX)
    await store.put((thread,), "k", {"text": "a"})
    await store.put((thread,), "k", {"text": "aa"})
    await store.delete((thread,), "k", forget=True)
    assert await store.history((thread,), "k") == []
    assert await store.search((thread,), query="a") == []
    for key in ("x", "y"):
        await store.put((thread, "below"), key, {"text": "a"})
    assert await store.delete_namespace((thread,), forget=True) == 2
    assert await store.history((thread, "below"), "x") == []
    assert await store.count((thread,)) == 0


async def test_semantic_search_ranks_by_meaning_and_follows_updates(saver: Half, thread: str) -> None:
    store = Items(saver, index=INDEX)
    await store.put((thread, "1"), "a", {"text": "aaaa", "n": 1})
    await store.put((thread, "1"), "b", {"text": "bbbb", "n": 2})
    await store.put((thread, "2"), "mixed", {"text": "ab", "n": 3})
    await store.put((thread, "2"), "none", {"text": "aaaa", "n": 4}, index=False)
    found = await store.search((thread,), query="aa")
    assert [item.key for item in found] == ["a", "mixed", "b", "none"]
    assert found[0].score > found[1].score > found[2].score
    assert found[3].score is None
    assert [item.key for item in await store.search((thread,), query="aa", filter={"n": {"$gt": 1}}, limit=2)] == [
        "mixed",
        "b",
    ]
    await store.put((thread, "1"), "b", {"text": "aaaaaaaaa", "n": 2})
    assert (await store.search((thread, "1"), query="bb"))[0].key == "a"
    await store.delete((thread, "1"), "a")
    assert [item.key for item in await store.search((thread, "1"), query="aa")] == ["b"]


async def test_an_embedding_of_a_former_value_is_not_used(saver: Half, thread: str) -> None:
    embedding, plain = Items(saver, index=INDEX), Items(saver)
    await embedding.put((thread,), "changed", {"text": "aaaa"})
    await embedding.put((thread,), "gone", {"text": "aaaa"})
    await embedding.put((thread,), "kept", {"text": "ab"})
    await plain.put((thread,), "changed", {"text": "bbbb"})
    await plain.delete((thread,), "gone")
    found = await embedding.search((thread,), query="a")
    assert [(item.key, item.score is None) for item in found] == [("kept", False), ("changed", True)]


async def test_texts_are_found_by_paths_and_embedded_once_for_a_batch(saver: Half, thread: str) -> None:
    calls: list[list[str]] = []

    def embed(texts: list[str]) -> list[list[float]]:
        calls.append(list(texts))
        return vectors_of(texts)

    paths = ["title", "meta.note", "parts[*].text", "first[0]"]
    store = Items(saver, index={"dims": 3, "embed": embed, "fields": paths})
    value = {
        "title": "aaa",
        "meta": {"note": "b"},
        "parts": [{"text": "ab"}, {"text": "bb"}, {}],
        "first": ["a", "b"],
    }
    await store.batch(
        [PutOp((thread,), "x", value), PutOp((thread,), "y", {"title": "bbbb"}), PutOp((thread,), "z", {})]
    )
    assert calls == [["aaa", "b", "ab", "bb", "a", "bbbb"]]
    assert [item.key for item in await store.search((thread,), query="aaaa", limit=1)] == ["x"]
    wrong = Items(saver, index={"dims": 4, "embed": vectors_of})
    with refused(InvalidRequest, saying="dimensions"):
        await wrong.put((thread,), "w", {"title": "a"})
    assert await store.get((thread,), "w") is None


async def test_a_part_of_the_threads_has_no_items(saver: Half, thread: str) -> None:
    await Items(saver).put((thread,), "k", {"secret": 1})
    part = Items(saver.view(saver.saver.within(f"{thread}/")))
    with refused(InvalidRequest, saying="no thread"):
        await part.get((thread,), "k")
    with refused(InvalidRequest, saying="no thread"):
        await part.put((thread,), "k", {})
    with refused(InvalidRequest, saying="no thread"):
        await part.delete_namespace((thread,))
    assert (await Items(saver).get((thread,), "k")).value == {"secret": 1}


async def test_every_text_can_be_a_label_and_a_key(saver: Half, thread: str) -> None:
    store = Items(saver)
    texts = ["%", "_", "*", "?", "[", "'\"", "\0", "\n", "é", "x" * 1000]
    for text in texts:
        await store.put((thread, text), text, {"is": text})
    for text in texts:
        assert (await store.get((thread, text), text)).value == {"is": text}
        assert [item.key for item in await store.search((thread, text))] == [text]
    assert await store.count((thread,)) == len(texts)


def vectors_of(texts: Sequence[str]) -> list[list[float]]:
    return [[text.count("a") + 0.01, text.count("b") + 0.01, 0.5] for text in texts]


INDEX = {"dims": 3, "embed": vectors_of, "fields": ["text"]}


class Items:
    """The store of a saver, in the half that is tried: methods under their sync names, to be awaited."""

    def __init__(self, saver: Half, **options: Any) -> None:
        self._store = saver.saver.store(**options)
        self._is_async = saver.is_async

    def __getattr__(self, name: str) -> Callable[..., Coroutine[Any, Any, Any]]:
        method = getattr(self._store, f"a{name}" if self._is_async else name)

        async def call(*args: Any, **options: Any) -> Any:
            result = method(*args, **options)
            return await result if self._is_async else result

        return call
