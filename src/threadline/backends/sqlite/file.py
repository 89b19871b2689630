"""The file behind the connections to a SQLite database, and whether its name still leads to it.

A file that is moved, deleted or replaced stays open to the connections that have it: SQLite would go on committing to a
file that nobody finds by its name. The same holds for the `-wal` beside it, which has the commits since the last
checkpoint. So every commit and every read compares what the two names lead to now with what they led to before. A
cache, which may forget, does so from time to time (`pause_seconds`).

Both stand in one folder, which gets new times whenever a name in it is made, moved or removed. While the folder is the
same and has the times it had when the names were last compared, they lead where they led: one system call tells. A file
system that does not keep these times is found out within a second: then the names are compared all the same.
"""

from __future__ import annotations

import os
import sqlite3
import struct
import sys
import time
from collections.abc import Callable
from functools import lru_cache
from typing import Any, NoReturn

from ...base.native import native
from ...errors import Unavailable
from .dialect import plain_rows

__all__ = ["DatabaseFile", "absolute", "uri_of"]

# Which file a name leads to: the device and the inode.
_Identity = tuple[int, int]
# Device, inode and times of a folder. Both times: what copies a folder sets the one back, and Windows does not keep the
# other.
_Times = tuple[int, int, int, int]

# Linux: statx relative to the working directory, asked for the inode number alone.
_AT_FDCWD, _STATX_INO = -100, 0x100
# Of what statx answers: the inode, and behind the times the device's two numbers.
_STATX = struct.Struct("=32xQ96xII112x")
# A folder that was changed so shortly before it was looked at may be changed again without getting another time: the
# clock of the system counts in steps of up to 10 ms, and some file systems in steps of a second or two. Times that
# are no multiples of 10 ms are of a file system that keeps what the clock says.
_STEP_NANOSECONDS = 10_000_000
_SETTLED_NANOSECONDS, _COARSELY_SETTLED_NANOSECONDS = 10 * _STEP_NANOSECONDS, 3_000_000_000
_TRUSTED_SECONDS = 1.0
# As `os.fsencode` has it.
_NAMES, _HOW = sys.getfilesystemencoding(), sys.getfilesystemencodeerrors()


class DatabaseFile:
    """The file that one store has open, from its first connection on.

    Once the name leads elsewhere the file stays lost, also when it is put back: another process may have written to it
    under its other name, unseen by the connections that were open.
    """

    def __init__(self, name: str | None) -> None:
        # SQLite itself resolves a file: URI: then the connection is asked for the name.
        self._name = None if name is None or name.startswith("file:") else name
        self._identity: _Identity | None = None
        # Only a file that was found to be a Threadline store must stay the same.
        self._is_in_use = False
        self._wal_name = ""
        self._wal_identity: _Identity | None = None
        # Where both names stand; empty where they do not stand in one folder.
        self._folder = b""
        # Device, inode and times of the folder when both names were last compared; None if it was changed just before.
        self._folder_then: _Times | None = None
        # Until when that may stand for the names, on the monotonic clock.
        self._trusted_until = 0.0
        # Why the file is lost; None while it is not.
        self.lost: str | None = None
        # For how long it is taken for granted that the names lead where they led; and until when, therefore.
        self.pause_seconds = 0.0
        self._looks_again = 0.0

    def check_not_lost(self) -> None:
        """Raise Unavailable if the file was found to be lost before."""
        if self.lost is not None:
            raise Unavailable(self.lost)

    def check_name(self) -> None:
        """Raise Unavailable if the name leads elsewhere: no connection opens, or creates, another file in its place."""
        self.check_not_lost()
        if self._is_in_use and self._identity is not None and _identity_of(self._name or "") != self._identity:
            self._lose(
                f"{self._name} was moved, deleted or replaced while this saver had it open, and this saver does not "
                f"go on: it would write where nobody finds it. If the file was moved, put it back beside "
                f"{self._name}-wal, which may have its last commits; then open a new saver"
            )

    def opened(self, connection: sqlite3.Connection) -> None:
        """Note which file a new connection has; once the file is in use it must be the same."""
        if self._is_in_use:
            self.check_name()
            return
        if self._name is None:
            self._name = next((file or "" for _, name, file in _databases(connection) if name == "main"), "")
        self._identity = _identity_of(self._name) if self._name else None

    def prepared(self, connection: sqlite3.Connection) -> None:
        """From now on the file is in use; its `-wal`, if it has one, exists."""
        self._is_in_use = True
        self.check_name()
        if self._identity is not None:
            # SQLite follows symbolic links before it names the file beside the database.
            self._wal_name = os.path.realpath(self._name or "") + "-wal"
            self._wal_identity = _identity_of(self._wal_name) if _has_wal(connection) else None
            is_one = self._wal_name == (self._name or "") + "-wal"
            self._folder = os.fsencode(os.path.dirname(self._wal_name)) if is_one else b""
            self._folder_then = None

    @property
    def wal_name(self) -> str:
        """The name of the `-wal`; empty for a database that has none."""
        return self._wal_name if self._wal_identity is not None else ""

    def is_wal(self, found: os.stat_result) -> bool:
        """Whether this is the `-wal` that the connections have open; not where the file system numbers no files."""
        return found.st_ino != 0 and (found.st_dev, found.st_ino) == self._wal_identity

    def released(self) -> None:
        """No connection is open any more: the last one took its `-wal` along, and the next one makes another."""
        self._wal_identity = self._folder_then = None

    def check(self, connection: sqlite3.Connection) -> None:
        """Raise Unavailable unless both names lead to what the connections have open.

        Costs one system call while nothing in the folder is made, moved or removed, otherwise three.
        """
        if self.pause_seconds and self.lost is None:
            moment = time.monotonic()
            if moment < self._looks_again:
                return
            self._looks_again = moment + self.pause_seconds
        now = None
        if self._folder and (self._folder_then is None or time.monotonic() < self._trusted_until):
            now = _times_of(self._folder)
            if now is not None and now == self._folder_then:
                return
        self._check_names(connection)
        if now is not None:
            is_settled = now[1] and self._is_in_use and _is_settled(now[2], now[3])
            self._folder_then, self._trusted_until = now if is_settled else None, time.monotonic() + _TRUSTED_SECONDS

    def _check_names(self, connection: sqlite3.Connection) -> None:
        self._folder_then = None
        if (
            self.lost is not None
            or self._identity is None
            or not self._is_in_use
            or _identity_of(self._name or "") != self._identity
        ):
            self.check_name()
        if self._wal_identity is None or _identity_of(self._wal_name) == self._wal_identity:
            return
        if _has_wal(connection):
            self._lose(
                f"{self._wal_name} was removed while this saver had it open. It had the last commits, which are "
                "brought into the database when the last saver closes that has it open. This saver does not go on: "
                "close all that use the database, then open a new saver"
            )
        self._wal_identity = None  # the owner of a given connection chose another journal

    def _lose(self, reason: str) -> NoReturn:
        self.lost = reason
        raise Unavailable(reason)


def _times_by_stat(folder: bytes) -> _Times | None:
    try:
        found = os.stat(folder)
    except OSError:
        return None  # the names tell
    return found.st_dev, found.st_ino, found.st_mtime_ns, found.st_ctime_ns


# A result of `os.stat` has twenty parts, which take longer to make than the system takes to answer.
_times_of: Callable[[bytes], _Times | None] = getattr(native, "times_of", _times_by_stat)


def _is_settled(modified: int, changed: int) -> bool:
    """Whether another change of a folder than the one of these times would show by other times."""
    is_fine = modified % _STEP_NANOSECONDS and changed % _STEP_NANOSECONDS
    lasting = _SETTLED_NANOSECONDS if is_fine else _COARSELY_SETTLED_NANOSECONDS
    return time.time_ns() - max(modified, changed) > lasting


def absolute(path: str) -> str:
    """A path, or a file: URI, that names the same file after a change of the working directory."""
    try:
        if not path.startswith("file:"):
            return os.path.abspath(path)
        from urllib.parse import unquote  # few stores need it, and it takes a while to import

        name, mark, query = path.removeprefix("file:").partition("?")
        is_in_memory = name.startswith(":memory:") or "mode=memory" in query or "vfs=memdb" in query
        if is_in_memory or os.path.isabs(unquote(name)):
            return path
        return uri_of(os.path.abspath(unquote(name))) + mark + query
    except FileNotFoundError:  # the working directory was deleted: SQLite will say so
        return path


def uri_of(path: str) -> str:
    """The file: URI of a path."""
    from urllib.parse import quote

    return "file:" + quote(path)


def _identity_of(name: str) -> _Identity | None:
    """What a name leads to at this moment; None if to nothing."""
    if (quietly := _statx()) is not None:
        statx, buffer = quietly
        answer = buffer()
        if statx(_AT_FDCWD, name.encode(_NAMES, _HOW), 0, _STATX_INO, answer) == 0:
            inode, major, minor = _STATX.unpack(answer)
            return (os.makedev(major, minor), inode) if inode else (0, 0)
    try:
        found = os.stat(name)
    except (FileNotFoundError, NotADirectoryError):
        return None
    except OSError as error:
        raise Unavailable(f"cannot tell whether {name} is still there ({error.strerror}): try again") from error
    # Some file systems give no inode numbers: then there is nothing to compare.
    return (found.st_dev, found.st_ino) if found.st_ino else (0, 0)


@lru_cache(maxsize=1)
def _statx() -> tuple[Callable[..., int], Any] | None:
    """The `statx` of the C library, and what makes room for its answer; None where it has none.

    Asked for no time: since Linux 6.13 a file whose times were asked for gets new ones at its next write, to the
    nanosecond. For the `-wal` that made each commit a third slower.
    """
    if not sys.platform.startswith("linux"):
        return None
    try:
        import ctypes

        call = ctypes.CDLL(None).statx
    except (ImportError, OSError, AttributeError):
        return None
    buffer: Any = ctypes.c_char * _STATX.size
    call.argtypes = (ctypes.c_int, ctypes.c_char_p, ctypes.c_int, ctypes.c_uint, buffer)
    return call, buffer


def _databases(connection: sqlite3.Connection) -> list[tuple[int, str, str | None]]:
    return plain_rows(connection, "PRAGMA database_list")


def _has_wal(connection: sqlite3.Connection) -> bool:
    return plain_rows(connection, "PRAGMA journal_mode") == [("wal",)]
