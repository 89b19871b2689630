"""Branches of a thread: fork, roll back, discard. No chunk is copied.

A fork is a copy of its target under the target's parent, never a child of it, so that what the target's
tasks did is not taken for done. Within a thread the copy has a new id, above every id of its namespace, and so
have copies of what subgraphs that keep their state remembered there: the newest is what they go on from.
In a new thread the copy keeps its id, and brings along what it cannot do without: the chain that its
delta channels are replayed from, the state of its subgraphs, and its unsettled writes.
"""

from __future__ import annotations

from typing import Any

from ..backends.port import Applied, Backend, Change, CheckpointKey, CheckpointRow, Found, WriteRow
from ..errors import Conflict, InvalidRequest, Unavailable
from ..ids import id_after
from ..model import empty_checkpoint
from .copies import resealed, resealed_write
from .documents import Roots, checkpoint_place, draft, place_of_row, read_metadata, searchable, write_row
from .known import witness_of
from .lineage import History, children_of, line_of, with_chains
from .pages import learn_keys_of, thread_rows
from .places import At, find, resolve
from .retention import history_from, history_of, remove
from .subgraphs import lasting, newest_of, remembered
from .timeline import heads_of
from .tools import Tools
from .words import living, tags_of

__all__ = ["discard", "fork", "fork_to"]

_TRIES = 32
_CHAIN_PAGE = 200
# The step that LangGraph gives to what was there before any input.
_BEFORE_INPUT = -2
# Above every id of the root: what is walked after it is in another namespace.
_LAST_ID = "\U0010ffff"


async def fork(backend: Backend, tools: Tools, thread_id: str, at: At, namespace: str, now: float) -> CheckpointKey:
    """A copy of a checkpoint as the new head of its thread; subgraphs that keep their state are where they were."""
    await tools.open(backend)
    for _ in range(_TRIES):
        target = await find(backend, thread_id, at, namespace)
        await learn_keys_of(backend, tools, [target])
        newest = await backend.find(thread_id, target.row.namespace, None, with_writes=False)
        assert newest is not None
        new_id = id_after(newest.row.id)
        memories = await _memories(backend, tools, target, new_id, now)
        if memories is None:
            continue  # the target was deleted meanwhile
        chain = await _chain(backend, tools, target)
        rows = [_forked(tools, target, thread_id, new_id, now), *memories]
        head = (target.row.namespace, newest.row.id)
        stamp = (target.pool, target.epoch)
        change = Change(thread_id=thread_id, now=now, stamp=stamp, checkpoints=rows, head=head)
        change.witnesses = [witness_of(target.row)]
        try:
            [outcome] = await backend.apply([change])
        except Conflict:
            now_newest = await backend.find(thread_id, target.row.namespace, None, with_writes=False)
            if now_newest is None or now_newest.row.id == newest.row.id:
                raise
            continue  # another writer made a newer id; take one above that
        if isinstance(outcome, Applied):
            # From now on a prune spares what the copy is replayed from. What went before the copy came is missed now.
            if chain and await _chain(backend, tools, target) != chain:
                made = [CheckpointKey(row.namespace, row.id) for row in rows]
                await backend.remove_checkpoints(thread_id, made, seen=())
                raise Conflict(
                    f"checkpoint {target.row.id} of thread {thread_id!r} was pruned while it was forked: "
                    f"fork another one"
                )
            return CheckpointKey(target.row.namespace, new_id)
    raise Unavailable(f"thread {thread_id!r} was changed again and again while it was forked; try again")


async def fork_to(
    backend: Backend, tools: Tools, thread_id: str, at: At, to: str, namespace: str, now: float
) -> CheckpointKey:
    """A new thread that begins with a checkpoint of another; Conflict when the new one exists."""
    await tools.open(backend)
    if to == thread_id:
        raise InvalidRequest("a thread cannot be forked onto itself: leave out to= for a branch of the same thread")
    for _ in range(_TRIES):
        target = await find(backend, thread_id, at, namespace)
        needed = await _needed(backend, tools, target)
        if needed is None:
            continue  # the target was deleted or replaced meanwhile
        rows: list[CheckpointRow] = []
        writes: list[WriteRow] = []
        for found in needed:
            if found.row == target.row:
                rows.append(_forked(tools, found, to, found.row.id, now))
            else:
                rows.append(resealed(tools, found, to))
            writes.extend(resealed_write(tools, write, thread_id, to) for write in found.writes)
        stamp = (target.pool, target.epoch)
        change = Change(thread_id=to, now=now, stamp=stamp, joins=thread_id, checkpoints=rows, writes=writes)
        [outcome] = await backend.apply([change])
        if isinstance(outcome, Applied):
            return CheckpointKey(target.row.namespace, target.row.id)
    raise Unavailable(f"thread {thread_id!r} was pruned again and again while it was forked; try again")


async def discard(backend: Backend, tools: Tools, thread_id: str, branch: At, namespace: str = "") -> int:
    """Delete a branch: its checkpoints that lead to no other head; the last branch of a thread stays."""
    await tools.open(backend)
    key = await resolve(backend, thread_id, branch, namespace)
    history = await history_of(backend, tools, thread_id)
    heads = {one for one in heads_of((k, step.parent) for k, step in history.items()) if one.namespace == key.namespace}
    gone = _descendants(history, key) & heads
    if gone >= heads:
        raise Conflict(f"{key.id} is on the only branch of thread {thread_id!r}; delete the thread instead")
    kept = line_of(history, heads - gone)
    marked = {one.key for one in tags_of(await living(backend, thread_id))}
    doomed = line_of(history, gone) - kept
    if marked & doomed:
        raise Conflict("the branch holds checkpoints that are tagged or pinned; untag or unpin them first")
    # Deleting must not take away what other checkpoints are replayed from.
    doomed -= with_chains(history, history.keys() - doomed)
    return await remove(backend, tools, thread_id, doomed, history)


def _descendants(history: History, key: CheckpointKey) -> set[CheckpointKey]:
    """A checkpoint and all that descend from it."""
    children, found, following = children_of(history), {key}, [key]
    while following:
        new = [child for child in children.get(following.pop(), ()) if child not in found]
        found.update(new)
        following += new
    return found


async def _chain(backend: Backend, tools: Tools, target: Found) -> list[str]:
    """The ids of the ancestors from which the delta channels of a checkpoint are replayed."""
    [step] = history_from(tools, [target]).values()
    missing, ids, parent = set(step.wants), list[str](), target.row.parent
    while missing and parent is not None and parent not in ids:
        line = await backend.chain(target.thread_id, target.row.namespace, parent, _CHAIN_PAGE)
        await learn_keys_of(backend, tools, line)
        for ancestor in history_from(tools, line).values():
            if missing:
                ids.append(ancestor.key.id)
                missing -= ancestor.holds
        parent = line[-1].row.parent if len(line) == _CHAIN_PAGE else None
    return ids


async def _memories(
    backend: Backend, tools: Tools, target: Found, root_id: str, now: float
) -> list[CheckpointRow] | None:
    """Copies, as the newest of their namespaces, of what subgraphs remembered at a checkpoint of the root.

    One that had not run yet gets an empty checkpoint, from which it begins anew. None if the target is gone.
    """
    thread_id, key = target.thread_id, CheckpointKey(target.row.namespace, target.row.id)
    # Whether there is any other namespace; a thread without subgraphs need not be read.
    if key.namespace or not await backend.walk(thread_id, CheckpointKey("", _LAST_ID), 1):
        return []
    every = await thread_rows(backend, thread_id, tools=tools)
    rows = {CheckpointKey(one.row.namespace, one.row.id): one for one in every}
    history = history_from(tools, rows.values())
    if key not in history:
        return None
    known = newest_of(remembered(history, [key]))
    copies: list[CheckpointRow] = []
    for namespace, last in newest_of(lasting(history)).items():
        if known.get(namespace) != last:
            origin = rows.get(known[namespace]) if namespace in known else None
            place = CheckpointKey(namespace, id_after(last.id))
            copies.append(
                _forked(tools, origin, thread_id, place.id, now, above=root_id)
                if origin is not None
                else _blank(tools, thread_id, place, root_id, now)
            )
    return copies


def _blank(tools: Tools, thread_id: str, key: CheckpointKey, root_id: str, now: float) -> CheckpointRow:
    """A checkpoint without any state, from which a graph goes on as if there were none."""
    metadata = {"source": "fork", "step": _BEFORE_INPUT, "parents": {"": root_id}}
    return write_row(
        draft({**empty_checkpoint(), "id": key.id}, metadata, tools.codec),
        Roots({}, {}),
        thread_id=thread_id,
        key=key,
        parent=None,
        now=now,
        codec=tools.codec,
        envelope=tools.envelope,
        indexed=tools.indexed,
    )


def _forked(
    tools: Tools, found: Found, thread_id: str, new_id: str, now: float, *, above: str | None = None
) -> CheckpointRow:
    """The row of a copy: another id or thread, and metadata that says where it comes from, and what it is under."""
    row, codec, envelope = found.row, tools.codec, tools.envelope
    origin = {"thread_id": found.thread_id, "checkpoint_id": row.id}
    metadata: dict[str, Any] = {
        **read_metadata(found, codec, envelope),
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
    described = codec.encode_natively(metadata, "metadata")
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


async def _needed(backend: Backend, tools: Tools, target: Found) -> list[Found] | None:
    """The target with its unsettled writes, what it is replayed from, and what subgraphs have stored for it."""
    thread_id, key = target.thread_id, CheckpointKey(target.row.namespace, target.row.id)
    every = await thread_rows(backend, thread_id, with_writes=True, tools=tools)
    if all(found.row != target.row for found in every):
        return None
    history = history_from(tools, every)
    is_settled = any(step.parent == key and step.source == "loop" for step in history.values())
    # What ran below a settled target has come to its end there, and would be taken for done.
    below = {one for one, step in history.items() if step.parents.get(key.namespace) == key.id and not is_settled}
    earlier = remembered(history, [key]) if key.namespace == "" else ()
    wanted = with_chains(history, {key, *below, *earlier})
    rows = []
    for found in every:
        one = CheckpointKey(found.row.namespace, found.row.id)
        if one in wanted:
            drops = one == key and is_settled
            rows.append(found._replace(writes=[]) if drops else found)
    return rows
