"""Runs the command line where neither LangGraph nor the application exists: python bare.py import …

What an import has to do without, it must not even look for.
"""

from __future__ import annotations

import sys

# Not pydantic, which some versions of typer need.
ABSENT = {"aiosqlite", "langchain_core", "langgraph", "langsmith", "numpy", "pandas", "travel_app"}


class Absent:
    """Finds none of these, whatever is installed."""

    def find_spec(self, name: str, path: object = None, target: object = None) -> None:
        if name.partition(".")[0] in ABSENT:
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)


if __name__ == "__main__":
    sys.meta_path.insert(0, Absent())  # type: ignore[arg-type]
    from threadline.cli import main

    status = main(sys.argv[1:])
    assert not ABSENT & sys.modules.keys()
    sys.exit(status)
