"""A lease on a thread, across processes: it renews while it is held and expires when its holder dies.

A record of the store names the holder and when the lease ends. It is taken and renewed by compare and
swap, so two holders can never both believe they have it before it expires.
"""

from __future__ import annotations

import os
import struct

from ..backends.port import Backend
from ..backends.rules import TOKEN_BYTES
from ..errors import Corrupt

__all__ = ["release", "take"]


async def take(backend: Backend, thread_id: str, ttl_seconds: float, now: float, token: bytes | None) -> bytes | None:
    """Take a lease, or renew the one that `token` proves; None when another holds it or it was lost."""
    current = await backend.get_lease(thread_id)
    holder, ends = _parse(thread_id, current)
    if holder != token and (token is not None or ends > now):
        return None
    token = token or os.urandom(TOKEN_BYTES)
    record = token + _ENDS.pack(now + ttl_seconds)
    return token if await backend.swap_lease(thread_id, current, record) else None


async def release(backend: Backend, thread_id: str, token: bytes) -> None:
    """Give a lease back; nothing happens when it was lost meanwhile."""
    while True:
        current = await backend.get_lease(thread_id)
        if current is None or not current.startswith(token):
            return
        # A renewal may have come between; then the record is another one by now.
        if await backend.swap_lease(thread_id, current, None):
            return


_ENDS = struct.Struct(">d")


def _parse(thread_id: str, record: bytes | None) -> tuple[bytes | None, float]:
    if record is None:
        return None, 0.0
    if len(record) != TOKEN_BYTES + _ENDS.size:
        raise Corrupt(f"the lease of thread {thread_id!r} is damaged")
    return record[:TOKEN_BYTES], _ENDS.unpack_from(record, TOKEN_BYTES)[0]
