"""A part of a store: the threads whose ids begin with a prefix, as a backend and as an engine."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any, TypeVar

from ...errors import Corrupt, InvalidRequest
from ...ports.checkpoints import Asking, Backend, Found, Query, ThreadRow
from ...ports.engine import Engine, Operation, Shortcuts
from ...ports.lease_record import LeaseRecord
from ...ports.marks import Mark, Scope
from ...ports.records import RecordSpace
from ...ports.rules import is_hidden, shown_origin
from .layer import MARKS, Call, Layer

__all__ = ["ViewEngine", "WithinLayer", "serving_every_scope"]

T = TypeVar("T")


class ViewEngine(Shortcuts):
    """Another engine, seen through a layer; closing the view leaves the engine open."""

    def __init__(self, inner: Engine, layer: Callable[[Backend], Any], *, is_part: bool = False) -> None:
        # Whether some threads are seen and no others; items belong to none of them.
        self.is_part: bool = is_part or getattr(inner, "is_part", False)
        self.url = inner.url
        self.opens_inline = inner.opens_inline
        self.is_in_memory = inner.is_in_memory
        self.prefers_batches = inner.prefers_batches
        # Where metrics are on, what counts.
        self.meter: Any = getattr(inner, "meter", None)
        self._inner = inner
        self._layer = layer
        # The backend of the last operation and its layer: an engine hands out few, and a layer binds every method.
        self._last: tuple[Backend, Any] | None = None

    def run(self, operation: Operation[T]) -> T:
        return self._inner.run(lambda backend: operation(self._seen(backend)))

    async def arun(self, operation: Operation[T]) -> T:
        return await self._inner.arun(lambda backend: operation(self._seen(backend)))

    async def awrite(self, operation: Operation[T]) -> T:
        return await self._inner.awrite(lambda backend: operation(self._seen(backend)))

    def _seen(self, backend: Backend) -> Any:
        last = self._last
        if last is None or last[0] is not backend:
            last = self._last = backend, self._layer(backend)
        return last[1]

    def close(self) -> None:
        return None

    async def aclose(self) -> None:
        return None


L = TypeVar("L", bound=type[Layer])


def serving_every_scope(view: L) -> L:
    """A class of layers, checked when it is made: TypeError if it would pass on a call that names or lists threads."""
    for name, mark in MARKS.items():
        is_served = mark.scope in _NAMED or mark.scope in _KNOWN
        if not is_served or (mark.scope is Scope.LISTING and name not in vars(view)):
            raise TypeError(f"{view.__name__} does not say what becomes of {name}, whose scope is {mark.scope.name}")
    return view


def _of_changes(changes: Sequence[Any]) -> list[str]:
    return [name for change in changes for name in (change.thread_id, change.joins) if name is not None]


# Which threads the first argument of a method names.
_NAMED: dict[Scope, Callable[[Any], list[str]]] = {
    Scope.THREAD: lambda thread_id: [thread_id],
    Scope.THREADS: list,
    Scope.ROW: lambda row: [row.thread_id],
    Scope.ROWS: lambda swaps: [before.thread_id for before, _ in swaps],
    Scope.CHANGES: _of_changes,
}
_KNOWN = {Scope.LISTING, Scope.POOL, Scope.RECORDS, Scope.STORE, Scope.ANYONE}


@serving_every_scope
class WithinLayer(Layer):
    """A backend whose threads all begin with a prefix; it refuses every other one, and calls about the whole store."""

    def __init__(self, inner: Backend, prefix: str) -> None:
        self.prefix = prefix
        # The whole store, for its own records: keys belong to all of its threads.
        self.whole: Backend = getattr(inner, "whole", inner)
        super().__init__(inner)

    def wrapped(self, name: str, mark: Mark, call: Call) -> Call:
        if mark.scope is Scope.RECORDS:
            return self._guarded(name, call)
        if mark.scope is Scope.STORE:
            return self._refusing(name)
        named = _NAMED.get(mark.scope)
        if named is None:
            return call

        async def checked(first: Any, *args: Any, **options: Any) -> Any:
            for thread_id in named(first):
                self._check(thread_id)
            return await call(first, *args, **options)

        return checked

    def _guarded(self, name: str, call: Call) -> Call:
        """Records of the store itself only: items and cached results belong to no thread, so to no part of them."""

        async def guarded(first: Any, *args: Any, **options: Any) -> Any:
            spaces = {change.space for change in first} if name == "write_records" else {first}
            if not spaces <= {RecordSpace.META}:
                raise InvalidRequest(
                    f"this saver sees only threads {self.prefix!r}…, and items belong to no thread: open the store by "
                    f"threadline.Store(url)"
                )
            return await call(first, *args, **options)

        return guarded

    def _refusing(self, name: str) -> Call:
        async def refuse(*_: object, **__: object) -> Any:
            raise InvalidRequest(f"{name} is about the whole store; this saver sees only threads {self.prefix!r}…")

        return refuse

    async def page(self, query: Query) -> list[Found]:
        if query.thread_id is not None:
            self._check(query.thread_id)
            named: list[Found] = await self._inner.page(query)
            return named
        found: list[Found] = []
        while len(found) < query.limit:
            page = await self._inner.page(query)
            found += [one for one in page if one.thread_id.startswith(self.prefix)]
            if len(page) < query.limit:
                break
            query = replace(query, after=page[-1].cursor)
        return found[: query.limit]

    async def threads(self, after: str, limit: int, prefix: str = "") -> list[ThreadRow]:
        if is_hidden(prefix):
            return await self._hidden_threads(after, limit, prefix)
        return await self._inner.threads(after, limit, self._narrowed(prefix)) if self._meets(prefix) else []

    async def asking(self, after: str, limit: int, prefix: str = "") -> list[Asking]:
        return await self._inner.asking(after, limit, self._narrowed(prefix)) if self._meets(prefix) else []

    async def leases(self, thread_id: str | None = None) -> list[bytes]:
        if thread_id is not None:
            self._check(thread_id)
        found: list[bytes] = await self._inner.leases(thread_id)
        return found if thread_id is not None else [one for one in found if self._is_ours(one)]

    async def count_threads(self, prefix: str = "") -> int:
        return await self._inner.count_threads(self._narrowed(prefix)) if self._meets(prefix) else 0

    async def _hidden_threads(self, after: str, limit: int, prefix: str) -> list[ThreadRow]:
        """Those that belong to the threads of this view."""
        found: list[ThreadRow] = []
        while page := await self._inner.threads(after, limit, prefix):
            found += [row for row in page if (row.forked_from or "").startswith(self.prefix)]
            if len(found) >= limit or len(page) < limit:
                break
            after = page[-1].thread_id
        return found[:limit]

    def _is_ours(self, record: bytes) -> bool:
        try:
            return LeaseRecord.unpacked(record).thread_id.startswith(self.prefix)
        except Corrupt:
            return False

    def _meets(self, prefix: str) -> bool:
        return prefix.startswith(self.prefix) or self.prefix.startswith(prefix)

    def _narrowed(self, prefix: str) -> str:
        return prefix if prefix.startswith(self.prefix) else self.prefix

    def _check(self, thread_id: str) -> None:
        if not shown_origin(thread_id).startswith(self.prefix):
            raise InvalidRequest(f"this saver sees only threads that begin with {self.prefix!r}, not {thread_id!r}")
