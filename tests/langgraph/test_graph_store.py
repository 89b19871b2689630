"""Stores and caches under LangGraph's names: inside graphs, and beside the originals."""

import asyncio
import contextlib
import operator
import sqlite3
import threading
import time
import uuid
import warnings
from typing import Annotated, TypedDict

import aiosqlite
import langgraph.cache.memory
import langgraph.cache.sqlite
import langgraph.store.memory
import langgraph.store.postgres
import langgraph.store.sqlite
import psycopg
import psycopg_pool
import pytest
import redis.asyncio
from langchain_core.embeddings import Embeddings
from langgraph.graph import START, StateGraph
from langgraph.store.base import (
    BaseStore,
    GetOp,
    InvalidNamespaceError,
    ListNamespacesOp,
    MatchCondition,
    PutOp,
    SearchOp,
)
from langgraph.types import CachePolicy

import redis
import threadline
import threadline.langgraph as ours
from threadline import InvalidRequest

LETTERS = "abcdefghijklmnopqrstuvwxyz"


def embed(texts):
    return [[text.count(letter) + 0.01 for letter in LETTERS] for text in texts]


INDEX = {"dims": len(LETTERS), "embed": embed, "fields": ["text"]}


class State(TypedDict):
    fact: str
    known: Annotated[list, operator.add]


def remember(state, *, store: BaseStore):
    store.put(("users", "ann"), state["fact"], {"fact": state["fact"], "length": len(state["fact"])})
    return {"known": sorted(item.key for item in store.search(("users", "ann")))}


async def aremember(state, *, store: BaseStore):
    await store.aput(("users", "ann"), state["fact"], {"fact": state["fact"], "length": len(state["fact"])})
    found = await store.asearch(("users", "ann"), filter={"length": {"$gt": 2}})
    return {"known": sorted(item.key for item in found)}


def graph_with(store, node):
    return StateGraph(State).add_node("node", node).add_edge(START, "node").compile(store=store)


def known_after_two_runs(half, store):
    graph = graph_with(store, remember if half.name == "sync" else aremember)
    half.invoke(graph, {"fact": "tea", "known": []})
    return half.invoke(graph, {"fact": "cats", "known": []})["known"]


@pytest.fixture(params=["memory", "sqlite", "postgres", "mysql", "redis_server"])
def store(request, tmp_path):
    """A `Store(url)` on each backend."""
    if request.param == "memory":
        made = ours.InMemoryStore(index=INDEX)
    elif request.param == "sqlite":
        made = ours.Store(tmp_path / "items.db", index=INDEX)
    else:
        place = request.getfixturevalue(request.param)
        own = f"t{uuid.uuid4().hex[:8]}_"
        prefix = {"key_prefix": own} if request.param == "redis_server" else {"table_prefix": own}
        made = ours.Store(place.url, index=INDEX, **prefix)
    with made:
        yield made


def test_a_graph_remembers_across_threads_on_every_backend(half, store):
    assert isinstance(store, BaseStore)
    assert known_after_two_runs(half, store) == ["cats", "tea"]
    item = store.get(("users", "ann"), "tea")
    assert (item.namespace, item.key, item.value) == (("users", "ann"), "tea", {"fact": "tea", "length": 3})
    assert item.created_at.tzinfo is not None


def test_sync_store_names_are_constructed_as_the_originals_are(tmp_path, private_postgres, redis_server, half):
    with ours.SqliteStore.from_conn_string(str(tmp_path / "a.db"), index=INDEX, ttl={"default_ttl": 5}) as store:
        store.setup()
        assert known_after_two_runs(half, store) == ["cats", "tea"]
    with contextlib.closing(sqlite3.connect(tmp_path / "a.db", check_same_thread=False)) as connection:
        store = ours.SqliteStore(connection)
        assert store.get(("users", "ann"), "tea").value["length"] == 3
    with ours.PostgresStore.from_conn_string(private_postgres.url, pipeline=False, index=INDEX) as store:
        store.setup()
        assert known_after_two_runs(half, store) == ["cats", "tea"]
    with psycopg.connect(private_postgres.url, autocommit=True) as connection:
        assert ours.PostgresStore(connection).get(("users", "ann"), "tea").value["length"] == 3
    prefix = {"key_prefix": redis_server.key_prefix}
    with ours.RedisStore.from_conn_string(redis_server.url, **prefix) as store:
        store.setup()
        assert known_after_two_runs(half, store) == ["cats", "tea"]
    own = {"cluster_mode": False, "store_prefix": redis_server.key_prefix, "vector_prefix": "vectors", "ttl": None}
    with redis.Redis.from_url(redis_server.url) as client:
        assert ours.RedisStore(client, **prefix).get(("users", "ann"), "tea").value["length"] == 3
        assert ours.RedisStore(client, index=None, **own).get(("users", "ann"), "tea").value["length"] == 3
    with ours.RedisStore.from_conn_string(redis_server.url, **own) as store:
        assert store.get(("users", "ann"), "tea").value["length"] == 3


def test_async_store_names_are_constructed_as_the_originals_are(tmp_path, private_postgres, redis_server):
    async def known(store):
        await store.setup()
        graph = graph_with(store, aremember)
        await graph.ainvoke({"fact": "tea", "known": []})
        return (await graph.ainvoke({"fact": "cats", "known": []}))["known"]

    async def run():
        async with ours.AsyncSqliteStore.from_conn_string(str(tmp_path / "a.db"), index=INDEX) as store:
            assert await known(store) == ["cats", "tea"]
        async with aiosqlite.connect(tmp_path / "b.db") as connection:
            assert await known(ours.AsyncSqliteStore(connection)) == ["cats", "tea"]
        async with ours.AsyncPostgresStore.from_conn_string(private_postgres.url) as store:
            assert await known(store) == ["cats", "tea"]
            assert await store.sweep_ttl() == 0
        async with ours.AsyncRedisStore.from_conn_string(redis_server.url, key_prefix=redis_server.key_prefix) as store:
            assert await known(store) == ["cats", "tea"]
        own = {"store_prefix": redis_server.key_prefix, "vector_prefix": "vectors", "cluster_mode": None, "ttl": None}
        async with ours.AsyncRedisStore(redis_server.url, index=None, connection_args=None, **own) as store:
            assert await known(store) == ["cats", "tea"]
        async with redis.asyncio.Redis.from_url(redis_server.url) as client:
            store = ours.AsyncRedisStore(redis_client=client, **own)
            assert (await store.aget(("users", "ann"), "tea")).value["length"] == 3
        async with ours.AsyncRedisStore.from_conn_string(redis_server.url, **own) as store:
            assert (await store.aget(("users", "ann"), "tea")).value["length"] == 3
        with pytest.raises(InvalidRequest, match="redis_url"):
            ours.AsyncRedisStore()

    asyncio.run(run())


@pytest.fixture(params=["memory", "sqlite", "postgres"])
def pair(request, tmp_path):
    """The original store of a backend, and ours."""
    with contextlib.ExitStack() as opened:
        if request.param == "memory":
            yield langgraph.store.memory.InMemoryStore(), ours.InMemoryStore()
            return
        if request.param == "sqlite":
            names = langgraph.store.sqlite.SqliteStore, ours.SqliteStore
            places = [str(tmp_path / "theirs.db"), str(tmp_path / "ours.db")]
        else:
            names = langgraph.store.postgres.PostgresStore, ours.PostgresStore
            places = [request.getfixturevalue("private_postgres").url] * 2
        stores = [opened.enter_context(name.from_conn_string(place)) for name, place in zip(names, places, strict=True)]
        for one in stores:
            one.setup()
        yield tuple(stores)


def shown(result):
    """A result without times."""
    if isinstance(result, list):
        return [shown(one) for one in result]
    return (result.namespace, result.key, result.value) if hasattr(result, "key") else result


def outcome(call):
    try:
        return shown(call())
    except Exception as error:
        return type(error)


def both_give(pair, act):
    """What an act gives on the original; ours must give the same."""
    theirs, own = [outcome(lambda store=store: act(store)) for store in pair]
    assert own == theirs
    return own


def test_upserts_and_deletions_are_those_of_the_originals(pair):
    both_give(pair, lambda store: store.put(("a", "b"), "k", {"n": 1, "list": [1, {"x": None}]}))
    both_give(pair, lambda store: store.put(("a", "b"), "k", {"n": 2}))
    assert both_give(pair, lambda store: store.get(("a", "b"), "k")) == (("a", "b"), "k", {"n": 2})
    both_give(pair, lambda store: store.delete(("a", "b"), "k"))
    both_give(pair, lambda store: store.delete(("a", "b"), "never"))
    assert both_give(pair, lambda store: store.get(("a", "b"), "k")) is None
    both_give(pair, lambda store: store.put(("a", "b"), "none", None))
    assert both_give(pair, lambda store: store.search(())) == []


def test_a_put_keeps_the_time_of_creation_and_moves_that_of_the_update(pair):
    for store in pair:
        store.put(("a",), "k", {"n": 1})
        first = store.get(("a",), "k")
        time.sleep(1.1)  # the original for SQLite counts in seconds
        store.put(("a",), "k", {"n": 2})
        second = store.get(("a",), "k")
        # The original in memory and on SQLite begin anew.
        if type(store).__module__.startswith("threadline"):
            assert second.created_at == first.created_at
        assert second.updated_at > first.updated_at


def test_the_last_of_several_puts_in_a_batch_holds_and_reads_see_what_was_before(pair):
    ops = [
        PutOp(("a",), "k", {"n": 1}),
        PutOp(("a",), "k", {"n": 2}),
        PutOp(("a",), "gone", {"n": 1}),
        PutOp(("a",), "gone", None),
        GetOp(("a",), "k"),
    ]
    assert both_give(pair, lambda store: store.batch(ops)) == [None] * 5
    assert both_give(pair, lambda store: store.get(("a",), "k"))[2] == {"n": 2}
    assert both_give(pair, lambda store: store.get(("a",), "gone")) is None
    ops = [GetOp(("a",), "k"), SearchOp(("a",)), ListNamespacesOp()]
    assert both_give(pair, lambda store: store.batch(ops))[2] == [("a",)]


def test_namespaces_are_listed_as_the_originals_list_them(pair):
    for store in pair:
        for path in (("a", "b", "c"), ("a", "b", "d"), ("a", "x", "c"), ("e", "b", "c"), ("a",)):
            store.put(path, "k", {})
    for options in (
        {},
        {"prefix": ("a",)},
        {"prefix": ("a", "b")},
        {"prefix": ("*", "b")},
        {"suffix": ("c",)},
        {"suffix": ("*", "c")},
        {"prefix": ("a",), "suffix": ("c",)},
        {"max_depth": 1},
        {"max_depth": 2},
        {"prefix": ("a",), "max_depth": 2},
        {"prefix": ("none",)},
        {"limit": 2},
        {"limit": 2, "offset": 3},
    ):
        theirs, own = [sorted(store.list_namespaces(**options)) for store in pair]
        assert own == theirs, options
    conditions = (MatchCondition("prefix", ("a",)), MatchCondition("suffix", ("d",)))
    assert both_give(pair, lambda store: store.batch([ListNamespacesOp(match_conditions=conditions)])) == [
        [("a", "b", "d")]
    ]


def test_filters_find_what_the_originals_find(pair):
    for store in pair:
        for number in range(6):
            value = {"n": number, "even": number % 2 == 0, "word": "xyz"[number % 3], "deep": {"m": number}}
            store.put(("a", str(number % 2)), str(number), value)
    for filter in (
        None,
        {"n": 3},
        {"word": "y"},
        {"even": True},
        {"n": {"$gt": 2}},
        {"n": {"$gte": 2, "$lt": 5}},
        {"n": {"$lte": 0}},
        {"n": {"$eq": 2}},
        {"n": {"$ne": 2}},
        {"word": "z", "even": False},
        {"word": "none"},
    ):
        theirs, own = [sorted(map(shown, store.search(("a",), filter=filter))) for store in pair]
        assert own == theirs, filter
    for page in ({"limit": 0}, {"limit": 2}, {"limit": 2, "offset": 5}, {"limit": 9, "offset": 9}):
        assert len({len(store.search(("a",), **page)) for store in pair}) == 1, page


@pytest.mark.parametrize(
    "namespace", [(), ("",), ("a", ""), ("a.b",), ("langgraph",), ("langgraph", "x"), ("a", "langgraph"), (1,)]
)
def test_label_rules_are_those_of_the_originals(pair, namespace):
    told = both_give(pair, lambda store: store.put(namespace, "k", {"n": 1}))
    assert told is (None if namespace == ("a", "langgraph") else InvalidNamespaceError)


def test_a_batch_may_use_the_root_langgraph(pair):
    both_give(pair, lambda store: store.batch([PutOp(("langgraph", "own"), "k", {"n": 1})]))
    assert both_give(pair, lambda store: store.batch([GetOp(("langgraph", "own"), "k")]))[0][2] == {"n": 1}


BAD = [PutOp(("a", ""), "k", {}), GetOp(("a.b",), "k"), SearchOp(("a", "")), PutOp(("a",), "", {}), PutOp((), "k", {})]


@pytest.mark.parametrize("op", BAD)
def test_a_batch_with_a_bad_namespace_or_key_stores_nothing(store, half, op):
    with pytest.raises((InvalidNamespaceError, InvalidRequest)):
        half.call(store, "batch", [PutOp(("good",), "k", {}), op])
    assert half.call(store, "search", ()) == []


def test_items_expire_and_reading_refreshes_them(pair):
    if type(pair[0]).__module__.endswith("memory"):
        with pytest.raises(NotImplementedError):
            pair[0].put(("a",), "k", {}, ttl=1)  # ours has a time to live in memory too
        pair[1].put(("a",), "k", {}, ttl=1)
        assert pair[1].native.get(("a",), "k").expires_at is not None
        return
    for store in pair:
        store.put(("a",), "short", {}, ttl=2 / 60)
        store.put(("a",), "read", {}, ttl=2 / 60)
        store.put(("a",), "looked", {}, ttl=2 / 60)
        store.put(("a",), "kept", {})
    time.sleep(1.2)
    for store in pair:
        assert store.get(("a",), "read", refresh_ttl=True) is not None
        assert store.get(("a",), "looked", refresh_ttl=False) is not None
    time.sleep(1.2)
    for store in pair:
        store.sweep_ttl()
        left = {item.key for item in store.search(("a",), refresh_ttl=False)}
        assert "kept" in left
    # Of ours, which is the second: the originals keep whole minutes or seconds of a time to live.
    assert left == {"kept", "read"}


def test_a_sweeper_runs_in_the_background_until_it_is_stopped(tmp_path):
    with ours.SqliteStore.from_conn_string(str(tmp_path / "a.db"), ttl={"sweep_interval_minutes": 0.001}) as store:
        store.put(("a",), "k", {}, ttl=0.001)
        running = store.start_ttl_sweeper()
        deadline = time.monotonic() + 20
        count = "SELECT count(*) FROM threadline_records WHERE space = 1"
        with contextlib.closing(sqlite3.connect(tmp_path / "a.db")) as connection:
            while connection.execute(count).fetchone() != (0,) and time.monotonic() < deadline:
                time.sleep(0.02)
            assert connection.execute(count).fetchone() == (0,)
        assert store.stop_ttl_sweeper(timeout=10)
        assert running.done()


def test_a_sweeper_goes_on_after_an_error(tmp_path, monkeypatch, caplog):
    with ours.SqliteStore.from_conn_string(str(tmp_path / "a.db")) as store:
        outcomes = [OSError("away for a while"), 0, 0]
        swept = threading.Event()

        def sweep():
            outcome = outcomes.pop(0) if outcomes else swept.set()
            if isinstance(outcome, Exception):
                raise outcome

        monkeypatch.setattr(store.native, "sweep", sweep)
        running = store.start_ttl_sweeper(0.0005)
        assert swept.wait(10)
        assert not running.done()
        assert "away for a while" in caplog.text
        assert store.stop_ttl_sweeper(timeout=10)
        assert running.result(timeout=10) is None


def test_a_sweeper_that_was_cancelled_has_stopped(tmp_path):
    with ours.SqliteStore.from_conn_string(str(tmp_path / "a.db")) as store:
        running = store.start_ttl_sweeper(60)
        assert running.cancel()
        assert store.stop_ttl_sweeper(timeout=10) is True
        again = store.start_ttl_sweeper(60)
        assert again is not running
        assert not again.done()


def test_an_async_store_stops_its_sweeper_when_it_is_closed(tmp_path):
    async def run():
        async with aiosqlite.connect(tmp_path / "a.db") as connection:
            store = ours.AsyncSqliteStore(connection)
            running = await store.start_ttl_sweeper(60)
            with warnings.catch_warnings(record=True) as told:
                warnings.simplefilter("always")
                store.close()
            assert [str(one.message) for one in told if "never awaited" in str(one.message)] == []
            await asyncio.wait_for(running, 10)

    asyncio.run(run())


def test_a_pool_of_any_name_is_a_pool(private_postgres):
    class Connections(psycopg_pool.ConnectionPool):
        pass

    with Connections(private_postgres.url, min_size=1, max_size=4, kwargs={"autocommit": True}) as pool:
        store = ours.PostgresStore(pool)
        store.put(("n",), "k", {"a": 1})
        assert store.get(("n",), "k").value == {"a": 1}
        assert list(ours.PostgresSaver(pool).list(None)) == []


def test_a_store_shows_how_it_was_made():
    store = ours.InMemoryStore(index=INDEX)
    assert store.index_config["fields"] == ["text"]
    assert store.embeddings.embed_query("a") == embed(["a"])[0]
    assert ours.InMemoryStore().index_config is None
    for wrong in (5, 0.5, "5"):
        with pytest.raises(InvalidRequest, match="default_ttl"):
            ours.Store("memory://", ttl=wrong)
    for kind in (ours.Cache, threadline.Cache, threadline.Store):
        with pytest.raises(InvalidRequest, match="default_ttl"):
            kind("memory://", ttl=5)


def test_the_empty_namespace_holds_nothing(pair):
    def act(store):
        store.put(("a",), "k", {"n": 1})
        store.delete((), "k")
        found = store.batch([GetOp((), "k"), GetOp(("a",), "k"), PutOp((), "k", None), SearchOp(())])
        return store.get((), "k"), found[0], found[1].value, found[2], [item.key for item in found[3]]

    both_give(pair, act)


def test_semantic_search_has_the_order_and_scores_of_the_original(half, store):
    theirs = langgraph.store.memory.InMemoryStore(index=INDEX)
    texts = ["banana", "apple pie", "kiwi", "hello", "aaa", "mummy"]
    for one in (theirs, store):
        for number, text in enumerate(texts):
            one.put(("fruit", str(number % 2)), text, {"text": text, "n": number})
    for query in ("a", "eee", "an oak", "u"):
        expected = theirs.search(("fruit",), query=query)
        found = half.call(store, "search", ("fruit",), query=query)
        assert [item.key for item in found] == [item.key for item in expected]
        assert [item.score for item in found] == pytest.approx([item.score for item in expected], abs=1e-5)
        narrowed = half.call(store, "search", ("fruit",), query=query, filter={"n": {"$gt": 2}}, limit=2)
        assert [item.key for item in narrowed] == [item.key for item in expected if item.value["n"] > 2][:2]


class Asymmetric(Embeddings):
    """A model that sees a question with other eyes than what answers it."""

    def embed_documents(self, texts):
        return [[1.0, 0.0] if text == "x" else [0.0, 1.0] for text in texts]

    def embed_query(self, text):
        return [0.0, 1.0] if text == "x" else [1.0, 0.0]


def test_queries_are_embedded_as_the_original_embeds_them(half):
    index = {"dims": 2, "embed": Asymmetric(), "fields": ["text"]}
    for made in (ours.InMemoryStore(index=index), langgraph.store.memory.InMemoryStore(index=index)):
        made.batch([PutOp(("n",), "1", {"text": "x"}), PutOp(("n",), "2", {"text": "y"})])
        for query, expected in (("x", ["2", "1"]), ("y", ["1", "2"])):
            ops = [SearchOp(("n",), query=query)]
            [found] = made.batch(ops) if half.name == "sync" else asyncio.run(made.abatch(ops))
            assert [item.key for item in found] == expected


def test_a_real_embedding_finds_by_meaning(half, tmp_path):
    from pathlib import Path

    import wordllama

    model = wordllama.WordLlama.load(cache_dir=Path(wordllama.__file__).parent, disable_download=True)
    index = {"dims": 256, "embed": lambda texts: model.embed(list(texts)).tolist(), "fields": ["text"]}
    facts = {
        "pet": "Ann has a small dog and two cats",
        "food": "Ann likes spaghetti with tomato sauce",
        "work": "Ann writes software for a bank",
        "place": "Ann lives in a village by the sea",
    }
    with ours.Store(tmp_path / "items.db", index=index) as store:
        for key, text in facts.items():
            half.call(store, "put", ("users", "ann"), key, {"text": text})
        for query, key in (
            ("which animals does she keep at home?", "pet"),
            ("what should we cook for dinner?", "food"),
            ("computer programming job", "work"),
            ("house near the ocean", "place"),
        ):
            assert half.call(store, "search", ("users",), query=query, limit=1)[0].key == key


def test_what_a_store_cannot_keep_is_refused_by_name(store):
    for value, path in (
        ({"a": [1, object()]}, "value['a'][1]"),
        ({"a": {1: 2}}, "value['a']"),
        ({"a": b""}, "value['a']"),
    ):
        with pytest.raises(InvalidRequest) as told:
            store.put(("a",), "k", value)
        assert path in str(told.value)
    with pytest.raises(InvalidRequest):
        store.put(("a",), "", {})
    assert store.search(()) == []


# -- caches


@pytest.fixture(params=["memory", "sqlite", "sqlite url", "redis_server", "postgres"])
def cache(request, tmp_path):
    if request.param == "memory":
        made = ours.InMemoryCache()
    elif request.param == "sqlite":
        made = ours.SqliteCache(path=str(tmp_path / "cache.db"))
    elif request.param == "sqlite url":
        made = ours.Cache(f"sqlite:///{tmp_path / 'cache.db'}")
    elif request.param == "redis_server":
        place = request.getfixturevalue(request.param)
        made = ours.RedisCache(redis.Redis.from_url(place.url), prefix=place.key_prefix)
    else:
        made = ours.Cache(request.getfixturevalue(request.param).url)
    yield made
    made.native.close()


def counting_graph(cache, ran, ttl=None):
    def slow(state):
        ran.append(state["fact"])
        return {"known": [state["fact"].upper()]}

    builder = StateGraph(State).add_node("slow", slow, cache_policy=CachePolicy(ttl=ttl)).add_edge(START, "slow")
    return builder.compile(cache=cache)


def test_a_node_whose_result_is_cached_does_not_run_again(half, cache, request):
    if request.node.callspec.params["cache"] == "redis_server" and half.name == "async":
        cache.native.close()
        place = request.getfixturevalue("redis_server")
        cache = ours.Cache(place.url, key_prefix=place.key_prefix)
    ran = []
    graph = counting_graph(cache, ran)
    for _ in range(3):
        assert half.invoke(graph, {"fact": "tea", "known": []})["known"] == ["TEA"]
    assert ran == ["tea"]
    half.invoke(graph, {"fact": "cats", "known": []})
    half.call(graph, "clear_cache")
    half.invoke(graph, {"fact": "tea", "known": []})
    assert ran == ["tea", "cats", "tea"]


def test_a_cached_result_ends_with_its_time_to_live(half, tmp_path):
    ran = []
    graph = counting_graph(ours.Cache(tmp_path / "cache.db"), ran, ttl=1)
    half.invoke(graph, {"fact": "tea", "known": []})
    half.invoke(graph, {"fact": "tea", "known": []})
    time.sleep(1.1)
    half.invoke(graph, {"fact": "tea", "known": []})
    assert ran == ["tea", "tea"]


@pytest.mark.parametrize("kind", ["memory", "sqlite"])
def test_caches_do_what_the_originals_do(kind, tmp_path):
    if kind == "memory":
        pair = langgraph.cache.memory.InMemoryCache(), ours.InMemoryCache()
    else:
        theirs = langgraph.cache.sqlite.SqliteCache(path=str(tmp_path / "theirs.db"))
        pair = theirs, ours.SqliteCache(path=str(tmp_path / "ours.db"))
    first, other, below = (("a",), "k"), (("b",), "k"), (("a", "c"), "k")
    both_give(pair, lambda cache: cache.set({first: ({"x": 1}, None), other: ([1, 2], 60), below: ("t", None)}))
    keys = [first, other, below, (("a",), "absent")]
    assert both_give(pair, lambda cache: cache.get(keys)) == {first: {"x": 1}, other: [1, 2], below: "t"}
    both_give(pair, lambda cache: cache.clear([("a",)]))
    assert both_give(pair, lambda cache: cache.get([first, other])) == {other: [1, 2]}
    both_give(pair, lambda cache: cache.clear())
    assert both_give(pair, lambda cache: cache.get(keys)) == {}


def test_a_cache_that_cannot_be_reached_fails_no_node(half, caplog):
    ran = []
    graph = counting_graph(ours.Cache("redis://127.0.0.1:1/0", retry=None, timeout=0.5), ran)
    for _ in range(2):
        assert half.invoke(graph, {"fact": "tea", "known": []})["known"] == ["TEA"]
    assert ran == ["tea", "tea"]
    assert "the cache cannot be reached" in caplog.text


def test_an_entry_that_cannot_be_read_is_a_miss(half, tmp_path, caplog):
    ran = []
    with contextlib.closing(ours.Cache(tmp_path / "cache.db").native) as cache:
        cache.set({(("n",), "k"): (1, None)})
        with contextlib.closing(sqlite3.connect(tmp_path / "cache.db")) as connection:
            connection.execute("UPDATE threadline_records SET value = x'00'")
            connection.commit()
        assert half.call(cache, "get", [(("n",), "k")]) == {}
    assert "counts as missing" in caplog.text
    assert ran == []
