"""A lease on a thread, across processes: it renews while it is held and expires when its holder dies.

A record of the store names the holder and when the lease ends. It is taken and renewed by compare and
swap, so two holders can never both believe they have it before it expires.
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from datetime import datetime, timezone

from ..base.attempts import ATTEMPTS, gave_up
from ..base.checkpoint import OfThread
from ..errors import Corrupt
from ..ports.checkpoints import Backend
from ..ports.lease_record import LeaseRecord
from ..ports.rules import TOKEN_BYTES
from .requests import plain_text

__all__ = ["LockInfo", "end", "held", "locks", "release", "take", "this_process", "told"]


@dataclass(frozen=True, slots=True, kw_only=True)
class LockInfo(OfThread):
    """A lease that somebody holds; times are seconds since 1970."""

    thread_id: str
    # The name its holder gave, or host and process; empty where the record does not say.
    holder: str
    since: float | None
    # When it ends, unless it is renewed.
    ends: float


async def take(
    backend: Backend, thread_id: str, ttl_seconds: float, now: float, token: bytes | None, holder: str = ""
) -> bytes | None:
    """Take a lease, or renew the one that `token` proves; None when another holds it or it was lost."""
    current = await _stored(backend, thread_id)
    record = _parsed(thread_id, current)
    if token is None:
        if record is not None and record.ends > now:
            return None
        token = os.urandom(TOKEN_BYTES)
        record = LeaseRecord(token, now + ttl_seconds, thread_id, holder, now)
    elif record is None or record.token != token:
        return None
    else:
        record = record._replace(ends=now + ttl_seconds)
    return token if await backend.swap_lease(thread_id, current, record.packed()) else None


async def release(backend: Backend, thread_id: str, token: bytes) -> None:
    """Give a lease back; nothing happens when it was lost meanwhile."""
    for _ in range(ATTEMPTS):
        current = await _stored(backend, thread_id)
        if current is None or not current.startswith(token):
            return
        # A renewal may have come between; then the record is another one by now.
        if await backend.swap_lease(thread_id, current, None):
            return
    raise gave_up(f"release of the lease on thread {thread_id!r}", "it was renewed during each of them")


async def end(backend: Backend, thread_id: str, now: float) -> LockInfo | None:
    """End a lease, whoever holds it; says which it was, and None where nobody held one."""
    for _ in range(ATTEMPTS):
        current = await _stored(backend, thread_id)
        if current is None:
            return None
        if await backend.swap_lease(thread_id, current, None):
            try:
                return _running(thread_id, _parsed(thread_id, current), now)
            except Corrupt:
                return LockInfo(thread_id=thread_id, holder="", since=None, ends=now)
    raise gave_up(f"unlock of thread {thread_id!r}", "its holder renewed the lease during each of them")


async def held(backend: Backend, thread_id: str, now: float) -> LockInfo | None:
    """The lease of a thread that is held now; None without one."""
    return _running(thread_id, _parsed(thread_id, await _stored(backend, thread_id)), now)


async def locks(backend: Backend, now: float, prefix: str = "") -> list[LockInfo]:
    """The leases that are held now, by thread. A record that is damaged is left out."""
    prefix = plain_text(prefix, "prefix")
    found: list[LockInfo] = []
    for stored in await backend.leases():
        try:
            record = LeaseRecord.unpacked(stored)
        except Corrupt:
            continue
        info = _running(record.thread_id, record, now)
        if info is not None and info.thread_id and info.thread_id.startswith(prefix):
            found.append(info)
    return sorted(found, key=lambda info: info.thread_id)


def this_process() -> str:
    """This process as others are told of it: the name of the machine, and the number of the process."""
    import platform

    return f"{platform.node()} (process {os.getpid()})"


def told(info: LockInfo, now: float) -> str:
    """The holder of a lease, since when and for how long still, in words."""
    since = ""
    if info.since is not None:
        since = f" since {datetime.fromtimestamp(info.since, timezone.utc):%Y-%m-%d %H:%M:%SZ}"
    return f"{info.holder or 'another run'}{since}, for {max(info.ends - now, 0.0):.0f} s more unless it is renewed"


async def _stored(backend: Backend, thread_id: str) -> bytes | None:
    for record in await backend.leases(thread_id):
        return record
    return None


def _running(thread_id: str, record: LeaseRecord | None, now: float) -> LockInfo | None:
    if record is None or record.ends <= now:
        return None
    return LockInfo(thread_id=thread_id, holder=record.holder, since=record.since, ends=record.ends)


def _parsed(thread_id: str, stored: bytes | None) -> LeaseRecord | None:
    return None if stored is None else LeaseRecord.unpacked(stored, f"the lease of thread {thread_id!r}")
