"""Room for deleting on a full disk.

To delete, SQLite first writes: to the log beside the file, and from there to the file, which may have to grow. On a
disk that is full neither can be. So a file beside the database holds some room that no put may use; a deletion that
finds no room releases it, has the log moved into the file, and goes on. While the disk is nearly full the log is
moved often, so that what the file has yet to grow stays less than what is held.
"""

from __future__ import annotations

import os
import sqlite3
import time
from contextlib import suppress

__all__ = ["Room"]

_RESERVE_BYTES = 1024 * 1024
# A database of this size has a reserve, and so has any on a disk that has no more than that left.
_WORTH_BYTES = 1024 * 1024
_SCARCE_BYTES = 64 * 1024 * 1024
# While there is plenty, looking at the disk after every commit would cost more than it is worth.
_PAUSE_SECONDS = 0.1


class Room:
    """The reserve of one database file; without a path, or beside a URI, there is none."""

    def __init__(self, path: str | None) -> None:
        plain = path not in (None, "", ":memory:") and not str(path).startswith("file:")
        self._path = os.path.abspath(str(path)) if plain else ""
        self._is_kept = False
        self._looks_again = 0.0

    @property
    def reserve(self) -> str:
        """The file that holds the room."""
        return f"{self._path}-reserve"

    def free_bytes(self) -> int | None:
        """What the disk has left for this process; None where that cannot be told."""
        try:
            found = os.statvfs(os.path.dirname(self._path))
        except (AttributeError, OSError):
            return None
        return found.f_bavail * found.f_frsize

    def debt_bytes(self, connection: sqlite3.Connection) -> int:
        """By how much the file has yet to grow when the log is moved into it."""
        return max(0, _content_bytes(connection) - _size(self._path))

    def keep(self, connection: sqlite3.Connection) -> None:
        """After a commit: hold the room, and while the disk is nearly full keep the log short."""
        if not self._path or time.monotonic() < self._looks_again:
            return
        free = self.free_bytes()
        is_scarce = free is not None and free < _SCARCE_BYTES
        self._looks_again = 0.0 if is_scarce else time.monotonic() + _PAUSE_SECONDS
        if not self._is_kept and (is_scarce or _content_bytes(connection) >= _WORTH_BYTES):
            self._is_kept = self._hold(free)
        if is_scarce and max(_size(f"{self._path}-wal"), 2 * self.debt_bytes(connection)) > _RESERVE_BYTES:
            # The commit is in, whatever becomes of this; who needs room is told so by its own write.
            with suppress(sqlite3.Error):
                connection.execute("PRAGMA wal_checkpoint(PASSIVE)").fetchall()

    def release(self) -> None:
        """Give the room to whoever writes next."""
        self._is_kept = False
        with suppress(OSError):
            os.unlink(self.reserve)

    def _hold(self, free: int | None) -> bool:
        if _size(self.reserve) >= _RESERVE_BYTES:
            return True
        # Whoever is short of room must not lose the last of it to this.
        if free is None or free < 4 * _RESERVE_BYTES:
            return False
        try:
            file = os.open(self.reserve, os.O_CREAT | os.O_WRONLY, 0o600)
            try:
                # Written, not only sized: a hole in a file holds nothing.
                os.write(file, bytes(_RESERVE_BYTES))
            finally:
                os.close(file)
        except OSError:
            return False
        return _size(self.reserve) >= _RESERVE_BYTES


def _content_bytes(connection: sqlite3.Connection) -> int:
    cursor = connection.cursor()
    cursor.row_factory = None
    [(pages,)] = cursor.execute("PRAGMA page_count").fetchall()
    [(page_bytes,)] = cursor.execute("PRAGMA page_size").fetchall()
    return int(pages * page_bytes)


def _size(path: str) -> int:
    try:
        return os.stat(path).st_size
    except OSError:
        return 0
