"""The command line. Nothing of it is loaded before `main` runs: typer and rich take longer than most commands."""

from __future__ import annotations

from collections.abc import Sequence

__all__ = ["main"]


def main(arguments: Sequence[str] | None = None) -> int:
    """Run a command; the exit status is 0 for done, 1 for an error, 2 for a command that was typed wrong."""
    from .app import run

    return run(arguments)
