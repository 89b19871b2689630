"""What a copy was asked to do, and what it did."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field
from typing import Any

from ...base.ids import id_at
from ...ports.checkpoints import CheckpointRow, ThreadRow

__all__ = ["Archived", "CopyChoice", "CopyReport", "Moved", "Progress"]

# Called with the checkpoints that were looked at, and how many there are.
Progress = Callable[[int, int], None]


@dataclass(frozen=True, slots=True, kw_only=True)
class CopyChoice:
    """Which part of a store is copied, and how."""

    prefix: str = ""
    # Only these threads, all of which must be there; what the other fields say must be true of them, too.
    thread_ids: Collection[str] | None = None
    # Threads whose metadata match, and which were last active at this time or later.
    filter: Mapping[str, Any] | None = None
    since: float | None = None
    # Only checkpoints of this id or before it, or that were put at this time or before.
    until_id: str | None = None
    until_time: float | None = None
    # A thread that the target has already, and that did not come from here, is copied beside it under another id.
    merge: bool = False
    # Items of a Store come along, with their history and embeddings.
    records: bool = True

    @property
    def is_bounded(self) -> bool:
        """Whether only checkpoints up to a moment are wanted."""
        return self.until_id is not None or self.until_time is not None

    def wants(self, row: CheckpointRow) -> bool:
        """Whether a checkpoint is of this moment or before it."""
        until_id, until_time = self.until_id, self.until_time
        return (until_id is None or row.id <= until_id) and (until_time is None or row.created <= until_time)

    def had(self, thread: ThreadRow) -> bool:
        """Whether a thread was there at this moment, be it without a checkpoint."""
        until_id, until_time = self.until_id, self.until_time
        return (until_id is None or id_at(thread.created) <= until_id) and (
            until_time is None or thread.created <= until_time
        )

    @property
    def is_part(self) -> bool:
        """Whether only some threads are chosen; items belong to none, and come with whole stores."""
        return bool(self.prefix or self.filter or self.thread_ids is not None)


@dataclass(slots=True)
class Moved:
    """The outcome of the rows of one kind."""

    copied: int = 0
    # There already, and the same.
    present: int = 0
    # There already, and replaced by what the source has now.
    renewed: int = 0
    # There already, newer than in the source, and left alone.
    kept: int = 0

    def add(self, others: Moved) -> None:
        """Count these too."""
        self.copied += others.copied
        self.present += others.present
        self.renewed += others.renewed
        self.kept += others.kept

    @property
    def total(self) -> int:
        return self.copied + self.present + self.renewed + self.kept


@dataclass(slots=True, kw_only=True)
class CopyReport:
    """What a copy did. All that it counts as copied or renewed was read back from the target and compared."""

    threads: int = 0
    checkpoints: Moved = field(default_factory=Moved)
    writes: Moved = field(default_factory=Moved)
    chunks: int = 0
    chunk_bytes: int = 0
    items: Moved = field(default_factory=Moved)
    # Threads that came under another id, because the target had another thread of theirs.
    renamed: dict[str, str] = field(default_factory=dict)
    # What could not be copied, one sentence each.
    problems: list[str] = field(default_factory=list)

    @property
    def is_complete(self) -> bool:
        return not self.problems


@dataclass(frozen=True, slots=True, kw_only=True)
class Archived:
    """A file that was written, and what was brought into it."""

    path: str
    size_bytes: int
    # The file that this one adds to; None where it stands alone.
    base: str | None
    report: CopyReport

    @property
    def is_complete(self) -> bool:
        return self.report.is_complete
