"""What the core must reach at every size, as one short table: each line names rows of the large one and their targets.

A line is reached when each of its rows is. A row that was not measured in a run is shown as such.
"""

from __future__ import annotations

from collections.abc import Sequence

from bench.results import Result, show, show_bound, show_ratio
from bench.targets import ROWS, Row

OPERATIONS = ("put", "put_writes", "get")
GOALS: tuple[tuple[str, tuple[str, ...]], ...] = (
    ("memory, 10 checkpoints: put / put_writes / get", tuple(f"short.memory_{one}_10" for one in OPERATIONS)),
    ("SQLite, 10: put / put_writes / get", tuple(f"short.sqlite_{one}_10" for one in OPERATIONS)),
    ("PostgreSQL, 10: put / put_writes / get", tuple(f"short.postgres_{one}_10" for one in OPERATIONS)),
    ("MySQL, 10: put / get", ("short.mysql_put_10", "short.mysql_get_10")),
    ("SQLite, 1 checkpoint a thread, 1,000 threads", ("short.sqlite_new",)),
    ("a LangGraph graph of 5 steps, small state, SQLite, per turn", ("short.sqlite_turn",)),
    ("long chat, SQLite: put / trust_identity / growth of put", ("put.last", "put.trusted_last", "put.growth")),
    ("its cold get, looked at: SQLite / PostgreSQL", ("get.head", "postgres.head")),
    ("its bytes over the bytes that changed: at once / after compact", ("disk.share", "compact.share")),
    ("64 tasks / 16 OS threads, SQLite", ("tasks.rate", "threads.rate")),
    ("64 tasks / 16 OS threads, PostgreSQL", ("postgres.tasks", "postgres.threads")),
    ("a real graph, per turn: peer as it is / with DeltaChannel", ("graph.turn", "graph.delta_turn")),
    (
        "dumps: plain nested data / pydantic models / dataclasses",
        ("codec.plain_dumps", "codec.models_dumps", "codec.dataclasses_dumps"),
    ),
    ("Python calls on SQLite: put / put_writes / get", tuple(f"calls.sqlite_{one}" for one in OPERATIONS)),
    (
        "copy SQLite to PostgreSQL, 1,000 checkpoints / as many threads / export of 1,000 steps",
        ("moving.copy", "moving.threads", "moving.export"),
    ),
    ("import of threadline.langgraph, beyond LangGraph's own", ("open.adapter",)),
)
ROW_OF = {row.key: row for row in ROWS}


def goal_lines(results: Sequence[Result]) -> list[tuple[str, str, str, str]]:
    """Each line: what, measured, target, reached; lines of which nothing was measured are left out."""
    found = {result.row.key: result for result in results}
    return [
        (title, " / ".join(_measured(found.get(key)) for key in keys), _targets(keys), _reached(keys, found))
        for title, keys in GOALS
        if any(key in found for key in keys)
    ]


def _measured(result: Result | None) -> str:
    if result is None:
        return "–"
    return show(result.ours, result.row.unit) if result.row.at_most is not None else show_ratio(result.ratio)


def _targets(keys: tuple[str, ...]) -> str:
    return " / ".join(_target(ROW_OF[key]) for key in keys)


def _target(row: Row) -> str:
    return f"≤ {show_bound(row, row.at_most)}" if row.at_most is not None else f"{row.at_least:g}"


def _reached(keys: tuple[str, ...], found: dict[str, Result]) -> str:
    verdicts = ["–" if key not in found else "yes" if found[key].reached else "no" for key in keys]
    return verdicts[0] if len(set(verdicts)) == 1 else " / ".join(verdicts)
