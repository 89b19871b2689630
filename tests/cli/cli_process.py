"""The environment of processes that tests of commands start."""

from __future__ import annotations

import os
from pathlib import Path

import threadline

HERE = Path(__file__).parent
SOURCE = Path(threadline.__file__).resolve().parents[1]


def settings(*paths: str) -> dict[str, str]:
    """The environment of a process that has this Threadline, and modules at these paths."""
    return {**os.environ, "PYTHONPATH": os.pathsep.join([str(SOURCE), *paths]), "PYTHONUTF8": "1"}
