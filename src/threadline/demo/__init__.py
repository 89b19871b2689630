"""The demonstration behind `threadline demo`: one agent, one SQLite file, every promise checked.

Nothing here is imported before `run` is called: LangGraph and rich take longer
to load than every other command takes to finish.
"""

from __future__ import annotations

import sys

__all__ = ["run"]


def run() -> int:
    """Tell the story on standard output; 0 only when every claim in it was checked and held."""
    try:
        from .story import tell
    except ModuleNotFoundError as missing:
        if (missing.name or "").partition(".")[0] == "threadline":
            raise
        print(
            f"The demo needs {missing.name}, which is not installed.\n"
            "Install what it runs on:  pip install 'threadline[langgraph]'",
            file=sys.stderr,
        )
        return 1
    return tell()
