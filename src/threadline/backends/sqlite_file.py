"""The file behind the connections to a SQLite database, and whether its name still leads to it.

A file that is moved, deleted or replaced stays open to those who had it open: SQLite would go on committing to a file
that nobody finds by its name. The same holds for the `-wal` beside it, which has the commits since the last checkpoint.
So every commit and every read compares what the names lead to now with what they led to when the file was opened.
"""

from __future__ import annotations

import os
import sqlite3
from typing import Any

from ..errors import Unavailable

__all__ = ["DatabaseFile", "absolute", "uri_of"]

# Which file a name leads to: the device and the inode.
_Identity = tuple[int, int]


class DatabaseFile:
    """The file that one saver has open, from the first connection on.

    Once the name leads elsewhere the file stays lost, also when it is put back: somebody may have written to it under
    its other name meanwhile, unseen by the connections that were open.
    """

    def __init__(self, name: str | None) -> None:
        # A URI names its file in SQLite's own way: the connection is asked for it.
        self._name = None if name is None or name.startswith("file:") else name
        self._identity: _Identity | None = None
        # Only a file that was found to be a database of ours must stay the same.
        self._is_in_use = False
        self._wal_name = ""
        self._wal_identity: _Identity | None = None
        self._lost: str | None = None
        self.is_lost = False

    def check_not_lost(self) -> None:
        """Raise Unavailable if the file was found to be lost before."""
        if self._lost is not None:
            raise Unavailable(self._lost)

    def check_name(self) -> None:
        """Raise Unavailable if the name leads elsewhere: nobody opens, or even makes, another file in its place."""
        self.check_not_lost()
        if self._is_in_use and self._identity is not None and _seen(self._name or "") != self._identity:
            self.is_lost = True
            self._lost = (
                f"{self._name} was moved, deleted or replaced while this saver had it open, and this saver does not "
                f"go on: it would write where nobody finds it. If the file was moved, put it back beside "
                f"{self._name}-wal, which may have its last commits; then open a new saver"
            )
            self.check_not_lost()

    def opened(self, connection: sqlite3.Connection) -> None:
        """A connection was opened this moment: the first one decides which file it is, the others must have it too."""
        if self._is_in_use:
            self.check_name()
            return
        if self._name is None:
            self._name = _named_by(connection)
        self._identity = _seen(self._name) if self._name else None

    def prepared(self, connection: sqlite3.Connection) -> None:
        """The file is a database of ours from now on; its `-wal`, if it uses one, is there."""
        self._is_in_use = True
        self.check_name()
        if self._identity is not None:
            # SQLite follows symbolic links before it names the file beside the database.
            self._wal_name = os.path.realpath(self._name or "") + "-wal"
            self._wal_identity = _seen(self._wal_name) if _has_wal(connection) else None

    def check(self, connection: sqlite3.Connection) -> None:
        """Raise Unavailable unless the names lead to what the connections have open. Costs two calls of `stat`."""
        if self._wal_identity is not None and self._lost is None and self._name is not None:
            # The usual case, by as few steps as can be: this stands in every commit and read.
            try:
                file, wal = os.stat(self._name), os.stat(self._wal_name)
            except OSError:
                pass
            else:
                seen = (file.st_dev, file.st_ino), (wal.st_dev, wal.st_ino)
                if seen == (self._identity, self._wal_identity):
                    return
        self.check_name()
        if self._wal_identity is None or _seen(self._wal_name) == self._wal_identity:
            return
        if _has_wal(connection):
            self.is_lost = True
            self._lost = (
                f"{self._wal_name} was removed while this saver had it open. It had the last commits, which are "
                "brought into the database when the last saver closes that has it open. This saver does not go on: "
                "close all that use the database, then open a new saver"
            )
            self.check_not_lost()
        self._wal_identity = None  # the owner of a given connection chose another journal


def absolute(path: str) -> str:
    """A path, or a file: URI, that names the same file after a change of the working directory."""
    try:
        if not path.startswith("file:"):
            return os.path.abspath(path)
        from urllib.parse import unquote

        name, mark, query = path.removeprefix("file:").partition("?")
        if name.startswith(("/", ":memory:")) or os.path.isabs(unquote(name)) or _is_in_memory(query):
            return path
        return uri_of(os.path.abspath(unquote(name))) + mark + query
    except FileNotFoundError:  # the working directory was deleted: SQLite will say so
        return path


def uri_of(path: str) -> str:
    """The file: URI of a path."""
    from urllib.parse import quote  # few need it, and it takes a while to import

    return "file:" + quote(path)


def _is_in_memory(query: str) -> bool:
    return "mode=memory" in query or "vfs=memdb" in query


def _named_by(connection: sqlite3.Connection) -> str:
    """The file of a connection's main database; empty if that is in memory."""
    for _, name, file in _plain_rows(connection, "PRAGMA database_list"):
        if name == "main":
            return str(file or "")
    return ""


def _has_wal(connection: sqlite3.Connection) -> bool:
    return _plain_rows(connection, "PRAGMA journal_mode") == [("wal",)]


def _plain_rows(connection: sqlite3.Connection, statement: str) -> list[Any]:
    cursor = connection.cursor()
    cursor.row_factory = None
    return cursor.execute(statement).fetchall()


def _seen(name: str) -> _Identity | None:
    """What a name leads to at this moment; None if to nothing."""
    try:
        found = os.stat(name)
    except (FileNotFoundError, NotADirectoryError):
        return None
    except OSError as error:
        raise Unavailable(f"cannot tell whether {name} is still there ({error.strerror}): try again") from error
    # Some file systems number nothing: then there is nothing to compare.
    return (found.st_dev, found.st_ino) if found.st_ino else (0, 0)
