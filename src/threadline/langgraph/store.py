"""LangGraph's stores under their own names, on a Threadline store: `compile(store=Store("sqlite:///agents.db"))`.

Namespaces are validated in every operation as LangGraph does it, and results are LangGraph's own `Item` and
`SearchItem`. Times to live are minutes, as in the originals.
"""

from __future__ import annotations

import logging
import os
import threading
from collections.abc import AsyncIterator, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Future, InvalidStateError
from contextlib import asynccontextmanager, contextmanager, suppress
from datetime import datetime
from functools import lru_cache
from typing import TYPE_CHECKING, Any, TypeVar

from langgraph.store import base
from langgraph.store.base import (
    NOT_PROVIDED,
    BaseStore,
    GetOp,
    InvalidNamespaceError,
    Item,
    PutOp,
    SearchItem,
    TTLConfig,
    ensure_embeddings,
)

from ..base.printable import printable
from ..connect import is_pool, make_engine, make_tools, split_options
from ..core.records import batch
from ..core.records.single import ItemPlace, item_place
from ..errors import Closed, InvalidRequest
from ..ports.engine import Engine
from ..store import ItemStore

if TYPE_CHECKING:
    import asyncio

__all__ = [
    "AsyncPostgresStore",
    "AsyncRedisStore",
    "AsyncSqliteStore",
    "InMemoryStore",
    "PostgresStore",
    "RedisStore",
    "SqliteStore",
    "Store",
]

log = logging.getLogger("threadline.store")
S = TypeVar("S", bound="Store")
_SWEEP_MINUTES = 5


class Store(BaseStore):
    """Items across threads for LangGraph's graphs, sync and async on one object.

        graph = builder.compile(store=Store("sqlite:///agents.db"))

    Takes the options of `threadline.Store`, and `ttl=` as LangGraph's stores do. `native` is the Threadline store
    itself, with history, counts and compare-and-swap.
    """

    supports_ttl = True

    def __init__(
        self,
        url: str | os.PathLike[str] | None = None,
        *,
        index: Mapping[str, Any] | None = None,
        ttl: TTLConfig | None = None,
        index_fields: Iterable[str] = (),
        keep_versions: Any = None,
        **options: Any,
    ) -> None:
        engine_options, tool_options = split_options(options)
        engine = make_engine(url, **engine_options)
        self._start(engine, tool_options, index, ttl, index_fields=index_fields, keep_versions=keep_versions)

    def _start(
        self,
        engine: Engine,
        tool_options: dict[str, Any],
        index: Mapping[str, Any] | None,
        ttl: TTLConfig | None,
        **options: Any,
    ) -> None:
        if ttl is not None and not isinstance(ttl, Mapping):
            raise InvalidRequest(f"ttl is a dict such as {{'default_ttl': 60}}, in minutes, not {ttl!r}")
        self.ttl_config = ttl
        # As the originals have it, for programs that look.
        self.index_config = dict(index) if index is not None else None
        self.embeddings: Any = None
        self._sweeping: _Sweeping | None = None
        if index is not None:
            self.embeddings = ensure_embeddings(index.get("embed"))
            index = {**index, "embed": self.embeddings}
        self.native = ItemStore(engine, make_tools(engine, **tool_options), index=index, **options)

    def batch(self, ops: Iterable[Any]) -> list[Any]:
        asked = list(ops)
        if self.native.put_all(asked, PutOp, _places):
            return [None] * len(asked)
        checked = _checked(asked)
        return _answers(checked, self.native.batch([_native(op) for op in checked if not _is_nowhere(op)]))

    async def abatch(self, ops: Iterable[Any]) -> list[Any]:
        asked = list(ops)
        if await self.native.aput_all(asked, PutOp, _places):
            return [None] * len(asked)
        checked = _checked(asked)
        return _answers(checked, await self.native.abatch([_native(op) for op in checked if not _is_nowhere(op)]))

    # What BaseStore makes of a single operation, without a batch of one.

    def get(self, namespace: tuple[str, ...], key: str, *, refresh_ttl: bool | None = None) -> Item | None:
        if namespace == ():
            return None
        refresh = refresh_ttl if self.ttl_config is None else self._refreshes(refresh_ttl)
        return self.native.find(_place(namespace, key), _made_item, refresh)

    async def aget(self, namespace: tuple[str, ...], key: str, *, refresh_ttl: bool | None = None) -> Item | None:
        if namespace == ():
            return None
        refresh = refresh_ttl if self.ttl_config is None else self._refreshes(refresh_ttl)
        return await self.native.afind(_place(namespace, key), _made_item, refresh)

    def put(
        self,
        namespace: tuple[str, ...],
        key: str,
        value: Mapping[str, Any] | None,
        index: Any = None,
        *,
        ttl: Any = NOT_PROVIDED,
    ) -> None:
        _check_root(namespace)
        place = _place(namespace, key)
        if value is not None and (index is None or index is False) and self.native.is_straight:
            self.native.put_at(place, value, self._lives(ttl))
        elif value is None:  # a deletion
            self.native.delete(place.namespace, place.key)
        else:
            self.native.put(place.namespace, place.key, value, index, ttl=self._lives(ttl))

    async def aput(
        self,
        namespace: tuple[str, ...],
        key: str,
        value: Mapping[str, Any] | None,
        index: Any = None,
        *,
        ttl: Any = NOT_PROVIDED,
    ) -> None:
        _check_root(namespace)
        place = _place(namespace, key)
        if value is not None and (index is None or index is False) and self.native.is_straight:
            await self.native.aput_at(place, value, self._lives(ttl))
        elif value is None:
            await self.native.adelete(place.namespace, place.key)
        else:
            await self.native.aput(place.namespace, place.key, value, index, ttl=self._lives(ttl))

    def _lives(self, ttl: Any) -> Any:
        if ttl is not NOT_PROVIDED:
            return ttl
        return self.ttl_config.get("default_ttl") if self.ttl_config else None

    def _refreshes(self, asked: bool | None) -> bool:
        if asked is not None or self.ttl_config is None:
            return asked is not False
        return self.ttl_config.get("refresh_on_read", True)

    def setup(self) -> Any:
        """Create the tables now, instead of on first use."""
        self.native.count()

    def sweep_ttl(self) -> Any:
        """Delete expired items; returns how many went."""
        return self.native.sweep()

    def start_ttl_sweeper(self, sweep_interval_minutes: int | None = None) -> Any:
        """Sweep in the background, every so many minutes, until `stop_ttl_sweeper`."""
        if self._sweeping is None or self._sweeping.future.done():
            configured = (self.ttl_config or {}).get("sweep_interval_minutes")
            self._sweeping = _Sweeping(self.native, 60.0 * (sweep_interval_minutes or configured or _SWEEP_MINUTES))
        return self._sweeping.future

    def stop_ttl_sweeper(self, timeout: float | None = None) -> Any:
        """Stop sweeping; tells whether it has stopped within the time given."""
        return self._sweeping is None or self._sweeping.stop(timeout)

    def close(self) -> None:
        """Stop sweeping and close the connections."""
        Store.stop_ttl_sweeper(self, 1.0)
        self.native.close()

    async def aclose(self) -> None:
        """Stop sweeping and close the connections."""
        Store.stop_ttl_sweeper(self, 1.0)
        await self.native.aclose()

    def __enter__(self: S) -> S:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    async def __aenter__(self: S) -> S:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.aclose()


class InMemoryStore(Store):
    """Items in this process, as `langgraph.store.memory.InMemoryStore`."""

    def __init__(self, *, index: Mapping[str, Any] | None = None, **options: Any) -> None:
        super().__init__("memory://", index=index, **options)


class _GivenStore(Store):
    """A store that is given a connection or a pool of its driver, or made from a connection string."""

    def __init__(
        self,
        conn: Any,
        *,
        pipe: Any = None,
        deserializer: Any = None,
        index: Mapping[str, Any] | None = None,
        ttl: TTLConfig | None = None,
        **options: Any,
    ) -> None:
        own = {name: options.pop(name) for name in ("index_fields", "keep_versions") if name in options}
        engine_options, tool_options = split_options(options)
        given = "pool" if is_pool(conn) else "connection"
        self._start(self._engine(**{given: conn}, **engine_options), tool_options, index, ttl, **own)

    @staticmethod
    def _engine(**options: Any) -> Engine:
        return make_engine(**options)

    @classmethod
    def _of_url(cls: type[S], conn_string: str, options: dict[str, Any]) -> S:
        made = cls.__new__(cls)
        for name in ("pipeline", "pool_config"):
            options.pop(name, None)
        Store.__init__(made, conn_string, **options)
        return made


class _SyncStore(_GivenStore):
    @classmethod
    @contextmanager
    def from_conn_string(cls: type[S], conn_string: str, **options: Any) -> Iterator[S]:
        """A store for a connection string, closed at the end of the `with` block."""
        with cls._of_url(conn_string, options) as store:  # type: ignore[attr-defined]
            yield store


class _AsyncStore(_GivenStore):
    @classmethod
    @asynccontextmanager
    async def from_conn_string(cls: type[S], conn_string: str, **options: Any) -> AsyncIterator[S]:
        """A store for a connection string, closed at the end of the `async with` block."""
        async with cls._of_url(conn_string, options) as store:  # type: ignore[attr-defined]
            yield store

    async def setup(self) -> None:
        await self.native.acount()

    async def sweep_ttl(self) -> int:
        return await self.native.asweep()

    async def start_ttl_sweeper(self, sweep_interval_minutes: int | None = None) -> asyncio.Future[None]:
        import asyncio

        return asyncio.wrap_future(super().start_ttl_sweeper(sweep_interval_minutes))

    async def stop_ttl_sweeper(self, timeout: float | None = None) -> bool:
        import asyncio

        return bool(await asyncio.to_thread(super().stop_ttl_sweeper, timeout))


class SqliteStore(_SyncStore):
    """Items in SQLite, as `langgraph.store.sqlite.SqliteStore`."""


class AsyncSqliteStore(_AsyncStore):
    """Items in SQLite, as `langgraph.store.sqlite.aio.AsyncSqliteStore`."""

    @staticmethod
    def _engine(**options: Any) -> Engine:
        from ..backends.sqlite.given import AiosqliteEngine

        return AiosqliteEngine(options.pop("connection"), **options)


class PostgresStore(_SyncStore):
    """Items in PostgreSQL, as `langgraph.store.postgres.PostgresStore`."""


class AsyncPostgresStore(_AsyncStore):
    """Items in PostgreSQL, as `langgraph.store.postgres.aio.AsyncPostgresStore`."""


class RedisStore(_SyncStore):
    """Items in Redis, as `langgraph.store.redis.RedisStore`; no modules of the server are needed."""

    def __init__(self, conn: Any, **options: Any) -> None:
        super().__init__(conn, **_redis_options(options))

    @classmethod
    def _of_url(cls: type[S], conn_string: str, options: dict[str, Any]) -> S:
        return super()._of_url(conn_string, _redis_options(options))


class AsyncRedisStore(_AsyncStore):
    """Items in Redis, as `langgraph.store.redis.AsyncRedisStore`: of a URL, or with `redis_client=` of a client."""

    def __init__(
        self,
        redis_url: Any = None,
        *,
        redis_client: Any = None,
        connection_args: Mapping[str, Any] | None = None,
        **options: Any,
    ) -> None:
        if connection_args:
            raise InvalidRequest("give connection options in the URL, or a redis_client= made with them")
        given = redis_url if redis_client is None else redis_client
        if given is None:
            raise InvalidRequest("give redis_url= or redis_client=")
        if isinstance(given, str):
            Store.__init__(self, given, **_redis_options(options))
        else:
            super().__init__(given, **_redis_options(options))

    @classmethod
    def _of_url(cls: type[S], conn_string: str, options: dict[str, Any]) -> S:
        return cls(conn_string, **options)


def _redis_options(options: dict[str, Any]) -> dict[str, Any]:
    """The options of the originals in our words: keys have another layout, and a client says what it is itself."""
    ours = {name: value for name, value in options.items() if name not in ("cluster_mode", "vector_prefix")}
    prefix = ours.pop("store_prefix", None)
    return {"key_prefix": prefix.rstrip(":"), **ours} if prefix else ours


class _Sweeping:
    """A daemon thread that sweeps a store every so many seconds, until it is stopped or its future is cancelled."""

    def __init__(self, store: ItemStore, seconds: float) -> None:
        self.future: Future[None] = Future()
        self._stop = threading.Event()
        self._store, self._seconds = store, seconds
        self.future.add_done_callback(lambda _: self._stop.set())
        self._thread = threading.Thread(target=self._run, name="threadline-store-sweeper", daemon=True)
        self._thread.start()

    def _run(self) -> None:
        while not self._stop.wait(self._seconds):
            try:
                self._store.sweep()
            except Closed:
                break
            except Exception as error:  # whatever it is, the next turn comes
                log.error("the sweep failed and is tried again in %.0f s: %s", self._seconds, printable(error))
        with suppress(InvalidStateError):  # the caller may have cancelled it
            self.future.set_result(None)

    def stop(self, timeout: float | None) -> bool:
        self._stop.set()
        self._thread.join(timeout)
        return not self._thread.is_alive()


def _checked(ops: Iterable[Any]) -> list[Any]:
    checked = list(ops)
    for op in checked:
        _validate(op)
    return checked


def _check_root(namespace: Any) -> None:
    """Refuse the namespace of a put without a label, and LangGraph's own root, as BaseStore does."""
    if not namespace or namespace[0] == "langgraph":
        what = "has no label" if not namespace else "begins with 'langgraph', which is LangGraph's own"
        raise InvalidNamespaceError(f"the namespace {namespace!r} {what}: give one such as ('memories',)")


def _place(namespace: Any, key: Any) -> ItemPlace:
    """Where an item is, once its labels were validated as BaseStore does it."""
    try:
        return _place_once(namespace, key if type(key) is str else str(key))
    except TypeError:  # what cannot be remembered is checked each time
        return _place_once.__wrapped__(namespace, str(key))


def _places(namespaces: Iterable[Any], keys: Sequence[Any]) -> list[ItemPlace]:
    """The places of many items."""
    if {str}.issuperset(map(type, keys)):
        with suppress(TypeError):
            return [*map(_place_once, namespaces, keys)]
    return [*map(_place, namespaces, keys)]


@lru_cache(4096)
def _place_once(namespace: Any, key: str) -> ItemPlace:
    _validate(GetOp(namespace, ""))
    return item_place(namespace, key)


def _native(op: Any) -> Any:
    """An operation of LangGraph's as one of ours: they have the same fields."""
    if hasattr(op, "match_conditions"):
        return batch.ListNamespacesOp(op.match_conditions, op.max_depth, op.limit, op.offset)
    return op


def _is_nowhere(op: Any) -> bool:
    """Whether an operation reads or deletes an item of the empty namespace, where nothing is kept."""
    return getattr(op, "namespace", None) == () and getattr(op, "value", None) is None


def _answers(ops: Sequence[Any], results: Iterable[Any]) -> list[Any]:
    """The results of all operations, where those that concern nothing were not asked."""
    left = iter(results)
    return [None if _is_nowhere(op) else _converted(op, next(left)) for op in ops]


def _converted(op: Any, result: Any) -> Any:
    """A result in LangGraph's own classes."""
    if hasattr(op, "namespace_prefix"):
        return [
            SearchItem(one.namespace, one.key, one.value, one.created_at, one.updated_at, one.score) for one in result
        ]
    return _item(result) if isinstance(result, batch.Item) else result


def _made_item(place: ItemPlace, value: Any, created_at: datetime, updated_at: datetime, record: Any) -> Item:
    """An item of LangGraph's; its slots are filled as its constructor does, which also reads times from text."""
    item = _new_item(Item)
    item.value = value
    item.namespace, item.key, _, _ = place
    item.created_at = created_at
    item.updated_at = updated_at
    return item


_new_item = Item.__new__


def _item(item: batch.Item) -> Item:
    return Item(
        value=item.value,
        key=item.key,
        namespace=item.namespace,
        created_at=item.created_at,
        updated_at=item.updated_at,
    )


def _refuse_labels(op: Any) -> None:
    """The rules of LangGraph's labels, for every operation that names a namespace."""
    path = getattr(op, "namespace", None) or getattr(op, "namespace_prefix", None) or ()
    if any(not isinstance(label, str) or not label or "." in label for label in path):
        raise InvalidNamespaceError(f"Invalid namespace {path!r}: labels are texts without periods, and not empty.")


# langgraph-checkpoint has its own since 4.3; before, it validated in `put` alone.
_validate = getattr(base, "validate_op_namespace", _refuse_labels)
