"""Key rotation: bytes are sealed anew under the current key, names stay, so sharing survives."""

from __future__ import annotations

import logging
from collections import defaultdict
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass, replace

import ormsgpack

from ..backends.hidden import HIDDEN, TRASH, is_hidden, kind_of
from ..backends.port import Backend, ChunkRow, Found, Query, ThreadRow
from ..chunks.read import chunk_place
from ..errors import InvalidRequest
from .copies import resealed, resealed_write
from .evidence import key_numbers_of_evidence, reseal_evidence
from .tools import Tools
from .trash import origin_of, read_record, write_record
from .words import change_words, resealed_words, rewrap_words, words_form

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


async def key_uses(backend: Backend, tools: Tools) -> list[KeyUse]:
    """The keys that a store knows, in the order in which it came to know them."""
    needed = await keys_in_use(backend, tools)
    ring = tools.envelope.ring
    if ring is None:
        return []
    rows: dict[int, int] = defaultdict(int)
    for form, count in (await backend.forms()).items():
        rows[form >> 1] += count
    for prefix in ("", HIDDEN):
        async for thread in _threads(backend, prefix):
            rows[words_form(thread) >> 1] += 1 if thread.metadata else 0
    return [
        KeyUse(id=key_id, rows=rows[number], is_current=key_id == ring.current, is_needed=key_id in needed)
        for key_id, number in tools.envelope.key_numbers.items()
    ]


async def keys_in_use(backend: Backend, tools: Tools) -> set[str]:
    """The ids of the keys that some stored bytes, quarantined ones too, are sealed under; others may leave the ring."""
    await tools.open(backend)
    numbers = {form >> 1 for form in await backend.forms()} | {await tools.digest_key_number(backend)}
    for prefix in ("", HIDDEN):
        async for thread in _threads(backend, prefix):
            numbers.add(words_form(thread) >> 1)
    numbers.update(*(await key_numbers_of_evidence(backend)).values())
    return {key_id for key_id, number in tools.envelope.key_numbers.items() if number in numbers}


async def rotate(backend: Backend, tools: Tools, progress: Callable[[int], None] | None = None) -> int:
    """Seal everything under the current key; returns how many rows were sealed anew.

    Safe beside writers: a row that changed meanwhile is left, and was written under the current key.
    """
    await tools.open(backend)
    if tools.envelope.ring is None:
        raise InvalidRequest("this store is not encrypted: there are no keys to rotate")
    current = tools.envelope.key_numbers[tools.envelope.ring.current]
    done = 0
    pools: set[int] = set()
    for prefix in ("", HIDDEN):
        async for thread in _threads(backend, prefix):
            pools.add(thread.pool)
            if is_hidden(thread.thread_id):
                done += await _rotate_hidden(backend, tools, thread, current)
            else:
                done += await _rotate_rows(backend, tools, thread.thread_id, current)
                if words_form(thread) >> 1 not in (0, current):
                    done += await rewrap_words(backend, tools, thread.thread_id)
            if progress is not None:
                progress(done)
    for pool in sorted(pools):
        done += await _rotate_chunks(backend, tools, pool, current)
        if progress is not None:
            progress(done)
    done += await _rotate_evidence(backend, tools, current)
    await tools.reseal_digest_key(backend)
    return done


async def _rotate_evidence(backend: Backend, tools: Tools, current: int) -> int:
    """Seal what was set aside anew, and say what stays under older keys."""
    done = 0
    for name, numbers in (await key_numbers_of_evidence(backend)).items():
        if numbers - {0, current}:
            done += await reseal_evidence(backend, tools, name)
    left = [numbers - {0, current} for numbers in (await key_numbers_of_evidence(backend)).values()]
    count, older = sum(map(bool, left)), set().union(*left)
    if count:
        log.warning(
            "records of quarantine that cannot be opened: %d; they stay as they were found, sealed under %r: keep "
            "these keys while you want the records",
            count,
            sorted(key_id for key_id, number in tools.envelope.key_numbers.items() if number in older),
        )
    return done


async def _rotate_hidden(backend: Backend, tools: Tools, hidden: ThreadRow, current: int) -> int:
    """The rows of a hidden thread are sealed for the thread they came from; those of quarantine hold nothing sealed."""
    if kind_of(hidden.thread_id) != TRASH:
        return 0
    origin = origin_of(hidden)
    done = await _rotate_rows(backend, tools, hidden.thread_id, current, sealed_for=origin)
    if words_form(hidden) >> 1 not in (0, current):
        record = read_record(hidden)
        metadata = ormsgpack.packb([record.form, record.metadata])
        form, stored = ormsgpack.unpackb(resealed_words(tools, metadata, origin))
        anew = write_record(record._replace(form=form, metadata=stored))
        await change_words(backend, hidden.thread_id, lambda row: row._replace(metadata=anew))
        done += 1
    return done


async def _threads(backend: Backend, prefix: str) -> AsyncIterator[ThreadRow]:
    after = ""
    while page := await backend.threads(after, _PAGE, prefix):
        for thread in page:
            yield thread
        after = page[-1].thread_id


async def _rotate_rows(
    backend: Backend, tools: Tools, thread_id: str, current: int, *, sealed_for: str | None = None
) -> int:
    owner = sealed_for or thread_id
    writes = [
        (write, resealed_write(tools, write, owner, owner))
        for write in await backend.thread_writes(thread_id)
        if write.form >> 1 != current
    ]
    for start in range(0, len(writes), _PAGE):
        await backend.rewrap_rows(thread_id, [], writes[start : start + _PAGE])
    query = Query(thread_id=thread_id, limit=_PAGE, with_writes=False)
    done = len(writes)
    while True:
        page: list[Found] = await backend.page(query)
        checkpoints = [
            (found.row, resealed(tools, found._replace(thread_id=owner), owner))
            for found in page
            if found.row.form >> 1 != current or found.row.metadata_form >> 1 != current
        ]
        if checkpoints:
            await backend.rewrap_rows(thread_id, checkpoints, [])
            done += len(checkpoints)
        if len(page) < query.limit:
            return done
        query = replace(query, after=(page[-1].row.id, page[-1].thread_id, page[-1].row.namespace))


async def _rotate_chunks(backend: Backend, tools: Tools, pool: int, current: int) -> int:
    after, done = b"", 0
    while True:
        digests = await backend.pool_digests(pool, after, _PAGE)
        pairs = []
        for digest, links, form, data in await backend.chunks(pool, digests):
            if form >> 1 != current:
                place = chunk_place(pool, digest)
                anew = tools.envelope.wrap(tools.envelope.unwrap(form, data, place), place)
                pairs.append((ChunkRow(digest, links, form, data), ChunkRow(digest, links, *anew)))
        if pairs:
            await backend.rewrap_chunks(pool, pairs)
            done += len(pairs)
        if len(digests) < _PAGE:
            return done
        after = digests[-1]
