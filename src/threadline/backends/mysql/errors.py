"""What an error of MySQL, MariaDB or their drivers means to the caller. The server's text is not shown: it may quote
values.
"""

from __future__ import annotations

from typing import Any

from pymysql import err
from pymysql.constants import ER

from ...errors import Closed, Conflict, Corrupt, InvalidRequest, ReadOnly, StorageFull, ThreadlineError, Unavailable
from ..lending import is_of_work

__all__ = ["is_in_step", "is_lost", "is_useless", "translate"]

# The connection is gone, or never was.
_LOST = frozenset([0, 1053, 1152, 1158, 1159, 1160, 1161, 1184, 1927, 2002, 2003, 2006, 2013, 2014, 2027, 2055, 4031])
_BUSY = frozenset([1040, 1180, 1203, 1205, 1206, 1213, 1226, 1317, 1969, 3024, 3058, 3572])
_FULL = frozenset([1021, 1026, 1114, 1041])
_DENIED = frozenset([1044, 1045, 1130, 1698, 1862, 3118, 3955])
_NO_RIGHT = frozenset([1142, 1143, 1227, 1370])
_READ_ONLY = frozenset([1290, 1792, 1836, 3100])
_DAMAGED = frozenset([1030, 1034, 1194, 1195, 1712, 1877])


def is_lost(error: BaseException) -> bool:
    """Whether the connection cannot be used after this error: it broke, or was left in the middle of an answer."""
    if isinstance(error, err.MySQLError):
        return not error.args or error.args[0] in _LOST or isinstance(error, err.InterfaceError)
    return isinstance(error, (OSError, EOFError)) or not isinstance(error, Exception)


def is_useless(error: BaseException) -> bool:
    """Whether a new connection may do better: this one is lost, or its server only reads by now."""
    return is_lost(error) or (isinstance(error, err.MySQLError) and error.args[0] in _READ_ONLY)


def is_in_step(error: BaseException) -> bool:
    """Whether the connection can be used after this error: work raised it, not an interrupt in the middle of it."""
    return is_of_work(error, err.MySQLError) and not is_useless(error)


def translate(error: BaseException, where: str, *, is_given: bool = False) -> ThreadlineError:
    """What an error of the driver means to the caller."""
    code = error.args[0] if isinstance(error, err.MySQLError) and error.args else None
    if isinstance(error, err.InterfaceError) and code in (0, "(0, '')") and is_given:
        return Closed(f"the given connection to {where} was closed")
    if not isinstance(error, err.MySQLError):
        return Unavailable(f"cannot reach {where}: {type(error).__name__}")
    if code in _LOST or (code is None and isinstance(error, err.OperationalError)):
        return Unavailable(f"the connection to {where} failed (error {code}): is the server up, and the address right?")
    if code in _BUSY:
        return Unavailable(f"{where} is busy, or another transaction was in the way (error {code}): try again")
    if code in _FULL:
        return StorageFull(f"no room left at {where} (error {code}): free some space, nothing was written")
    if code in _READ_ONLY:
        return ReadOnly(f"{where} is read-only (error {code}): connect to the primary, or open it with read_only=True")
    return _translate_mistake(code, where)


def _translate_mistake(code: Any, where: str) -> ThreadlineError:
    if code in _DENIED:
        return InvalidRequest(f"{where} refused the login (error {code}): check user, password and the user's rights")
    if code == ER.NO_DB_ERROR:
        return InvalidRequest("the given connection has no database: choose one with USE, or connect with one")
    if code == ER.BAD_DB_ERROR:
        return InvalidRequest(f"there is no such database at {where}: create it, or correct the URL")
    if code in _NO_RIGHT:
        rights = "SELECT, INSERT, UPDATE, DELETE, CREATE, INDEX, ALTER"
        return InvalidRequest(f"the user lacks a right at {where} (error {code}): GRANT {rights} ON the database")
    if code == ER.NO_SUCH_TABLE:
        return InvalidRequest(f"{where} has no Threadline tables under this table_prefix: call setup() once")
    if code == ER.BAD_FIELD_ERROR:
        return InvalidRequest(f"the tables at {where} are not Threadline's: choose another table_prefix")
    if code == ER.NET_PACKET_TOO_LARGE:
        return InvalidRequest(f"{where} refused a packet as too large: raise max_allowed_packet on the server")
    if code == ER.DATA_TOO_LONG:
        return InvalidRequest(f"an id is longer than its column at {where}: nothing was written")
    if code == 1665:
        return InvalidRequest(f"{where} logs statements, which READ COMMITTED cannot do: set binlog_format=ROW")
    if code in _DAMAGED:
        return Corrupt(f"{where} reports damaged tables (error {code}): check them with CHECK TABLE")
    if code == ER.DUP_ENTRY:
        return Conflict(f"another writer was first at {where}: try again")
    return InvalidRequest(f"{where} refused a statement (error {code}): its log says more")
