"""The verbs that move threads between stores, sync and async on one object; `Saver` has them."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from datetime import datetime
from typing import TYPE_CHECKING, Any

from .base.drive import run_now
from .core.operations import Face
from .core.requests import plain_text, text_ids
from .errors import InvalidRequest

if TYPE_CHECKING:
    from .core.context import Context
    from .core.moving.report import CopyChoice, CopyReport, Progress

__all__ = ["Moving", "choice_of", "moment"]


class Moving(Face):
    """Copying to another store; `a…` twins mean the same."""

    def copy_to(
        self,
        other: Moving,
        *,
        threads: Collection[str] | None = None,
        prefix: str = "",
        filter: Mapping[str, Any] | None = None,
        since: Any = None,
        until: Any = None,
        merge: bool = False,
        records: bool = True,
        progress: Progress | None = None,
    ) -> CopyReport:
        """Copy threads to another saver's store, by their rows: ids, times, tags, branches and writes stay.

        What the other store has already is skipped, so the same call again goes on after a stop and adds what is
        new. Everything that is written there is read back and compared. `since` chooses threads by their last
        activity, `until` (a time, or a checkpoint's id) leaves out later checkpoints. A thread that the other store
        has, and that did not come from here, is a problem of the report; with `merge` it comes under another id.
        Items of a Store come along with whole stores, unless `records=False`.
        """
        from .core.moving.copy import copy_between

        choice = choice_of(threads, prefix, filter, since, until, merge, records)
        _refuse_itself(self, other)
        for saver in (self, other):
            saver._engine.run(saver._tools.open)
        return run_now(copy_between(self._apart(False), other._apart(False), choice, progress))

    async def acopy_to(
        self,
        other: Moving,
        *,
        threads: Collection[str] | None = None,
        prefix: str = "",
        filter: Mapping[str, Any] | None = None,
        since: Any = None,
        until: Any = None,
        merge: bool = False,
        records: bool = True,
        progress: Progress | None = None,
    ) -> CopyReport:
        from .core.moving.copy import copy_between

        choice = choice_of(threads, prefix, filter, since, until, merge, records)
        _refuse_itself(self, other)
        for saver in (self, other):
            await saver._engine.arun(saver._tools.open)
        return await copy_between(self._apart(True), other._apart(True), choice, progress)

    def _apart(self, is_async: bool) -> Context:
        """This store for an operation over several."""
        from .core.moving.through import through

        return through(self._engine, self._tools, is_async=is_async)


def choice_of(
    threads: Any, prefix: Any, filter: Any, since: Any, until: Any, merge: bool = False, records: bool = True
) -> CopyChoice:
    """What is to be moved, checked."""
    from .core.filters import check_filter
    from .core.moving.report import CopyChoice

    until_id = until if isinstance(until, str) else None
    return CopyChoice(
        prefix=plain_text(prefix, "prefix"),
        thread_ids=None if threads is None else text_ids(threads, "threads"),
        filter=check_filter(filter) or None,
        since=moment(since, "since"),
        until_id=until_id,
        until_time=None if until_id is not None else moment(until, "until"),
        merge=merge,
        records=records,
    )


def moment(value: Any, name: str) -> float | None:
    """A time in seconds since 1970, of what a caller gave for one."""
    try:
        return value.timestamp() if isinstance(value, datetime) else None if value is None else float(value)
    except (TypeError, ValueError, OverflowError):
        raise InvalidRequest(f"{name} is a datetime, or seconds since 1970") from None


def _refuse_itself(source: Moving, target: Any) -> None:
    if not isinstance(target, Moving):
        raise InvalidRequest(f"copy_to takes another saver, not {type(target).__name__}")
    if target._engine is source._engine:
        raise InvalidRequest("a store cannot be copied onto itself: thread.fork(to=…) and copy_thread copy within one")
