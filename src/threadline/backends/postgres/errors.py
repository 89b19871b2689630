"""What an error of PostgreSQL or its driver means to the caller, by SQLSTATE.

Messages name the user, the host and the database, never the password. What libpq says of a URL that it cannot
read is not repeated: it may quote a piece of the password.
"""

from __future__ import annotations

import psycopg
import psycopg_pool

from ...errors import Closed, InvalidRequest, ReadOnly, StorageFull, ThreadlineError, Unavailable
from .url import Whereabouts
from .wire import NoAnswer

__all__ = ["is_lost", "translate"]

# Trying again helps: connection trouble, a server that starts or stops, serialization, deadlocks, timeouts.
_TRANSIENT = {
    "40001": "the transaction collided with another one",
    "40P01": "the transaction was the victim of a deadlock",
    "53000": "the server is short of resources",
    "53200": "the server is out of memory",
    "53300": "the server has no connection left: raise its max_connections, or lower pool_size",
    "55P03": "a lock was not granted in time",
    "57014": "the server cancelled the statement (statement_timeout?)",
    "57P01": "the server is shutting down, or an administrator ended the connection",
    "57P02": "the server crashed and is recovering",
    "57P03": "the server is starting up or recovering",
    "57P05": "the server ended an idle connection",
    "25P03": "the server ended an idle transaction",
}
_DENIED = {
    "28000": "the server refuses this user (pg_hba.conf)",
    "28P01": "the password is wrong, or missing from the URL",
    "3D000": "there is no such database: create it with CREATE DATABASE, or correct the URL",
    "3F000": "there is no such schema: create it with CREATE SCHEMA, or correct schema=",
    "42P01": "a table of Threadline is missing: call setup() once, with a role that may create tables",
    "42703": "the tables are not Threadline's: choose another table_prefix",
    "42P10": "the tables are not Threadline's, or lost a unique index: choose another table_prefix",
    "54000": "an id is too long for an index: keep ids below 2 000 bytes",
    "22P05": "the database's encoding cannot hold this text: create the database with ENCODING 'UTF8'",
    "22021": "the database's encoding cannot hold this text: create the database with ENCODING 'UTF8'",
}
_LOST_CLASSES = ("08", "57P01", "57P02", "57P05")


def translate(error: Exception, where: Whereabouts) -> ThreadlineError:
    """The error of our tree for one of the driver."""
    state = getattr(error, "sqlstate", None) or ""
    if isinstance(error, psycopg_pool.PoolClosed):
        return Closed(f"the connection pool of {where} was closed")
    if isinstance(error, psycopg_pool.PoolTimeout):
        return Unavailable(f"no connection to {where} was free in time: raise pool_size, or the given pool's max_size")
    if isinstance(error, NoAnswer):
        return Unavailable(
            f"{where} did not answer in time: is it, or a pooler before it, overloaded? Or raise timeout"
        )
    if state in _TRANSIENT:
        return Unavailable(f"{where}: {_TRANSIENT[state]}; try again")
    if state == "53100":
        return StorageFull(f"{where}: no room left on the server's disk; nothing was written")
    if state in ("25006", "0LP01"):
        return ReadOnly(f"{where} is read-only (a standby?): connect to the primary, or open it with read_only=True")
    if state == "42501":
        return InvalidRequest(f"{where} lacks a right ({_said(error)}): {_RIGHTS}")
    if state in _DENIED:
        return InvalidRequest(f"{where}: {_DENIED[state]}{_named(error)}")
    if state.startswith("08") or (isinstance(error, psycopg.OperationalError) and not state):
        return _unreachable(error, where)
    if state.startswith(("XX", "58")):
        return Unavailable(f"{where}: the server failed inside ({state}: {_said(error)}); see its log")
    if isinstance(error, psycopg.OperationalError):
        return Unavailable(f"{where}: {_said(error)} ({state}); try again")
    return InvalidRequest(f"PostgreSQL refused the call on {where}: {_said(error)} ({state or type(error).__name__})")


def is_lost(error: Exception) -> bool:
    """Whether the connection is gone, and with it any certainty about what the server kept."""
    state = getattr(error, "sqlstate", None) or ""
    return state.startswith(_LOST_CLASSES) or (isinstance(error, psycopg.OperationalError) and not state)


_RIGHTS = (
    "GRANT SELECT, INSERT, UPDATE, DELETE on Threadline's tables and USAGE on their schema to it; "
    "to create them, also CREATE on the schema"
)


def _unreachable(error: Exception, where: Whereabouts) -> ThreadlineError:
    """A connection that could not be made, or broke; the server's word for why is only in libpq's text."""
    text = str(error)
    for state in ("28P01", "28000", "3D000"):
        if any(sign in text for sign in _SIGNS[state]):
            return InvalidRequest(f"cannot connect to {where}: {_DENIED[state]}")
    for state in ("53300", "57P03"):
        if any(sign in text for sign in _SIGNS[state]):
            return Unavailable(f"cannot connect to {where}: {_TRANSIENT[state]}")
    if "translate host name" in text or "Name or service not known" in text or "resolve host" in text:
        return Unavailable(f"cannot connect to {where}: the host is not known; check the URL")
    if "refused" in text or "No such file or directory" in text:
        return Unavailable(f"cannot connect to {where}: nothing listens there; is the server running?")
    if "timeout" in text or "timed out" in text:
        return Unavailable(f"cannot connect to {where}: no answer in time; is the address right, the network open?")
    return Unavailable(f"the connection to {where} was lost or not made: {_said(error)}")


# libpq gives no SQLSTATE for a connection that fails, only the server's text, in the server's language; these
# words are those of English servers. In another language the error is Unavailable, with the text.
_SIGNS = {
    "28P01": ("password authentication failed", "no password supplied", "SASL authentication failed"),
    "28000": ("no pg_hba.conf entry", "authentication failed", "is not permitted to log in", 'role "'),
    "3D000": ('database "', "no such database"),
    "53300": ("too many clients", "too many connections", "remaining connection slots", "no more connections"),
    "57P03": ("starting up", "shutting down", "recovery mode", "not yet accepting"),
}


def _said(error: Exception) -> str:
    """The server's first line; details are left out, for they quote values."""
    primary = getattr(getattr(error, "diag", None), "message_primary", None)
    return str(primary or str(error).partition("\n")[0])


def _named(error: Exception) -> str:
    state = getattr(error, "sqlstate", None)
    return f" ({_said(error)})" if state in ("42P01", "42703", "3F000") else ""
