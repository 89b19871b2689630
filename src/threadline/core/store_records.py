"""Records of the store itself, by name: its keys, the evidence of quarantine, the probe of `health`.

They are records of the space META (ports/records.py). A name such as `quarantine:…` has two segments, so that all
records of one kind lie side by side. This is the only file of core that reads and writes them.
"""

from __future__ import annotations

import time
from collections.abc import Callable

from ..base.attempts import ATTEMPTS, gave_up
from ..errors import ThreadlineError, Unavailable
from ..ports.checkpoints import Backend
from ..ports.records import ABSENT, Record, RecordChange, RecordSpace, Scan, pack_name, split_name
from .paging import record_pages

__all__ = ["KEYS", "change_record", "read_record", "read_records_of", "record_names", "swap_record"]

# The record of a store's keys: their ids, the number of the key that seals the digest key, and that key, sealed.
KEYS = "keys"
META = RecordSpace.META
_PAGE = 100


async def read_record(backend: Backend, name: str) -> bytes | None:
    """A record; None without it."""
    [found] = await backend.read_records(META, [_packed(name)])
    return found.value if found is not None else None


async def record_names(backend: Backend, prefix: str) -> list[str]:
    """The names of the records that begin with a prefix, in order."""
    kind, colon, _ = prefix.partition(":")
    below = pack_name((kind,)) if colon else b""
    names: list[str] = []
    async for page in record_pages(backend, META, Scan(prefix=below, limit=_PAGE)):
        names += [":".join(split_name(record.name)) for record in page]
    return sorted(name for name in names if name.startswith(prefix))


async def read_records_of(backend: Backend, kind: str) -> dict[str, bytes]:
    """The records whose names begin with a kind such as `cold:`, by the rest of their names."""
    found: dict[str, bytes] = {}
    below = pack_name((kind.removesuffix(":"),))
    async for page in record_pages(backend, META, Scan(prefix=below, limit=_PAGE)):
        found.update({split_name(record.name)[-1]: record.value for record in page})
    return found


async def swap_record(backend: Backend, name: str, before: bytes | None, after: bytes | None) -> bool:
    """Compare-and-swap: replace a record if it is still `before`; None stands for no record.

    A record that is `after` already counts as replaced: this very swap was made before, and its answer lost.
    """
    packed, now = _packed(name), time.time()
    [held] = await backend.read_records(META, [packed])
    value = held.value if held is not None else None
    if value == after:
        return True
    if value != before:
        return False
    record = Record(packed, 0, after, None, now, now, None, 0) if after is not None else None
    version = held.version if held is not None else ABSENT
    if await backend.write_records([RecordChange(META, packed, record, version)]) is None:
        return True
    # Another process was faster, perhaps with the same.
    return await read_record(backend, name) == after


async def change_record(
    backend: Backend,
    name: str,
    change: Callable[[bytes | None], bytes | None],
    what: str,
    kind: type[ThreadlineError] = Unavailable,
) -> bytes | None:
    """Replace a record by what `change` makes of it, again if another process changed it first; gives it back."""
    for _ in range(ATTEMPTS):
        before = await read_record(backend, name)
        after = change(before)
        if after == before or await swap_record(backend, name, before, after):
            return after
    raise gave_up(what, "other processes changed the record during each of them", kind)


def _packed(name: str) -> bytes:
    return pack_name(name.split(":", 1))
