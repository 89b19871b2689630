"""What an error of the driver means to the caller; never in the driver's words, which may hold what was sent."""

from __future__ import annotations

import re

from redis import exceptions

from ...errors import InvalidRequest, StorageFull, ThreadlineError, Unavailable

__all__ = ["AnotherServer", "NewGeneration", "translate"]

# The code at the head of an answer, or inside the error of a script.
_CODE = re.compile(
    r"\b(OOM|NOPERM|NOAUTH|WRONGPASS|READONLY|LOADING|MASTERDOWN|CLUSTERDOWN|TRYAGAIN|BUSY|MISCONF|NOREPLICAS|"
    r"WRONGTYPE|CROSSSLOT|UNKILLABLE|MOVED|ASK)\b"
)
# The driver drops the code where it has a class for it.
_CLASSES: dict[type[BaseException], str] = {
    exceptions.OutOfMemoryError: "OOM",
    exceptions.NoPermissionError: "NOPERM",
    exceptions.AuthenticationError: "WRONGPASS",
    exceptions.ReadOnlyError: "READONLY",
    exceptions.BusyLoadingError: "LOADING",
    exceptions.MasterDownError: "MASTERDOWN",
    exceptions.ClusterDownError: "CLUSTERDOWN",
    exceptions.TryAgainError: "TRYAGAIN",
    exceptions.ClusterCrossSlotError: "CROSSSLOT",
    exceptions.MovedError: "MOVED",
    exceptions.AskError: "ASK",
}
_REFUSED = {
    "NOAUTH": "wants a password: give it in the URL, redis://user:password@host",
    "WRONGPASS": "refuses the user or password of the URL",
    "NOPERM": "forbids a command or key to this user: allow it the keys of key_prefix and +@read +@write +@scripting "
    "+time (ACL SETUSER)",
    "WRONGTYPE": "holds something else under this key_prefix: choose another one",
    "CROSSSLOT": "is a cluster: open it as redis+cluster://…",
}
_UNAVAILABLE = {
    "READONLY": "is a replica now; another server takes over",
    "LOADING": "is loading its data",
    "MASTERDOWN": "has lost its primary",
    "CLUSTERDOWN": "is a cluster with unreachable parts",
    "TRYAGAIN": "is moving keys between nodes",
    "BUSY": "is busy with another client's script",
    "UNKILLABLE": "is busy with another client's script",
    "MISCONF": "cannot save to its disk and refuses writes: see its log",
    "NOREPLICAS": "has too few replicas to accept writes",
    "MOVED": "is moving keys between nodes",
    "ASK": "is moving keys between nodes",
}


class NewGeneration(Unavailable):
    """The server may have lost what this process knows; nothing was changed."""

    def __init__(self) -> None:
        super().__init__("the server was restarted, or another one took its place: what it holds is read again")


class AnotherServer(exceptions.ConnectionError):
    """A new connection led to a server that this process has not seen before; nothing was sent to it yet."""


def translate(error: BaseException, where: str) -> ThreadlineError:
    """The error of our tree."""
    said = _CODE.search(str(error))
    code = said.group(1) if said else next((_CLASSES[one] for one in type(error).__mro__ if one in _CLASSES), "")
    kind = type(error).__name__
    if code == "OOM":
        return StorageFull(f"{where} has reached its maxmemory: give it more, or delete threads; nothing was written")
    if code in _REFUSED:
        return InvalidRequest(f"{where} {_REFUSED[code]}")
    if code in _UNAVAILABLE:
        return Unavailable(f"{where} {_UNAVAILABLE[code]}; try again")
    if isinstance(error, (exceptions.ConnectionError, exceptions.TimeoutError, OSError)):
        return Unavailable(f"cannot reach {where}: is the server running, and the address right? ({kind})")
    if isinstance(error, (exceptions.ClusterError, exceptions.RedisClusterException)):
        return Unavailable(f"{where} does not answer as a cluster with all its parts ({kind})")
    if "unknown command" in str(error):
        return InvalidRequest(f"{where} lacks a command that Threadline needs: it needs Redis 6.2 or Valkey, or later")
    if isinstance(error, exceptions.DataError):
        return InvalidRequest(f"{where}: the driver cannot send this")
    return Unavailable(f"{where} failed ({kind})")
