"""The records of what was set aside (core/quarantine.py), and the keys that their rows are sealed under."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import ormsgpack

from ..backends.port import Backend, CheckpointRow, Found, WriteRow
from ..codec.hashing import blake2b
from ..errors import Conflict, Corrupt, NotFound
from .documents import place_of_row, write_place
from .tools import Tools

__all__ = ["RECORDS", "entries_of", "evidence_key", "forget_evidence", "key_numbers_of_evidence", "reseal_evidence"]

# How the keys of these records begin.
RECORDS = "quarantine:"
_TRIES = 32
_Rows = list[CheckpointRow | WriteRow | None]


def evidence_key(thread_id: str, namespace: str, checkpoint_id: str) -> str:
    """The record of what was set aside from this place: a msgpack list, oldest first, of
    `[thread id, when, [what was wrong, …], checkpoint row or None, write row, …]`, rows as the backend had them."""
    place = ormsgpack.packb([thread_id, namespace, checkpoint_id])
    return f"{RECORDS}{blake2b(place, digest_size=16).hexdigest()}"


async def forget_evidence(backend: Backend, thread_id: str, rows: Iterable[Found]) -> None:
    """Delete what is kept of the quarantined checkpoints of a thread, whose data is erased."""
    for found in rows:
        name = evidence_key(thread_id, found.row.namespace, found.row.id)
        for _ in range(_TRIES):
            before = await backend.get_meta(name)
            if before is None or await backend.swap_meta(name, before, None):
                break


async def key_numbers_of_evidence(backend: Backend) -> dict[str, set[int]]:
    """Under which keys, by number, the parts of each record of quarantine are sealed."""
    return {
        name: {form >> 1 for _, rows in entries_of(name, await backend.get_meta(name)) for form in _forms(rows)}
        for name in await backend.meta_keys(RECORDS)
    }


async def reseal_evidence(backend: Backend, tools: Tools, name: str) -> int:
    """Seal a record of quarantine anew under the current key, as far as its parts open; returns how many rows changed.

    What does not open stays as it was found: it may be mended by hand some day, and then needs the key it had.
    """
    for _ in range(_TRIES):
        before = await backend.get_meta(name)
        records, changed = [], 0
        for head, rows in entries_of(name, before):
            anew = [row and _resealed(tools, head[0], row) for row in rows]
            changed += sum(one != row for one, row in zip(anew, rows, strict=True))
            records.append([*head, *(row and tuple(row) for row in anew)])
        if not changed or await backend.swap_meta(name, before, ormsgpack.packb(records)):
            return changed
    raise Conflict("a record of quarantine is changed again and again; try again")


def entries_of(name: str, stored: bytes | None) -> list[tuple[list[Any], _Rows]]:
    """The entries of a record: thread, time and reasons of each, and its rows."""
    try:
        return [
            (entry[:3], [entry[3] and CheckpointRow(*entry[3]), *(WriteRow(*write) for write in entry[4:])])
            for entry in (ormsgpack.unpackb(stored) if stored else [])
        ]
    except (ValueError, TypeError, LookupError):
        raise Corrupt(f"the record {name} is damaged: which keys its rows need cannot be told") from None


def _forms(rows: _Rows) -> list[int]:
    forms: list[int] = []
    for row in rows:
        if isinstance(row, CheckpointRow):
            forms += [row.form, row.metadata_form]
        elif row is not None:
            forms.append(row.form)
    return forms


def _resealed(tools: Tools, thread_id: str, row: CheckpointRow | WriteRow) -> CheckpointRow | WriteRow:
    if isinstance(row, WriteRow):
        form, data = _sealed_anew(tools, row.form, row.data, write_place(thread_id, row))
        return row._replace(form=form, data=data)
    form, document = _sealed_anew(tools, row.form, row.document, place_of_row(thread_id, row, "document"))
    place = place_of_row(thread_id, row, "metadata")
    metadata_form, metadata = _sealed_anew(tools, row.metadata_form, row.metadata, place)
    return row._replace(form=form, document=document, metadata_form=metadata_form, metadata=metadata)


def _sealed_anew(tools: Tools, form: int, data: bytes, place: bytes) -> tuple[int, bytes]:
    envelope = tools.envelope
    assert envelope.ring is not None
    if form >> 1 == envelope.key_numbers[envelope.ring.current]:
        return form, data
    try:
        return envelope.wrap_row(envelope.unwrap_row(form, data, place), place)
    except (Corrupt, NotFound, TypeError, ValueError):
        return form, data
