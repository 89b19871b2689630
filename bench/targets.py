"""The table of what is measured and what it must reach. Everything that reports reads this table.

A target is either a ratio to the peer (`at_least`: so many times faster, smaller or more), or a
bound on our own figure (`at_most`), or both, or either of the two (`at_least` with `or_at_most`).
`aim` is what we would like beyond it. Rows without either are shown for context. Rows without a peer
are about ours alone. All targets are meant for the full run (N = 1,000).
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from enum import Enum

SQLITE = "langgraph-checkpoint-sqlite"
DELTA = "langgraph-checkpoint-sqlite, graph with DeltaChannel"
MEMORY = "InMemorySaver"
CODEC = "JsonPlusSerializer"
POSTGRES = "langgraph-checkpoint-postgres"
MYSQL = "langgraph-checkpoint-mysql"
OURS_ON_POSTGRES = "Threadline on PostgreSQL"
STORE = "LangGraph's own store or cache of the same backend"
LANGGRAPH = "langgraph, with its own savers"


class Unit(Enum):
    SECONDS = "seconds"
    BYTES = "bytes"
    PER_SECOND = "ops/s"
    FACTOR = "x"
    SHARE = "%"
    CALLS = "calls"

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
    or_at_most: float | None = None
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
    if row.at_least is None or (row.or_at_most is not None and ours <= row.or_at_most):
        return True
    return ratio is not None and ratio >= row.at_least * (1 - row.tolerance)


# Backend -> its name, its peer, and of threads of 10 checkpoints what each operation must reach and is to aim at.
_SHORT: dict[str, tuple[str, str | None, dict[str, tuple[float, float]]]] = {
    "memory": ("memory", MEMORY, {"put": (0.75, 1), "put_writes": (0.5, 0.7), "get": (1.2, 1.5)}),
    "sqlite": ("SQLite", SQLITE, {"put": (0.95, 1.2), "put_writes": (1.0, 1.2), "get": (1.25, 1.5)}),
    "postgres": ("PostgreSQL", POSTGRES, {"put": (1.4, 1.8), "put_writes": (1.2, 1.8), "get": (1.4, 1.8)}),
    "mysql": ("MySQL", MYSQL, {"put": (1.2, 2), "get": (1.2, 2)}),
    "redis": ("Redis", None, {}),
}


def _short_rows() -> Iterator[Row]:
    for key, (name, peer, targets) in _SHORT.items():
        for length in (1, 10, 100):
            for operation in ("put", "put_writes", "get"):
                least, aim = targets.get(operation, (None, None)) if length == 10 else (None, None)
                title = f"{name}, thread of {length}: `{operation}`"
                yield Row(key=f"short.{key}_{operation}_{length}", title=title, peer=peer, at_least=least, aim=aim)
        least, aim = (1.0, 1.2) if key == "sqlite" else (None, None)
        title = f"{name}: a graph of 5 steps, per turn"
        yield Row(key=f"short.{key}_turn", title=title, peer=peer, at_least=least, aim=aim)
        if key in ("sqlite", "postgres"):
            least, aim = (0.9, 1.2) if key == "sqlite" else (None, None)
            title = f"{name}: 1,000 new threads of one checkpoint"
            yield Row(key=f"short.{key}_new", title=title, peer=peer, at_least=least, aim=aim)


SQLITE_ROWS: tuple[Row, ...] = (
    Row(key="disk.bytes", title="bytes on disk", peer=SQLITE, unit=Unit.BYTES, at_least=150),
    Row(
        key="disk.share",
        title="bytes on disk, over the bytes that changed",
        peer=SQLITE,
        unit=Unit.FACTOR,
        at_most=1.4,
    ),
    Row(
        key="compact.share",
        title="bytes on disk after `compact`, over the bytes that changed",
        peer=None,
        unit=Unit.FACTOR,
        at_most=0.8,
    ),
    Row(
        key="put.last",
        title="`put`, median of the last 10 %",
        peer=SQLITE,
        at_least=8,
        aim=12,
    ),
    Row(
        key="put.growth",
        title="`put`, last 10 % over first 10 %",
        peer=SQLITE,
        unit=Unit.FACTOR,
        at_most=2,
    ),
    Row(
        key="put.trusted_last",
        title="`put` with `trust_identity`, median of the last 10 %",
        peer=SQLITE,
        at_least=18,
        aim=25,
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
        at_least=1.8,
        aim=2.5,
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
        at_least=6,
        aim=8,
    ),
    Row(
        key="threads.rate",
        title="`put` + `put_writes`, 16 OS threads, 10 KB states",
        peer=SQLITE,
        unit=Unit.PER_SECOND,
        at_least=2,
        aim=3,
    ),
    Row(key="graph.turn", title="a real graph, time per turn", peer=SQLITE, at_least=2, aim=2.5),
    Row(
        key="graph.bytes",
        title="a real graph, bytes on disk",
        peer=SQLITE,
        unit=Unit.BYTES,
        at_least=80,
    ),
    Row(key="graph.delta_turn", title="a real graph, time per turn", peer=DELTA, at_least=1.2),
    Row(key="graph.delta_bytes", title="a real graph, bytes on disk", peer=DELTA, unit=Unit.BYTES),
    Row(key="open.import", title="import and open a new file", peer=SQLITE, at_most=0.100),
    Row(
        key="open.adapter",
        title="import of `threadline.langgraph` beyond LangGraph's own, CPU time",
        peer=None,
        at_most=0.040,
    ),
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
    Row(key="codec.models_dumps", title="500 pydantic models, `dumps`", peer=CODEC, at_least=4),
    Row(key="codec.models_loads", title="500 pydantic models, `loads`", peer=CODEC),
    Row(
        key="codec.plain_dumps",
        title="plain nested data, `dumps`",
        peer=CODEC,
        at_least=0.9,
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
    Row(
        key="postgres.share", title="bytes of all tables, over the bytes that changed", peer=POSTGRES, unit=Unit.FACTOR
    ),
    Row(
        key="postgres.compacted",
        title="bytes of all tables after `compact`, over the bytes that changed",
        peer=None,
        unit=Unit.FACTOR,
    ),
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
    Row(
        key="postgres.head", title="`get_tuple` of the head, new saver, looked at", peer=POSTGRES, at_least=1.8, aim=2.5
    ),
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
        at_least=5,
        aim=8,
    ),
    Row(
        key="postgres.threads",
        title="`put` + `put_writes`, 16 OS threads, pool of 10",
        peer=POSTGRES,
        unit=Unit.PER_SECOND,
        at_least=2.5,
        aim=3,
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
        row("prune_many", "`prune(keep_last=100)` of very many checkpoints", 5),
    )


MOVING_ROWS: tuple[Row, ...] = (
    # 3,000 checkpoints a second.
    Row(key="moving.copy", title="`copy_to`, SQLite to PostgreSQL, 1,000 checkpoints", peer=None, at_most=1 / 3),
    Row(key="moving.again", title="the same with nothing new, 1,000 checkpoints", peer=None),
    Row(key="moving.threads", title="the same, each checkpoint a thread of its own", peer=None, at_most=1 / 3),
    Row(key="moving.export", title="`export` of a thread of 1,000 steps", peer=None, at_most=1),
    Row(key="moving.open", title="opening that file and reading its head", peer=None),
)


RUNTIME_ROWS: tuple[Row, ...] = (
    Row(key="runtime.step", title="a step, no saver", peer=LANGGRAPH, at_least=5),
    Row(key="runtime.step_memory", title="a step, saver in memory", peer=LANGGRAPH, at_least=3),
    Row(key="runtime.step_sqlite", title="a step, SQLite, durability async", peer=LANGGRAPH, at_least=2),
    Row(key="runtime.step_sync", title="a step, SQLite, durability sync", peer=LANGGRAPH, at_least=2),
    Row(key="runtime.loop", title="a step under asyncio, no saver", peer=LANGGRAPH, at_least=4),
    Row(key="runtime.loop_memory", title="a step under asyncio, saver in memory", peer=LANGGRAPH, at_least=3),
    Row(key="runtime.fan", title="a task of 100 side by side, no saver", peer=LANGGRAPH, at_least=3),
    Row(key="runtime.fan_memory", title="a task of 100 side by side, saver in memory", peer=LANGGRAPH, at_least=3),
    Row(key="runtime.fan_sqlite", title="a task of 100 side by side, SQLite", peer=LANGGRAPH, at_least=2),
    Row(key="runtime.compile", title="compile of 50 nodes", peer=LANGGRAPH, at_least=3),
    Row(key="runtime.import", title="import of graph and saver", peer=LANGGRAPH, at_least=6, or_at_most=0.150),
    Row(
        key="runtime.resident",
        title="resident memory after the import",
        peer=LANGGRAPH,
        unit=Unit.BYTES,
        at_most=30_000_000,
    ),
    Row(key="runtime.chat", title="a long chat on SQLite, all turns", peer=LANGGRAPH, at_least=3),
    Row(
        key="runtime.chat_bytes",
        title="a long chat on SQLite, bytes on disk",
        peer=LANGGRAPH,
        unit=Unit.BYTES,
        at_least=100,
    ),
    Row(
        key="runtime.chat_growth",
        title="a long chat, a turn of the last 10 % over the first 10 %",
        peer=LANGGRAPH,
        unit=Unit.FACTOR,
        at_most=2,
    ),
)

STORE_ROWS: tuple[Row, ...] = (
    Row(key="store.memory_put", title="`put` of an item, memory", peer=STORE, at_least=1),
    Row(key="store.memory_get", title="`get` of an item, memory", peer=STORE, at_least=1),
    Row(key="store.memory_batch", title="a batch of 100 puts, memory", peer=STORE, at_least=1),
    Row(key="store.sqlite_put", title="`put` of an item, SQLite", peer=STORE, at_least=1),
    Row(key="store.sqlite_get", title="`get` of an item, SQLite", peer=STORE, at_least=1),
    Row(key="store.sqlite_batch", title="a batch of 100 puts, SQLite", peer=STORE, at_least=3),
    Row(key="store.sqlite_search", title="`search` by an indexed field, SQLite", peer=STORE, at_least=3),
    Row(key="store.sqlite_tasks", title="64 tasks, 5 puts each, SQLite", peer=STORE, at_least=3),
    Row(key="store.postgres_put", title="`put` of an item, PostgreSQL", peer=STORE, at_least=1),
    Row(key="store.postgres_get", title="`get` of an item, PostgreSQL", peer=STORE, at_least=1),
    Row(key="store.postgres_batch", title="a batch of 100 puts, PostgreSQL", peer=STORE, at_least=3),
    Row(key="store.postgres_search", title="`search` by an indexed field, PostgreSQL", peer=STORE, at_least=3),
    Row(key="store.cache_memory_set", title="cache `set`, memory", peer=STORE, at_least=1),
    Row(key="store.cache_memory_get", title="cache `get`, memory", peer=STORE, at_least=1),
    Row(key="store.cache_sqlite_set", title="cache `set`, SQLite", peer=STORE, at_least=1),
    Row(key="store.cache_sqlite_get", title="cache `get`, SQLite", peer=STORE, at_least=1),
    Row(key="store.cache_redis_set", title="cache `set`, Redis", peer=STORE, at_least=1),
    Row(key="store.cache_redis_get", title="cache `get`, Redis", peer=STORE, at_least=1),
)

METRICS_ROWS: tuple[Row, ...] = (
    Row(key="metrics.put", title="a small `put` with metrics, share more", peer=None, unit=Unit.SHARE, at_most=0.05),
    Row(key="metrics.off", title="two savers without metrics, share between them", peer=None, unit=Unit.SHARE),
)

TIER_ROWS: tuple[Row, ...] = (
    Row(
        key="tiers.requests",
        title="requests to read a head of 500 messages from S3",
        peer=None,
        unit=Unit.CALLS,
        at_most=3,
    ),
    Row(key="tiers.chat_share", title="in the database, chat", peer=None, unit=Unit.SHARE, at_most=0.10),
    Row(key="tiers.large_share", title="in the database, large values", peer=None, unit=Unit.SHARE, at_most=0.10),
    Row(key="tiers.put", title="a small `put` with a cold tier, share more", peer=None, unit=Unit.SHARE, at_most=0.02),
    Row(key="tiers.put_calls", title="calls more of a `put` with a cold tier", peer=None, unit=Unit.CALLS, at_most=0),
    Row(key="tiers.get_calls", title="calls more of a hot `get` with a cold tier", peer=None, unit=Unit.CALLS),
)

CALL_ROWS: tuple[Row, ...] = tuple(
    Row(
        key=f"calls.{key}_{operation}",
        title=f"{name}: calls of `{operation}`",
        peer=None,
        unit=Unit.CALLS,
        at_most=most,
    )
    for key, name, bounds in (("memory", "memory", (None, None, None)), ("sqlite", "SQLite", (90, 60, 110)))
    for operation, most in zip(("put", "put_writes", "get"), bounds, strict=True)
)


def _web_rows(name: str, backend: str) -> tuple[Row, ...]:
    return (
        Row(key=f"web.{name}_threads", title=f"the list of threads, {backend}", peer=None, at_most=0.3),
        Row(key=f"web.{name}_threads_by_id", title=f"the list of threads by id, {backend}", peer=None, at_most=0.3),
        Row(key=f"web.{name}_tree", title=f"the tree of a long thread, {backend}", peer=None, at_most=0.3),
        Row(
            key=f"web.{name}_diff",
            title=f"chunks that a diff page reads, of all, {backend}",
            peer=None,
            unit=Unit.SHARE,
            at_most=0.01,
        ),
    )


ROWS: tuple[Row, ...] = (
    *_short_rows(),
    *CALL_ROWS,
    *SQLITE_ROWS,
    *SERVER_ROWS,
    *_history_rows("sqlite", "SQLite"),
    *_history_rows("postgres", "PostgreSQL"),
    *MOVING_ROWS,
    *RUNTIME_ROWS,
    *STORE_ROWS,
    *METRICS_ROWS,
    *TIER_ROWS,
    *_web_rows("sqlite", "SQLite"),
    *_web_rows("postgres", "PostgreSQL"),
)

SECTIONS: tuple[str, ...] = tuple(dict.fromkeys(row.section for row in ROWS))
