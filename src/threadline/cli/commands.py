"""All commands in one table, and what happens when one of them fails."""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from typing import Annotated

import typer

from ..errors import InvalidRequest, ThreadlineError
from . import (
    branching,
    checking,
    erasing,
    history,
    importing,
    keeping,
    questions,
    repairing,
    tree,
    undoing,
    upkeep,
)
from .output import complain, one_line

__all__ = ["COMMANDS", "app", "run"]

app = typer.Typer(
    help="Threadline: Git for agent state.",
    no_args_is_help=True,
    add_completion=True,
    # Plain text for help and usage errors too: it reads the same on a terminal and in a log.
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
)


def run(arguments: Sequence[str] | None = None) -> int:
    """Run one command; 0 for done, 1 for what is not there, damaged or refused, 2 for what was asked wrongly."""
    for stream in (sys.stdout, sys.stderr):
        if hasattr(stream, "reconfigure"):
            # Names in a store may be in any script, and a terminal or pipe may know none of it.
            stream.reconfigure(errors="backslashreplace")
    try:
        app(args=None if arguments is None else list(arguments), prog_name="threadline")
    except ThreadlineError as error:
        complain(one_line(error))
        return 2 if isinstance(error, InvalidRequest) else 1
    except SystemExit as ended:
        return ended.code if isinstance(ended.code, int) else int(ended.code is not None)
    return 0


def demo() -> None:
    """Show on a small agent what Threadline does; needs LangGraph."""
    from .demo import run as show

    raise typer.Exit(show())


def _print_version(wanted: bool) -> None:
    if wanted:
        from .. import __version__

        print(f"threadline {__version__}")
        raise typer.Exit()


@app.callback()
def _options(
    version: Annotated[
        bool, typer.Option("--version", callback=_print_version, is_eager=True, help="Print the version and exit.")
    ] = False,
) -> None:
    """Threadline: Git for agent state."""


# In the order that help shows: looking, changing, deleting, the store as a whole.
COMMANDS: dict[str, Callable[..., None]] = {
    "threads": history.threads,
    "log": tree.log,
    "show": history.show,
    "diff": history.diff,
    "writes": history.writes,
    "interrupts": questions.interrupts,
    "answer": questions.answer,
    "fork": branching.fork,
    "rollback": branching.rollback,
    "merge": branching.merge,
    "tag": branching.tag,
    "pin": branching.pin,
    "unpin": branching.unpin,
    "archive": branching.archive,
    "restore": branching.restore,
    "rm": erasing.rm,
    "prune": keeping.prune,
    "sweep": keeping.sweep,
    "gc": keeping.gc,
    "compact": keeping.compact,
    "trash": undoing.trash,
    "fsck": checking.fsck,
    "repair": repairing.repair,
    "quarantine": undoing.quarantine,
    "stats": upkeep.stats,
    "health": upkeep.health,
    "setup": upkeep.setup,
    "import": importing.import_threads,
    "demo": demo,
}
for _name, _command in COMMANDS.items():
    app.command(_name)(_command)
