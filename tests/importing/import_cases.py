"""What the tests of this folder share: environments, raw rows, and what savers give."""

from __future__ import annotations

import os
import sqlite3
from pathlib import Path
from typing import Any

from langgraph.checkpoint.sqlite import SqliteSaver

import threadline

HERE = Path(__file__).parent
PACKAGE_ROOT = Path(threadline.__file__).resolve().parents[1]
Rows = dict[str, list[tuple[Any, ...]]]


def environment(*search: Path, **more: str) -> dict[str, str]:
    leaks = ("FORCE_COLOR", "NO_COLOR", "COLUMNS", "THREADLINE_URL")
    inherited = {name: value for name, value in os.environ.items() if name not in leaks}
    return {**inherited, "PYTHONPATH": os.pathsep.join(map(str, [*search, PACKAGE_ROOT])), **more}


def rows_of(path: Path) -> Rows:
    """Everything in LangGraph's tables, byte for byte."""
    connection = sqlite3.connect(path)
    try:
        return {
            table: connection.execute(f"SELECT * FROM {table} ORDER BY 1, 2, 3, 4, 5, 6").fetchall()
            for table in ("checkpoints", "writes")
        }
    finally:
        connection.close()


def tuples_of(saver: Any) -> dict[tuple[str, str, str], Any]:
    """All checkpoints of a saver by their place, with nothing left undecoded."""
    found = {}
    for one in saver.list(None):
        place = one.config["configurable"]
        values = dict(one.checkpoint["channel_values"])
        key = (place["thread_id"], place["checkpoint_ns"], place["checkpoint_id"])
        found[key] = one._replace(checkpoint={**one.checkpoint, "channel_values": values})
    return found


def original(path: Path) -> dict[tuple[str, str, str], Any]:
    """What LangGraph's own saver gives."""
    with SqliteSaver.from_conn_string(str(path)) as saver:
        return tuples_of(saver)
