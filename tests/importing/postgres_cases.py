"""Threads that LangGraph's PostgreSQL saver wrote, for the tests of what is imported from them."""

from __future__ import annotations

from typing import Any

import psycopg
from import_cases import Rows, tuples_of
from langchain_core.messages import AIMessage, HumanMessage
from langgraph.checkpoint.base import empty_checkpoint
from langgraph.checkpoint.postgres import PostgresSaver

TABLES = ("checkpoints", "checkpoint_blobs", "checkpoint_writes", "checkpoint_migrations")


def write_thread(url: str, serde: Any = None, thread_id: str = "t", parent: Any = None, **values: Any) -> Any:
    """One checkpoint with two pending writes, by LangGraph's saver; returns its config."""
    with PostgresSaver.from_conn_string(url) as saver:
        if serde is not None:
            saver.serde = serde
        saver.setup()
        checkpoint = empty_checkpoint()
        checkpoint["channel_values"] = {"messages": [HumanMessage("hello", id="1")], **values}
        checkpoint["channel_versions"] = dict.fromkeys(checkpoint["channel_values"], f"{1:032d}.{0.25:016f}")
        place = parent or {"configurable": {"thread_id": thread_id, "checkpoint_ns": ""}}
        config = saver.put(place, checkpoint, {"source": "input", "step": -1}, checkpoint["channel_versions"])
        saver.put_writes(config, [("messages", AIMessage("hi", id="2")), ("note", None)], "task-1", "~path")
        return config


def execute(url: str, *statements: Any) -> list[Any]:
    """Run statements, each alone or with its values; gives the rows of the last."""
    rows: list[Any] = []
    with psycopg.connect(url, autocommit=True) as connection:
        for statement in statements:
            text, values = statement if isinstance(statement, tuple) else (statement, ())
            cursor = connection.execute(text, values)
            rows = cursor.fetchall() if cursor.description else []
    return rows


def rows_of(url: str) -> Rows:
    """Everything in LangGraph's tables, byte for byte, and which version of each row it is."""
    return {
        table: execute(url, f'SELECT xmin::text, t::text FROM {table} t ORDER BY t::text COLLATE "C"')
        for table in TABLES
    }


def original(url: str, serde: Any = None) -> dict[tuple[str, str, str], Any]:
    """What LangGraph's own saver gives."""
    with PostgresSaver.from_conn_string(url) as saver:
        if serde is not None:
            saver.serde = serde
        return tuples_of(saver)
