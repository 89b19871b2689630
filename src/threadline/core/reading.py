"""Checkpoints read back: one by its place, or page by page; bytes at once, values when looked at."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any, NamedTuple

import ormsgpack

from ..backends.port import Backend, Found, Query, WriteRow
from ..backends.rules import asks
from ..chunks.lazy import LazyValues
from ..chunks.read import Pile, reached
from ..chunks.refs import Ref, unpack_refs
from ..errors import Corrupt, NotAllowed, NotFound
from ..model import TASKS, CheckpointTuple, PendingWrite
from ..versions import next_version, sort_key
from .documents import ABSENT, Document, log_damage, name_of, read_document, read_metadata, write_place
from .known import witness_of
from .requests import Place
from .tools import Tools

__all__ = [
    "Read",
    "Rows",
    "complete",
    "name_of_write",
    "read_one",
    "read_page",
    "to_tuple",
    "value_of",
    "write_ref",
]

_RETRIES = 5


class Read(NamedTuple):
    """A checkpoint with everything its values are made of."""

    found: Found
    document: Document
    writes: list[tuple[WriteRow, Ref]]
    pile: Pile
    # Sends of the parent, for the formats that kept them there.
    sends: list[tuple[WriteRow, Ref]]


@dataclass(slots=True)
class Rows:
    """One page of a list: what was read, and where the next page begins."""

    reads: list[Read]
    after: tuple[str, str, str] | None


async def read_one(backend: Backend, tools: Tools, place: Place, *, with_writes: bool = True) -> Read | None:
    """The checkpoint at a place; None when there is none. Without its writes, damage to them is no matter."""
    await tools.open(backend)
    for _ in range(_RETRIES):
        found = await backend.find(*place, with_writes=with_writes)
        if found is None:
            return None
        read = (await _complete(backend, tools, [found], strict=True))[0]
        if not read.pile.damaged:
            _learn(tools, read)
            return read
        if await tools.confirm_keys(backend, restores=False):
            continue
        # Chunks may be gone because the checkpoint was deleted or replaced after its row was read.
        again = await backend.find(place.thread_id, place.namespace, found.row.id, with_writes=with_writes)
        if again == found:
            return read
        if again is None and place.checkpoint_id is not None:
            raise NotFound(f"{name_of(found)} was deleted while it was read")
    raise NotFound(f"thread {place.thread_id!r}: its checkpoints changed again and again while they were read")


async def read_page(backend: Backend, tools: Tools, query: Query) -> Rows:
    """The next checkpoints of a query, with the bytes of their values; each chunk is fetched once."""
    await tools.open(backend)
    page = await backend.page(query)
    after = (page[-1].row.id, page[-1].thread_id, page[-1].row.namespace) if len(page) == query.limit else None
    for _ in range(_RETRIES):
        reads = await _complete(backend, tools, page, strict=False)
        if not any(read.pile.damaged for read in reads):
            break
        # What was deleted or replaced since its row was read is left out, or read anew; the rest is damaged.
        again = [
            await backend.find(f.thread_id, f.row.namespace, f.row.id, with_writes=query.with_writes) for f in page
        ]
        if again == page:
            break
        page = [found for found in again if found is not None]
    return Rows(reads, after)


async def complete(backend: Backend, tools: Tools, page: list[Found]) -> list[Read]:
    """Some rows with everything their values are made of."""
    return await _complete(backend, tools, page, strict=True)


async def _complete(backend: Backend, tools: Tools, page: list[Found], *, strict: bool) -> list[Read]:
    """Documents and references of some rows, then all their chunks, pool by pool."""
    reads: list[Read] = []
    piles: dict[int, tuple[Pile, list[Ref]]] = {}
    if tools.envelope.ring is not None or any([found.row.form or found.row.metadata_form for found in page]):
        await tools.learn_keys(backend, _forms(page))
    for found in page:
        try:
            document = read_document(found, tools.codec, tools.envelope)
            writes = [(write, write_ref(tools, found.thread_id, write)) for write in found.writes]
            sends = await _parent_sends(backend, tools, found, document)
        except (Corrupt, NotAllowed, NotFound) as damage:
            if strict:
                raise
            log_damage(damage)
            continue
        pile, refs = piles.setdefault(found.pool, (Pile(), []))
        refs.extend(document.roots.refs.values())
        refs.extend(ref for _, ref in (*writes, *sends))
        reads.append(Read(found, document, writes, pile, sends))
    for pool, (pile, refs) in piles.items():
        await tools.reader.gather(pool, refs, partial(tools.fetch, backend, pool), pile)
    return reads


def _learn(tools: Tools, read: Read) -> None:
    """What a checkpoint that was read whole is made of is stored, and its row shows it; writes show nothing."""
    found, pile = read.found, read.pile
    if found.writes and any(map(asks, found.writes)):
        tools.note_asked(found.thread_id, found.row.id)
    if tools.knows(found):
        return
    digests = {*pile.items, *pile.nodes}
    if read.writes or read.sends:
        digests -= reached([ref for _, ref in (*read.writes, *read.sends)], pile)
    witness = witness_of(found.row)
    stamp = (found.pool, found.epoch)
    known = tools.known.learn(found.thread_id, stamp, digests, witness)
    if known.stamp == stamp:
        tools.keep_parent(found.thread_id, witness, known.mark, read.document.roots)


async def _parent_sends(backend: Backend, tools: Tools, found: Found, document: Document) -> list[tuple[WriteRow, Ref]]:
    """In formats before 4 a parent's sends stand among its pending writes."""
    if document.v >= 4 or found.row.parent is None or TASKS in document.roots.refs:
        return []
    parent = await backend.find(found.thread_id, found.row.namespace, found.row.parent)
    if parent is None:
        return []
    await tools.learn_keys(backend, _forms([parent]))
    return [(write, write_ref(tools, found.thread_id, write)) for write in parent.writes if write.channel == TASKS]


def _forms(page: list[Found]) -> list[int]:
    """The forms of everything sealed in some rows."""
    rows = [form for found in page for form in (found.row.form, found.row.metadata_form)]
    return rows + [write.form for found in page for write in found.writes]


def write_ref(tools: Tools, thread_id: str, write: WriteRow) -> Ref:
    """Where the value of a pending write is; Corrupt and NotFound (a key) name the write."""
    try:
        packed = ormsgpack.unpackb(tools.envelope.unwrap_row(write.form, write.data, write_place(thread_id, write)))
        return unpack_refs(write.links, {"": packed})[""]
    except NotFound as error:
        raise NotFound(f"{name_of_write(thread_id, write)}: {error}") from None
    except (Corrupt, ValueError, TypeError) as error:
        raise Corrupt(f"{name_of_write(thread_id, write)} is damaged ({error})") from None


def name_of_write(thread_id: str, write: WriteRow) -> str:
    """A pending write as errors name it."""
    where = f" in {write.namespace!r}" if write.namespace else ""
    place = f"thread {thread_id!r}, checkpoint {write.checkpoint_id}{where}"
    return f"{place}, a pending write of channel {write.channel!r}"


def to_tuple(
    tools: Tools,
    read: Read,
    *,
    lazy: bool,
    metadata: dict[str, Any] | None = None,
    make: Callable[..., CheckpointTuple] = CheckpointTuple,
) -> CheckpointTuple:
    """A checkpoint as graphs know it; lazy values are decoded when they are looked at."""
    found, document = read.found, read.document
    row = found.row
    decoders = {
        name: partial(value_of, tools, read, ref, f"channel {name!r}") for name, ref in document.roots.refs.items()
    }
    values: dict[str, Any] = LazyValues.of(decoders) if lazy else {name: decode() for name, decode in decoders.items()}
    checkpoint: dict[str, Any] = {
        "v": document.v,
        "id": row.id,
        "ts": document.ts,
        "channel_values": values,
        "channel_versions": dict(document.roots.versions),
        "versions_seen": document.versions_seen,
        **document.other,
    }
    if document.updated_channels is not ABSENT:
        checkpoint["updated_channels"] = document.updated_channels
    _surface_sends(tools, read, checkpoint)
    return make(
        config=_config(found.thread_id, row.namespace, row.id),
        checkpoint=checkpoint,
        metadata=read_metadata(found, tools.codec, tools.envelope) if metadata is None else metadata,
        parent_config=_config(found.thread_id, row.namespace, row.parent) if row.parent else None,
        pending_writes=pending_writes(tools, read),
    )


def pending_writes(tools: Tools, read: Read) -> list[PendingWrite]:
    """The pending writes of a checkpoint, decoded, in order."""
    return [
        (write.task_id, write.channel, value_of(tools, read, ref, f"a pending write of channel {write.channel!r}"))
        for write, ref in read.writes
    ]


def value_of(tools: Tools, read: Read, ref: Ref, what: str) -> Any:
    """One value; Corrupt, NotAllowed and NotFound (a key) name thread, checkpoint and channel."""
    try:
        return tools.reader.value(ref, read.pile)
    except Corrupt as error:
        raise Corrupt(f"{name_of(read.found)}, {what}: {error}") from None
    except NotAllowed as error:
        raise NotAllowed(f"{name_of(read.found)}, {what}: {error}") from None
    except NotFound as error:
        raise NotFound(f"{name_of(read.found)}, {what}: {error}") from None


def _surface_sends(tools: Tools, read: Read, checkpoint: dict[str, Any]) -> None:
    """Sends of formats 1 to 3 appear as the channel they are in format 4."""
    if read.document.v >= 4 or TASKS in checkpoint["channel_values"]:
        return
    sends = checkpoint.get("pending_sends") or [value_of(tools, read, ref, "a pending send") for _, ref in read.sends]
    if sends:
        versions: Mapping[str, Any] = checkpoint["channel_versions"]
        checkpoint["channel_values"][TASKS] = list(sends)
        checkpoint["channel_versions"] = {**versions, TASKS: _newest(versions.values())}


def _newest(versions: Iterable[Any]) -> Any:
    present = list(versions)
    return max(present, key=sort_key) if present else next_version(None)


def _config(thread_id: str, namespace: str, checkpoint_id: str) -> dict[str, Any]:
    return {"configurable": {"thread_id": thread_id, "checkpoint_ns": namespace, "checkpoint_id": checkpoint_id}}
