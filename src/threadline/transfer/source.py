"""The source of an import: the tables of LangGraph's savers and stores, as records of stored bytes.

A source is opened for reading only. It decodes nothing: `compare` and `transcode` do.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple, Protocol

__all__ = [
    "ITEM_COLUMNS",
    "MOST_ITEMS",
    "Source",
    "SourceBlob",
    "SourceCheckpoint",
    "SourceItem",
    "SourceKey",
    "SourceTotals",
    "SourceWrite",
]

# What a table `store` has where it is that of one of LangGraph's stores; newer ones have times of expiry too.
ITEM_COLUMNS = frozenset(("prefix", "key", "value", "created_at", "updated_at"))
# How many items are read, and brought in one transaction.
MOST_ITEMS = 100


class SourceKey(NamedTuple):
    """A checkpoint of a thread, and about how many bytes it has."""

    namespace: str
    id: str
    size_bytes: int


class SourceWrite(NamedTuple):
    """A pending write as it is stored."""

    task_id: str
    task_path: str
    idx: int
    channel: str
    tag: str | None
    content: bytes


class SourceBlob(NamedTuple):
    """The value of a channel that is stored beside the checkpoints that have it."""

    channel: str
    tag: str | None
    content: bytes


class SourceCheckpoint(NamedTuple):
    """A checkpoint as it is stored, with its pending writes."""

    thread_id: str
    namespace: str
    id: str
    parent: str | None
    tag: str | None
    content: bytes
    metadata: bytes
    writes: list[SourceWrite]
    # None where `content` is the whole checkpoint, under its tag. Otherwise `content` is a JSON document without
    # a tag, and these values are added to those in it; they win over what the document has of their channel.
    blobs: list[SourceBlob] | None = None
    # Sends of formats 1 to 3 that are found nowhere else: writes of a parent that the source does not hold.
    sends: Sequence[SourceBlob] = ()

    @property
    def name(self) -> str:
        """The checkpoint as messages name it."""
        where = f" in {self.namespace!r}" if self.namespace else ""
        return f"thread {self.thread_id!r}, checkpoint {self.id}{where}"


class SourceItem(NamedTuple):
    """An item of a store. Times are seconds since 1970, and not a number where they cannot be read."""

    prefix: str  # the labels of its namespace, with dots between
    key: str
    content: bytes
    created: float
    updated: float
    expires: float | None
    ttl_minutes: float | None


class SourceTotals(NamedTuple):
    """The size of the tables."""

    checkpoints: int
    writes: int
    # Writes of checkpoints that were never stored; LangGraph's saver does not show them either.
    orphans: int
    # Of all that belongs to threads.
    content_bytes: int
    items: int = 0
    # Vectors of items, which are not read.
    embeddings: int = 0


class Source(Protocol):
    """The tables of LangGraph's saver, of its store, or of both. No transaction stays open between calls."""

    def close(self) -> None:
        """End the connection."""

    def totals(self) -> SourceTotals:
        """How much there is to import."""

    def tags(self) -> set[str | None]:
        """Every serialization tag in use."""

    def threads(self) -> list[str]:
        """The ids of the threads, in order."""

    def keys(self, thread_id: str) -> list[SourceKey]:
        """The checkpoints of a thread in all namespaces, oldest first."""

    def checkpoints(self, thread_id: str, keys: Sequence[SourceKey]) -> list[SourceCheckpoint]:
        """Some checkpoints with their writes, as they are at one moment; those deleted meanwhile are left out."""

    def items(self, after: SourceItem | None) -> list[SourceItem]:
        """The next items in an order of the source's own, at most MOST_ITEMS; none at the end."""
