"""The report of an import."""

from __future__ import annotations

from dataclasses import dataclass, field

from ..core.moving.report import Moved as Counts

__all__ = ["Counts", "ImportReport"]


@dataclass(slots=True, kw_only=True)
class ImportReport:
    """The outcome of an import. Everything it counts as copied, renewed or present was read back and compared."""

    threads: int = 0
    checkpoints: Counts = field(default_factory=Counts)
    writes: Counts = field(default_factory=Counts)
    # Writes of checkpoints that the source does not hold; they are left out.
    orphan_writes: int = 0
    items: Counts = field(default_factory=Counts)
    # Items whose time to live was over; they are left out.
    expired_items: int = 0
    # Vectors of items, which are not copied: an item is embedded again when it is put again.
    embeddings: int = 0
    # The rows of LangGraph's threads, and those of all threads in Threadline's tables afterwards.
    bytes_before: int = 0
    bytes_after: int = 0
    # The types that this process cannot rebuild, and how many different objects have each; copied as they are.
    unknown_types: dict[str, int] = field(default_factory=dict)
    # What could not be imported, one sentence each.
    problems: list[str] = field(default_factory=list)

    @property
    def is_complete(self) -> bool:
        return not self.problems
