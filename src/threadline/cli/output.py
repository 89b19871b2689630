"""What commands put on the terminal, and what they share: options, figures, complaints.

Results go to standard output, everything else to standard error. Colours and progress bars are for
terminals; in a pipe or a log there is plain text, one fact a line.
"""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Annotated, Any

import typer
from rich.console import Console
from rich.text import Text

__all__ = [
    "AsJson",
    "Url",
    "complain",
    "one_line",
    "print_facts",
    "print_json",
    "progress_bar",
    "readable_bytes",
    "without_password",
]

Url = Annotated[
    str,
    typer.Option(
        "--url", envvar="THREADLINE_URL", metavar="URL", help="The store, such as sqlite:///agents.db or a path."
    ),
]
AsJson = Annotated[bool, typer.Option("--json", help="Print JSON, for programs.")]


def print_facts(facts: Sequence[tuple[str, str]]) -> None:
    """Names and values, one a line, values beneath each other; an empty name continues the line before."""
    console = Console(highlight=False, emoji=False, markup=False)
    width = max(len(name) for name, _ in facts)
    for name, value in facts:
        line = Text.assemble((name.ljust(width), "bold"), "  ", value)
        line.rstrip()
        console.print(line, soft_wrap=True)


def print_json(value: Any) -> None:
    """A value for programs."""
    print(json.dumps(value, indent=2))


def complain(sentence: str) -> None:
    """One line on standard error."""
    Console(stderr=True, highlight=False, emoji=False, markup=False).print(
        Text.assemble(("threadline: ", "bold red"), sentence), soft_wrap=True
    )


def one_line(error: BaseException) -> str:
    """An error without line breaks and without passwords."""
    return without_password(" ".join(str(error).split())) or type(error).__name__


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
        return f"{count:,.0f} bytes"
    units = ["KB", "MB", "GB", "TB"]
    power = next((power for power in range(len(units)) if count < 1000 ** (power + 2)), len(units) - 1)
    return f"{count / 1000 ** (power + 1):,.1f} {units[power]}"


def without_password(text: str) -> str:
    """A text in which the passwords of URLs are stars, wherever a URL has them."""
    text = re.sub(r"(\w://[^\s:/@]*:)[^\s@]+@", r"\1***@", text)
    return re.sub(r"(?i)([?&](?:ssl)?password=)[^\s&]+", r"\1***", text)
