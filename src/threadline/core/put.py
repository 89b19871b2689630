"""Applying puts and pending writes that were prepared (prepare.py). Rules:

- Chunks known to be stored (core/known.py) are left out, under the pool's stamp and the rows they are known by.
  When the stamp has passed or a row is gone, the put sends everything, from what it encoded, never from live values.
- What was encoded becomes known only when the commit is acknowledged.
- A put whose delta channels are replayed from its parent needs that parent's row.
- What was refused stays refused: writes and children of a refused checkpoint are a Conflict. Writes that
  overtake their checkpoint may do what its put may do, and no more.
- A put may have to be checked against its parent's values first (repeated_versions.py).
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from functools import partial

import ormsgpack

from ..base.attempts import ATTEMPTS, gave_up
from ..chunks.encode import Chunks
from ..chunks.gather import chunk_place
from ..codec.envelope import WORTH_COMPRESSING
from ..errors import Conflict
from ..ports.checkpoints import (
    Applied,
    Backend,
    Change,
    CheckpointRow,
    ChunkRow,
    Found,
    Stale,
    Stamp,
    Witness,
    WriteRow,
)
from ..ports.engine import Engine
from ..ports.rules import is_quick
from .context import Context, Tools
from .known import Known, witness_of
from .prepare import Prepared, PreparedPut, PreparedWrites
from .repeated_versions import may_repeat_versions, refuse_other_values
from .requests import Place
from .rows import Roots, write_row

__all__ = ["aput_now", "chunk_rows", "note_refusal", "put_all", "put_now", "put_opened"]

_new, packb = tuple.__new__, ormsgpack.packb


def put_now(tools: Tools, engine: Engine, one: Prepared, now: float, *, is_tried: bool = False) -> None:
    """Apply one put or put_writes on the calling thread.

    What nearly all of them are needs no coroutine, where the engine has a shorter way; unless that was tried already,
    and said no. All others are operations.
    """
    put = engine.put_usual if not is_tried else None
    if put is not None and (change := _usual_change(tools, one, now)) is not None:
        try:
            stamp = put(change)
        except Conflict:
            _note_refusals(tools, [one])
            raise
        if stamp is not None:
            return _note_applied(tools, one, change, stamp)
    return engine.run(partial(put_opened, tools, [one], now))


async def aput_now(tools: Tools, engine: Engine, one: Prepared, now: float) -> None:
    """`put_now`, from an event loop."""
    put = engine.aput_usual
    if put is not None and tools.is_open and (change := _usual_change(tools, one, now)) is not None:
        try:
            stamp = await put(change)
        except Conflict:
            _note_refusals(tools, [one])
            raise
        if stamp is not None:
            return _note_applied(tools, one, change, stamp)
    return await engine.awrite(partial(put_opened, tools, [one], now))


async def put_opened(tools: Tools, prepared: Sequence[Prepared], now: float, backend: Backend) -> None:
    """`put_all` on a store that may not be open yet."""
    if not tools.is_open:
        await tools.open(backend)
    leading = _leading(prepared) if not tools.refused and tools.envelope.ring is None else None
    if leading is not None:
        # What nearly all puts are, in a straight line; whatever else there is to do or to say is for `put_all`.
        for one in prepared:
            if isinstance(one, PreparedPut) and one.checks_versions and may_repeat_versions(one):
                await refuse_other_values(Context(backend, tools), one)
        change = _change(tools, leading, now if leading.made_at is None else leading.made_at)
        if len(prepared) > 1:
            _take_along(tools, change, [one for one in prepared if one is not leading])
        try:
            [outcome] = await backend.apply([change])
        except Conflict:
            _note_refusals(tools, prepared)
            raise
        if type(outcome) is Applied:
            newest = prepared[-1]
            if isinstance(newest, PreparedPut):
                before = [one for one in prepared[:-1] if isinstance(one, PreparedPut)] if len(prepared) > 1 else ()
                _acknowledge(tools, newest, change, outcome[0], change.witnesses, before)
            return
        for one in prepared:
            await _refresh(Context(backend, tools), one)
    await put_all(Context(backend, tools), prepared, now)


def _usual_change(tools: Tools, one: Prepared, now: float) -> Change | None:
    """The change that this makes, where there is nothing to read before it is put, and nothing to refuse."""
    if tools.refused or tools.sole_encoder is None:
        return None
    if isinstance(one, PreparedWrites):
        is_straight = one.known is not None
    elif one.known is None and one.place[2] is not None:
        return None
    else:
        has_repeated = one.checks_versions and may_repeat_versions(one)
        is_straight = one.parent_is_known and not one.deltas and not has_repeated
    change = _change(tools, one, now if one.made_at is None else one.made_at) if is_straight else None
    return change if change is not None and is_quick(change) else None


def _note_applied(tools: Tools, one: Prepared, change: Change, stamp: Stamp) -> None:
    if isinstance(one, PreparedPut):
        _acknowledge(tools, one, change, stamp, change.witnesses)


def _leading(prepared: Sequence[Prepared]) -> Prepared | None:
    """The first put of a straight line, or the writes where there is none; None where this is no straight line."""
    first = prepared[0]
    if len(prepared) == 1:
        return None if isinstance(first, PreparedPut) and (not first.parent_is_known or first.deltas) else first
    puts = [one for one in prepared if isinstance(one, PreparedPut)]
    if not puts or not puts[0].parent_is_known or puts[0].deltas or not _is_line(first, prepared, puts):
        return None
    return puts[0]


async def put_all(store: Context, prepared: Sequence[Prepared], now: float) -> None:
    """Apply prepared puts and writes in one transaction; durable when this returns."""
    tools = store.tools
    if tools.refused:
        for one in prepared:
            await _refuse_descendants(store, one)
    for _ in range(ATTEMPTS):
        for one in prepared:
            if isinstance(one, PreparedPut) and not one.parent_is_known:
                await _read_parent(store, one)
        if tools.envelope.ring is not None:
            await _name_for_pools(store, prepared, now)
        for one in prepared:
            if isinstance(one, PreparedPut) and one.checks_versions:
                await refuse_other_values(store, one)
        changes = _changes(tools, prepared, now)
        try:
            outcomes = await store.backend.apply(changes)
        except Conflict:
            _note_refusals(tools, prepared)
            raise
        for outcome in outcomes:
            if isinstance(outcome, Stale):
                break
        else:
            _acknowledge_all(tools, prepared, changes, [outcome.stamp for outcome in outcomes])
            return
        for one in prepared:
            await _refresh(store, one)
    why = "chunks were collected or the connection was lost during each of them"
    raise gave_up(f"put to thread {prepared[0].place.thread_id!r}", why)


def _is_line(first: Prepared, prepared: Sequence[Prepared], puts: Sequence[PreparedPut]) -> bool:
    """Whether these are steps of one namespace, each on the one before: pending writes, and checkpoints behind them."""
    (thread_id, namespace, _), known, newest = first.place, first.known, None
    for one in prepared:
        if one.known is not known or one.place[0] != thread_id or one.place[1] != namespace or one.made_at is not None:
            return False
        if isinstance(one, PreparedWrites):
            if one.are_first or one.batch.moved:
                return False
        elif one.sibling is not newest or one.deltas or one.place[2] is None or (newest and one.batch.moved):
            return False
        else:
            newest = one
    return bool(puts) and prepared[-1] is newest


def _take_along(tools: Tools, change: Change, others: Sequence[Prepared]) -> None:
    """Let pending writes, and checkpoints that follow, go with the change of a checkpoint, to the same thread."""
    writes: list[WriteRow] = []
    checkpoints = list(change.checkpoints)
    for one in others:
        if isinstance(one, PreparedWrites):
            writes += _write_rows(tools, one)
        else:
            checkpoints.append(_row(tools, one, change.now))
            if one.answers:
                change.settles = one.checkpoint_id
        if one.batch.chunks:
            there = {row[0] for row in (*change.chunks, *change.moved)}
            pool, known = (one.known.stamp[0], one.known.digests) if one.known is not None else (0, ())
            rows = chunk_rows(tools, pool, one.batch.chunks, known)
            change.chunks = [*change.chunks, *[row for row in rows if row[0] not in there]]
    change.writes, change.checkpoints = writes, checkpoints
    if others[0].known is not None:
        change.witnesses = others[0].known.witnesses  # as `_change` has it: after the chunks were chosen


async def _refuse_descendants(store: Context, one: Prepared) -> None:
    """Raise Conflict for what builds on a checkpoint that this process was refused, and nobody has put since."""
    refused, (thread_id, namespace, _) = store.tools.refused, one.place
    for checkpoint_id in {one.place.checkpoint_id, one.descent[0]}:
        if checkpoint_id is None or not refused.get((thread_id, checkpoint_id)):
            continue
        for where in {namespace, ""}:
            if await store.backend.find(thread_id, where, checkpoint_id, with_writes=False) is not None:
                refused.pop((thread_id, checkpoint_id), None)
                break
        else:
            raise Conflict(
                f"thread {thread_id!r}: the put of checkpoint {checkpoint_id!r} was refused, and so is what "
                f"builds on it; read the thread again and start a new run"
            )


def note_refusal(tools: Tools, thread_id: str, checkpoint_id: str) -> None:
    """A put was refused: so is what builds on it."""
    tools.refused.note(thread_id, checkpoint_id, True)
    # It is no longer on its way: where another process has put the checkpoint, writes to it are judged by that.
    tools.coming.pop((thread_id, checkpoint_id), None)


def _note_refusals(tools: Tools, prepared: Sequence[Prepared]) -> None:
    for one in prepared:
        if isinstance(one, PreparedPut):
            note_refusal(tools, one.place.thread_id, one.checkpoint_id)


async def _read_parent(store: Context, put: PreparedPut) -> None:
    """Read the parent, when memory had none; a parent that never arrived is no error."""
    put.parent_is_known = True
    if put.sibling is not None:
        put.parent = put.sibling.settled()
        return
    thread_id, namespace, parent = put.place
    found = await store.find(thread_id, namespace, parent, with_writes=False)
    if found is not None:
        put.parent = store.tools.document(found).roots
        put.parent_row = witness_of(found.row)
        _rely_on(store.tools, put, found)


def _rely_on(tools: Tools, put: PreparedPut, found: Found) -> None:
    """Note that the chunks which a put takes over from a row are known by that row."""
    witness, stamp = witness_of(found.row), found.stamp
    held = tools.known.learn(put.place.thread_id, stamp, (), witness, beside=put.known)
    if put.known is None:
        put.known = held
    elif put.known is not held and put.known.stamp == stamp:
        put.known.witnesses = (*put.known.witnesses, witness)


async def _name_for_pools(store: Context, prepared: Sequence[Prepared], now: float) -> None:
    """Name the chunks for the pools that they go to: in an encrypted store names and seals are bound to a pool."""
    for one in prepared:
        if one.known is None:
            await store.tools.confirm_keys(store.backend, restores=True)
            continues, begins = one.descent
            change = Change(thread_id=one.place.thread_id, now=one.moment(now), continues=continues, begins=begins)
            [outcome] = await store.backend.apply([change])
            one.known = Known(outcome.stamp)
        encoder = store.tools.encoder(one.known)
        if encoder.digester.key != one.encoder.digester.key:
            one.encoder = encoder
            one.encode_again()
        if isinstance(one, PreparedPut) and one.sibling is not None and one.parent is not None:
            one.parent, one._settled = one.sibling.settled(), None


def _changes(tools: Tools, prepared: Sequence[Prepared], now: float) -> list[Change]:
    """The changes of one transaction; the first to a thread proves what all of them rely on."""
    changes: list[Change] = []
    proven: set[str] = set()
    coming: set[tuple[str, str, str | None]] = set()
    for one in prepared:
        change = _change(tools, one, one.moment(now))
        if one.place.thread_id in proven:
            change.witnesses = ()
        elif one.known is not None:
            proven.add(one.place.thread_id)
        if isinstance(one, PreparedPut):
            # What is brought over from elsewhere is taken as it is there.
            if one.deltas and one.made_at is None and tuple(one.place) not in coming:
                _require_chain(one, change)
            coming.add((one.place.thread_id, one.place.namespace, one.checkpoint_id))
        changes.append(change)
    return changes


def _require_chain(put: PreparedPut, change: Change) -> None:
    """A put whose delta channels are replayed from its parent is nothing without it."""
    if put.place.checkpoint_id is None:
        return
    replayed = sorted(name for name in put.deltas if name not in put.settled().pairs)
    if not replayed:
        return
    if put.parent_row is None:
        raise Conflict(
            f"thread {put.place.thread_id!r}: the parent checkpoint {put.place.checkpoint_id!r} is not stored (any "
            f"more), and {', '.join(map(repr, replayed))} would be replayed from it; read the thread again and start a "
            f"new run"
        )
    if put.parent_row not in change.witnesses:
        change.witnesses = (*change.witnesses, put.parent_row)


def _change(tools: Tools, one: Prepared, now: float) -> Change:
    known, thread_id = one.known, one.place[0]
    change = object.__new__(Change)
    change.thread_id, change.now = thread_id, now
    change.continues, change.begins = one.descent
    if tools.leases:
        change.lease = tools.leases.get(thread_id)
    batch, pool = one.batch, 0
    if known is not None:
        change.stamp = known.stamp
        pool = known.stamp[0]
    if batch.moved:
        change.moved = chunk_rows(tools, pool, batch.moved, ())
        for digest in batch.chunks.keys() & batch.moved.keys():
            del batch.chunks[digest]
    if batch.chunks:
        change.chunks = chunk_rows(tools, pool, batch.chunks, known.digests if known is not None else ())
    if known is not None:
        # After the chunks were chosen: what somebody else learns meanwhile is proved more, never less.
        change.witnesses = known.witnesses
    if isinstance(one, PreparedPut):
        change.head = one.head
        if one.answers:
            change.settles = one.checkpoint_id
        change.checkpoints = [_row(tools, one, now)]
        return change
    writes = one.writes if one.are_bound else _write_rows(tools, one)
    if one.are_first:
        change.firsts = writes
    else:
        change.writes = writes
    return change


def _row(tools: Tools, one: PreparedPut, now: float) -> CheckpointRow:
    """The row of a checkpoint that is put at this time."""
    if one.row is not None and one.row[11] == now:
        return one.row
    return write_row(tools, one.drafted, one.settled(), one.place, one.checkpoint_id, now)


def _write_rows(tools: Tools, one: PreparedWrites) -> list[WriteRow]:
    if one.are_bound:
        return one.writes
    wrap, thread_id, rows = tools.envelope.wrap_row, one.place[0], []
    for write in one.writes:
        form, data = wrap(write[8], packb(["write", thread_id, *write[:7]]))  # its place: see `write_place`
        rows.append(_new(WriteRow, (*write[:7], form, data, write[9])))
    return rows


def chunk_rows(tools: Tools, pool: int, chunks: Chunks, known: Collection[bytes]) -> list[ChunkRow]:
    """The rows of chunks that are not known to be stored."""
    rows, envelope = [], tools.envelope
    is_sealed = envelope.ring is not None
    for digest, (links, content) in chunks.items():
        if digest not in known:
            if len(content) < WORTH_COMPRESSING and not is_sealed:
                rows.append(_new(ChunkRow, (digest, links, 0, content)))
                continue
            form, data = envelope.wrap(content, chunk_place(pool, digest) if is_sealed else b"")
            rows.append(_new(ChunkRow, (digest, links, form, data)))
    return rows


def _acknowledge_all(
    tools: Tools,
    prepared: Sequence[Prepared],
    changes: Sequence[Change],
    stamps: Sequence[Stamp],
) -> None:
    proved: dict[str, tuple[Witness, ...]] = {}
    for one, change, stamp in zip(prepared, changes, stamps, strict=True):
        thread_id = change.thread_id
        earlier = proved[thread_id] = (*proved.get(thread_id, ()), *change.witnesses)
        if isinstance(one, PreparedPut):
            proved[thread_id] = (*earlier, _acknowledge(tools, one, change, stamp, earlier))


def _acknowledge(
    tools: Tools,
    put: PreparedPut,
    change: Change,
    stamp: Stamp,
    proved: Collection[Witness],
    before: Sequence[PreparedPut] = (),
) -> Witness:
    """The commit is in: what it sent is known, what it encoded may be recognised. Returns the row to know it by.

    `before` are the puts of the same change that this one builds on: where its row is, so is all of theirs.
    """
    (thread_id, namespace, _), checkpoint_id = put.place, put.checkpoint_id
    witness = _new(Witness, (namespace, checkpoint_id, change.checkpoints[0][11]))
    batch, sources = put.batch, put.sources
    sent = batch.sent() if batch.moved else batch.chunks
    if before:
        sent = set(sent).union(*[one.batch.sent() for one in before])
        sources = {name: source for one in (*before, put) for name, source in one.sources.items()}
    known = tools.known.learn(thread_id, stamp, sent, witness, proved, put.known)
    is_known, coming = known.stamp == stamp, tools.coming
    if is_known:
        tools.lines.keep(thread_id, witness, known.mark, put._settled or put.settled(), sources)
    for one in (*before, put) if before else (put,):
        if is_known and one.batch.chunks and not tools.is_in_memory:
            tools.reader.keep(one.batch)
        parent, checkpoint_id = one.place[2], one.checkpoint_id
        if tools.fencing:
            tools.note_read(Place(thread_id, namespace, checkpoint_id), by_id=one.is_branching)
        coming.pop((thread_id, checkpoint_id), None)
        if one.answers and parent is not None:
            tools.asked.pop((thread_id, parent), None)
    return witness


async def _refresh(store: Context, one: Prepared) -> None:
    """After a refusal: bring every chunk again, and read the parent anew.

    No chunk is left out because it is there at this moment: no row would prove that it still is when this is applied,
    since the store may be set back once more in between.
    """
    thread_id = one.place.thread_id
    store.tools.known.drop(thread_id)
    one.encode_again()
    await store.tools.confirm_keys(store.backend, restores=False)
    thread = await store.backend.thread(thread_id)
    is_there = thread is not None and thread.status != "deleted"
    one.known = Known(thread.stamp) if thread is not None and is_there else None
    if isinstance(one, PreparedPut) and one.place.checkpoint_id is not None:
        had = one.parent
        one.unsettle()
        await _read_parent(store, one)
        if one.parent is None and had is not None:
            _require_own_values(one, had)


def _require_own_values(put: PreparedPut, parent: Roots) -> None:
    """The parent is gone: its values may stay only where this put encoded them itself."""
    for name in sorted(put.inherits):
        if name not in put.pairs and parent.has(name, put.versions[name]):
            raise Conflict(
                f"thread {put.place.thread_id!r}: the parent checkpoint {put.place.checkpoint_id} was deleted while "
                f"its child was written, and with it the value of channel {name!r}; put the checkpoint again"
            )
