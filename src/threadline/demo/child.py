"""The processes of their own that the demo starts: one to be killed, one to carry on.

    python -m threadline.cli.demo.child DATABASE JOURNAL review | resume

`review` asks for the review and works so slowly that there is time to kill it;
`resume` carries on with whatever the thread has left to do.
"""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Literal

from langchain_core.messages import HumanMessage
from langchain_core.runnables import RunnableConfig
from langsmith import tracing_context

from ..langgraph import Checkpointer
from . import handbook
from .agent import Journal, State, build_agent

__all__ = ["CONFIG", "Task", "database_url", "start"]

Task = Literal["review", "resume"]

CONFIG: RunnableConfig = {"configurable": {"thread_id": "handbook"}}
# Two dozen pages at this pace take half a minute: the kill always comes first.
SLOW_SECONDS_PER_PAGE = 1.25


def start(task: Task, database: Path, journal: Path) -> subprocess.Popen[str]:
    """Start a process that does this; its complaints can be read from `stderr`."""
    return subprocess.Popen(
        [sys.executable, "-m", __spec__.name, str(database), str(journal), task],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
    )


def database_url(database: Path) -> str:
    """The URL of a SQLite file."""
    return f"sqlite:///{database.absolute().as_posix()}"


def main(arguments: list[str]) -> None:
    """What the process does."""
    database, journal, task = arguments
    asked: State | None = None
    seconds_per_page = 0.0
    if task == "review":
        asked = {"messages": [HumanMessage(handbook.REVIEW)]}
        seconds_per_page = SLOW_SECONDS_PER_PAGE
    with Checkpointer(database_url(Path(database))) as saver, tracing_context(enabled=False):
        build_agent(saver, Journal(Path(journal)), seconds_per_page).invoke(asked, CONFIG)


if __name__ == "__main__":
    main(sys.argv[1:])
