"""The statements of one page of checkpoints, composed of fixed conditions; every value is bound."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ...ports.checkpoints import CheckpointKey, Query
from ...ports.rules import HIDDEN
from .statements import Statements

__all__ = ["page_statements", "walk_statements"]


def page_statements(sql: Statements, query: Query) -> list[tuple[str, list[Any]]]:
    """Statements whose rows one after another are a page; each binds also how many rows are still wanted."""
    if not query.as_they_lie:
        return [_newest_first(sql, query)]
    last = CheckpointKey(query.after[2], query.after[0]) if query.after is not None else None
    return walk_statements(sql.walks, query.thread_id, last)


def walk_statements(
    walks: Sequence[str], thread_id: str | None, last: CheckpointKey | None
) -> list[tuple[str, list[Any]]]:
    """Statements for a thread as it lies: from the first row, or on in a namespace and over to the next."""
    first, on, over = walks
    if last is None:
        return [(first, [thread_id])]
    return [(on, [thread_id, *last]), (over, [thread_id, last.namespace])]


def _newest_first(sql: Statements, query: Query) -> tuple[str, list[Any]]:
    """The newest id first, then by thread and namespace."""
    conditions: list[str] = []
    values: list[Any] = []

    def where(condition: str, *bound: Any) -> None:
        conditions.append(condition)
        values.extend(bound)

    if query.thread_id is not None:
        where(sql.compared("t.thread_id"), query.thread_id)
    if query.namespace is not None:
        where(sql.compared("c.namespace"), query.namespace)
    if query.checkpoint_id is not None:
        where(sql.compared("c.id"), query.checkpoint_id)
    if query.before is not None:
        where(sql.compared("c.id", "<"), query.before)
    if query.run_ids is not None:
        condition, bound = sql.dialect.among("c.run_id", query.run_ids)
        where(condition, *bound)
    for key, value in query.equals:
        if key in ("step", "source", "run_id"):
            where(sql.compared(f"c.{key}"), value)
        else:
            condition, bound = sql.dialect.json_equals("c.searchable", key, value)
            where(condition, *bound)
    if query.after is not None:
        last_id, last_thread, last_namespace = query.after
        older, equal = sql.compared("c.id", "<"), sql.compared("c.id")
        behind, same = sql.compared("t.thread_id", ">"), sql.compared("t.thread_id")
        where(
            f"({older} OR ({equal} AND ({behind} OR ({same} AND {sql.compared('c.namespace', '>')}))))",
            last_id, last_id, last_thread, last_thread, last_namespace,
        )  # fmt: skip
    order, limit = "ORDER BY c.id DESC, t.thread_id, c.namespace", f"LIMIT {sql.dialect.mark()}"
    if query.thread_id is None:
        where("t.status <> 'deleted'")
        where(sql.compared("t.thread_id", "<"), HIDDEN)
        joined = f"FROM {sql.c} c JOIN {sql.t} t ON t.serial = c.thread WHERE"
        return f"{sql.found} {joined} {' AND '.join(conditions)} {order} {limit}", values
    # Which rows, by their keys alone, and then those rows: sorting must not carry documents along.
    keys = f"SELECT c.pool, c.thread, c.namespace, c.id {sql.joined} {' AND '.join(conditions)}"
    same_row = "c.pool = k.pool AND c.thread = k.thread AND c.namespace = k.namespace AND c.id = k.id"
    statement = (
        f"{sql.found} FROM ({keys} ORDER BY c.id DESC, c.namespace {limit}) k "
        f"JOIN {sql.c} c ON {same_row} JOIN {sql.t} t ON t.serial = k.thread {order}"
    )
    return statement, values
