"""A PostgreSQL server: what it keeps at a crash, what holds it up, and whether something stands before it."""

from __future__ import annotations

import zlib
from collections.abc import Callable, Coroutine, Iterable
from typing import Any

from ...base.drive import run_now
from ...show.figures import readable_bytes, readable_span
from .findings import Finding, checked, note, ok, problem, warning

__all__ = ["examine_postgres"]

_OLD_TRANSACTION_SECONDS = 300.0
_LARGE_LOG_BYTES = 10_000_000_000
_LOCK_KEY = zlib.crc32(b"threadline doctor")


def examine_postgres(engine: Any) -> list[Finding]:
    """What the server says."""
    asking = _Asking(engine)
    found: list[Finding] = []
    for subject, check in (
        ("backend", _settings),
        ("replica", _replica),
        ("connections", _connections),
        ("oldest transaction", _oldest_transaction),
        ("log", _log),
        ("pooler", _pooler),
        ("locks", _locks),
        ("room", _room),
    ):
        found += checked(subject, lambda check=check: check(asking))  # type: ignore[misc]
    return found


class _Asking:
    """One or two connections of an engine, for questions."""

    def __init__(self, engine: Any) -> None:
        self._engine = engine

    def rows(self, statement: str, values: tuple[Any, ...] = ()) -> list[Any]:
        """The rows of one query."""
        found: list[Any] = self.on_one(lambda connection: connection.execute(statement, values).fetchall())
        return found

    def on_one(self, act: Callable[[Any], Any]) -> Any:
        """What work on a connection gives."""

        async def acted(session: Any) -> Any:
            return act(session.connection)

        return run_now(self._lent(acted))

    def on_two(self, act: Callable[[Any, Any], Any]) -> Any:
        """What work on two connections gives."""

        async def first(one: Any) -> Any:
            async def second(other: Any) -> Any:
                return act(one.connection, other.connection)

            return await self._lent(second)

        return run_now(self._lent(first))

    def _lent(self, act: Callable[[Any], Coroutine[Any, Any, Any]]) -> Coroutine[Any, Any, Any]:
        lent: Coroutine[Any, Any, Any] = self._engine.blocking.lend(act)
        return lent


def _settings(asking: _Asking) -> Iterable[Finding]:
    names = ("server_version", "fsync", "synchronous_commit", "full_page_writes")
    rows = asking.rows("SELECT name, setting FROM pg_catalog.pg_settings WHERE name = ANY(%s)", (list(names),))
    held = dict(rows)
    told = f"PostgreSQL {held.get('server_version', '?')}, fsync {held.get('fsync')}, "
    told += f"synchronous_commit {held.get('synchronous_commit')}, full_page_writes {held.get('full_page_writes')}"
    if held.get("fsync") == "off" or held.get("full_page_writes") == "off":
        yield problem("backend", told, "a power cut may damage the database: set fsync and full_page_writes to on")
    elif held.get("synchronous_commit") == "off":
        yield problem("backend", told, "a crash may take acknowledged puts: set synchronous_commit to on")
    else:
        yield ok("backend", told)


def _replica(asking: _Asking) -> Iterable[Finding]:
    [[is_replica, is_read_only]] = asking.rows(
        "SELECT pg_is_in_recovery(), current_setting('default_transaction_read_only') = 'on'"
    )
    if is_replica:
        yield problem("replica", "this is a standby: nothing can be put", "connect to the primary")
    elif is_read_only:
        yield problem("replica", "this role may only read", "set default_transaction_read_only to off for it")
    else:
        yield ok("replica", "this server takes writes")
    held = [name for (name,) in asking.rows("SELECT extname::text FROM pg_catalog.pg_extension")]
    several = sorted({"bdr", "spock", "pglogical"} & set(held))
    if several:
        yield warning(
            "replica",
            f"{', '.join(several)} is installed: several servers may take writes",
            "the locks of pools are those of one server: let all clients write to the same one",
        )


def _connections(asking: _Asking) -> Iterable[Finding]:
    [[used, most]] = asking.rows(
        "SELECT (SELECT count(*) FROM pg_catalog.pg_stat_activity WHERE backend_type = 'client backend'), "
        "current_setting('max_connections')::int"
    )
    told = f"{used:,} of {most:,} are in use"
    if used > most * 0.9:
        yield warning("connections", told, "lower pool_size, put PgBouncer before the server, or raise max_connections")
    else:
        yield ok("connections", told)


def _oldest_transaction(asking: _Asking) -> Iterable[Finding]:
    rows = asking.rows(
        "SELECT pid, state, extract(epoch FROM now() - xact_start)::float8 FROM pg_catalog.pg_stat_activity "
        "WHERE xact_start IS NOT NULL AND pid <> pg_backend_pid() AND backend_type = 'client backend' "
        "ORDER BY xact_start LIMIT 1"
    )
    if not rows:
        yield ok("oldest transaction", "none is open")
        return
    [[pid, state, seconds]] = rows
    told = f"process {pid} ({state or 'of another role'}) began one {readable_span(seconds)} ago"
    if seconds > _OLD_TRANSACTION_SECONDS:
        yield warning(
            "oldest transaction",
            told,
            f"it keeps deleted rows and may hold locks: end its program, or SELECT pg_terminate_backend({pid})",
        )
    else:
        yield ok("oldest transaction", told)


def _log(asking: _Asking) -> Iterable[Finding]:
    [[size]] = asking.rows("SELECT coalesce(sum(size), 0)::bigint FROM pg_ls_waldir()")
    told = f"{readable_bytes(size)} of write-ahead log"
    slots = asking.rows("SELECT slot_name::text FROM pg_catalog.pg_replication_slots WHERE NOT active")
    if slots:
        named = ", ".join(repr(name) for (name,) in slots)
        yield warning(
            "log", f"{told}; nobody reads the slots {named}", "drop what is not used: pg_drop_replication_slot"
        )
    elif size > _LARGE_LOG_BYTES:
        yield warning("log", told, "look at archive_command, at replicas that are behind, and at max_wal_size")
    else:
        yield ok("log", told)


def _pooler(asking: _Asking) -> Iterable[Finding]:
    """A pooler gives clients numbers of its own, and lets two idle clients share one connection of the server."""

    def ask(one: Any, other: Any) -> tuple[bool, bool]:
        pids = [each.execute("SELECT pg_backend_pid()").fetchone()[0] for each in (one, other)]
        return pids[0] != one.info.backend_pid, pids[0] == pids[1]

    is_behind, is_shared = asking.on_two(ask)
    if not is_behind:
        yield ok("pooler", "none: this is the server itself")
    elif not is_shared:
        yield ok("pooler", "a pooler stands before the server, in session mode")
    elif not asking.on_one(_keeps_transactions):
        yield problem(
            "pooler",
            "a pooler stands before the server, and refuses transactions (statement mode)",
            "set pool_mode = transaction: a put is a transaction",
        )
    else:
        yield note(
            "pooler",
            "a pooler stands before the server, in transaction mode",
            "open savers with prepare_threshold=None: prepared statements belong to a session",
        )


def _keeps_transactions(connection: Any) -> bool:
    try:
        connection.execute("BEGIN")
        connection.execute("ROLLBACK")
    except Exception:  # PgBouncer's own error, of no class of its own
        return False
    return True


def _locks(asking: _Asking) -> Iterable[Finding]:
    """Hold an advisory lock in one transaction, and try it in another."""

    def ask(one: Any, other: Any) -> bool:
        one.execute("BEGIN")
        try:
            one.execute("SELECT pg_advisory_xact_lock(%s)", (_LOCK_KEY,))
            return bool(other.execute("SELECT pg_try_advisory_xact_lock(%s)", (_LOCK_KEY,)).fetchone()[0])
        finally:
            one.execute("ROLLBACK")

    if asking.on_two(ask):
        yield problem(
            "locks",
            "two clients got the same lock at the same time",
            "this address leads to several servers: let all clients write to one",
        )
    else:
        yield ok("locks", "a second client was kept waiting, as it should be")


def _room(asking: _Asking) -> Iterable[Finding]:
    [[size]] = asking.rows("SELECT pg_database_size(current_database())")
    yield note(
        "room", f"the database takes {readable_bytes(size)}; a client cannot see how much the server has left", ""
    )
