"""What commands put on the terminal, and what they share: options, figures, complaints.

Results go to standard output, everything else to standard error. Colours and progress bars are for
terminals; in a pipe or a log there is plain text, one fact a line.
"""

from __future__ import annotations

import dataclasses
import json
import os
import re
import shutil
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from typing import Annotated, Any

import typer
from rich.cells import cell_len
from rich.console import Console
from rich.text import Text

# Names in a store may be anybody's, and a terminal obeys what it is shown.
from ..base.printable import printable as clean
from ..core.retention.policy import Policy
from ..show.figures import counted, iso_time, moment_of, readable_bytes, readable_time, without_password

__all__ = [
    "AsJson",
    "At",
    "Namespace",
    "ThreadId",
    "TrashSpan",
    "Url",
    "Yes",
    "as_typed",
    "clean",
    "complain",
    "counted",
    "hint_filter",
    "iso_time",
    "moment_of",
    "one_line",
    "paged",
    "print_facts",
    "print_json",
    "print_line",
    "print_none",
    "print_rows",
    "print_wrapped_facts",
    "progress_bar",
    "readable_bytes",
    "readable_time",
    "remark",
    "screen_width",
    "without_password",
]

Url = Annotated[
    str,
    typer.Option(
        "--url", envvar="THREADLINE_URL", metavar="URL", help="The store, such as sqlite:///agents.db or a path."
    ),
]
AsJson = Annotated[bool, typer.Option("--json", help="Print JSON, for programs.")]
ThreadId = Annotated[str, typer.Argument(metavar="THREAD", help="The thread's id.")]
At = Annotated[
    str | None,
    typer.Argument(
        metavar="AT",
        help="A checkpoint: head, head~2, a tag, the beginning of an id, step:4 or a time. The newest unless given.",
        show_default=False,
    ),
]
Namespace = Annotated[
    str, typer.Option("--ns", metavar="NAMESPACE", help="The namespace of a subgraph.", show_default=False)
]
TrashSpan = Annotated[
    str | None,
    typer.Option("--trash", metavar="SPAN", help="Keep what goes restorable for so long, such as 7d."),
]
Yes = Annotated[bool, typer.Option("--yes", help="Do it; without this, only tell what would be done.")]


def print_facts(facts: Sequence[tuple[str, str]], *, is_cut: bool = False) -> None:
    """Names and values, one a line, values beneath each other; an empty name continues the line before."""
    width = max(cell_len(clean(name)) for name, _ in facts)
    for name, value in facts:
        print_line((_padded(clean(name), width), "bold"), ("  ", ""), (value, ""), is_cut=is_cut)


def print_wrapped_facts(facts: Sequence[tuple[str, str]]) -> None:
    """Names and values, one a line, uncut: on a terminal a long value goes on below itself."""
    width = max(cell_len(clean(name)) for name, _ in facts)
    columns = screen_width()
    for name, value in facts:
        lines = [clean(value)]
        if columns is not None:
            lines = [part.plain for part in Text(lines[0]).wrap(Console(), max(columns - width - 2, 20))] or [""]
        for place, line in enumerate(lines):
            print_line((_padded("" if place else clean(name), width), "bold"), ("  ", ""), (line, ""), is_cut=False)


def print_rows(rows: Sequence[Sequence[str]], styles: Sequence[str] = (), *, numbers: Sequence[int] = ()) -> None:
    """Rows of columns beneath each other, `numbers` to the right; the last is cut where a terminal ends.

    Where all others do not fit, a long first cell has a line of its own, and the rest of its row is below it.
    """
    cleaned = [[clean(cell) for cell in row] for row in rows]
    widths = [max(map(cell_len, column)) for column in zip(*cleaned, strict=True)]
    columns = screen_width()
    if columns is not None and sum(widths[:-1]) + 2 * len(widths[1:-1]) > columns:
        widths[0] = min(widths[0], max(columns - sum(widths[1:-1]) - 2 * len(widths[1:-1]), _NARROWEST))
    for row in cleaned:
        parts = []
        if cell_len(row[0]) > widths[0]:
            print_line((row[0], styles[0] if styles else ""), is_cut=False)
            row = ["", *row[1:]]
        for place, (cell, width) in enumerate(zip(row, widths, strict=True)):
            padded = " " * (width - cell_len(cell)) + cell if place in numbers else _padded(cell, width)
            parts += [(padded, styles[place] if place < len(styles) else ""), ("  ", "")]
        print_line(*parts)


def print_line(*parts: tuple[str, str], is_cut: bool = True) -> None:
    """One line of texts and their styles; on a terminal it ends with … where it is too long."""
    console = _pager or Console(highlight=False, emoji=False, markup=False)
    line = Text.assemble(*((clean(text), style) for text, style in parts))
    line.rstrip()
    if is_cut and console.is_terminal:
        line.truncate(console.width, overflow="ellipsis")
    console.print(line, soft_wrap=True)


def print_none(sentence: str) -> None:
    """That a list is empty, for people: in a pipe an empty list is no line."""
    if screen_width() is not None:
        print_line((sentence, "dim"))


def print_json(value: Any) -> None:
    """A value for programs."""
    print(json.dumps(value, indent=2))


def screen_width() -> int | None:
    """How many columns the terminal has; None where output goes into a pipe or a file, which has no end."""
    console = _pager or Console()
    return console.width if console.is_terminal else None


# The least that a first column has on a terminal.
_NARROWEST = 12
# What lines go to while they are shown page by page.
_pager: Console | None = None


@contextmanager
def paged() -> Iterator[None]:
    """Show what the block prints page by page, by $PAGER or less, where people sit before a terminal."""
    global _pager
    command = os.environ.get("PAGER", "").strip() or shutil.which("less") or ""
    console = Console()
    if (
        command == "cat"
        or not (console.is_terminal and sys.stdin.isatty() and sys.stdout.isatty() and command)
        or console.is_dumb_terminal
    ):
        yield
        return
    import subprocess

    # As git has it: what fits the screen is shown at once, colours stay, the screen is not cleared.
    settings = {**os.environ, "LESS": os.environ.get("LESS", "FRX")}
    with subprocess.Popen(command, shell=True, stdin=subprocess.PIPE, env=settings, text=True) as process:
        stream = process.stdin
        assert stream is not None
        _pager = Console(
            file=stream, force_terminal=True, width=console.width, highlight=False, emoji=False, markup=False
        )
        try:
            yield
        except BrokenPipeError:
            pass  # the reader has seen enough
        finally:
            _pager = None
            with suppress(BrokenPipeError):
                stream.close()


def hint_filter(filters: Sequence[str] | None, found: Sequence[Any]) -> None:
    """Say what --filter looks at, where it matched nothing."""
    if filters and not found:
        complain("--filter looks at the metadata of threads (thread(...).create(metadata=...)), not at that of runs")


def complain(sentence: str) -> None:
    """One line on standard error."""
    Console(stderr=True, highlight=False, emoji=False, markup=False).print(
        Text.assemble(("threadline: ", "bold red"), clean(sentence)), soft_wrap=True
    )


def remark(sentence: str) -> None:
    """One line on standard error that is no complaint."""
    Console(stderr=True, highlight=False, emoji=False, markup=False).print(
        Text(f"threadline: {clean(sentence)}", "dim"), soft_wrap=True
    )


def one_line(error: BaseException) -> str:
    """An error without line breaks and without passwords; what it tells callers to do, as a command does it."""
    return without_password(as_typed(" ".join(str(error).split()))) or type(error).__name__


def as_typed(sentence: str) -> str:
    """A sentence that names options and commands as they are typed: --keep-last, where Python has keep_last."""
    sentence = sentence.replace("exact=False", "--inexact")
    # `trash` is also a word and a command; as an option it stands at the beginning, with what it is.
    names = "|".join(one.name if "_" in one.name else f"^{one.name}(?= is )" for one in dataclasses.fields(Policy))
    sentence = re.sub(rf"\b(?:{names})\b", lambda found: f"--{found[0].replace('_', '-')}", sentence)
    if re.fullmatch(r"there is no thread (['\"]).*\1", sentence):
        sentence += "; `threadline threads` lists those there are"
    return re.sub(r"call setup\(\) once(, or open it with setup='create')?", "`threadline setup` makes them", sentence)


@contextmanager
def progress_bar(title: str) -> Iterator[Callable[[int, int], None] | None]:
    """A function that moves a bar, called with what is done and the total; None where nobody watches."""
    if not sys.stderr.isatty():
        yield None
        return
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

    columns = (TextColumn(title), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
    with Progress(*columns, console=Console(stderr=True), transient=True) as bar:
        task = bar.add_task(title, total=None)
        yield lambda done, total: bar.update(task, completed=done, total=total)


def _padded(text: str, width: int) -> str:
    return text + " " * (width - cell_len(text))
