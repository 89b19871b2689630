"""Applying puts and pending writes that were prepared (core/prepare.py), over the backend. Rules:

- Chunks known to be stored (core/known.py) are left out, under the pool's stamp and the rows they are known by.
  When the stamp has passed or a row is gone, the put learns what is missing and sends it, from what it encoded,
  never from live values.
- What was encoded becomes known only when the commit is acknowledged.
- A put whose delta channels are replayed from its parent needs that parent's row.
- What was refused stays refused: writes and children of a refused checkpoint are a Conflict. Writes that
  overtake their checkpoint may do what its put may do, and no more.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence

from ..backends.port import Backend, Change, CheckpointRow, ChunkRow, Found, Stale, Stamp, Witness, WriteRow
from ..chunks.encode import Chunks
from ..chunks.read import chunk_place
from ..errors import Conflict, Unavailable
from .documents import Roots, read_document, write_place, write_row
from .known import Known, witness_of
from .prepare import Prepared, PreparedPut, PreparedWrites, pointing
from .requests import Place
from .same_versions import refuse_other_values
from .tools import Tools

__all__ = ["put_all"]

_MOST_TRIES = 32


async def put_all(backend: Backend, tools: Tools, prepared: Sequence[Prepared], now: float) -> None:
    """Apply prepared puts and writes in one transaction; durable when this returns."""
    if tools.refused:
        for one in prepared:
            _refuse_descendants(tools, one)
    for _ in range(_MOST_TRIES):
        for one in prepared:
            if isinstance(one, PreparedPut):
                await _read_parent(backend, tools, one)
        if tools.envelope.ring is not None:
            await _name_for_pools(backend, tools, prepared, now)
        for one in prepared:
            if isinstance(one, PreparedPut) and one.checks_versions:
                await refuse_other_values(backend, tools, one)
                one.checks_versions = False
        changes = _changes(tools, prepared, now)
        try:
            outcomes = await backend.apply(changes)
        except Conflict:
            _note_refusal(tools, prepared)
            raise
        if not any(isinstance(outcome, Stale) for outcome in outcomes):
            _acknowledge(tools, prepared, changes, [outcome.stamp for outcome in outcomes])
            return
        for one in prepared:
            await _refresh(backend, tools, one)
    thread_id = prepared[0].place.thread_id
    raise Unavailable(
        f"the chunks of thread {thread_id!r} were collected, or its server lost, again and again while it was written: "
        f"try again"
    )


def _refuse_descendants(tools: Tools, one: Prepared) -> None:
    """Raise Conflict for what builds on a checkpoint that this process was refused."""
    for checkpoint_id in {one.place.checkpoint_id, one.descent[0]}:
        if checkpoint_id is not None and tools.refused.get((one.place.thread_id, checkpoint_id)):
            raise Conflict(
                f"thread {one.place.thread_id!r}: the put of checkpoint {checkpoint_id!r} was refused, and so is what "
                f"builds on it; read the thread again and start a new run"
            )


def _note_refusal(tools: Tools, prepared: Sequence[Prepared]) -> None:
    for one in prepared:
        if isinstance(one, PreparedPut):
            tools.refuse(one.place.thread_id, one.checkpoint_id)


async def _read_parent(backend: Backend, tools: Tools, put: PreparedPut) -> None:
    """Read the parent when memory had none; a parent that never arrived is no error."""
    if put.parent_is_known:
        return
    put.parent_is_known = True
    if put.sibling is not None:
        put.parent = put.sibling.settled()
        return
    thread_id, namespace, parent = put.place
    found = await backend.find(thread_id, namespace, parent, with_writes=False)
    if found is not None:
        put.parent = read_document(found, tools.codec, tools.envelope).roots
        put.parent_row = witness_of(found.row)
        _rely_on(tools, put, found)


def _rely_on(tools: Tools, put: PreparedPut, found: Found) -> None:
    """What a put takes over from a row is known by that row."""
    witness, stamp = witness_of(found.row), (found.pool, found.epoch)
    held = tools.known.learn(put.place.thread_id, stamp, (), witness, beside=put.known)
    if put.known is None:
        put.known = held
    elif put.known is not held and put.known.stamp == stamp:
        put.known.witnesses = (*put.known.witnesses, witness)


async def _name_for_pools(backend: Backend, tools: Tools, prepared: Sequence[Prepared], now: float) -> None:
    """Name the chunks for the pools that they go to: in an encrypted store names and seals are bound to a pool."""
    # What is put together may carry each chunk once.
    held = {digest: chunk for one in prepared for digest, chunk in one.chunks.items()}
    for one in prepared:
        if one.known is None:
            await tools.confirm_keys(backend, restores=True)
            continues, begins = one.descent
            change = Change(thread_id=one.place.thread_id, now=one.moment(now), continues=continues, begins=begins)
            [outcome] = await backend.apply([change])
            one.known = Known(outcome.stamp)
        encoder = tools.encoder(one.known)
        if encoder.digester.key != one.encoder.digester.key:
            one.encoder = encoder
            _rename(one, held)


def _rename(one: Prepared, held: Chunks) -> None:
    """Name the chunks of a change by its encoder; `held` has them under the names they have now."""
    encoder, one.chunks = one.encoder, {}
    if isinstance(one, PreparedWrites):
        one.refs = [encoder.renamed(ref, held, one.chunks) for ref in one.refs]
        one.writes = [pointing(write, ref) for write, ref in zip(one.writes, one.refs, strict=True)]
    else:
        assert one.roots is not None
        refs = {name: encoder.renamed(ref, held, one.chunks) for name, ref in one.roots.refs.items()}
        one.roots = Roots(one.roots.versions, refs)
        one._settled = None
    # The runs have the other pool's names.
    one.made, one.noded, one.reused = [], [], []


def _changes(tools: Tools, prepared: Sequence[Prepared], now: float) -> list[Change]:
    """The changes of one transaction; the first to a thread proves what all of them rely on."""
    if len(prepared) == 1 and not (isinstance(prepared[0], PreparedPut) and prepared[0].deltas):
        [one] = prepared
        change = _change(tools, one, now if one.made_at is None else one.made_at)
        if one.known is not None:
            change.witnesses = one.known.witnesses
        return [change]
    changes: list[Change] = []
    proven: set[str] = set()
    coming: set[tuple[str, str, str | None]] = set()
    for one in prepared:
        change = _change(tools, one, one.moment(now))
        if one.known is not None and one.place.thread_id not in proven:
            # After the chunks were chosen: what somebody else learns meanwhile is proved more, never less.
            change.witnesses = one.known.witnesses
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
    replayed = sorted(name for name in put.deltas if name not in put.settled().refs)
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
    known: Collection[bytes] = ()
    stamp, pool = None, 0
    if one.known is not None:
        known, stamp = one.known.digests, one.known.stamp
        pool = stamp[0]
    continues, begins = one.descent
    change = Change(thread_id=one.place.thread_id, now=now, stamp=stamp, continues=continues, begins=begins)
    change.lease = tools.leases.get(one.place.thread_id)
    change.chunks = [
        _chunk_row(tools, pool, digest, links, content)
        for digest, (links, content) in one.chunks.items()
        if digest not in known
    ]
    if isinstance(one, PreparedWrites):
        writes = [_sealed_write(tools, one.place.thread_id, write) for write in one.writes]
        change.writes, change.firsts = ((), writes) if one.are_first else (writes, ())
    else:
        change.head = one.head
        change.settles = one.checkpoint_id if one.answers else None
        change.checkpoints = [_checkpoint_row(tools, one, now)]
    return change


def _chunk_row(tools: Tools, pool: int, digest: bytes, links: bytes, content: bytes) -> ChunkRow:
    place = chunk_place(pool, digest) if tools.envelope.ring is not None else b""
    return ChunkRow(digest, links, *tools.envelope.wrap(content, place))


def _checkpoint_row(tools: Tools, put: PreparedPut, now: float) -> CheckpointRow:
    assert put.drafted is not None
    return write_row(
        put.drafted,
        put.settled(),
        thread_id=put.place.thread_id,
        key=(put.place.namespace, put.checkpoint_id),
        parent=put.place.checkpoint_id,
        now=now,
        codec=tools.codec,
        envelope=tools.envelope,
        indexed=tools.indexed,
    )


def _sealed_write(tools: Tools, thread_id: str, write: WriteRow) -> WriteRow:
    form, data = tools.envelope.wrap_row(write.data, write_place(thread_id, write))
    return write._replace(form=form, data=data)


def _acknowledge(
    tools: Tools,
    prepared: Sequence[Prepared],
    changes: Sequence[Change],
    stamps: Sequence[Stamp],
) -> None:
    """The commit is in: what it sent is known, what it encoded may be recognised."""
    proved: dict[str, tuple[Witness, ...]] = {}
    for one, change, stamp in zip(prepared, changes, stamps, strict=True):
        thread_id = change.thread_id
        earlier = proved[thread_id] = (*proved.get(thread_id, ()), *change.witnesses)
        if isinstance(one, PreparedPut):
            witness = witness_of(change.checkpoints[0])
            known = tools.known.learn(thread_id, stamp, one.chunks, witness, replaces=earlier, beside=one.known)
            proved[thread_id] = (*earlier, witness)
            _remember(tools, one, witness, known, stamp)


def _remember(tools: Tools, put: PreparedPut, witness: Witness, known: Known, stamp: Stamp) -> None:
    thread_id, namespace, _ = put.place
    if known.stamp == stamp:
        for run in put.made:
            run.stored = known.mark
        for run in put.noded:
            run.node_stored = known.mark
        tools.keep_parent(thread_id, witness, known.mark, put.settled())
    if tools.fencing:
        tools.note_read(Place(thread_id, namespace, put.checkpoint_id), by_id=put.is_branching)
    tools.coming.pop((thread_id, put.checkpoint_id), None)
    if put.answers and put.place.checkpoint_id is not None:
        tools.asked.pop((thread_id, put.place.checkpoint_id), None)


async def _refresh(backend: Backend, tools: Tools, one: Prepared) -> None:
    """After a refusal: bring every chunk again, learn which are there, and read the parent anew."""
    thread_id = one.place.thread_id
    tools.known.drop(thread_id)
    for run in one.reused:
        try:
            one.encoder.rebuild(run, one.chunks)
        except Conflict as error:
            raise Conflict(f"thread {thread_id!r}: {error}") from None
    one.made.extend(one.reused)
    one.reused = []
    await tools.confirm_keys(backend, restores=False)
    thread = await backend.thread(thread_id)
    is_there = thread is not None and thread.status != "deleted"
    one.known = Known((thread.pool, thread.epoch)) if thread is not None and is_there else None
    if one.known is not None and tools.encoder(one.known).digester.key == one.encoder.digester.key:
        absent = await backend.missing(one.known.stamp[0], list(one.chunks))
        one.known.digests.update(digest for digest in one.chunks if digest not in absent)
    if isinstance(one, PreparedPut) and one.place.checkpoint_id is not None:
        had = one.parent
        one.unsettle()
        await _read_parent(backend, tools, one)
        if one.parent is None and had is not None:
            _require_own_values(one, had)


def _require_own_values(put: PreparedPut, parent: Roots) -> None:
    """The parent is gone: its values may stay only where this put encoded them itself."""
    assert put.roots is not None
    versions, refs = put.roots
    for name in sorted(put.inherits):
        if name not in refs and parent.has(name, versions[name]):
            raise Conflict(
                f"thread {put.place.thread_id!r}: the parent checkpoint {put.place.checkpoint_id} was deleted while "
                f"its child was written, and with it the value of channel {name!r}; put the checkpoint again"
            )
