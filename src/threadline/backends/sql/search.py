"""The statements of one page of checkpoints, composed of fixed conditions; every value is bound."""

from __future__ import annotations

from typing import Any

from ...ports.checkpoints import Query
from ...ports.rules import HIDDEN
from .statements import CONDITIONS, Statements

__all__ = ["page_statements"]


def page_statements(sql: Statements, query: Query) -> list[tuple[str, list[Any]]]:
    """Statements whose rows one after another are a page; each binds also how many rows are still wanted."""
    if not query.as_they_lie:
        return [_newest_first(sql, query)]
    if query.after is None:
        return [(sql.walk, [query.thread_id])]
    last_id, _, last_namespace = query.after
    within = (sql.walk_on, [query.thread_id, last_namespace, last_id])
    return [within, (sql.walk_over, [query.thread_id, last_namespace])]


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
        where("c.id = ?", query.checkpoint_id)
    if query.before is not None:
        where("c.id < ?", query.before)
    if query.run_ids is not None:
        condition, bound = sql.dialect.among("c.run_id", query.run_ids)
        where(condition, *bound)
    for key, value in query.equals:
        if key in ("step", "source", "run_id"):
            where(f"c.{key} = ?", value)
        else:
            condition, bound = sql.dialect.json_equals("c.searchable", key, value)
            where(condition, *bound)
    if query.after is not None:
        last_id, last_thread, last_namespace = query.after
        behind, same = sql.compared("t.thread_id", ">"), sql.compared("t.thread_id")
        where(
            f"(c.id < ? OR (c.id = ? AND ({behind} OR ({same} AND {sql.compared('c.namespace', '>')}))))",
            last_id, last_id, last_thread, last_thread, last_namespace,
        )  # fmt: skip
    order = "ORDER BY c.id DESC, t.thread_id, c.namespace"
    if query.thread_id is None:
        where("t.status <> 'deleted'")
        where(sql.compared("t.thread_id", "<"), HIDDEN)
        text = f"{sql.page}{' AND '.join(conditions)} {order} LIMIT ?"
    else:
        # Which rows, by their keys alone, and then those rows: sorting must not carry documents along.
        text = sql.page_of_thread.replace(CONDITIONS, " AND ".join(conditions)) + f" {order}"
    return sql.dialect.text(text), values
