"""Reading checkpoints: one by its place, or page by page. Bytes are fetched at once, values decoded on access."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from functools import partial
from operator import itemgetter
from typing import Any, NamedTuple

import ormsgpack

from ..base.attempts import ATTEMPTS, gave_up
from ..base.checkpoint import INTERRUPT, TASKS, CheckpointTuple, PendingWrite, config_of
from ..base.damage import Damaged
from ..base.native import native
from ..base.versions import next_version, sort_key
from ..chunks.gather import Pile
from ..chunks.lazy import LazyValues
from ..chunks.read import reached
from ..chunks.refs import LIST_OF_ONE, PACKED_LIST_OF_ONE, Pair, Ref, pairs_of
from ..chunks.unchanged import Sequence
from ..errors import Corrupt, NotAllowed, NotFound
from ..ports.checkpoints import DIGEST_BYTES, Found, Query, WriteRow
from ..ports.engine import Engine
from ..ports.rules import asks
from .context import Context, Tools, bound
from .requests import Place
from .rows import ABSENT, Document, log_damage, name_of, read_known

__all__ = [
    "Read",
    "Rows",
    "complete",
    "name_of_write",
    "read_now",
    "read_one",
    "read_page",
    "read_whole",
    "read_writes",
    "to_tuple",
    "value_of",
    "write_ref",
]

packb, unpackb = ormsgpack.packb, ormsgpack.unpackb
_channel_of = itemgetter(5)  # of a `WriteRow`
_pair_of = itemgetter(1)  # of such a row and where its value is
_form_of = itemgetter(7)  # of a `WriteRow`


class Read(NamedTuple):
    """A checkpoint with everything its values are made of."""

    found: Found
    document: Document
    writes: list[tuple[WriteRow, Pair]]
    pile: Pile
    # Sends of the parent, for the formats that kept them there.
    sends: list[tuple[WriteRow, Pair]]
    # Channels whose values are at hand as this process encoded them; the pile has nothing of these.
    sources: Mapping[str, Sequence] = {}
    # Decoded with the document; None where that is still to be done.
    metadata: dict[str, Any] | None = None


@dataclass(slots=True)
class Rows:
    """One page of a list: what was read, and where the next page begins."""

    reads: list[Read]
    after: tuple[str, str, str] | None


async def read_one(store: Context, place: Place, *, with_writes: bool = True) -> Read | None:
    """The checkpoint at a place; None when there is none. Without its writes, damage to them is no matter."""
    found = await store.find(*place, with_writes=with_writes)
    return None if found is None else await _completed(store, place, found, with_writes)


async def _completed(store: Context, place: Place, found: Found, with_writes: bool = True) -> Read | None:
    """A row that was found at a place, with what its values are made of; or what is at the place by then."""
    for _ in range(ATTEMPTS):
        [read] = await complete(store, [found])
        if not read.pile.damaged:
            _learn(store.tools, read)
            return read
        if not await store.tools.confirm_keys(store.backend, restores=False):
            # Chunks may be gone because the checkpoint was deleted or replaced after its row was read.
            again = await store.find(place.thread_id, place.namespace, found.row.id, with_writes=with_writes)
            if again == found:
                return read
            if again is None and place.checkpoint_id is not None:
                raise NotFound(f"{name_of(found)} was deleted while it was read")
        newest = await store.find(*place, with_writes=with_writes)
        if newest is None:
            return None
        found = newest
    why = "its checkpoints were deleted or replaced during each of them"
    raise gave_up(f"read of thread {place.thread_id!r}", why, NotFound)


def read_now(tools: Tools, engine: Engine, place: Place) -> Read | None:
    """`read_whole` on the calling thread: without a coroutine, where the engine has a way and all else is at hand."""
    find = engine.find_now
    if find is None or not tools.is_open:
        return engine.run(bound(tools, read_whole, place))
    found = find(*place)
    if found is None:
        return None
    if not found[3][4] and not found[3][6] and not any(map(_form_of, found[4])):
        read, refs = _at_hand(tools, found)
        if read is not None and (not refs or tools.reader.has(refs, read.pile)):
            return read
    return engine.run(bound(tools, read_whole, place))


async def read_whole(store: Context, place: Place) -> Read | None:
    """As `read_one`, for a caller that decodes all values at once: what was put here last is not gathered again."""
    found, tools = await store.find(*place), store.tools
    if found is None:
        return None
    read, refs = _at_hand(tools, found)
    if read is not None and refs:
        await tools.reader.gather(found.pool, refs, partial(store.chunks, found.pool), read.pile)
    if read is None or read.pile.damaged:
        return await _completed(store, place, found)
    return read


def _at_hand(tools: Tools, found: Found) -> tuple[Read | None, list[Pair]]:
    """A checkpoint that was put or got here last, and which of its references need chunks; None for any other."""
    line = tools.line_of(found)
    if line is None or not line.sources or tools.reader.share_decoded or tools.codec.foreign is not None:
        return None, []
    document, metadata = read_known(found, tools.codec, tools.envelope, line.roots)
    if document.v < 4:
        return None, []
    sources, roots = line.sources, line.roots.pairs
    refs = [pair for name, pair in roots.items() if pair[0] and (name not in sources or sources[name].root != pair)]
    if not sources.keys() <= roots.keys() or any([roots[name] != one.root for name, one in sources.items()]):
        # A source may be of another checkpoint, whose value has changed or gone since.
        sources = {name: one for name, one in sources.items() if roots.get(name) == one.root}
    writes: list[tuple[WriteRow, Pair]] = []
    if found.writes:
        _note_questions(tools, found)
        for write in found.writes:
            pair = write_ref(tools, found.thread_id, write)
            writes.append((write, pair))
            if pair[0]:
                refs.append(pair)
    return tuple.__new__(Read, (found, document, writes, Pile(), [], sources, metadata)), refs


async def read_page(store: Context, query: Query) -> Rows:
    """The next checkpoints of a query, with the bytes of their values; each chunk is fetched once."""
    page = await store.page(query)
    after = page[-1].cursor if len(page) == query.limit else None
    for _ in range(ATTEMPTS):
        reads = await complete(store, page, strict=False)
        if not any(read.pile.damaged for read in reads):
            break
        # What was deleted or replaced since its row was read is left out, or read anew; the rest is damaged.
        again = [await store.find(one.thread_id, *one.key, with_writes=query.with_writes) for one in page]
        if again == page:
            break
        page = [found for found in again if found is not None]
    return Rows(reads, after)


async def complete(store: Context, page: list[Found], *, strict: bool = True) -> list[Read]:
    """Some rows with everything their values are made of; unless `strict`, a damaged one is logged and left out."""
    reads: list[Read] = []
    piles: dict[int, tuple[Pile, list[Pair]]] = {}
    for found in page:
        try:
            document = store.tools.document(found)
            writes = [(write, write_ref(store.tools, found.thread_id, write)) for write in found.writes]
            sends = await _parent_sends(store, found, document) if document.v < 4 else []
        except (Corrupt, NotAllowed, NotFound) as damage:
            if strict:
                raise
            log_damage(damage)
            continue
        held = piles.get(found.pool)
        if held is None:
            held = piles[found.pool] = Pile(), []
        pile, refs = held
        refs += document.roots.pairs.values()
        if writes or sends:
            refs += map(_pair_of, (*writes, *sends))
        reads.append(Read(found, document, writes, pile, sends))
    for pool, (pile, refs) in piles.items():
        await store.tools.reader.gather(pool, refs, partial(store.chunks, pool), pile)
    return reads


def _learn(tools: Tools, read: Read) -> None:
    """Note the chunks of a checkpoint that was read whole as known by its row; writes have no row to know by."""
    found, pile = read.found, read.pile
    if found.writes:
        _note_questions(tools, found)
    if tools.line_of(found) is not None:
        return
    digests = {*pile.items, *pile.nodes, *pile.roots}
    if read.writes or read.sends:
        digests -= reached([ref for _, ref in (*read.writes, *read.sends)], pile)
    tools.remember(found, digests, read.document.roots)


def _note_questions(tools: Tools, found: Found) -> None:
    """Note a checkpoint at which something was asked: the put that follows it settles that."""
    if INTERRUPT in map(_channel_of, found.writes) and any(map(asks, found.writes)):
        tools.asked.note(found.thread_id, found.row.id, True)


async def _parent_sends(store: Context, found: Found, document: Document) -> list[tuple[WriteRow, Pair]]:
    """In formats before 4 a parent's sends stand among its pending writes."""
    if found.row.parent is None or TASKS in document.roots.pairs:
        return []
    parent = await store.find(found.thread_id, found.row.namespace, found.row.parent)
    if parent is None:
        return []
    return [
        (write, write_ref(store.tools, found.thread_id, write)) for write in parent.writes if write.channel == TASKS
    ]


def write_ref(tools: Tools, thread_id: str, write: WriteRow) -> Pair:
    """Where the value of a pending write is; Corrupt and NotFound (a key) name the write."""
    try:
        place = ["write", thread_id, *write[:7]]  # as `write_place` has it
        content = native.checked(place, write[8], packb, tools.envelope.begun) if native and not write[7] else None
        if content == PACKED_LIST_OF_ONE and len(write[6]) == DIGEST_BYTES:
            return write[6], LIST_OF_ONE  # what most tasks write: a message, as a list
        packed = unpackb(content or tools.envelope.unwrap_row(write[7], write[8], packb(place)))
        if type(packed) is bytes:
            return b"", packed
        if packed is None and len(write[6]) == DIGEST_BYTES:
            return write[6], None
        return pairs_of(write[6], {"": packed})[""]
    except NotFound as error:
        raise NotFound(f"{name_of_write(thread_id, write)}: {error}") from None
    except (Corrupt, ValueError, TypeError) as error:
        raise Corrupt(f"{name_of_write(thread_id, write)} is damaged ({error})") from None


async def read_writes(
    store: Context, tools: Tools, thread_id: str, pool: int, writes: Iterable[WriteRow]
) -> list[tuple[WriteRow, Any, int]]:
    """These writes with their values and the bytes of each; one that is damaged is `Damaged`, and hides no other."""
    refs: list[tuple[WriteRow, Pair | Damaged]] = []
    for write in writes:
        try:
            refs.append((write, write_ref(tools, thread_id, write)))
        except Corrupt as damage:
            refs.append((write, Damaged(str(damage))))
    pile = Pile()
    there = [ref for _, ref in refs if not isinstance(ref, Damaged)]
    await tools.reader.gather(pool, there, partial(store.chunks, pool), pile)
    found: list[tuple[WriteRow, Any, int]] = []
    for write, ref in refs:
        if isinstance(ref, Damaged):
            found.append((write, ref, 0))
            continue
        try:
            found.append((write, tools.reader.value(ref, pile), len(tools.reader.content(ref, pile))))
        except Corrupt as damage:
            found.append((write, Damaged(f"{name_of_write(thread_id, write)}: {damage}"), 0))
        except (NotAllowed, NotFound) as error:
            raise type(error)(f"{name_of_write(thread_id, write)}: {error}") from None
    return found


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
    values, pending = (None, None) if lazy else _all_values(tools, read)
    if values is None:
        pairs = document.roots.pairs
        decoders = {
            name: partial(value_of, tools, read, read.sources.get(name, pair), f"channel {name!r}")
            for name, pair in pairs.items()
        }
        values = LazyValues.of(decoders) if lazy else {name: decode() for name, decode in decoders.items()}
    checkpoint: dict[str, Any] = {
        "v": document.v,
        "id": row.id,
        "ts": document.ts,
        "channel_values": values,
        "channel_versions": document.roots.versions.copy(),
        "versions_seen": document.versions_seen,
        **document.other,
    }
    if document.updated_channels is not ABSENT:
        checkpoint["updated_channels"] = document.updated_channels
    if document.v < 4:
        _surface_sends(tools, read, checkpoint)
    if metadata is None:
        metadata = read.metadata
    return make(
        config=config_of(found.thread_id, row.namespace, row.id),
        checkpoint=checkpoint,
        metadata=tools.metadata(found) if metadata is None else metadata,
        parent_config=config_of(found.thread_id, row.namespace, row.parent) if row.parent else None,
        pending_writes=pending_writes(tools, read) if pending is None else pending,
    )


def _all_values(tools: Tools, read: Read) -> tuple[dict[str, Any] | None, list[PendingWrite] | None]:
    """The values of all channels and pending writes, decoded together; None where one must be looked at by itself."""
    pairs, sources = read.document.roots.pairs, read.sources
    if read.pile.damaged:
        return None, None
    try:
        wanted: list[Pair | Sequence] = [*pairs.values()]
        if sources:
            wanted = [sources.get(name, pair) for name, pair in pairs.items()]
        found = tools.reader.values([*wanted, *map(_pair_of, read.writes)], read.pile)
    except Exception:  # one by one, which says what is wrong, and where
        return None, None
    count = len(pairs)
    pending = [
        (write.task_id, write.channel, value) for (write, _), value in zip(read.writes, found[count:], strict=True)
    ]
    return dict(zip(pairs, found[:count], strict=True)), pending


def pending_writes(tools: Tools, read: Read) -> list[PendingWrite]:
    """The pending writes of a checkpoint, decoded, in order."""
    return [
        (write.task_id, write.channel, value_of(tools, read, ref, f"a pending write of channel {write.channel!r}"))
        for write, ref in read.writes
    ]


def value_of(tools: Tools, read: Read, ref: Ref | Pair | Sequence, what: str) -> Any:
    """One value; Corrupt, NotAllowed and NotFound (a key) name thread, checkpoint and channel."""
    try:
        return tools.reader.source_value(ref) if isinstance(ref, Sequence) else tools.reader.value(ref, read.pile)
    except (Corrupt, NotAllowed, NotFound) as error:
        raise type(error)(f"{name_of(read.found)}, {what}: {error}") from None


def _surface_sends(tools: Tools, read: Read, checkpoint: dict[str, Any]) -> None:
    """Sends of formats 1 to 3 appear as the channel they are in format 4."""
    if TASKS in checkpoint["channel_values"]:
        return
    sends = checkpoint.get("pending_sends") or [value_of(tools, read, ref, "a pending send") for _, ref in read.sends]
    if sends:
        versions: Mapping[str, Any] = checkpoint["channel_versions"]
        checkpoint["channel_values"][TASKS] = list(sends)
        checkpoint["channel_versions"] = {**versions, TASKS: _newest(versions.values())}


def _newest(versions: Iterable[Any]) -> Any:
    present = list(versions)
    return max(present, key=sort_key) if present else next_version(None)
