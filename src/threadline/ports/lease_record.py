"""The record of a lease: the token that proves it, when it ends, and who holds it since when.

A change proves its lease by the first bytes alone. A record without the last part says nothing of its holder.
"""

from __future__ import annotations

import struct
from typing import Any, NamedTuple

import ormsgpack

from ..errors import Corrupt
from .rules import TOKEN_BYTES

__all__ = ["LeaseRecord"]

_ENDS = struct.Struct(">d")
_HEAD_BYTES = TOKEN_BYTES + _ENDS.size


class LeaseRecord(NamedTuple):
    """A lease as it is stored; times are seconds since 1970."""

    token: bytes
    ends: float
    # What follows is for people. The thread's id stands here too: some databases store only a digest of a long key.
    thread_id: str = ""
    holder: str = ""
    since: float | None = None

    def packed(self) -> bytes:
        """The bytes to store."""
        told = ormsgpack.packb([self.thread_id, self.holder, self.since])
        return self.token + _ENDS.pack(self.ends) + told

    @classmethod
    def unpacked(cls, stored: bytes, what: str = "a lease") -> LeaseRecord:
        """The record of stored bytes; Corrupt where they are none."""
        try:
            told: Any = ormsgpack.unpackb(stored[_HEAD_BYTES:]) if len(stored) > _HEAD_BYTES else ["", "", None]
            thread_id, holder, since = told
            ends = float(_ENDS.unpack_from(stored, TOKEN_BYTES)[0])
            if type(thread_id) is not str or type(holder) is not str or type(since) not in (float, type(None)):
                raise ValueError("not a thread, a holder and a time")
        except (struct.error, ValueError, TypeError):
            raise Corrupt(f"{what} is damaged") from None
        return cls(stored[:TOKEN_BYTES], ends, thread_id, holder, since)
