"""The log of a thread: the tree of its checkpoints over all branches and namespaces, without reading state.

Of each checkpoint: what it changed against its parent, told by versions and roots, and the bytes it added.
A parent that was pruned leaves a gap; the log says so and goes on.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from datetime import datetime, timezone
from html import escape
from typing import Any

from ..backends.port import Backend, CheckpointKey, Found
from ..chunks.digest import split_links
from ..errors import Corrupt, NotAllowed, NotFound
from ..model import ERROR, INTERRUPT
from ..namespaces import ROOT, recast
from .documents import Document, read_document, read_metadata
from .pages import thread_rows
from .tools import Tools
from .words import living, tags_of

__all__ = ["Entry", "Log", "chunk_weights", "config_of", "heads_of", "read_log"]

# Few pages: on a storage without an order of its own each of them reads the names of all chunks.
_PAGE = 1_000_000


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
    def config(self) -> dict[str, Any]:
        """The config that runs a graph from here."""
        return config_of(self.thread_id, CheckpointKey(self.namespace, self.id))

    @property
    def time(self) -> datetime:
        """When it was made."""
        return datetime.fromtimestamp(self.created, timezone.utc)


@dataclass(frozen=True, slots=True)
class Log:
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

    @property
    def config(self) -> dict[str, Any]:
        """The config that runs a graph on this thread."""
        return {"configurable": {"thread_id": self.thread_id}}

    def _repr_html_(self) -> str:
        rows = "".join(
            f"<tr><td><code>{escape(entry.id)}</code></td><td>{entry.step}</td><td>{escape(entry.source or '')}</td>"
            f"<td>{escape(', '.join(entry.changed))}</td><td>{entry.added_bytes:,}</td>"
            f"<td>{escape(' '.join((*entry.tags, *(['head'] if entry.is_head else []))))}</td></tr>"
            for entry in self.entries
        )
        names = "".join(f"<th>{name}</th>" for name in ("checkpoint", "step", "source", "changed", "bytes", ""))
        return f"<table><caption>{escape(self.thread_id)}</caption><tr>{names}</tr>{rows}</table>"


def config_of(thread_id: str, key: CheckpointKey) -> dict[str, Any]:
    """The config that names a checkpoint."""
    place = {"thread_id": thread_id, "checkpoint_ns": key.namespace, "checkpoint_id": key.id}
    return {"configurable": place}


def heads_of(rows: Iterable[tuple[CheckpointKey, CheckpointKey | None]]) -> set[CheckpointKey]:
    """The checkpoints that no other has for its parent, of keys with their parents."""
    pairs = list(rows)
    return {key for key, _ in pairs} - {parent for _, parent in pairs if parent is not None}


async def read_log(
    backend: Backend, tools: Tools, thread_id: str, *, namespace: str | None = None, sizes: bool = True
) -> Log:
    """The log of a thread, of one namespace or of all."""
    await tools.open(backend)
    thread = await living(backend, thread_id)
    rows = await thread_rows(backend, thread_id, tools=tools)
    documents = {_key(found): _document(tools, found) for found in rows}
    weights = await chunk_weights(backend, thread.pool) if sizes else {}
    heads = heads_of((_key(found), _parent(found)) for found in rows)
    marks = tags_of(thread)
    stopped = await _stopped(backend, thread_id)
    seen: set[bytes] = set()
    entries: list[Entry] = []
    for found in reversed(rows):
        key, parent = _key(found), _parent(found)
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
                added_bytes=_added(found, weights, seen),
                is_head=key in heads,
                tags=tuple(mark.name for mark in marks if mark.key == key and mark.name),
                is_pinned=any(mark.key == key and not mark.name for mark in marks),
                origins=_origins(tools, found),
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


async def _stopped(backend: Backend, thread_id: str) -> set[tuple[CheckpointKey, str]]:
    """At which checkpoints tasks asked or failed; told by the channels of writes, which are not opened."""
    return {
        (CheckpointKey(write.namespace, write.checkpoint_id), write.channel)
        for write in await backend.thread_writes(thread_id)
        if write.channel in (INTERRUPT, ERROR)
    }


def _key(found: Found) -> CheckpointKey:
    return CheckpointKey(found.row.namespace, found.row.id)


def _parent(found: Found) -> CheckpointKey | None:
    return CheckpointKey(found.row.namespace, found.row.parent) if found.row.parent else None


def _document(tools: Tools, found: Found) -> tuple[Document | None, str | None]:
    try:
        return read_document(found, tools.codec, tools.envelope), None
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
        metadata = read_metadata(found, tools.codec, tools.envelope)
    except (Corrupt, NotAllowed, NotFound):
        return ()
    merged = metadata.get("merged_from")
    named = [metadata.get("forked_from"), *(merged if isinstance(merged, (list, tuple)) else ())]
    ids = [one.get("checkpoint_id") for one in named if isinstance(one, dict)]
    return tuple(one for one in ids if isinstance(one, str))


async def chunk_weights(backend: Backend, pool: int) -> dict[bytes, tuple[bytes, int]]:
    """Links and size of every chunk of a pool."""
    weights: dict[bytes, tuple[bytes, int]] = {}
    after = b""
    while True:
        page = await backend.chunk_sizes(pool, after, _PAGE)
        weights.update({digest: (links, size) for digest, links, size in page})
        if len(page) < _PAGE:
            return weights
        after = page[-1][0]


def _added(found: Found, weights: dict[bytes, tuple[bytes, int]], seen: set[bytes]) -> int:
    """The bytes of a row and of the chunks below it that were not seen before; marks them as seen."""
    row = found.row
    total = len(row.document) + len(row.metadata) + len(row.links)
    frontier = split_links(row.links)
    while frontier:
        new = [digest for digest in frontier if digest not in seen and digest in weights]
        seen.update(new)
        total += sum(weights[digest][1] + len(weights[digest][0]) for digest in new)
        frontier = [child for digest in new if weights[digest][0] for child in split_links(weights[digest][0])]
    return total
