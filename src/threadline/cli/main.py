"""All commands in one table, and what happens when one of them fails."""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from typing import Annotated

import typer

from ..errors import ThreadlineError
from . import importing, upkeep
from .output import complain, one_line

__all__ = ["app", "run"]

app = typer.Typer(
    help="Threadline: Git for agent state.",
    no_args_is_help=True,
    add_completion=False,
    # Plain text for help and usage errors too: it reads the same on a terminal and in a log.
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
)


def run(arguments: Sequence[str] | None = None) -> int:
    """Run one command and return its exit status."""
    for stream in (sys.stdout, sys.stderr):
        if hasattr(stream, "reconfigure"):
            # Names in a store may be in any script, and a terminal or pipe may know none of it.
            stream.reconfigure(errors="backslashreplace")
    try:
        app(args=None if arguments is None else list(arguments), prog_name="threadline")
    except ThreadlineError as error:
        complain(one_line(error))
        return 1
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


_COMMANDS: dict[str, Callable[..., None]] = {
    "demo": demo,
    "health": upkeep.health,
    "import": importing.import_threads,
    "setup": upkeep.setup,
    "stats": upkeep.stats,
}
for _name, _command in _COMMANDS.items():
    app.command(_name)(_command)
