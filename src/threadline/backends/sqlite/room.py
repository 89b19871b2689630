"""Space that is held on the disk before it is needed: for deleting on a full disk, and for the next commits.

**The reserve.** To delete, SQLite first writes: to the log beside the file, and from there to the file, which may have
to grow. A full disk allows neither. So a reserve file beside the database holds some room that no put may use. A
deletion that finds no room releases it, has the log moved into the file, and goes on. While the disk is nearly full the
log is moved often, so that the file never has to grow by more than the reserve.

**The log ahead.** A commit that makes a file longer has to make its new length durable as well: on ext4 that takes half
as long again as a commit into bytes that are there. SQLite uses the log (`-wal`) from its beginning again once it has
1,000 pages. Until then, which is for as long as many processes live, every commit makes it longer. So zeros are written
behind its end. To SQLite they are what it finds behind the last frame of any log that is used again: a frame counts
only with the salts of the log's header and with its checksum. Rules:

- Zeros are written inside a write transaction only, to the very file that SQLite has open: no other process writes to
  it, shortens it or begins it anew meanwhile.
- SQLite takes no locks on the log itself, so closing our descriptor of it releases none.
- Nothing depends on the zeros. Where they cannot be written, the log grows as it always did.
"""

from __future__ import annotations

import math
import os
import sqlite3
import time
from contextlib import suppress

from .dialect import page_counts
from .file import DatabaseFile

__all__ = ["LogAhead", "Room", "size_of"]

_RESERVE_BYTES = 1024 * 1024
# A database of this size has a reserve, which is little beside it, and so has any on a disk with little room left.
_WORTH_BYTES = 16 * 1024 * 1024
_SCARCE_BYTES = 64 * 1024 * 1024
# While there is plenty, looking at the disk after every commit would cost more than it is worth.
_PAUSE_SECONDS = 0.1

# So much is written at a time. More would make one commit wait for longer, without the others gaining by it.
_STEP_BYTES = 128 * 1024
# More is written when less than this is left: what a few large puts take.
_LOW_BYTES = 64 * 1024
# SQLite uses the log again from its beginning when it has 1,000 pages; a longer one has its reasons.
_ENOUGH_BYTES = 1_000 * 4_120
# The last room of a disk is for commits.
_LEFT_BYTES = 256 * 1024 * 1024
# Commits between two looks: at the end of what was written ahead, and at a log that needs none. A process that commits
# once or twice writes nothing ahead.
_FIRST_COMMITS, _FEW_COMMITS, _MANY_COMMITS = 3, 3, 256
# The log's header: magic number, version, page size, sequence, two salts. A frame's: page, size, two salts, checksum.
_HEADER_BYTES, _FRAME_BYTES = 32, 24
_MAGIC = (0x377F0682, 0x377F0683)
_NO_SALTS = bytes(8)
_IS_POSSIBLE = all(hasattr(os, name) for name in ("pwrite", "fstatvfs", "O_NOFOLLOW", "O_CLOEXEC"))


class Room:
    """The reserve of one database file; a database in memory, a URI and a given connection have none (no path)."""

    def __init__(self, path: str | None) -> None:
        self._path = "" if path is None or path.startswith("file:") else path
        self.reserve = f"{self._path}-reserve"
        self._is_kept = False
        # When the disk is looked at next, on the monotonic clock.
        self.looks_again = 0.0 if self._path else math.inf

    def free_bytes(self) -> int | None:
        """What the disk has left for this process; None where that cannot be told."""
        try:
            found = os.statvfs(os.path.dirname(self._path))
        except (AttributeError, OSError):
            return None
        return found.f_bavail * found.f_frsize

    def is_plenty(self) -> bool:
        """Whether the disk has as much room as the database takes, and is not nearly full."""
        free = self.free_bytes() if self._path else None
        return free is None or free >= max(size_of(self._path), _SCARCE_BYTES)

    def debt_bytes(self, connection: sqlite3.Connection) -> int:
        """By how much the file has yet to grow when the log is moved into it."""
        return max(0, _content_bytes(connection) - size_of(self._path))

    def keep(self, connection: sqlite3.Connection) -> None:
        """After a commit, from `looks_again` on: hold the room; while the disk is nearly full keep the log short."""
        free = self.free_bytes()
        is_scarce = free is not None and free < _SCARCE_BYTES
        self.looks_again = 0.0 if is_scarce else time.monotonic() + _PAUSE_SECONDS
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


class LogAhead:
    """The log of one database file, of the connection that writes."""

    def __init__(self) -> None:
        self._commits_left = _FIRST_COMMITS

    def before_commit(self, database: DatabaseFile) -> None:
        """To be called inside each write transaction."""
        self._commits_left -= 1
        if self._commits_left > 0:
            return
        self._commits_left = _FIRST_COMMITS
        if database.wal_name and _IS_POSSIBLE:
            self._commits_left = _MANY_COMMITS
            with suppress(OSError):
                # Not kept open: a signal handler may close the saver in the middle of this, and the number of the
                # descriptor could be that of another file then.
                file = os.open(database.wal_name, os.O_RDWR | os.O_CLOEXEC | os.O_NOFOLLOW)
                try:
                    self._look(file, database)
                finally:
                    os.close(file)

    def is_due(self) -> bool:
        """Whether the next commit has to be one of a transaction that calls `before_commit`; else it is counted."""
        if self._commits_left <= 1:
            return True
        self._commits_left -= 1
        return False

    def release(self) -> None:
        """The log is closed: another one may be made."""
        self._commits_left = _FIRST_COMMITS

    def _look(self, file: int, database: DatabaseFile) -> None:
        found = os.fstat(file)
        if not database.is_wal(found):
            return  # the name leads to the log of another database, which others may be writing
        size = found.st_size
        salts, those_of_log = _salts_near_end(file, size) if size < _ENOUGH_BYTES else (b"", b"")
        if salts == those_of_log and salts:
            free = os.fstatvfs(file)
            if free.f_bavail * free.f_frsize > _LEFT_BYTES:
                _write_zeros(file, size)
                salts = _NO_SALTS
        if salts == _NO_SALTS:
            self._commits_left = _FEW_COMMITS  # SQLite will come to the zeros; other salts are of a log used again


def size_of(path: str) -> int:
    """The bytes of a file; 0 if there is none."""
    try:
        return os.stat(path).st_size
    except OSError:
        return 0


def _content_bytes(connection: sqlite3.Connection) -> int:
    pages, _, page_bytes = page_counts(connection)
    return pages * page_bytes


def _salts_near_end(file: int, size: int) -> tuple[bytes, bytes]:
    """The salts of a frame near the end of the log, and those of its header: SQLite has come there if both are equal.

    Without a log yet, no salts.
    """
    header = os.pread(file, _HEADER_BYTES, 0)
    page_bytes = int.from_bytes(header[8:12], "big")
    if int.from_bytes(header[:4], "big") not in _MAGIC or not 512 <= page_bytes <= 65_536:
        return _NO_SALTS, b""
    frame_bytes = _FRAME_BYTES + page_bytes
    last = max((size - _LOW_BYTES - _HEADER_BYTES) // frame_bytes, 0)
    frame = os.pread(file, _FRAME_BYTES, _HEADER_BYTES + last * frame_bytes)
    return frame[8:16], header[16:24]


def _write_zeros(file: int, size: int) -> None:
    try:
        os.pwrite(file, bytes(_STEP_BYTES), size)
    except OSError:
        # Nobody else can have made the log longer: this transaction is the only one that writes.
        os.ftruncate(file, size)
        raise
