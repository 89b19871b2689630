"""The table of what is measured and what it must reach. Everything that reports reads this table.

A target is either a ratio to the peer (`at_least`: so many times faster, smaller or more), or a
bound on our own figure (`at_most`), or both. `aim` is what we would like beyond it. Rows
without either are shown for context. Rows without a peer are about ours alone. All targets are meant
for the full run (N = 1,000).
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum

SQLITE = "langgraph-checkpoint-sqlite"
DELTA = "langgraph-checkpoint-sqlite, graph with DeltaChannel"
MEMORY = "InMemorySaver"
CODEC = "JsonPlusSerializer"
POSTGRES = "langgraph-checkpoint-postgres"
MYSQL = "langgraph-checkpoint-mysql"
OURS_ON_POSTGRES = "Threadline on PostgreSQL"


class Unit(Enum):
    SECONDS = "seconds"
    BYTES = "bytes"
    PER_SECOND = "ops/s"
    FACTOR = "x"
    SHARE = "%"

    @property
    def more_is_better(self) -> bool:
        return self is Unit.PER_SECOND


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """One line of the report: what is measured, against whom, and what it must reach."""

    key: str
    title: str
    peer: str | None
    unit: Unit = Unit.SECONDS
    at_least: float | None = None
    aim: float | None = None
    at_most: float | None = None
    tolerance: float = 0.0

    @property
    def section(self) -> str:
        return self.key.partition(".")[0]

    @property
    def has_target(self) -> bool:
        return self.at_least is not None or self.at_most is not None


def is_reached(row: Row, ours: float, ratio: float | None) -> bool | None:
    """Whether the row's target is met; None where there is no target."""
    if not row.has_target:
        return None
    if row.at_most is not None and ours > row.at_most:
        return False
    if row.at_least is None:
        return True
    return ratio is not None and ratio >= row.at_least * (1 - row.tolerance)


SQLITE_ROWS: tuple[Row, ...] = (
    Row(key="disk.bytes", title="bytes on disk", peer=SQLITE, unit=Unit.BYTES, at_least=150),
    Row(
        key="disk.share",
        title="bytes on disk, over the bytes that changed",
        peer=SQLITE,
        unit=Unit.FACTOR,
        at_most=2.2,
    ),
    Row(
        key="put.last",
        title="`put`, median of the last 10 %",
        peer=SQLITE,
        at_least=6,
        aim=10,
    ),
    Row(
        key="put.growth",
        title="`put`, last 10 % over first 10 %",
        peer=SQLITE,
        unit=Unit.FACTOR,
        at_most=3.5,
    ),
    Row(
        key="put.trusted_last",
        title="`put` with `trust_identity`, median of the last 10 %",
        peer=SQLITE,
        at_least=18,
    ),
    Row(
        key="put.trusted_growth",
        title="`put` with `trust_identity`, last 10 % over first 10 %",
        peer=SQLITE,
        unit=Unit.FACTOR,
        at_most=1.3,
    ),
    Row(
        key="get.head",
        title="`get_tuple` of the head, file reopened, looked at",
        peer=SQLITE,
        at_least=1.15,
        aim=1.5,
    ),
    Row(key="list.unseen", title="`list()` of all, not looked at", peer=SQLITE, at_least=100),
    Row(key="list.seen", title="`list()` of all, looked at", peer=SQLITE, at_least=3),
    Row(
        key="list.shared",
        title="`list()` of all, looked at, `share_decoded`",
        peer=SQLITE,
        at_least=30,
    ),
    Row(key="list.ten", title="`list(limit=10)`, looked at", peer=SQLITE, at_least=2.5),
    Row(key="list.ten_first", title="`list(limit=10)`, looked at, `share_decoded`, new saver", peer=SQLITE),
    Row(
        key="list.ten_shared",
        title="`list(limit=10)`, looked at, `share_decoded`, saver in use",
        peer=SQLITE,
        at_least=15,
    ),
    Row(
        key="tasks.rate",
        title="`aput` + `aput_writes`, 64 tasks, 64 threads, 10 KB states",
        peer=SQLITE,
        unit=Unit.PER_SECOND,
        at_least=5,
    ),
    Row(
        key="threads.rate",
        title="`put` + `put_writes`, 16 OS threads, 10 KB states",
        peer=SQLITE,
        unit=Unit.PER_SECOND,
        at_least=1.6,
        aim=2.5,
    ),
    Row(key="graph.turn", title="a real graph, time per turn", peer=SQLITE, at_least=2.2),
    Row(
        key="graph.bytes",
        title="a real graph, bytes on disk",
        peer=SQLITE,
        unit=Unit.BYTES,
        at_least=80,
    ),
    Row(key="graph.delta_turn", title="a real graph, time per turn", peer=DELTA),
    Row(key="graph.delta_bytes", title="a real graph, bytes on disk", peer=DELTA, unit=Unit.BYTES),
    Row(key="open.import", title="import and open a new file", peer=SQLITE, at_most=0.100),
    Row(
        key="memory.bytes",
        title="bytes in memory",
        peer=MEMORY,
        unit=Unit.BYTES,
        at_least=150,
    ),
    Row(key="memory.last", title="`put`, median of the last 10 %", peer=MEMORY, at_least=4),
    Row(key="memory.short", title="`put` in a thread of 10 checkpoints", peer=MEMORY, at_least=0.5),
    Row(key="codec.messages_dumps", title="500 chat messages, `dumps`", peer=CODEC, at_least=2),
    Row(key="codec.messages_loads", title="500 chat messages, `loads`", peer=CODEC, at_least=2.5),
    Row(key="codec.dataclasses_dumps", title="500 dataclasses, `dumps`", peer=CODEC, at_least=8),
    Row(key="codec.dataclasses_loads", title="500 dataclasses, `loads`", peer=CODEC),
    Row(key="codec.models_dumps", title="500 pydantic models, `dumps`", peer=CODEC, at_least=8),
    Row(key="codec.models_loads", title="500 pydantic models, `loads`", peer=CODEC),
    Row(
        key="codec.plain_dumps",
        title="plain nested data, `dumps`",
        peer=CODEC,
        at_least=1,
        tolerance=0.05,
    ),
    Row(
        key="codec.plain_loads",
        title="plain nested data, `loads`",
        peer=CODEC,
        at_least=1,
        tolerance=0.05,
    ),
)

SERVER_ROWS: tuple[Row, ...] = (
    Row(key="postgres.bytes", title="bytes of all tables", peer=POSTGRES, unit=Unit.BYTES, at_least=65),
    Row(key="postgres.put", title="`put`, median of the last 10 %", peer=POSTGRES, at_least=18),
    Row(
        key="postgres.put_growth",
        title="`put`, last 10 % over first 10 %",
        peer=POSTGRES,
        unit=Unit.FACTOR,
        at_most=3.5,
    ),
    Row(
        key="postgres.put_trusted",
        title="`put` with `trust_identity`, median of the last 10 %",
        peer=POSTGRES,
        at_least=40,
    ),
    Row(key="postgres.head", title="`get_tuple` of the head, new saver, looked at", peer=POSTGRES, at_least=1.5),
    Row(key="postgres.ten", title="`list(limit=10)`, looked at", peer=POSTGRES, at_least=2.5),
    Row(key="postgres.ten_first", title="`list(limit=10)`, looked at, `share_decoded`, new saver", peer=POSTGRES),
    Row(
        key="postgres.ten_shared",
        title="`list(limit=10)`, looked at, `share_decoded`, saver in use",
        peer=POSTGRES,
        at_least=15,
    ),
    Row(
        key="postgres.tasks",
        title="`aput` + `aput_writes`, 64 tasks, pool of 10, 10 KB states",
        peer=POSTGRES,
        unit=Unit.PER_SECOND,
        at_least=2.8,
    ),
    Row(
        key="postgres.threads",
        title="`put` + `put_writes`, 16 OS threads, pool of 10",
        peer=POSTGRES,
        unit=Unit.PER_SECOND,
        at_least=2,
    ),
    Row(key="postgres.turn", title="a real graph, time per turn", peer=POSTGRES, at_least=3),
    Row(key="postgres.turn_bytes", title="a real graph, bytes of all tables", peer=POSTGRES, unit=Unit.BYTES),
    Row(key="mysql.bytes", title="bytes of all tables", peer=MYSQL, unit=Unit.BYTES, at_least=50),
    Row(key="mysql.put", title="`put`, median of the last 10 %", peer=MYSQL, at_least=8),
    Row(key="mysql.put_growth", title="`put`, last 10 % over first 10 %", peer=MYSQL, unit=Unit.FACTOR),
    Row(key="mysql.head", title="`get_tuple` of the head, new saver, looked at", peer=MYSQL),
    Row(
        key="mysql.tasks",
        title="`aput` + `aput_writes`, 64 tasks, pool of 10, 10 KB states",
        peer=MYSQL,
        unit=Unit.PER_SECOND,
    ),
    Row(key="redis.put", title="`put`, median of the last 10 %", peer=OURS_ON_POSTGRES, at_least=1),
    Row(
        key="redis.head",
        title="`get_tuple` of the head, new saver, looked at",
        peer=OURS_ON_POSTGRES,
        at_least=1,
    ),
    Row(
        key="redis.share",
        title="bytes in memory, over the bytes that changed",
        peer=OURS_ON_POSTGRES,
        unit=Unit.FACTOR,
        at_most=3,
    ),
)


def _history_rows(database: str, name: str) -> tuple[Row, ...]:
    """The verbs of history on one database."""

    def row(key: str, title: str, at_most: float, unit: Unit = Unit.SECONDS) -> Row:
        return Row(key=f"history.{database}_{key}", title=f"{name}: {title}", peer=None, unit=unit, at_most=at_most)

    return (
        row("threads", "`threads()`, all", 0.3),
        row("log", "`log()` of one thread", 0.3),
        row("first_threads", "`threads(limit=50)` of very many", 0.05),
        row("filter", "`list(None, filter=…, limit=10)`, the oldest rows", 0.05),
        row("filter_none", "`list(None, filter=…, limit=10)`, no such rows", 0.05),
        row("filter_thread", "`list(thread, filter=…, limit=10)`", 0.05),
        row("diff", "`diff` of a long thread, share of its chunks read", 0.01, Unit.SHARE),
        row("fork", "`fork` of a long thread, bytes added", 10_000, Unit.BYTES),
        row("prune", "`prune(keep_last=10)` of the long chat", 1),
    )


ROWS: tuple[Row, ...] = (
    *SQLITE_ROWS,
    *SERVER_ROWS,
    *_history_rows("sqlite", "SQLite"),
    *_history_rows("postgres", "PostgreSQL"),
)

SECTIONS: tuple[str, ...] = tuple(dict.fromkeys(row.section for row in ROWS))
