"""Every failure Threadline reports, as one tree.

    ThreadlineError
    ├── Unavailable        the storage cannot be reached or is busy: try again   (ConnectionError)
    │   └── StorageFull    no room left on the disk                              (OSError)
    ├── InvalidRequest     the call is wrong: fix the caller                     (ValueError)
    │   ├── Closed         the saver was closed before this call
    │   ├── ReadOnly       the storage may be read but not written
    │   └── NewerFormat    written by a later Threadline: upgrade this process
    ├── NotFound           no such thread, checkpoint, tag or key                (KeyError)
    ├── Conflict           another writer was first: reload and decide           (ValueError)
    │   └── MergeConflict  two branches changed the same channels
    ├── Corrupt            stored bytes are damaged or incomplete
    │   └── TooLarge       they take more memory than this process can have      (MemoryError)
    ├── NotSerializable    a value has no stored form; `path` says where         (TypeError)
    ├── NotAllowed         a stored type may not be rebuilt here                 (TypeError)
    └── MissingExtra       an optional package is not installed                  (ImportError)

The branches answer the caller's question (retry? my fault? lost a race? damaged?); the builtin each one
also is lets code that never heard of Threadline catch it. Messages name the thing and the next step, and
never hold a password, a key or a piece of state.
"""

from __future__ import annotations

from .base.printable import printable

__all__ = [
    "Closed",
    "Conflict",
    "Corrupt",
    "InvalidRequest",
    "MergeConflict",
    "MissingExtra",
    "NewerFormat",
    "NotAllowed",
    "NotFound",
    "NotSerializable",
    "ReadOnly",
    "StorageFull",
    "ThreadlineError",
    "TooLarge",
    "Unavailable",
]


class ThreadlineError(Exception):
    """The root of the tree."""

    # Messages name ids that came from outside, and end in logs and on terminals.
    def __str__(self) -> str:
        return printable(super().__str__())


class Unavailable(ThreadlineError, ConnectionError):
    """The storage cannot be reached or stayed busy; the same call again is safe."""


class StorageFull(Unavailable):
    """There is no room left where the database lives; nothing was written."""


class InvalidRequest(ThreadlineError, ValueError):
    """The call itself is wrong and would fail again."""


class Closed(InvalidRequest):
    """The saver was closed before this call."""

    def __init__(self, message: str = "this saver was closed; open a new one with threadline.connect()") -> None:
        super().__init__(message)


class ReadOnly(InvalidRequest):
    """The storage may be read but not written."""


class NewerFormat(InvalidRequest):
    """The storage was written by a later format than this version understands."""


class NotFound(ThreadlineError, KeyError):
    """The thing named does not exist, or was deleted meanwhile."""

    # KeyError shows the repr of its argument, which makes sentences unreadable.
    def __str__(self) -> str:
        return printable(self.args[0]) if self.args else ""


class Conflict(ThreadlineError, ValueError):
    """Another writer was first, or the thread is in a state that forbids this."""


class MergeConflict(Conflict):
    """Two branches changed the same channels in different ways."""


class Corrupt(ThreadlineError):
    """Stored bytes are damaged, cut short or missing."""


class TooLarge(Corrupt, MemoryError):
    """What is stored takes more memory than this process can have; a process with more may read it."""


class NotSerializable(ThreadlineError, TypeError):
    """A value has no stored form; `path` says where in the state it is."""

    def __init__(self, message: str, *, path: str = "") -> None:
        super().__init__(f"{path}: {message}" if path else message)
        self.path = path
        self.reason = message

    def under(self, prefix: str) -> NotSerializable:
        """This error for a value that is itself part of another at `prefix`."""
        return NotSerializable(self.reason, path=prefix + self.path)


class NotAllowed(ThreadlineError, TypeError):
    """A stored type may not be rebuilt under the rules in force."""


class MissingExtra(ThreadlineError, ImportError):
    """A package that this feature needs is not installed."""
