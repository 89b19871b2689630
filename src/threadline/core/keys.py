"""Key rotation: bytes are sealed anew under the current key, names stay, so sharing survives."""

from __future__ import annotations

import logging
from collections import defaultdict
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

import ormsgpack

from ..chunks.gather import chunk_place
from ..codec.limits import unpack
from ..errors import Corrupt, InvalidRequest
from ..packs.cold import hot_form
from ..ports.checkpoints import ChunkRow, Query, ThreadRow
from ..ports.objects import why_lost
from ..ports.rules import HIDDEN, TRASH, is_hidden, kind_of
from .context import Context
from .history.branch import resealed, resealed_write
from .integrity.evidence import key_numbers_of_evidence, reseal_evidence
from .lifecycle import change_words, resealed_words, rewrap_words
from .paging import checkpoint_pages, chunk_pages, each_thread
from .records.upkeep import rotate_records
from .retention.trash import origin_of, read_record, write_record
from .rows import form_of_thread

__all__ = ["KeyUse", "key_uses", "keys_in_use", "rotate"]

log = logging.getLogger("threadline")
_PAGE = 256


@dataclass(frozen=True, slots=True, kw_only=True)
class KeyUse:
    """A key of a store: how many rows are sealed under it, and whether what is written now will be."""

    id: str
    rows: int
    is_current: bool
    # Whether stored bytes need it still, be it the store's own secret or what was set aside; others may leave the ring.
    is_needed: bool


async def key_uses(store: Context) -> list[KeyUse]:
    """The keys that a store knows, in the order in which it came to know them."""
    needed = await keys_in_use(store)
    ring = store.tools.envelope.ring
    if ring is None:
        return []
    rows: dict[int, int] = defaultdict(int)
    for form, count in (await store.backend.forms()).items():
        rows[hot_form(form) >> 1] += count
    for prefix in ("", HIDDEN):
        async for thread in each_thread(store, prefix):
            rows[form_of_thread(thread) >> 1] += 1 if thread.metadata else 0
    return [
        KeyUse(id=key_id, rows=rows[number], is_current=key_id == ring.current, is_needed=key_id in needed)
        for key_id, number in store.tools.envelope.key_numbers.items()
    ]


async def keys_in_use(store: Context) -> set[str]:
    """The ids of the keys that some stored bytes, quarantined ones too, are sealed under; others may leave the ring."""
    numbers = {hot_form(form) >> 1 for form in await store.backend.forms()}
    numbers.add(await store.tools.digest_key_number(store.backend))
    for prefix in ("", HIDDEN):
        async for thread in each_thread(store, prefix):
            numbers.add(form_of_thread(thread) >> 1)
    numbers.update(*(await key_numbers_of_evidence(store.backend)).values())
    return {key_id for key_id, number in store.tools.envelope.key_numbers.items() if number in numbers}


async def rotate(store: Context, progress: Callable[[int], None] | None = None) -> int:
    """Seal everything under the current key; returns how many rows were sealed anew.

    Safe beside writers: a row that changed meanwhile is left, and was written under the current key.
    """
    if store.tools.envelope.ring is None:
        raise InvalidRequest("this store is not encrypted: there are no keys to rotate")
    current = store.tools.envelope.key_numbers[store.tools.envelope.ring.current]
    done = 0
    pools: set[int] = set()
    for prefix in ("", HIDDEN):
        async for thread in each_thread(store, prefix):
            pools.add(thread.pool)
            if is_hidden(thread.thread_id):
                done += await _rotate_hidden(store, thread, current)
            else:
                done += await _rotate_rows(store, thread, current)
                if form_of_thread(thread) >> 1 not in (0, current):
                    done += await rewrap_words(store, thread.thread_id)
            if progress is not None:
                progress(done)
    for pool in sorted(pools):
        done += await _rotate_chunks(store, pool, current)
        if progress is not None:
            progress(done)
    done += await rotate_records(store, current)
    done += await _rotate_evidence(store, current)
    await store.tools.reseal_digest_key(store.backend)
    return done


async def _rotate_evidence(store: Context, current: int) -> int:
    """Seal what was set aside anew, and say what stays under older keys."""
    done = 0
    for name, numbers in (await key_numbers_of_evidence(store.backend)).items():
        if numbers - {0, current}:
            done += await reseal_evidence(store, name)
    left = [numbers - {0, current} for numbers in (await key_numbers_of_evidence(store.backend)).values()]
    count, older = sum(map(bool, left)), set().union(*left)
    if count:
        log.warning(
            "records of quarantine that cannot be opened: %d; they stay as they were found, sealed under %r: keep "
            "these keys while you want the records",
            count,
            sorted(key_id for key_id, number in store.tools.envelope.key_numbers.items() if number in older),
        )
    return done


async def _rotate_hidden(store: Context, hidden: ThreadRow, current: int) -> int:
    """The rows of a hidden thread are sealed for the thread they came from; those of quarantine hold nothing sealed."""
    if kind_of(hidden.thread_id) != TRASH:
        return 0
    origin = origin_of(hidden)
    done = await _rotate_rows(store, hidden, current, sealed_for=origin)
    if form_of_thread(hidden) >> 1 not in (0, current):
        record = read_record(hidden)
        metadata = ormsgpack.packb([record.form, record.metadata])
        form, stored = unpack(resealed_words(store.tools, metadata, origin))
        anew = write_record(record._replace(form=form, metadata=stored))
        await change_words(store.backend, hidden.thread_id, lambda row: row._replace(metadata=anew))
        done += 1
    return done


async def _rotate_rows(store: Context, thread: ThreadRow, current: int, *, sealed_for: str | None = None) -> int:
    owner = sealed_for or thread.thread_id
    rewrap = partial(store.backend.rewrap, thread.pool, thread=thread.serial)
    writes = [
        (write, resealed_write(store.tools, write, owner, owner))
        for write in await store.thread_writes(thread.thread_id)
        if write.form >> 1 != current
    ]
    for start in range(0, len(writes), _PAGE):
        await rewrap(writes=writes[start : start + _PAGE])
    done = len(writes)
    async for page in checkpoint_pages(store, Query(thread_id=thread.thread_id, limit=_PAGE, with_writes=False)):
        checkpoints = [
            (found.row, resealed(store.tools, found._replace(thread_id=owner), owner))
            for found in page
            if found.row.form >> 1 != current or found.row.metadata_form >> 1 != current
        ]
        if checkpoints:
            await rewrap(checkpoints=checkpoints)
            done += len(checkpoints)
    return done


async def _rotate_chunks(store: Context, pool: int, current: int) -> int:
    done = 0
    async for page in chunk_pages(store.backend, pool, _PAGE):
        older = [one[0] for one in page if type(one[2]) is not int or hot_form(one[2]) >> 1 != current]
        pairs = []
        for digest, links, form, data in await store.chunks(pool, older) if older else ():
            if form >> 1 != current:
                if why := why_lost(data):
                    raise Corrupt(f"the chunk {digest.hex()} {why}: it cannot be sealed anew")
                place = chunk_place(pool, digest)
                anew = store.tools.envelope.wrap(store.tools.envelope.unwrap(form, data, place), place)
                pairs.append((ChunkRow(digest, links, form, data), ChunkRow(digest, links, *anew)))
        if pairs:
            await store.backend.rewrap(pool, pairs)
            done += len(pairs)
    return done
