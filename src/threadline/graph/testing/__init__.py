"""Tests for graphs: run one node, script the answers, crash at any point, compare histories.

    from threadline.graph.testing import answering, assert_same_history, crashes, run_node

Everything here works on graphs of `threadline.graph` and on LangGraph's, except `run_node`'s state validation, which
is the graph's own. `crashes` is the one to start with: it tells whether an agent survives being killed.
"""

from __future__ import annotations

from .answering import UnexpectedQuestion, answering
from .crashing import Crash, CrashReport, CrashRun, CrashSaver, crash_after, crashes
from .histories import assert_same_history
from .nodes import run_node

__all__ = [
    "Crash",
    "CrashReport",
    "CrashRun",
    "CrashSaver",
    "UnexpectedQuestion",
    "answering",
    "assert_same_history",
    "crash_after",
    "crashes",
    "run_node",
]
