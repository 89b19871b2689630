"""The statement of one page of checkpoints, composed of fixed conditions; every value is bound."""

from __future__ import annotations

from typing import Any

from ...ports.checkpoints import Query
from ...ports.rules import HIDDEN
from .statements import CONDITIONS, Statements

__all__ = ["page_statement"]


def page_statement(sql: Statements, query: Query) -> tuple[str, list[Any]]:
    """The next page of a query, newest id first, then by thread and namespace."""
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
    return sql.dialect.text(text), [*values, query.limit]
