"""A Store: values that agents remember across threads, sync and async on one object.

Each method is written once in core/ as a coroutine; here it is run now, or awaited. `a…` twins mean the same. Made by
`threadline.Store(url)`, or by `saver.store()`, which shares the saver's connections and keys.
"""

from __future__ import annotations

import time
from collections.abc import Awaitable, Callable, Coroutine, Iterable, Mapping, Sequence
from dataclasses import replace
from operator import itemgetter
from typing import Any, TypeVar

from .base.batching import TaskBatches
from .base.embedding import Embedder
from .core.context import UNSEALED, Context, Tools, bound
from .core.records.batch import (
    GetOp,
    Item,
    PutOp,
    SearchOp,
    StoreOptions,
    is_plain_write,
    namespaces_op,
    prepare,
    run_batch,
)
from .core.records.checks import check_key, check_namespace, kept_versions, moment_asked, ttl_seconds
from .core.records.items import (
    check_fields,
    count_items,
    delete_items,
    forget_item,
    index_embeddings,
    index_items,
    sweep_items,
    time_now,
)
from .core.records.past import history_of, restorable
from .core.records.shapes import ItemOptions, Version, name_of
from .core.records.single import (
    Columns,
    ItemPlace,
    Make,
    Packed,
    get_item,
    held_item,
    item_place,
    item_places,
    native_item,
    packed_put,
    packed_puts,
    put_packed,
    read_now,
)
from .core.records.vectors import numpy_module, parse_path
from .errors import InvalidRequest
from .ports.engine import Engine
from .ports.records import RecordSpace, pack_name

__all__ = ["ItemStore"]

T = TypeVar("T")
Namespace = Sequence[str]
# The places of items, by their namespaces and their keys, as checked.
Places = Callable[[Sequence[Any], Sequence[Any]], Sequence[ItemPlace]]
_DEFAULT: Any = object()
_MOST_TOGETHER = 128
_name_of = itemgetter(0)
_NO_VALUE = "a value is a dict; to delete an item use delete()"
_NO_HISTORY = "this store keeps no history: open it with keep_versions=10, or keep_versions='90d'"


class ItemStore:
    """Items under namespaces; see docs/store.md."""

    def __init__(
        self,
        engine: Engine,
        tools: Tools,
        *,
        index: Mapping[str, Any] | None = None,
        index_fields: Iterable[str] = (),
        default_ttl: Any = None,
        refresh_on_read: bool = True,
        keep_versions: Any = None,
    ) -> None:
        self._engine = engine
        self._tools = tools
        self._embedder = Embedder(index) if index is not None else None
        if self._embedder is not None:
            numpy_module()  # what is missing is said now, and not by the first put
            [*map(parse_path, self._embedder.fields)]
        self._default_ttl = default_ttl
        ttl_seconds(default_ttl)
        versions, seconds = kept_versions(keep_versions)
        items = ItemOptions(
            indexed=check_fields(index_fields),
            keep_versions=versions,
            keep_seconds=seconds,
            has_vectors=index is not None,
        )
        # Whether the indexes were looked for, which the first operation does.
        self._has_indexes = not items.indexed and index is None
        # Whether a put without a condition is one record, and need not read or embed anything.
        self.is_straight = self._has_indexes and items.is_plain
        self._batches = TaskBatches[Packed](self._awrite, _name_of, most=_MOST_TOGETHER)
        # The engine where its records are objects of this process, which are got and put without a coroutine.
        self._memory: Any = engine if tools.keeps_objects and hasattr(engine, "held_items") else None
        # Reads one record without a coroutine, where the engine can.
        reader = getattr(engine, "record_reader", None)
        self._record_now = reader(RecordSpace.ITEM) if reader is not None else None
        embedder = self._embedder
        self._options = StoreOptions(
            items=items,
            refresh_on_read=refresh_on_read,
            dims=embedder.dims if embedder is not None else None,
            fields=embedder.fields if embedder is not None else ("$",),
        )

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self._engine.url!r})"

    # -- single items

    def get(self, namespace: Namespace, key: str, *, refresh_ttl: bool | None = None, as_of: Any = None) -> Item | None:
        """An item, or None; with `as_of` as it was at that time, where the store keeps history."""
        if as_of is None:
            return self.find(item_place(namespace, key), native_item, refresh_ttl)
        [item] = self.batch([self._get_op(namespace, key, refresh_ttl, as_of)])
        return item  # type: ignore[no-any-return]

    async def aget(
        self, namespace: Namespace, key: str, *, refresh_ttl: bool | None = None, as_of: Any = None
    ) -> Item | None:
        if as_of is None:
            return await self.afind(item_place(namespace, key), native_item, refresh_ttl)
        [item] = await self.abatch([self._get_op(namespace, key, refresh_ttl, as_of)])
        return item  # type: ignore[no-any-return]

    def find(self, place: ItemPlace, make: Make[T], refresh_ttl: bool | None = None) -> T | None:
        """The item at a place that was checked, as `make` builds it; None without it."""
        memory = self._memory
        if memory is not None and (held := memory.held_items) is not None and self._tools.is_open:
            found = held_item(self._tools, held, place, make, _DEFAULT)
            if found is not _DEFAULT:
                return found
        record = None
        if self._record_now is not None and self._tools.is_open:
            record = self._record_now(place[2])
            if record is None:
                return None
            if record[6] is None and record[1] in UNSEALED:
                return read_now(self._tools, record, place, make)
        refresh = self._refreshes(refresh_ttl)
        return self._engine.run(bound(self._tools, get_item, place, make, refresh=refresh, held=record))

    async def afind(self, place: ItemPlace, make: Make[T], refresh_ttl: bool | None = None) -> T | None:
        if self._memory is not None:
            return self.find(place, make, refresh_ttl)
        refresh = self._refreshes(refresh_ttl)
        return await self._engine.arun(bound(self._tools, get_item, place, make, refresh=refresh))

    def put(
        self,
        namespace: Namespace,
        key: str,
        value: Mapping[str, Any],
        index: Any = None,
        *,
        ttl: Any = _DEFAULT,
        if_version: int | None = None,
    ) -> None:
        """Keep a value; durable when this returns.

        `ttl` is a number of minutes, a timedelta or text such as `30d`. With `if_version` the item must have that
        version (0: it must not be there), else Conflict is raised and nothing is changed.
        """
        if if_version is None and (index is None or index is False) and self.is_straight:
            self.put_at(item_place(namespace, key), value, self._default_ttl if ttl is _DEFAULT else ttl)
        else:
            self.batch([self._put_op(namespace, key, value, index, ttl, if_version)])

    async def aput(
        self,
        namespace: Namespace,
        key: str,
        value: Mapping[str, Any],
        index: Any = None,
        *,
        ttl: Any = _DEFAULT,
        if_version: int | None = None,
    ) -> None:
        if if_version is None and (index is None or index is False) and self.is_straight:
            await self.aput_at(item_place(namespace, key), value, self._default_ttl if ttl is _DEFAULT else ttl)
        else:
            await self.abatch([self._put_op(namespace, key, value, index, ttl, if_version)])

    def put_at(self, place: ItemPlace, value: Any, ttl: Any = None) -> None:
        """Keep a value at a place that was checked, in a store whose puts are plain."""
        if value is None:
            raise InvalidRequest(_NO_VALUE)
        self._write((packed_put(self._tools, self._options.items, place, value, ttl),))

    def aput_at(self, place: ItemPlace, value: Any, ttl: Any = None) -> Awaitable[None]:
        if value is None:
            raise InvalidRequest(_NO_VALUE)
        put = packed_put(self._tools, self._options.items, place, value, ttl)
        # Puts of tasks that wait at the same time share a commit.
        return self._batches.ask(put) if self._memory is None else self._awrite((put,))

    def delete(self, namespace: Namespace, key: str, *, forget: bool = False, if_version: int | None = None) -> None:
        """Delete an item where it is there; with `forget` its history too, so that nothing of it stays."""
        self._run(self._deleting(namespace, key, forget, if_version))

    async def adelete(
        self, namespace: Namespace, key: str, *, forget: bool = False, if_version: int | None = None
    ) -> None:
        await self._arun(self._deleting(namespace, key, forget, if_version))

    # -- many items

    def search(
        self,
        namespace_prefix: Namespace,
        /,
        *,
        query: str | None = None,
        filter: Mapping[str, Any] | None = None,
        limit: int = 10,
        offset: int = 0,
        refresh_ttl: bool | None = None,
        as_of: Any = None,
        after: Item | None = None,
    ) -> list[Item]:
        """Items below a namespace: the nearest to a query first, else the last updated first, then by name.

        `after` is the last item of the page before, and continues behind it.
        """
        op = self._search_op(namespace_prefix, filter, limit, offset, query, refresh_ttl, as_of, after)
        [items] = self.batch([op])
        return items  # type: ignore[no-any-return]

    async def asearch(
        self,
        namespace_prefix: Namespace,
        /,
        *,
        query: str | None = None,
        filter: Mapping[str, Any] | None = None,
        limit: int = 10,
        offset: int = 0,
        refresh_ttl: bool | None = None,
        as_of: Any = None,
        after: Item | None = None,
    ) -> list[Item]:
        op = self._search_op(namespace_prefix, filter, limit, offset, query, refresh_ttl, as_of, after)
        [items] = await self.abatch([op])
        return items  # type: ignore[no-any-return]

    def list_namespaces(
        self,
        *,
        prefix: Namespace | None = None,
        suffix: Namespace | None = None,
        max_depth: int | None = None,
        limit: int = 100,
        offset: int = 0,
    ) -> list[tuple[str, ...]]:
        """The namespaces that hold items, in order; `*` in prefix or suffix matches any label."""
        [found] = self.batch([namespaces_op(prefix, suffix, max_depth, limit, offset)])
        return found  # type: ignore[no-any-return]

    async def alist_namespaces(
        self,
        *,
        prefix: Namespace | None = None,
        suffix: Namespace | None = None,
        max_depth: int | None = None,
        limit: int = 100,
        offset: int = 0,
    ) -> list[tuple[str, ...]]:
        [found] = await self.abatch([namespaces_op(prefix, suffix, max_depth, limit, offset)])
        return found  # type: ignore[no-any-return]

    def batch(self, ops: Iterable[Any]) -> list[Any]:
        """The results of several operations. Reads see the store as it was before; puts are one transaction."""
        asked = list(ops)
        if self.put_all(asked, PutOp, item_places):
            return [None] * len(asked)
        prepared = prepare(self._options, self._tools.codec, asked)
        vectors = self._embedder.embed(prepared.texts, prepared.queries) if prepared.spans and self._embedder else []
        return self._run(lambda store: run_batch(store, self._options, prepared, vectors))

    async def abatch(self, ops: Iterable[Any]) -> list[Any]:
        asked = list(ops)
        if await self.aput_all(asked, PutOp, item_places):
            return [None] * len(asked)
        prepared = prepare(self._options, self._tools.codec, asked)
        embedder = self._embedder if prepared.spans else None
        vectors = await embedder.aembed(prepared.texts, prepared.queries) if embedder is not None else []
        if self._has_indexes and is_plain_write(self._options, prepared):
            # Puts of tasks that wait at the same time share a commit.
            operation = bound(self._tools, lambda store: run_batch(store, self._options, prepared, vectors))
            return await self._engine.awrite(operation)
        return await self._arun(lambda store: run_batch(store, self._options, prepared, vectors))

    def put_all(self, ops: Sequence[Any], kind: type, places: Places) -> bool:
        """Make a batch of nothing but plain puts of the class `kind`; False, and nothing is done, for any other."""
        puts = self._columns(ops, kind, places)
        if puts is not None:
            self._write(puts)
        return puts is not None

    async def aput_all(self, ops: Sequence[Any], kind: type, places: Places) -> bool:
        puts = self._columns(ops, kind, places)
        if puts is not None:
            await self._awrite(puts)
        return puts is not None

    def _columns(self, ops: Sequence[Any], kind: type, places: Places) -> Columns | None:
        if not ops or type(ops[0]) is not kind or not self.is_straight:
            return None
        return packed_puts(self._tools, self._options.items, ops, kind, places)

    def count(self, namespace_prefix: Namespace = (), *, filter: Mapping[str, Any] | None = None) -> int:
        """How many items there are below a namespace."""
        return self._run(self._counting(namespace_prefix, filter))

    async def acount(self, namespace_prefix: Namespace = (), *, filter: Mapping[str, Any] | None = None) -> int:
        return await self._arun(self._counting(namespace_prefix, filter))

    def delete_namespace(self, namespace_prefix: Namespace, *, forget: bool = False) -> int:
        """Delete all items of a namespace and of those below it; returns how many."""
        return self._run(self._clearing(namespace_prefix, forget))

    async def adelete_namespace(self, namespace_prefix: Namespace, *, forget: bool = False) -> int:
        return await self._arun(self._clearing(namespace_prefix, forget))

    # -- history

    def history(self, namespace: Namespace, key: str) -> list[Version]:
        """The values that an item had, the newest first, as far as the store keeps them (`keep_versions=`)."""
        return self._run(self._recalling(namespace, key))

    async def ahistory(self, namespace: Namespace, key: str) -> list[Version]:
        return await self._arun(self._recalling(namespace, key))

    def restore(self, namespace: Namespace, key: str, *, version: int) -> None:
        """Put an earlier value again, with the time to live that it had, as the newest version; NotFound without it."""
        value, ttl = restorable(self.history(namespace, key), key, version)
        self.put(namespace, key, value, ttl=ttl)

    async def arestore(self, namespace: Namespace, key: str, *, version: int) -> None:
        value, ttl = restorable(await self.ahistory(namespace, key), key, version)
        await self.aput(namespace, key, value, ttl=ttl)

    # -- the store as a whole

    def sweep(self) -> int:
        """Delete what has expired; returns how many items went. Expired items are hidden before they are swept."""
        return self._run(lambda store: sweep_items(store, time.time()))

    async def asweep(self) -> int:
        return await self._arun(lambda store: sweep_items(store, time.time()))

    def close(self) -> None:
        """Close the connections; for a store that shares a saver's, use the saver's `close`."""
        self._engine.close()

    async def aclose(self) -> None:
        await self._batches.finish()
        await self._engine.aclose()

    def __enter__(self: T) -> T:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    async def __aenter__(self: T) -> T:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.aclose()

    # -- how operations run

    def _write(self, puts: Sequence[Packed] | Columns) -> None:
        memory = self._memory
        if memory is not None and (held := memory.held_items) is not None and self._tools.is_open:
            held.put(puts.rows() if isinstance(puts, Columns) else puts, time_now())
        else:
            self._engine.run(put_packed(self._tools, puts))

    async def _awrite(self, puts: Sequence[Packed] | Columns) -> None:
        if self._memory is not None:
            self._write(puts)
        else:
            await self._engine.awrite(put_packed(self._tools, puts))

    def _run(self, operation: Callable[[Context], Coroutine[Any, Any, T]]) -> T:
        return self._engine.run(bound(self._tools, self._indexed_first(operation)))

    async def _arun(self, operation: Callable[[Context], Coroutine[Any, Any, T]]) -> T:
        return await self._engine.arun(bound(self._tools, self._indexed_first(operation)))

    def _indexed_first(
        self, operation: Callable[[Context], Coroutine[Any, Any, T]]
    ) -> Callable[[Context], Coroutine[Any, Any, T]]:
        """The operation; the first one of a store with `index_fields` or `index` makes what is missing for it."""
        if self._has_indexes:
            return operation

        async def first(store: Context) -> T:
            if self._options.items.indexed:
                await index_items(store, self._options.items)
            if self._options.dims is not None:
                has_index = await index_embeddings(store, self._options.dims)
                self._options = replace(self._options, has_vector_index=has_index)
            self._has_indexes = True
            self.is_straight = self._options.items.is_plain
            return await operation(store)

        return first

    def _get_op(self, namespace: Namespace, key: str, refresh_ttl: bool | None, as_of: Any) -> GetOp:
        return GetOp(check_namespace(namespace), key, self._refreshes(refresh_ttl), self._moment(as_of))

    def _put_op(
        self, namespace: Namespace, key: str, value: Any, index: Any, ttl: Any, if_version: int | None
    ) -> PutOp:
        if value is None:
            raise InvalidRequest(_NO_VALUE)
        return PutOp(
            check_namespace(namespace), key, value, index, self._default_ttl if ttl is _DEFAULT else ttl, if_version
        )

    def _search_op(
        self,
        prefix: Namespace,
        filter: Mapping[str, Any] | None,
        limit: int,
        offset: int,
        query: str | None,
        refresh_ttl: bool | None,
        as_of: Any,
        after: Item | None,
    ) -> SearchOp:
        named = check_namespace(prefix, may_be_empty=True)
        if query is not None and self._embedder is None:
            raise InvalidRequest(
                "search(query=…) needs an index: open the store with index={'dims', 'embed', 'fields'}"
            )
        if query is not None and as_of is not None:
            raise InvalidRequest("search takes a query or as_of, not both: only today's values have embeddings")
        return SearchOp(named, filter, limit, offset, query, self._refreshes(refresh_ttl), self._moment(as_of), after)

    def _moment(self, as_of: Any) -> float | None:
        if as_of is not None and not self._options.items.keeps_history:
            raise InvalidRequest(_NO_HISTORY)
        return moment_asked(as_of)

    def _refreshes(self, asked: bool | None) -> bool:
        return self._options.refresh_on_read if asked is None else bool(asked)

    def _deleting(
        self, namespace: Namespace, key: str, forget: bool, if_version: int | None
    ) -> Callable[[Context], Coroutine[Any, Any, None]]:
        named = check_namespace(namespace)
        check_key(key)
        prepared = prepare(self._options, self._tools.codec, [PutOp(named, key, None, if_version=if_version)])

        async def delete(store: Context) -> None:
            if not forget or if_version is not None:
                await run_batch(store, self._options, prepared, [])
            if forget:
                await forget_item(store, name_of(named, key))

        return delete

    def _counting(
        self, prefix: Namespace, filter: Mapping[str, Any] | None
    ) -> Callable[[Context], Coroutine[Any, Any, int]]:
        below = pack_name(check_namespace(prefix, may_be_empty=True))
        return lambda store: count_items(store, self._options.items, below, filter)

    def _clearing(self, prefix: Namespace, forget: bool) -> Callable[[Context], Coroutine[Any, Any, int]]:
        below = pack_name(check_namespace(prefix))
        return lambda store: delete_items(store, self._options.items, below, forget=forget)

    def _recalling(self, namespace: Namespace, key: str) -> Callable[[Context], Coroutine[Any, Any, list[Version]]]:
        if not self._options.items.keeps_history:
            raise InvalidRequest(_NO_HISTORY)
        name = name_of(check_namespace(namespace), check_key(key))
        return lambda store: history_of(store, name)
