"""A lease on a thread, across processes: it renews while it is held and expires when its holder dies.

A record of the store names the holder and when the lease ends. It is taken and renewed by compare and
swap, so two holders can never both believe they have it before it expires.
"""

from __future__ import annotations

import os

import ormsgpack

from ..backends.port import Backend

__all__ = ["lease_key", "release", "take"]


def lease_key(thread_id: str) -> str:
    """The name of a thread's lease record."""
    return f"lease:{thread_id}"


async def take(backend: Backend, thread_id: str, ttl_seconds: float, now: float, token: bytes | None) -> bytes | None:
    """Take a lease, or renew the one that `token` proves; None when another holds it or it was lost."""
    key = lease_key(thread_id)
    current = await backend.get_meta(key)
    holder, ends = ormsgpack.unpackb(current) if current is not None else (None, 0.0)
    if holder != token and (token is not None or ends > now):
        return None
    token = token or os.urandom(16)
    record = ormsgpack.packb([token, now + ttl_seconds])
    return token if await backend.swap_meta(key, current, record) else None


async def release(backend: Backend, thread_id: str, token: bytes) -> None:
    """Give a lease back; nothing happens when it was lost meanwhile."""
    key = lease_key(thread_id)
    while True:
        current = await backend.get_meta(key)
        if current is None or ormsgpack.unpackb(current)[0] != token:
            return
        # A renewal may have come between; then the record is another one by now.
        if await backend.swap_meta(key, current, None):
            return
