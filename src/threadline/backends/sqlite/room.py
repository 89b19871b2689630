"""Room for deleting on a full disk.

To delete, SQLite first writes: to the log beside the file, and from there to the file, which may have to grow. A full
disk allows neither. So a reserve file beside the database holds some room that no put may use. A deletion that finds no
room releases it, has the log moved into the file, and goes on. While the disk is nearly full the log is moved often, so
that the file never has to grow by more than the reserve.
"""

from __future__ import annotations

import os
import sqlite3
import time
from contextlib import suppress

from .dialect import page_counts

__all__ = ["Room", "size_of"]

_RESERVE_BYTES = 1024 * 1024
# A database of this size has a reserve, which is little beside it, and so has any on a disk with little room left.
_WORTH_BYTES = 16 * 1024 * 1024
_SCARCE_BYTES = 64 * 1024 * 1024
# While there is plenty, looking at the disk after every commit would cost more than it is worth.
_PAUSE_SECONDS = 0.1


class Room:
    """The reserve of one database file; a database in memory, a URI and a given connection have none (no path)."""

    def __init__(self, path: str | None) -> None:
        self._path = "" if path is None or path.startswith("file:") else path
        self.reserve = f"{self._path}-reserve"
        self._is_kept = False
        self._looks_again = 0.0

    def free_bytes(self) -> int | None:
        """What the disk has left for this process; None where that cannot be told."""
        try:
            found = os.statvfs(os.path.dirname(self._path))
        except (AttributeError, OSError):
            return None
        return found.f_bavail * found.f_frsize

    def debt_bytes(self, connection: sqlite3.Connection) -> int:
        """By how much the file has yet to grow when the log is moved into it."""
        return max(0, _content_bytes(connection) - size_of(self._path))

    def keep(self, connection: sqlite3.Connection) -> None:
        """After a commit: hold the room, and while the disk is nearly full keep the log short."""
        if not self._path or time.monotonic() < self._looks_again:
            return
        free = self.free_bytes()
        is_scarce = free is not None and free < _SCARCE_BYTES
        self._looks_again = 0.0 if is_scarce else time.monotonic() + _PAUSE_SECONDS
        if not self._is_kept and (is_scarce or _content_bytes(connection) >= _WORTH_BYTES):
            self._is_kept = self._hold(free)
        if is_scarce and max(size_of(f"{self._path}-wal"), 2 * self.debt_bytes(connection)) > _RESERVE_BYTES:
            # The commit is durable already; a later write that lacks room raises by itself.
            with suppress(sqlite3.Error):
                connection.execute("PRAGMA wal_checkpoint(PASSIVE)").fetchall()

    def release(self) -> None:
        """Give the room to the next write."""
        self._is_kept = False
        with suppress(OSError):
            os.unlink(self.reserve)

    def _hold(self, free: int | None) -> bool:
        """Whether the reserve is there; it never takes the last room of a disk."""
        if size_of(self.reserve) < _RESERVE_BYTES and free is not None and free >= 4 * _RESERVE_BYTES:
            with suppress(OSError):
                file = os.open(self.reserve, os.O_CREAT | os.O_WRONLY, 0o600)
                try:
                    os.write(file, bytes(_RESERVE_BYTES))  # not only sized: a hole in a file holds nothing
                finally:
                    os.close(file)
        return size_of(self.reserve) >= _RESERVE_BYTES


def size_of(path: str) -> int:
    """The bytes of a file; 0 if there is none."""
    try:
        return os.stat(path).st_size
    except OSError:
        return 0


def _content_bytes(connection: sqlite3.Connection) -> int:
    pages, _, page_bytes = page_counts(connection)
    return pages * page_bytes
