"""What the errors of SQLite mean to the caller."""

from __future__ import annotations

import sqlite3

from ...errors import Closed, Corrupt, InvalidRequest, ReadOnly, StorageFull, ThreadlineError, Unavailable

__all__ = ["is_busy", "translate", "translated", "translated_error"]


class translated:
    """Errors of the driver as errors of our tree."""

    __slots__ = ("_path",)

    def __init__(self, path: str | None) -> None:
        self._path = path

    def __enter__(self) -> None:
        return None

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: object) -> None:
        if isinstance(error, (sqlite3.Error, UnicodeEncodeError)):
            raise translated_error(error, self._path) from error


def translated_error(error: sqlite3.Error | UnicodeEncodeError, path: str | None) -> ThreadlineError:
    """An error of the driver as one of our tree."""
    if isinstance(error, UnicodeEncodeError):
        return InvalidRequest("ids and names must be text that UTF-8 can hold (no lone surrogates)")
    return translate(error, path)


def translate(error: sqlite3.Error, path: str | None) -> ThreadlineError:
    """What an error of SQLite means to the caller."""
    text = str(error)
    where = path or "the given connection"
    if "full" in text and "disk" in text:
        return StorageFull(f"no room left for {where}: free some space, nothing was written")
    if "readonly" in text or "read-only" in text:
        return ReadOnly(f"{where} is read-only: check its permissions, or open it with read_only=True")
    if "not a database" in text:
        return InvalidRequest(f"{where} is not a SQLite database: choose another path, it was left as it is")
    if "malformed" in text or "corrupt" in text:
        return Corrupt(f"{where} is damaged ({text}): restore a backup, or salvage it with sqlite3's .recover")
    if "unable to open" in text:
        return Unavailable(f"cannot open {where}: does its folder exist, with the right permissions?")
    if is_busy(error):
        return Unavailable(f"{where} is busy with another process; try again")
    if "closed" in text or "Cannot operate" in text:
        return Closed(f"the connection to {where} was closed")
    if "disk I/O" in text:
        return Unavailable(f"the disk of {where} failed ({text})")
    if "no such column" in text or "no such table" in text or "has no column" in text:
        return InvalidRequest(f"the tables in {where} are not Threadline's ({text}): choose another table_prefix")
    if isinstance(error, sqlite3.ProgrammingError):
        return InvalidRequest(f"SQLite refused the call: {text}")
    return Unavailable(f"SQLite failed on {where}: {text}")


def is_busy(error: BaseException) -> bool:
    """Whether somebody else has the file at this moment."""
    return "locked" in str(error) or "busy" in str(error)
