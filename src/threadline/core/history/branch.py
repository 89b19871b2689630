"""Branches of a thread: fork, roll back, discard. No chunk is copied.

A fork is a copy of its target under the target's parent, never a child of it, so that what the target's
tasks did is not taken for done. Within a thread the copy has a new id, above every id of its namespace, and so
have copies of what subgraphs that keep their state remembered there: the newest is what they go on from.
In a new thread the copy keeps its id, and brings along what it cannot do without: the chain that its
delta channels are replayed from, the state of its subgraphs, and its unsettled writes.
A thread is copied by writing its rows again under the new thread.

A subgraph that runs for one task has a namespace with that task in it: its checkpoints belong to the checkpoint they
were made under. One that keeps its state from run to run has a namespace without any task: what it remembers at a
checkpoint of the root was mostly made under an earlier one, which may be gone.
"""

from __future__ import annotations

from collections.abc import Iterable
from functools import cache
from typing import Any

from ...base.attempts import ATTEMPTS, gave_up
from ...base.checkpoint import empty_checkpoint
from ...base.ids import id_after
from ...base.namespaces import TASK
from ...errors import Conflict, InvalidRequest, NotFound
from ...ports.checkpoints import Applied, Change, CheckpointKey, CheckpointRow, Found, Guard, WriteRow
from ..context import Context, Tools
from ..known import witness_of
from ..lifecycle import living, tags_of
from ..paging import ancestors, thread_rows, walk
from ..requests import text_id
from ..retention.policy import seconds_of
from ..retention.prune import remove
from ..retention.trash import Bin
from ..rows import Roots, checkpoint_place, draft, place_of_row, searchable, write_place, write_row
from .graph import History, history_from, history_of, newest_of
from .revisions import At, find, resolve
from .state import Point

__all__ = [
    "copy_thread",
    "discard",
    "fork",
    "lasting",
    "made_under",
    "remembered",
    "resealed",
    "resealed_write",
]


# The step that LangGraph gives to what was there before any input.
_BEFORE_INPUT = -2
# Above every id of the root: what is walked after it is in another namespace.
_LAST_ID = "\U0010ffff"


async def fork(store: Context, thread_id: str, at: At, to: str | None, namespace: str, now: float) -> Point:
    """A branch that begins with a copy of a checkpoint: in its thread, or as the new thread `to`."""
    if to is not None:
        return await _fork_to(store, thread_id, at, text_id(to, "to"), namespace, now)
    return await _fork_within(store, thread_id, at, namespace, now)


async def _fork_within(store: Context, thread_id: str, at: At, namespace: str, now: float) -> Point:
    """A copy of a checkpoint as the new head of its thread; subgraphs that keep their state are where they were."""
    for _ in range(ATTEMPTS):
        target = await find(store, thread_id, at, namespace)
        newest = await store.find(thread_id, target.row.namespace, None, with_writes=False)
        assert newest is not None
        new_id = id_after(newest.row.id)
        memories = await _memories(store, target, new_id, now)
        if memories is None:
            continue  # the target was deleted meanwhile
        chain = await _chain(store, target)
        rows = [_forked(store.tools, target, thread_id, new_id, now), *memories]
        head = (target.row.namespace, newest.row.id)
        change = Change(thread_id=thread_id, now=now, stamp=target.stamp, checkpoints=rows, head=head)
        change.witnesses = [witness_of(target.row)]
        try:
            [outcome] = await store.backend.apply([change])
        except Conflict:
            now_newest = await store.find(thread_id, target.row.namespace, None, with_writes=False)
            if now_newest is None or now_newest.row.id == newest.row.id:
                raise
            continue  # another writer made a newer id; take one above that
        if isinstance(outcome, Applied):
            # From now on a prune spares what the copy is replayed from. What went before the copy came is missed now.
            if chain and await _chain(store, target) != chain:
                made = [row.key for row in rows]
                await store.backend.remove_checkpoints(thread_id, made, guard=Guard(()))
                raise Conflict(
                    f"checkpoint {target.row.id} of thread {thread_id!r} was pruned while it was forked: "
                    f"fork another one"
                )
            return Point(thread_id, CheckpointKey(target.row.namespace, new_id))
    raise gave_up(f"fork of thread {thread_id!r}", "another writer changed it during each of them")


async def _fork_to(store: Context, thread_id: str, at: At, to: str, namespace: str, now: float) -> Point:
    """A new thread that begins with a checkpoint of another; Conflict when the new one exists."""
    if to == thread_id:
        raise InvalidRequest("a thread cannot be forked onto itself: leave out to= for a branch of the same thread")
    for _ in range(ATTEMPTS):
        target = await find(store, thread_id, at, namespace)
        needed = await _needed(store, target)
        if needed is None:
            continue  # the target was deleted or replaced meanwhile
        rows = [
            _forked(store.tools, found, to, found.row.id, now)
            if found.row == target.row
            else resealed(store.tools, found, to)
            for found in needed
        ]
        writes = [resealed_write(store.tools, write, thread_id, to) for found in needed for write in found.writes]
        change = Change(thread_id=to, now=now, stamp=target.stamp, joins=thread_id, checkpoints=rows, writes=writes)
        [outcome] = await store.backend.apply([change])
        if isinstance(outcome, Applied):
            return Point(to, target.key)
    raise gave_up(f"fork of thread {thread_id!r}", "it was pruned during each of them")


async def discard(store: Context, thread_id: str, branch: At, trash: Any, now: float) -> int:
    """Delete a branch: its checkpoints that lead to no other head; the last branch of a thread stays.

    With `trash`, a span of time, they can be restored until then.
    """
    seconds = seconds_of(trash, "trash")
    key = await resolve(store, thread_id, branch, "")
    history = await history_of(store, thread_id)
    heads = history.heads(key.namespace)
    gone = history.descendants(key) & heads
    if gone >= heads:
        raise Conflict(f"{key.id} is on the only branch of thread {thread_id!r}; delete the thread instead")
    kept = history.line_of(heads - gone)
    marked = {one.key for one in tags_of(await living(store, thread_id))}
    doomed = history.line_of(gone) - kept
    if marked & doomed:
        raise Conflict("the branch holds checkpoints that are tagged or pinned; untag or unpin them first")
    # Deleting must not take away what other checkpoints are replayed from.
    doomed -= history.with_chains(history.keys() - doomed)
    into = Bin(store.backend, thread_id, seconds, now) if seconds else None
    removed = await remove(store, thread_id, doomed, history, into=into)
    if into is not None:
        await into.close()
    return removed


async def _chain(store: Context, target: Found) -> list[str]:
    """The ids of the ancestors from which the delta channels of a checkpoint are replayed."""
    [step] = history_from(store.tools, [target]).values()
    missing, ids = set(step.wants), list[str]()
    if missing:
        async for ancestor in ancestors(store, target.thread_id, target.parent):
            [step] = history_from(store.tools, [ancestor]).values()
            ids.append(ancestor.row.id)
            missing -= step.holds
            if not missing:
                break
    return ids


async def _memories(store: Context, target: Found, root_id: str, now: float) -> list[CheckpointRow] | None:
    """Copies, as the newest of their namespaces, of what subgraphs remembered at a checkpoint of the root.

    One that had not run yet gets an empty checkpoint, from which it begins anew. None if the target is gone.
    """
    thread_id, key = target.thread_id, target.key
    # Whether there is any other namespace; a thread without subgraphs need not be read.
    if key.namespace or not await walk(store, thread_id, CheckpointKey("", _LAST_ID), 1):
        return []
    every = await thread_rows(store, thread_id)
    rows = {one.key: one for one in every}
    history = history_from(store.tools, rows.values())
    if key not in history:
        return None
    known = newest_of(remembered(history, [key]))
    copies: list[CheckpointRow] = []
    for namespace, last in newest_of(lasting(history)).items():
        if known.get(namespace) != last:
            origin = rows.get(known[namespace]) if namespace in known else None
            place = CheckpointKey(namespace, id_after(last.id))
            copies.append(
                _forked(store.tools, origin, thread_id, place.id, now, above=root_id)
                if origin is not None
                else _blank(store.tools, thread_id, place, root_id, now)
            )
    return copies


def _blank(tools: Tools, thread_id: str, key: CheckpointKey, root_id: str, now: float) -> CheckpointRow:
    """A checkpoint without any state, from which a graph goes on as if there were none."""
    metadata = {"source": "fork", "step": _BEFORE_INPUT, "parents": {"": root_id}}
    drafted = draft({**empty_checkpoint(), "id": key.id}, metadata, tools.codec)
    return write_row(tools, drafted, Roots({}, {}), (thread_id, key.namespace, None), key.id, now)


def _forked(
    tools: Tools, found: Found, thread_id: str, new_id: str, now: float, *, above: str | None = None
) -> CheckpointRow:
    """The row of a copy: another id or thread, and metadata that says where it comes from, and what it is under."""
    row, envelope = found.row, tools.envelope
    origin = {"thread_id": found.thread_id, "checkpoint_id": row.id}
    metadata: dict[str, Any] = {
        **tools.metadata(found),
        "source": "fork",
        "forked_from": origin,
    }
    if above is not None:
        named = metadata.get("parents")
        metadata["parents"] = {**(named if isinstance(named, dict) else {}), "": above}
    content = envelope.unwrap_row(row.form, row.document, place_of_row(found.thread_id, row, "document"))
    places = [
        checkpoint_place(part, thread_id, row.namespace, new_id, row.parent, row.links)
        for part in ("document", "metadata")
    ]
    form, document = envelope.wrap_row(content, places[0])
    described = tools.codec.encode_natively(metadata, "metadata")
    metadata_form, stored = envelope.wrap_row(described, places[1])
    return row._replace(
        id=new_id,
        form=form,
        document=document,
        metadata_form=metadata_form,
        metadata=stored,
        source="fork",
        created=now,
        searchable=searchable(metadata, tools.indexed),
    )


async def _needed(store: Context, target: Found) -> list[Found] | None:
    """The target with its unsettled writes, what it is replayed from, and what subgraphs have stored for it."""
    thread_id, key = target.thread_id, target.key
    every = await thread_rows(store, thread_id, with_writes=True)
    if all(found.row != target.row for found in every):
        return None
    history = history_from(store.tools, every)
    is_settled = any(step.parent == key and step.source == "loop" for step in history.values())
    # What ran below a settled target has come to its end there, and would be taken for done.
    below = {one for one, step in history.items() if step.parents.get(key.namespace) == key.id and not is_settled}
    earlier = remembered(history, [key]) if key.namespace == "" else ()
    wanted = history.with_chains({key, *below, *earlier})
    rows = []
    for found in every:
        one = found.key
        if one in wanted:
            drops = one == key and is_settled
            rows.append(found._replace(writes=[]) if drops else found)
    return rows


async def copy_thread(store: Context, source: str, target: str, now: float) -> None:
    """A new thread with all checkpoints and writes of another; no chunk is copied.

    Raises NotFound without a source and Conflict when the target lives.
    """
    source, target = text_id(source, "source_thread_id"), text_id(target, "target_thread_id")
    if source == target:
        raise InvalidRequest("a thread cannot be copied onto itself")
    # Kept from one attempt to the next: while others prune the pool, a long thread is copied if an attempt is short.
    row_there = cache(lambda row: resealed(store.tools, Found(source, 0, 0, row, []), target))
    write_there = cache(lambda write: resealed_write(store.tools, write, source, target))
    for _ in range(ATTEMPTS):
        origin = await store.backend.thread(source)
        if origin is None or origin.status == "deleted":
            raise NotFound(f"there is no thread {source!r} to copy")
        rows = await thread_rows(store, source, with_writes=True)
        change = Change(thread_id=target, now=now, stamp=origin.stamp, joins=source)
        change.checkpoints = [row_there(found.row) for found in rows]
        change.writes = [write_there(write) for found in rows for write in found.writes]
        [outcome] = await store.backend.apply([change])
        if isinstance(outcome, Applied):
            return
    raise gave_up(f"copy of thread {source!r}", "it was pruned during each of them")


def resealed(tools: Tools, found: Found, target: str) -> CheckpointRow:
    """A checkpoint's row for another thread: what is sealed for one place is sealed anew for the other."""
    row, envelope = found.row, tools.envelope

    def reseal(form: int, data: bytes, part: str) -> tuple[int, bytes]:
        content = envelope.unwrap_row(form, data, place_of_row(found.thread_id, row, part))
        return envelope.wrap_row(content, place_of_row(target, row, part))

    form, document = reseal(row.form, row.document, "document")
    metadata_form, metadata = reseal(row.metadata_form, row.metadata, "metadata")
    return row._replace(form=form, document=document, metadata_form=metadata_form, metadata=metadata)


def resealed_write(tools: Tools, write: WriteRow, source: str, target: str) -> WriteRow:
    """A pending write for another thread."""
    content = tools.envelope.unwrap_row(write.form, write.data, write_place(source, write))
    form, data = tools.envelope.wrap_row(content, write_place(target, write))
    return write._replace(form=form, data=data)


Newest = dict[str, CheckpointKey]  # by namespace


def made_under(history: History, kept: Iterable[CheckpointKey]) -> set[CheckpointKey]:
    """Subgraph checkpoints whose graphs above are kept; where that is not known, the newest of a namespace."""
    ids = {(key.namespace, key.id) for key in kept}
    found: set[CheckpointKey] = set()
    unknown: list[CheckpointKey] = []
    for key, step in history.items():
        if key.namespace and not step.parents:
            unknown.append(key)
        elif key.namespace and any(place in ids for place in step.parents.items()):
            found.add(key)
    return found | set(newest_of(unknown).values())


def lasting(history: History) -> list[CheckpointKey]:
    """The checkpoints of subgraphs that keep their state from run to run."""
    return [key for key in history if key.namespace and TASK not in key.namespace]


def remembered(history: History, roots: Iterable[CheckpointKey]) -> set[CheckpointKey]:
    """The checkpoints that stateful subgraphs had when these checkpoints of the root were made."""
    made = lasting(history)
    if not made:
        return set()
    under: dict[str, Newest] = {}  # what was made under each checkpoint of the root
    for key in made:
        above = history[key].parents.get("")
        if above is not None:
            under[above] = _newer(under.get(above, {}), {key.namespace: key})
    namespaces = {key.namespace for key in made}
    along: dict[str, Newest] = {}
    found: set[CheckpointKey] = set()
    reach: dict[str, str] = {}  # of each namespace that some line has nothing of, the newest such root
    for root in roots:
        here = _along(history, root, under, along)
        found.update(here.values())
        for namespace in namespaces - here.keys():
            reach[namespace] = max(root.id, reach.get(namespace, ""))
    # Where the line has a gap, what was made under a checkpoint that is gone may be what is remembered.
    found.update(key for key in made if key.id < reach.get(key.namespace, "") and _is_orphan(history, key))
    return found


def _along(history: History, root: CheckpointKey, under: dict[str, Newest], along: dict[str, Newest]) -> Newest:
    """The newest of each namespace that was made under an ancestor, up to the first that is gone.

    `along` has it for the checkpoints that were passed before: each is passed once.
    """
    passed: list[str] = []
    seen: set[str] = set()
    at = history[root].parent
    while at is not None and at.id not in along and at.id not in seen:
        passed.append(at.id)
        seen.add(at.id)
        at = history[at].parent if at in history else None
    known = along.get(at.id, {}) if at is not None else {}
    for one in reversed(passed):
        known = _newer(known, under[one]) if one in under else known
        along[one] = known
    return known


def _newer(one: Newest, other: Newest) -> Newest:
    """Of each namespace the newer checkpoint of two."""
    return {**one, **{ns: key for ns, key in other.items() if ns not in one or key.id > one[ns].id}}


def _is_orphan(history: History, key: CheckpointKey) -> bool:
    above = history[key].parents.get("")
    return above is None or CheckpointKey("", above) not in history
