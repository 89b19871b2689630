"""First use of a store: its format is read, and the store is created or migrated where that is wanted.

`Setup` has the order of the steps for every backend that outlives its process; a subclass says how each is done. What
is done is decided by `first_step` (ports/rules.py).
"""

from __future__ import annotations

import logging
from abc import ABC, abstractmethod
from typing import Any

from ..base.printable import printable
from ..errors import InvalidRequest
from ..ports.rules import FORMAT, FirstStep, check_format, first_step

__all__ = ["Setup"]

log = logging.getLogger("threadline")


class Setup(ABC):
    """Checks the format of a store; creates or migrates it if the options allow it.

    Every step is idempotent; `create` takes a lock, so two callers may run it one after the other. A *wire* is what the
    steps of a backend run on.
    """

    def __init__(self, where: str, lacking: str, mode: str | bool, *, read_only: bool) -> None:
        self.is_ready = False
        self._where = where
        # What is named where there is no store.
        self._lacking = lacking
        self._mode = mode
        self.may_write = mode is not False and not read_only

    async def open(self, wire: Any, *, is_asked: bool = False) -> None:
        """Check what is there, and create or migrate it where that is wanted, or asked for by `setup()`."""
        found = await self._format(wire)
        step = first_step(found, self._mode, may_write=self.may_write or is_asked)
        if step is FirstStep.REFUSE_MISSING:
            theirs = "; it holds threads of LangGraph's own saver: `threadline import {}` brings them over"
            raise InvalidRequest(
                f"{self._where} has no {self._lacking}: call setup() once, or open it with setup='create'"
                f"{theirs.format(self._where) if await self._holds_langgraphs(wire) else ''}"
            )
        if step is FirstStep.REFUSE_OLDER:
            raise InvalidRequest(
                f"{self._where} has format {found}: open it once with setup='migrate' to bring it to {FORMAT}"
            )
        await self._check_server(wire)
        if step is FirstStep.CREATE:
            await self.create(wire)
        await self._look_around(wire)
        self.is_ready = True
        # LangGraph's own tables are never touched; threads in them must not seem lost.
        if not await self._has_threads(wire) and await self._holds_langgraphs(wire):
            log.warning(
                "%s holds threads of LangGraph's own saver, which Threadline does not read in place: "
                "bring them over with `threadline import %s`",
                printable(self._where),
                printable(self._where),
            )

    @abstractmethod
    async def create(self, wire: Any) -> None:
        """Make what is missing, one process at a time."""

    @abstractmethod
    async def _written_format(self, wire: Any) -> Any:
        """The record of the format; None without a store, or without the record."""

    async def _check_server(self, wire: Any) -> None:
        """Refuse a server that cannot keep a store, before one is made."""
        return None

    async def _look_around(self, wire: Any) -> None:
        """Learn what later calls need to know of the server and the store; make the indexes that were asked for."""
        return None

    async def _has_threads(self, wire: Any) -> bool:
        """Whether the store has a thread."""
        return False

    async def _holds_langgraphs(self, wire: Any) -> bool:
        """Whether the database has threads of LangGraph's own saver."""
        return False

    async def _format(self, wire: Any) -> int | None:
        """The format of the store that is there; None without any. Raises NewerFormat."""
        written = await self._written_format(wire)
        return check_format(written, self._where) if written is not None else None
