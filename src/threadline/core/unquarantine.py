"""What is in quarantine (core/quarantine.py), and the way back."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import ormsgpack

from ..backends.port import Applied, Backend, Change, CheckpointKey, CheckpointRow, WriteRow
from ..errors import Conflict, Corrupt, NotFound, Unavailable
from ..printable import printable
from .evidence import RECORDS, entries_of, evidence_key
from .keepers import let_go, pools_of_keepers
from .tools import Tools

__all__ = ["Quarantined", "quarantined", "unquarantine"]

_TRIES = 32


@dataclass(frozen=True, slots=True, kw_only=True)
class Quarantined:
    """A checkpoint that was set aside."""

    thread_id: str
    namespace: str
    checkpoint_id: str
    # When, in seconds since 1970, and what was wrong.
    quarantined: float
    why: tuple[str, ...]
    writes: int

    @property
    def key(self) -> CheckpointKey:
        return CheckpointKey(self.namespace, self.checkpoint_id)

    def __str__(self) -> str:
        where = f" in {self.namespace!r}" if self.namespace else ""
        return printable(f"thread {self.thread_id!r}, checkpoint {self.checkpoint_id}{where}: {'; '.join(self.why)}")


async def quarantined(backend: Backend, thread_id: str | None = None, prefix: str = "") -> list[Quarantined]:
    """What is in quarantine, of all threads or of one, oldest first."""
    found: list[Quarantined] = []
    for name in await backend.meta_keys(RECORDS):
        try:
            entries = entries_of(name, await backend.get_meta(name))
        except Corrupt:
            continue  # fsck and rotation tell of it
        found += [_described(head, rows) for head, rows in entries]
    chosen = [one for one in found if thread_id in (None, one.thread_id) and one.thread_id.startswith(prefix)]
    return sorted(chosen, key=lambda one: (one.thread_id, one.quarantined, one.key))


async def unquarantine(backend: Backend, tools: Tools, chosen: Sequence[Quarantined], now: float) -> int:
    """Put checkpoints back into their threads as they were, damaged as they may be; returns how many.

    Raises NotFound for one that is not in quarantine, and Conflict where its thread was deleted, or has it again.
    """
    await tools.open(backend)
    for one in chosen:
        await _put_back(backend, one, now)
    if chosen:
        tools.forget()
    return len(chosen)


async def _put_back(backend: Backend, one: Quarantined, now: float) -> None:
    name = evidence_key(one.thread_id, *one.key)
    for _ in range(_TRIES):
        before = await backend.get_meta(name)
        entries = entries_of(name, before)
        at = next((at for at, (head, rows) in enumerate(entries) if _described(head, rows) == one), None)
        if at is None:
            raise NotFound(f"thread {one.thread_id!r}: checkpoint {one.checkpoint_id} is not in quarantine")
        if not await _applied(backend, one, entries[at][1], now):
            continue
        left = [[*head, *(row and tuple(row) for row in rows)] for n, (head, rows) in enumerate(entries) if n != at]
        if not await backend.swap_meta(name, before, ormsgpack.packb(left) if left else None):
            continue
        if not left:
            await let_go(backend, one.thread_id, one.key, now)
        return
    raise Unavailable(f"thread {one.thread_id!r} is changed again and again by others; try again")


async def _applied(backend: Backend, one: Quarantined, rows: Sequence[Any], now: float) -> bool:
    thread = await backend.thread(one.thread_id)
    if thread is None or thread.status == "deleted":
        raise Conflict(f"the thread {one.thread_id!r} was deleted: its checkpoint {one.checkpoint_id} has no place")
    pools = await pools_of_keepers(backend, one.thread_id)
    if pools and thread.pool not in pools:
        raise Conflict(
            f"the thread {one.thread_id!r} was deleted and begun anew: {one.checkpoint_id} is of its life before"
        )
    row, *writes = rows
    found = await backend.find(one.thread_id, *one.key, with_writes=False)
    if found is not None and found.row != row:
        raise Conflict(f"thread {one.thread_id!r}: checkpoint {one.checkpoint_id} was put again since; delete it first")
    change = Change(thread_id=one.thread_id, now=now, stamp=(thread.pool, thread.epoch), begins=False)
    change.checkpoints, change.writes = [row] if row is not None else [], writes
    [outcome] = await backend.apply([change])
    return isinstance(outcome, Applied)


def _described(head: list[Any], rows: Sequence[CheckpointRow | WriteRow | None]) -> Quarantined:
    thread_id, when, why = head
    row, *writes = rows
    first = row if row is not None else writes[0]
    assert first is not None
    named = first.id if isinstance(first, CheckpointRow) else first.checkpoint_id
    return Quarantined(
        thread_id=thread_id,
        namespace=first.namespace,
        checkpoint_id=named,
        quarantined=when,
        why=tuple(why),
        writes=len(writes),
    )
