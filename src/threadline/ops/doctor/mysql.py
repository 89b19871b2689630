"""A MySQL or MariaDB server: what it keeps at a crash, whether several take writes, what holds it up."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any

from ...base.drive import run_now
from ...show.figures import readable_bytes, readable_span
from .findings import Finding, checked, note, ok, problem, warning

__all__ = ["examine_mysql"]

_OLD_TRANSACTION_SECONDS = 300.0
_SMALL_PACKET_BYTES = 16_000_000
_VARIABLES = (
    "version",
    "innodb_flush_log_at_trx_commit",
    "innodb_doublewrite",
    "sync_binlog",
    "log_bin",
    "read_only",
    "max_connections",
    "max_allowed_packet",
    "wsrep_on",
    "group_replication_group_name",
    "group_replication_single_primary_mode",
)


def examine_mysql(engine: Any) -> list[Finding]:
    """What the server says."""

    def rows(statement: str, values: tuple[Any, ...] = ()) -> list[Any]:
        found: list[Any] = _on_connections(engine, 1, lambda one: _rows(one, statement, values))
        return found

    held: dict[str, str] = {}

    def learn() -> Iterable[Finding]:
        marks = ", ".join(["%s"] * len(_VARIABLES))
        held.update(dict(rows(f"SHOW GLOBAL VARIABLES WHERE Variable_name IN ({marks})", _VARIABLES)))
        return _durability(held)

    found = checked("backend", learn)
    for subject, check in (
        ("primaries", lambda: _primaries(held, rows, engine)),
        ("connections", lambda: _connections(held, rows)),
        ("oldest transaction", lambda: _oldest_transaction(rows)),
        ("packets", lambda: _packets(held)),
        ("room", lambda: _room(rows)),
    ):
        found += checked(subject, check)
    return found


Ask = Callable[..., list[Any]]


def _durability(held: Mapping[str, str]) -> Iterable[Finding]:
    flush, binlog = held.get("innodb_flush_log_at_trx_commit"), held.get("sync_binlog")
    told = f"{held.get('version', '?')}, innodb_flush_log_at_trx_commit {flush}, sync_binlog {binlog}"
    if flush != "1":
        yield problem("backend", told, "a crash may take acknowledged puts: set innodb_flush_log_at_trx_commit = 1")
    elif held.get("innodb_doublewrite", "ON").upper() == "OFF":
        yield problem("backend", f"{told}, innodb_doublewrite OFF", "a power cut may damage pages: set it to ON")
    elif held.get("log_bin", "OFF").upper() == "ON" and binlog != "1":
        yield warning("backend", told, "after a crash replicas may lack puts that this server has: set sync_binlog = 1")
    else:
        yield ok("backend", told)
    if held.get("read_only", "OFF").upper() not in ("OFF", "0"):
        yield problem("replica", "the server is read-only: nothing can be put", "connect to the primary")


def _primaries(held: Mapping[str, str], rows: Ask, engine: Any) -> Iterable[Finding]:
    """Several servers that take writes do not see each other's row locks."""
    advice = "let all clients write to one server: a lock on one does not keep out writers of another"
    if held.get("wsrep_on", "OFF").upper() == "ON":
        size = dict(rows("SHOW GLOBAL STATUS LIKE 'wsrep_cluster_size'")).get("wsrep_cluster_size", "?")
        yield warning("primaries", f"Galera is on, and {size} servers take writes", advice)
    elif held.get("group_replication_single_primary_mode", "ON").upper() == "OFF":
        yield warning("primaries", "group replication has several primaries", advice)
    else:
        same = "SELECT @@hostname, @@port, @@server_id"
        one, other = _on_connections(engine, 2, lambda one, other: (_rows(one, same), _rows(other, same)))
        if one != other:
            yield problem("primaries", "two connections led to two servers", advice)
        else:
            yield ok("primaries", "one server takes the writes, and its locks lock")


def _connections(held: Mapping[str, str], rows: Ask) -> Iterable[Finding]:
    used = int(dict(rows("SHOW GLOBAL STATUS LIKE 'Threads_connected'"))["Threads_connected"])
    most = int(held.get("max_connections", 0))
    told = f"{used:,} of {most:,} are in use"
    if most and used > most * 0.9:
        yield warning("connections", told, "lower pool_size, or raise max_connections")
    else:
        yield ok("connections", told)


def _oldest_transaction(rows: Ask) -> Iterable[Finding]:
    found = rows(
        "SELECT trx_mysql_thread_id, TIMESTAMPDIFF(SECOND, trx_started, NOW()) FROM information_schema.innodb_trx "
        "WHERE trx_mysql_thread_id <> CONNECTION_ID() ORDER BY trx_started LIMIT 1"
    )
    if not found:
        yield ok("oldest transaction", "none is open")
        return
    [[number, seconds]] = found
    told = f"connection {number} began one {readable_span(float(seconds))} ago"
    if float(seconds) > _OLD_TRANSACTION_SECONDS:
        advice = f"it keeps deleted rows and may hold locks: end its program, or KILL {number}"
        yield warning("oldest transaction", told, advice)
    else:
        yield ok("oldest transaction", told)


def _packets(held: Mapping[str, str]) -> Iterable[Finding]:
    size = int(held.get("max_allowed_packet", 0))
    told = f"max_allowed_packet is {readable_bytes(size)}"
    if size and size < _SMALL_PACKET_BYTES:
        yield warning("packets", told, "a put with large values is refused: set max_allowed_packet = 64M or more")
    else:
        yield ok("packets", told)


def _room(rows: Ask) -> Iterable[Finding]:
    [[size]] = rows(
        "SELECT COALESCE(SUM(data_length + index_length), 0) FROM information_schema.tables "
        "WHERE table_schema = DATABASE()"
    )
    yield note(
        "room", f"the database takes {readable_bytes(float(size))}; a client cannot see how much the server has left"
    )


def _rows(connection: Any, statement: str, values: tuple[Any, ...] = ()) -> list[Any]:
    with connection.cursor() as cursor:
        cursor.execute(statement, values or None)
        return [tuple(row) for row in cursor.fetchall()]


def _on_connections(engine: Any, count: int, act: Callable[..., Any]) -> Any:
    """What work on so many connections of an engine gives."""

    async def acted(*held: Any) -> Any:
        if len(held) == count:
            return act(*held)

        async def with_next(wire: Any) -> Any:
            return await acted(*held, wire.connection)

        return await engine.blocking.lend(with_next)

    return run_now(acted())
