"""The history of a thread for a drawing: its checkpoints as lines with rails, long stretches folded, without state.

A thread of a usual length is read as `thread.log()` reads it. Of a long one only the rows are read, not what each
checkpoint changed: its tree is there in a fraction of a second.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from ..base.namespaces import ROOT, recast
from ..core.context import Context
from ..core.history.log import Entry, Log, read_log
from ..core.lifecycle import living, tags_of
from ..core.paging import each_thread, outline_pages, walk
from ..errors import ThreadlineError
from ..ports.checkpoints import ThreadRow
from ..ports.whole import Outline
from .rails import Knot, Line, folded, lines

__all__ = ["Fork", "History", "TreeLine", "drawn", "read_history"]

# Threads of more checkpoints are drawn from their rows alone.
_MOST_DETAILED = 2_000
_PAGE = 10_000
# Forks are looked for among so many threads, and so many are told.
_MOST_THREADS, _MOST_FORKS = 20_000, 20


@dataclass(frozen=True, slots=True)
class Fork:
    """A thread that began as a copy of a checkpoint of this one."""

    thread_id: str
    origin: str | None


class History:
    """A thread's checkpoints by namespace, newest first; with `is_brief`, without what each changed and added."""

    def __init__(
        self,
        thread_id: str,
        knots: Mapping[str, Sequence[Knot]],
        marked: Collection[tuple[str, str]],
        entry_of: Callable[[str, str], Entry],
        *,
        is_brief: bool,
        forks: Sequence[Fork] = (),
        mark: tuple[Any, ...] = (),
    ) -> None:
        self.thread_id, self.knots, self.entry_of = thread_id, knots, entry_of
        # Namespace and id of checkpoints that are never folded away.
        self.marked = marked
        self.is_brief, self.forks = is_brief, tuple(forks)
        # What tells whether the thread has moved since.
        self.mark = mark

    def __len__(self) -> int:
        return sum(map(len, self.knots.values()))

    def namespaces(self) -> list[tuple[str, int, Entry]]:
        """The namespaces with the number of their checkpoints and the newest of them, the root first."""
        names = sorted(self.knots, key=lambda one: (recast(one), one))
        return [(name, len(self.knots[name]), self.entry_of(name, self.knots[name][0].id)) for name in names]

    def newest(self, namespace: str, count: int) -> list[Entry]:
        """The newest checkpoints of a namespace."""
        return [self.entry_of(namespace, knot.id) for knot in self.knots.get(namespace, ())[:count]]


@dataclass(frozen=True, slots=True)
class TreeLine:
    """A line of the drawing and its checkpoint; of a folded stretch, the newest that it hides."""

    line: Line
    entry: Entry
    forks: tuple[str, ...] = ()


async def read_history(store: Context, thread_id: str, known: History | None = None) -> History:
    """The checkpoints of a thread in every namespace; what is known of a long one that has not moved since is taken."""
    row = await living(store, thread_id)
    weights = await store.backend.weights([row.pool])
    own = sum(one.rows for one in weights.checkpoints if one.thread == row.serial)
    mates = {one.thread for one in weights.checkpoints} - {row.serial}
    if own <= _MOST_DETAILED:
        return _detailed(await read_log(store, thread_id), await _forks(store, row) if mates else ())
    head = await store.find(thread_id, ROOT, None, with_writes=False)
    mark = (row.serial, row.tags, own, len(mates), (head.row.id, head.row.created) if head is not None else None)
    if known is not None and known.mark == mark:
        return known
    forks = await _forks(store, row) if mates else ()
    return _brief(row, await _rows(store, thread_id), forks, mark)


def _detailed(log: Log, forks: Sequence[Fork]) -> History:
    knots: dict[str, list[Knot]] = {}
    for entry in log.entries:
        knots.setdefault(entry.namespace, []).append(Knot(entry.id, entry.parent))
    by_key = {(entry.namespace, entry.id): entry for entry in log.entries}
    marked = {key for key, entry in by_key.items() if _is_marked(entry)}
    return History(log.thread_id, knots, marked, lambda *key: by_key[key], is_brief=False, forks=forks)


async def _rows(store: Context, thread_id: str) -> list[Outline]:
    """What is drawn of each checkpoint."""
    return [row async for page in outline_pages(store.backend, thread_id, _PAGE) for row in page]


def _brief(thread: ThreadRow, rows: Sequence[Outline], forks: Sequence[Fork], mark: tuple[Any, ...]) -> History:
    """A history of rows, which come by namespace and id; an entry is made when its line is drawn."""
    # By namespace, then by id: a tuple for each key would be twenty thousand more for the garbage collector.
    held: dict[str, dict[str, Outline]] = {}
    for row in reversed(rows):
        held.setdefault(row[0], {})[row[1]] = row
    knots = {name: [Knot(row[1], row[2]) for row in inside.values()] for name, inside in held.items()}
    marks: dict[tuple[str, str], list[str]] = {}
    for tag in tags_of(thread):
        marks.setdefault(tuple(tag.key), []).append(tag.name)  # type: ignore[arg-type]
    parents = {name: {row[2] for row in inside.values()} for name, inside in held.items()}
    heads = {(name, one) for name, inside in held.items() for one in inside.keys() - parents[name]}

    def entry_of(namespace: str, checkpoint_id: str) -> Entry:
        key = (namespace, checkpoint_id)
        parent, step, source, created = held[namespace][checkpoint_id][2:]
        return Entry(
            thread_id=thread.thread_id,
            namespace=namespace,
            id=checkpoint_id,
            parent=parent,
            has_parent=parent in held[namespace],
            step=step,
            source=source,
            created=created,
            changed=(),
            added_bytes=0,
            is_head=key in heads,
            tags=tuple(filter(None, marks.get(key, ()))),
            is_pinned="" in marks.get(key, ()),
        )

    shown = heads | marks.keys()
    return History(thread.thread_id, knots, shown, entry_of, is_brief=True, forks=forks, mark=mark)


async def _forks(store: Context, thread: ThreadRow) -> tuple[Fork, ...]:
    found: list[Fork] = []
    looked = 0
    async for row in each_thread(store):
        looked += 1
        if row.forked_from == thread.thread_id and row.thread_id != thread.thread_id:
            found.append(Fork(row.thread_id, await _origin(store, row.thread_id)))
        if looked >= _MOST_THREADS or len(found) >= _MOST_FORKS:
            break
    return tuple(found)


async def _origin(store: Context, thread_id: str) -> str | None:
    """The checkpoint that a forked thread began with, as its oldest one says."""
    try:
        for found in await walk(store, thread_id, None, 1):
            named = store.tools.metadata(found).get("forked_from")
            origin = named.get("checkpoint_id") if isinstance(named, Mapping) else None
            return origin if isinstance(origin, str) else None
    except ThreadlineError:
        pass
    return None


def drawn(history: History, namespace: str = ROOT, *, opened: Collection[str] = ()) -> list[TreeLine]:
    """The lines of one namespace; what is marked, or where a fork began, is never folded."""
    forks: dict[str, list[str]] = {}
    for fork in history.forks:
        if fork.origin is not None:
            forks.setdefault(fork.origin, []).append(fork.thread_id)
    marked = {checkpoint_id for name, checkpoint_id in history.marked if name == namespace} | forks.keys()
    shown = list(folded(history.knots.get(namespace, ()), marked, opened=opened))
    return [
        TreeLine(line, history.entry_of(namespace, line.knot.id), tuple(forks.get(line.knot.id, ())))
        for line in lines(shown)
    ]


def _is_marked(entry: Entry) -> bool:
    return bool(
        entry.is_head
        or entry.tags
        or entry.is_pinned
        or entry.origins
        or entry.damage
        or entry.is_interrupted
        or entry.has_error
    )
