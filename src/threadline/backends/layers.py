"""Layers: wrappers with the Backend port that add one behaviour to any backend."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

from ..errors import Corrupt, InvalidRequest, ReadOnly
from .hidden import is_hidden, shown_origin
from .lease_record import LeaseRecord
from .port import Asking, Backend, Found, Query, ThreadRow

__all__ = ["ReadOnlyLayer", "WithinLayer"]

_WRITING = frozenset(
    [
        "apply",
        "collect",
        "compact",
        "remove_checkpoints",
        "remove_thread",
        "rewrap_chunks",
        "rewrap_rows",
        "setup",
        "swap_lease",
        "swap_meta",
        "swap_thread",
    ]
)


class ReadOnlyLayer:
    """A backend that may only be read."""

    def __init__(self, inner: Any) -> None:
        self._inner = inner

    def __getattr__(self, name: str) -> Any:
        if name in _WRITING:
            return _refuse
        return getattr(self._inner, name)


async def _refuse(*_: object, **__: object) -> Any:
    raise ReadOnly("this saver was opened with read_only=True")


class WithinLayer:
    """A backend whose threads all begin with a prefix; it refuses every other one."""

    def __init__(self, inner: Backend, prefix: str) -> None:
        self._inner = inner
        self.prefix = prefix
        # What this is a part of, for questions about the store itself.
        self.whole: Backend = getattr(inner, "whole", inner) if isinstance(inner, WithinLayer) else inner

    def __getattr__(self, name: str) -> Any:
        if name in _OF_THE_WHOLE_STORE:
            raise InvalidRequest(f"{name} is about the whole store; this saver sees only threads {self.prefix!r}…")
        method = getattr(self._inner, name)
        named = _NAMED_THREADS.get(name)
        if named is None:
            return method

        async def call(first: Any, *args: Any, **options: Any) -> Any:
            for thread_id in named(first):
                self._check(thread_id)
            return await method(first, *args, **options)

        return call

    async def page(self, query: Query) -> list[Found]:
        if query.thread_id is not None:
            self._check(query.thread_id)
            return await self._inner.page(query)
        found: list[Found] = []
        while len(found) < query.limit:
            page = await self._inner.page(query)
            found += [one for one in page if one.thread_id.startswith(self.prefix)]
            if len(page) < query.limit:
                break
            query = replace(query, after=(page[-1].row.id, page[-1].thread_id, page[-1].row.namespace))
        return found[: query.limit]

    async def threads(self, after: str, limit: int, prefix: str = "") -> list[ThreadRow]:
        if is_hidden(prefix):
            return await self._hidden_threads(after, limit, prefix)
        return await self._inner.threads(after, limit, self._narrowed(prefix)) if self._meets(prefix) else []

    async def asking(self, after: str, limit: int, prefix: str = "") -> list[Asking]:
        return await self._inner.asking(after, limit, self._narrowed(prefix)) if self._meets(prefix) else []

    async def leases(self) -> list[bytes]:
        return [one for one in await self._inner.leases() if self._is_ours(one)]

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


_OF_THE_WHOLE_STORE = frozenset(("compact", "pools", "space", "summary"))


def _of_changes(changes: Sequence[Any]) -> list[str]:
    return [name for change in changes for name in (change.thread_id, change.joins) if name is not None]


# Which threads the first argument of a method names.
_NAMED_THREADS: dict[str, Callable[[Any], list[str]]] = {
    "apply": _of_changes,
    "heads": list,
    "swap_thread": lambda row: [row.thread_id],
    **dict.fromkeys(
        (
            "chain",
            "children",
            "find",
            "get_lease",
            "remove_checkpoints",
            "remove_thread",
            "rewrap_rows",
            "swap_lease",
            "thread",
            "thread_writes",
            "walk",
        ),
        lambda thread_id: [thread_id],
    ),
}
