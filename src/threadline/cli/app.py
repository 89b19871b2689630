"""All commands in one table, and what happens when one of them fails.

Only the module of the command that runs is loaded: most of the time a command takes is that of its imports.
"""

from __future__ import annotations

import functools
import importlib
import inspect
import logging
import os
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import Annotated, Any, get_type_hints

import typer

from ..errors import InvalidRequest, ThreadlineError
from .open import KEY_FILE
from .output import complain, one_line

__all__ = ["COMMANDS", "make_app", "run"]

# Module and function of each, in the order that help shows: looking, changing, deleting, the store as a whole.
COMMANDS: dict[str, str] = {
    "threads": "listing:threads",
    "why": "standing:why",
    "log": "tree:log",
    "show": "history:show",
    "diff": "history:diff",
    "writes": "history:writes",
    "interrupts": "questions:interrupts",
    "locks": "locking:locks",
    "answer": "questions:answer",
    "unlock": "locking:unlock",
    "fork": "branching:fork",
    "rollback": "branching:rollback",
    "merge": "branching:merge",
    "tag": "branching:tag",
    "pin": "branching:pin",
    "unpin": "branching:unpin",
    "archive": "branching:archive",
    "restore": "branching:restore",
    "rm": "erasing:rm",
    "prune": "pruning:prune",
    "sweep": "pruning:sweep",
    "gc": "pruning:gc",
    "compact": "pruning:compact",
    "trash": "undoing:trash",
    "store": "memory:store",
    "cache": "memory:cache",
    "fsck": "checking:fsck",
    "repair": "repairing:repair",
    "quarantine": "undoing:quarantine",
    "stats": "figures:stats",
    "health": "upkeep:health",
    "doctor": "doctor:doctor",
    "report": "doctor:report",
    "metrics": "metrics:metrics",
    "monitor": "monitor:monitor",
    "setup": "upkeep:setup",
    "keys": "keys:keys",
    "tier": "tiering:tier",
    "copy": "copying:copy",
    "export": "archives:export",
    "import": "importing:import_threads",
    "backup": "archives:backup",
    "open": "archives:open_file",
    "web": "web:web",
    "demo": "app:demo",
}
# These open no store, or need no key of it.
_KEYLESS = frozenset(("demo", "health", "setup"))

KeyFile = Annotated[
    str | None,
    typer.Option("--key-file", metavar="FILE", help="Keys of an encrypted store, id:base64, the current one first."),
]


def run(arguments: Sequence[str] | None = None) -> int:
    """Run one command; 0 for done, 1 for what is not there, damaged or refused, 2 for what was asked wrongly."""
    for stream in (sys.stdout, sys.stderr):
        if hasattr(stream, "reconfigure"):
            # Names in a store may be in any script, and a terminal or pipe may know none of it.
            stream.reconfigure(errors="backslashreplace")
    typed = _command_first(sys.argv[1:] if arguments is None else list(arguments))
    is_named = bool(typed) and typed[0] in COMMANDS and "_THREADLINE_COMPLETE" not in os.environ
    app = make_app(typed[:1] if is_named else () if typed == ["--version"] else COMMANDS)
    try:
        with _retries_told():
            app(args=typed, prog_name="threadline")
    except ThreadlineError as error:
        complain(one_line(error))
        return 2 if isinstance(error, InvalidRequest) else 1
    except SystemExit as ended:
        return ended.code if isinstance(ended.code, int) else int(ended.code is not None)
    return 0


def make_app(names: Iterable[str]) -> typer.Typer:
    """The command line with some of its commands."""
    app = typer.Typer(
        help="Threadline: Git for agent state.",
        no_args_is_help=True,
        add_completion=True,
        # Plain text for help and usage errors too: it reads the same on a terminal and in a log.
        rich_markup_mode=None,
        pretty_exceptions_enable=False,
    )
    app.callback()(_options)
    for name in names:
        module, _, function = COMMANDS[name].partition(":")
        home = "threadline.cli" if module == "app" else "threadline.cli.commands"
        command = getattr(importlib.import_module(f"{home}.{module}"), function)
        app.command(name)(command if name in _KEYLESS else _taking_key_file(command))
    return app


def demo() -> None:
    """Show on a small agent what Threadline does; needs LangGraph."""
    from ..demo import run as show

    raise typer.Exit(show())


def _command_first(typed: list[str]) -> list[str]:
    """What was typed, with a --url that stands before the command's name behind it."""
    first = typed[0] if typed else ""
    count = 2 if first == "--url" else int(first.startswith("--url="))
    name = typed[count : count + 1]
    return [*name, *typed[:count], *typed[count + 1 :]] if name and name[0] in COMMANDS else typed


def _taking_key_file(command: Callable[..., None]) -> Callable[..., None]:
    """The command with --key-file as one more option."""

    @functools.wraps(command)
    def taking(*, key_file: str | None = None, **given: Any) -> None:
        token = KEY_FILE.set(key_file)
        try:
            command(**given)
        finally:
            KEY_FILE.reset(token)

    option = inspect.Parameter("key_file", inspect.Parameter.KEYWORD_ONLY, default=None, annotation=KeyFile)
    hints = get_type_hints(command, include_extras=True)
    own = [one.replace(annotation=hints[name]) for name, one in inspect.signature(command).parameters.items()]
    taking.__signature__ = inspect.Signature([*own, option])  # type: ignore[attr-defined]
    taking.__annotations__ = {**hints, "key_file": KeyFile}
    return taking


class _Complaints(logging.Handler):
    """Lines of the log as complaints."""

    def emit(self, record: logging.LogRecord) -> None:
        complain(one_line(Exception(record.getMessage())))


@contextmanager
def _retries_told() -> Iterator[None]:
    """Say that a server which does not answer is tried again: nobody should wait without knowing for what."""
    log, told = logging.getLogger("threadline.retry"), _Complaints()
    level = log.level
    log.addHandler(told)
    log.setLevel(logging.INFO)
    try:
        yield
    finally:
        log.removeHandler(told)
        log.setLevel(level)


def _print_version(wanted: bool) -> None:
    if wanted:
        from .. import __version__

        print(f"threadline {__version__}")
        raise typer.Exit()


def _options(
    version: Annotated[
        bool, typer.Option("--version", callback=_print_version, is_eager=True, help="Print the version and exit.")
    ] = False,
) -> None:
    """Threadline: Git for agent state."""
