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
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from datetime import datetime, timezone
from typing import Annotated, Any

import typer
from rich.cells import cell_len
from rich.console import Console
from rich.text import Text

from ..core.policy import Policy, seconds_of

# Names in a store may be anybody's, and a terminal obeys what it is shown.
from ..printable import printable as clean

__all__ = [
    "AsJson",
    "At",
    "Namespace",
    "ThreadId",
    "TrashSpan",
    "Url",
    "Yes",
    "clean",
    "complain",
    "counted",
    "iso_time",
    "moment_of",
    "one_line",
    "paged",
    "print_facts",
    "print_json",
    "print_line",
    "print_rows",
    "print_wrapped_facts",
    "progress_bar",
    "readable_bytes",
    "readable_time",
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
    """The same, uncut: on a terminal a long value goes on below itself."""
    width = max(cell_len(clean(name)) for name, _ in facts)
    columns = screen_width()
    for name, value in facts:
        lines = [clean(value)]
        if columns is not None:
            lines = [part.plain for part in Text(lines[0]).wrap(Console(), max(columns - width - 2, 20))] or [""]
        for place, line in enumerate(lines):
            print_line((_padded("" if place else clean(name), width), "bold"), ("  ", ""), (line, ""), is_cut=False)


def print_rows(rows: Sequence[Sequence[str]], styles: Sequence[str] = (), *, numbers: Sequence[int] = ()) -> None:
    """Rows of columns beneath each other, `numbers` to the right; the last is cut where a terminal ends."""
    cleaned = [[clean(cell) for cell in row] for row in rows]
    widths = [max(map(cell_len, column)) for column in zip(*cleaned, strict=True)]
    for row in cleaned:
        parts = []
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


def print_json(value: Any) -> None:
    """A value for programs."""
    print(json.dumps(value, indent=2))


def screen_width() -> int | None:
    """How many columns the terminal has; None where output goes into a pipe or a file, which has no end."""
    console = _pager or Console()
    return console.width if console.is_terminal else None


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


def complain(sentence: str) -> None:
    """One line on standard error."""
    Console(stderr=True, highlight=False, emoji=False, markup=False).print(
        Text.assemble(("threadline: ", "bold red"), clean(sentence)), soft_wrap=True
    )


def one_line(error: BaseException) -> str:
    """An error without line breaks and without passwords; what it tells callers to do, as a command does it."""
    return without_password(_as_typed(" ".join(str(error).split()))) or type(error).__name__


def _as_typed(sentence: str) -> str:
    """A sentence that names options as they are typed: --keep-last, where Python has keep_last."""
    names = "|".join(one.name for one in dataclasses.fields(Policy))
    sentence = re.sub(rf"\b(?:{names})\b", lambda found: f"--{found[0].replace('_', '-')}", sentence)
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


def readable_bytes(count: float) -> str:
    """A number of bytes as people say it: `6.4 MB`."""
    if count < 1000:
        return f"{count:,.0f} {'byte' if count == 1 else 'bytes'}"
    units = ["KB", "MB", "GB", "TB"]
    power = next((power for power in range(len(units)) if count < 1000 ** (power + 2)), len(units) - 1)
    return f"{count / 1000 ** (power + 1):,.1f} {units[power]}"


def counted(count: int, noun: str) -> str:
    """A number of things: `1 checkpoint`, `2,000 checkpoints`."""
    return f"{count:,} {noun}{'' if count == 1 else 's'}"


def readable_time(seconds: float) -> str:
    """A moment, in UTC and to the second."""
    return datetime.fromtimestamp(seconds, timezone.utc).strftime("%Y-%m-%d %H:%M:%SZ")


def moment_of(text: str | None, option: str) -> float | None:
    """A time that was typed: a span that ends now, such as 7d, or a time such as 2026-01-31T12:00."""
    if text is None:
        return None
    try:
        return datetime.fromisoformat(text.replace("Z", "+00:00")).timestamp()
    except ValueError:
        span = seconds_of(text, option)
        assert span is not None
        return time.time() - span


def iso_time(seconds: float | None) -> str | None:
    """A moment for programs, as ISO 8601 has it."""
    return None if seconds is None else datetime.fromtimestamp(seconds, timezone.utc).isoformat()


def without_password(text: str) -> str:
    """A text in which the passwords of URLs are stars, wherever a URL has them."""
    text = re.sub(r"(\w://[^\s:/@]*:)[^\s@]+@", r"\1***@", text)
    return re.sub(r"(?i)([?&](?:ssl)?password=)[^\s&]+", r"\1***", text)


def _padded(text: str, width: int) -> str:
    return text + " " * (width - cell_len(text))
