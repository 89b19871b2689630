"""Items of a Store and entries of a Cache beside LangGraph's own on the same backend, through its interface."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, ExitStack
from pathlib import Path
from statistics import median
from time import perf_counter
from typing import Any

from langgraph.cache.memory import InMemoryCache
from langgraph.cache.sqlite import SqliteCache
from langgraph.store.base import PutOp
from langgraph.store.memory import InMemoryStore
from langgraph.store.postgres import PostgresStore
from langgraph.store.sqlite import AsyncSqliteStore, SqliteStore

import threadline.langgraph as ours
from bench import servers
from bench.arena import Arena, Entrant, Reading
from bench.checks import check

Opened = Callable[[Entrant], AbstractContextManager[Any]]

NAMESPACE = ("users", "7", "memories")
BATCH = 100
TASKS, PUTS_OF_A_TASK = 64, 5
# Of so many users each has as many items as the others.
USERS = 1_000
FOUND = 10
REPEATS = 5


def store(arena: Arena) -> Iterator[Reading]:
    yield from _in_memory(arena)
    yield from _on_sqlite(arena)
    with servers.postgres() as server:
        yield from _on_postgres(arena, server)
    with servers.redis() as server_of_caches:
        yield from _on_redis(arena, server_of_caches)


def _in_memory(arena: Arena) -> Iterator[Reading]:
    def opened(entrant: Entrant) -> AbstractContextManager[Any]:
        return _is_ours(arena, entrant, lambda: ours.InMemoryStore(), InMemoryStore)

    yield from _single(arena, "store.memory", opened, calls=1_000)
    yield from _cache(
        arena, "store.cache_memory", lambda entrant: _is_ours(arena, entrant, ours.InMemoryCache, InMemoryCache)
    )


def _on_sqlite(arena: Arena) -> Iterator[Reading]:
    def opened(entrant: Entrant) -> AbstractContextManager[Any]:
        return _sqlite(arena, entrant, arena.new_place(entrant))

    def cache(entrant: Entrant) -> AbstractContextManager[Any]:
        place = str(arena.new_place(entrant))
        return _is_ours(arena, entrant, lambda: ours.SqliteCache(path=place), lambda: SqliteCache(path=place))

    yield from _single(arena, "store.sqlite", opened, calls=100)
    yield from _search(arena, "store.sqlite_search", opened)
    tasks = arena.medians(REPEATS, lambda entrant: asyncio.run(_tasks(arena, entrant)))
    yield Reading("store.sqlite_tasks", tasks.ours, tasks.peer)
    yield from _cache(arena, "store.cache_sqlite", cache)


def _on_postgres(arena: Arena, server: servers.Postgres) -> Iterator[Reading]:
    def opened(entrant: Entrant) -> AbstractContextManager[Any]:
        url = server.url(arena.new_place(entrant))
        return _is_ours(
            arena,
            entrant,
            lambda: ours.Store(url, index_fields=("user_id",)),
            lambda: PostgresStore.from_conn_string(url),
        )

    yield from _single(arena, "store.postgres", opened, calls=100)
    yield from _search(arena, "store.postgres_search", opened)


def _on_redis(arena: Arena, server: servers.Redis) -> Iterator[Reading]:
    """Caches only: LangGraph's store of Redis needs modules of the server."""
    from langgraph.cache.redis import RedisCache

    import redis

    with redis.Redis.from_url(server.url) as client:
        yield from _cache(
            arena,
            "store.cache_redis",
            lambda entrant: _is_ours(
                arena,
                entrant,
                lambda: ours.Cache(server.url, key_prefix="ours"),
                lambda: RedisCache(client, prefix="peer:"),
            ),
        )


def _is_ours(arena: Arena, entrant: Entrant, make: Callable[[], Any], peer: Callable[[], Any]) -> Any:
    """What the side opens, as a context; what has none of its own is kept open."""
    made = make() if entrant.name == "ours" and not arena.is_calibration else peer()
    return made if hasattr(made, "__enter__") else _Kept(made)


class _Kept:
    def __init__(self, held: Any) -> None:
        self._held = held

    def __enter__(self) -> Any:
        return self._held

    def __exit__(self, *_: object) -> None:
        return None


def _sqlite(arena: Arena, entrant: Entrant, place: Path) -> Any:
    return _is_ours(
        arena,
        entrant,
        lambda: ours.Store(f"sqlite:///{place}", index_fields=("user_id",)),
        lambda: SqliteStore.from_conn_string(str(place)),
    )


# -- what is measured


def _single(arena: Arena, key: str, opened: Opened, *, calls: int) -> Iterator[Reading]:
    """A put, a get and a batch of 100 puts; both stores stay open, and calls of one go between those of the other."""
    with ExitStack() as stack:
        held = {name: stack.enter_context(opened(Entrant(name, side))) for name, side in _sides(arena)}
        for one in held.values():
            _set_up(one)
            one.batch(_puts(0, BATCH))

        def put(entrant: Entrant) -> float:
            return _timed(calls, lambda n: held[entrant.name].put(NAMESPACE, f"item-{n % BATCH}", _value(n)))

        def get(entrant: Entrant) -> float:
            return _timed(calls, lambda n: held[entrant.name].get(NAMESPACE, f"item-{n % BATCH}"))

        def batch(entrant: Entrant) -> float:
            return _timed(10, lambda n: held[entrant.name].batch(_puts(n, BATCH)))

        for name, measure in (("put", put), ("get", get), ("batch", batch)):
            pair = arena.medians(REPEATS, measure)
            yield Reading(f"{key}_{name}", pair.ours, pair.peer)
        for one in held.values():
            check(one.get(NAMESPACE, "item-0").value == _value(9), "an item is not what was put")


def _search(arena: Arena, key: str, opened: Opened) -> Iterator[Reading]:
    """The items of one user, of many users' items below one namespace."""
    with ExitStack() as stack:
        held = {name: stack.enter_context(opened(Entrant(name, side))) for name, side in _sides(arena)}
        for one in held.values():
            _set_up(one)
            for start in range(0, arena.size.store_items, 1_000):
                one.batch(_puts(start, min(1_000, arena.size.store_items - start), numbered=True))

        def search(entrant: Entrant) -> float:
            def once(number: int) -> None:
                user = f"user-{number}"
                found = held[entrant.name].search(NAMESPACE[:1], filter={"user_id": user}, limit=FOUND)
                check(bool(found) and all(one.value["user_id"] == user for one in found), "a search found others")

            return _timed(REPEATS, once)

        pair = arena.medians(REPEATS, search)
        yield Reading(key, pair.ours, pair.peer)


async def _tasks(arena: Arena, entrant: Entrant) -> float:
    """All puts of tasks that put at once, into one file."""
    place = arena.new_place(entrant)
    opened = _is_ours(
        arena,
        entrant,
        lambda: ours.Store(f"sqlite:///{place}"),
        lambda: AsyncSqliteStore.from_conn_string(str(place)),
    )
    opened = getattr(opened, "_held", opened)
    async with opened as held:
        made = held.setup()
        if made is not None:
            await made
        await held.aput(NAMESPACE, "first", _value(0))

        async def task(number: int) -> None:
            for turn in range(PUTS_OF_A_TASK):
                await held.aput((*NAMESPACE, str(number)), f"item-{turn}", _value(turn))

        start = perf_counter()
        await asyncio.gather(*(task(number) for number in range(TASKS)))
        seconds = perf_counter() - start
        last = await held.aget((*NAMESPACE, str(TASKS - 1)), f"item-{PUTS_OF_A_TASK - 1}")
        check(last is not None and last.value == _value(PUTS_OF_A_TASK - 1), "a task's item is gone")
        return seconds


def _cache(arena: Arena, key: str, opened: Opened) -> Iterator[Reading]:
    with ExitStack() as stack:
        held = {name: stack.enter_context(opened(Entrant(name, side))) for name, side in _sides(arena)}

        def put(entrant: Entrant) -> float:
            return _timed(BATCH, lambda n: held[entrant.name].set({(NAMESPACE, f"key-{n}"): (_value(n), 600)}))

        def get(entrant: Entrant) -> float:
            return _timed(BATCH, lambda n: held[entrant.name].get([(NAMESPACE, f"key-{n}")]))

        for name, measure in (("set", put), ("get", get)):
            pair = arena.medians(REPEATS, measure)
            yield Reading(f"{key}_{name}", pair.ours, pair.peer)
        for one in held.values():
            found = one.get([(NAMESPACE, "key-1")])
            check(found == {(NAMESPACE, "key-1"): _value(1)}, "a cached value is not what was set")


def _sides(arena: Arena) -> list[tuple[str, Any]]:
    return [("ours", arena.ours), ("peer", arena.peer)]


def _set_up(store: Any) -> None:
    if hasattr(store, "setup"):
        store.setup()


def _timed(times: int, call: Callable[[int], object]) -> float:
    """The median time of a call."""
    taken = []
    for number in range(times):
        start = perf_counter()
        call(number)
        taken.append(perf_counter() - start)
    return median(taken)


def _puts(first: int, count: int, *, numbered: bool = False) -> list[PutOp]:
    """Puts of values; of items that are numbered on, or of the same ones each time."""
    start = first if numbered else 0
    return [PutOp(NAMESPACE, f"item-{start + n}", _value(first + n)) for n in range(count)]


def _value(number: int) -> dict[str, Any]:
    return {
        "user_id": f"user-{number % USERS}",
        "text": "prefers tea to coffee, and trains to planes " * 4,
        "confidence": 0.5,
        "tags": ["taste", "travel"],
    }
