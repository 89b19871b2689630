"""The log of a thread: the tree of its checkpoints over all branches and namespaces, without reading state.

Of each checkpoint: what it changed against its parent, told by versions and roots, and the bytes it added.
A parent that was pruned leaves a gap; the log says so and goes on.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import datetime, timezone
from html import escape
from typing import Any

from ...base.checkpoint import ERROR, INTERRUPT, Config, OfThread, config_of
from ...base.namespaces import ROOT, recast
from ...errors import Corrupt, NotAllowed, NotFound
from ...ports.checkpoints import CheckpointKey, Found, split_links
from ..context import Context, Tools
from ..lifecycle import living, tags_of
from ..paging import ChunkWeights, chunk_weights, thread_rows
from ..rows import Document
from .graph import heads_of

__all__ = ["Entry", "Log", "read_log"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Entry:
    """One checkpoint in the log."""

    thread_id: str
    namespace: str
    id: str
    parent: str | None
    # Whether the parent is there; one that was pruned leaves a gap.
    has_parent: bool
    step: int | None
    source: str | None
    created: float
    # Channels that got another value here, or lost theirs.
    changed: tuple[str, ...]
    # What this checkpoint added to the store: its row, and chunks that no older one in the log has.
    added_bytes: int
    is_head: bool
    tags: tuple[str, ...] = ()
    is_pinned: bool = False
    # Where a fork or a merge came from.
    origins: tuple[str, ...] = ()
    damage: str | None = None
    # Whether a task stopped here with a question, answered since or not, and whether one failed.
    is_interrupted: bool = False
    has_error: bool = False

    @property
    def config(self) -> Config:
        """The config that runs a graph from here."""
        return config_of(self.thread_id, self.namespace, self.id)

    @property
    def time(self) -> datetime:
        """When it was made."""
        return datetime.fromtimestamp(self.created, timezone.utc)


@dataclass(frozen=True, slots=True)
class Log(OfThread):
    """A thread's checkpoints, newest first."""

    thread_id: str
    entries: tuple[Entry, ...]
    heads: tuple[Entry, ...] = field(default=())

    def __iter__(self) -> Any:
        return iter(self.entries)

    def __len__(self) -> int:
        return len(self.entries)

    def __getitem__(self, position: int) -> Entry:
        return self.entries[position]

    def _repr_html_(self) -> str:
        rows = "".join(
            f"<tr><td><code>{escape(entry.id)}</code></td><td>{entry.step}</td><td>{escape(entry.source or '')}</td>"
            f"<td>{escape(', '.join(entry.changed))}</td><td>{entry.added_bytes:,}</td>"
            f"<td>{escape(' '.join((*entry.tags, *(['head'] if entry.is_head else []))))}</td></tr>"
            for entry in self.entries
        )
        names = "".join(f"<th>{name}</th>" for name in ("checkpoint", "step", "source", "changed", "bytes", ""))
        return f"<table><caption>{escape(self.thread_id)}</caption><tr>{names}</tr>{rows}</table>"


async def read_log(store: Context, thread_id: str, *, namespace: str | None = None, sizes: bool = True) -> Log:
    """The log of a thread, of one namespace or of all."""
    thread = await living(store, thread_id)
    rows = await thread_rows(store, thread_id)
    documents = {found.key: _document(store.tools, found) for found in rows}
    weights = await chunk_weights(store.backend, thread.pool) if sizes else ChunkWeights()
    heads = heads_of({found.key: found.parent for found in rows})
    marks = tags_of(thread)
    stopped = await _stopped(store, thread_id)
    seen: set[bytes] = set()
    entries: list[Entry] = []
    for found in reversed(rows):
        key, parent = found.key, found.parent
        document, damage = documents[key]
        before = documents.get(parent, (None, None))[0] if parent else None
        entries.append(
            Entry(
                thread_id=thread_id,
                namespace=key.namespace,
                id=key.id,
                parent=found.row.parent,
                has_parent=parent in documents,
                step=found.row.step,
                source=found.row.source,
                created=found.row.created,
                changed=_changed(document, before),
                added_bytes=_row_bytes(found) + weights.below(split_links(found.row.links), seen),
                is_head=key in heads,
                tags=tuple(mark.name for mark in marks if mark.key == key and mark.name),
                is_pinned=any(mark.key == key and not mark.name for mark in marks),
                origins=_origins(store.tools, found),
                damage=damage,
                is_interrupted=(key, INTERRUPT) in stopped,
                has_error=(key, ERROR) in stopped,
            )
        )
    shown = tuple(entry for entry in reversed(entries) if _is_in(entry.namespace, namespace))
    return Log(thread_id, shown, tuple(entry for entry in shown if entry.is_head))


def _is_in(namespace: str, wanted: str | None) -> bool:
    """Whether this is the namespace wanted, named with its tasks or without; None wants all."""
    return wanted is None or namespace == wanted or (wanted != ROOT and recast(namespace) == wanted)


async def _stopped(store: Context, thread_id: str) -> set[tuple[CheckpointKey, str]]:
    """At which checkpoints tasks asked or failed; told by the channels of writes, which are not opened."""
    return {
        (write.key, write.channel)
        for write in await store.backend.thread_writes(thread_id)
        if write.channel in (INTERRUPT, ERROR)
    }


def _document(tools: Tools, found: Found) -> tuple[Document | None, str | None]:
    try:
        return tools.document(found), None
    except (Corrupt, NotAllowed, NotFound) as damage:
        return None, str(damage)


def _changed(document: Document | None, before: Document | None) -> tuple[str, ...]:
    if document is None:
        return ()
    refs, earlier = document.roots.refs, before.roots.refs if before is not None else {}
    changed = [name for name in refs if name not in earlier or earlier[name] != refs[name]]
    return (*changed, *(name for name in earlier if name not in refs))


def _origins(tools: Tools, found: Found) -> tuple[str, ...]:
    """The checkpoints that a fork or a merge names in its metadata."""
    if found.row.source not in ("fork", "update"):
        return ()
    try:
        metadata = tools.metadata(found)
    except (Corrupt, NotAllowed, NotFound):
        return ()
    merged = metadata.get("merged_from")
    named = [metadata.get("forked_from"), *(merged if isinstance(merged, (list, tuple)) else ())]
    ids = [one.get("checkpoint_id") for one in named if isinstance(one, dict)]
    return tuple(one for one in ids if isinstance(one, str))


def _row_bytes(found: Found) -> int:
    return len(found.row.document) + len(found.row.metadata) + len(found.row.links)
