"""What the demo puts on the terminal, and the rule that makes it worth reading.

The rule: a claim is printed with a tick only after it was checked; one that does
not hold ends the demo. Eighty columns; colours on a terminal, plain text in a pipe.
"""

from __future__ import annotations

import textwrap
from collections.abc import Sequence

from rich.console import Console
from rich.rule import Rule
from rich.table import Table
from rich.text import Text

__all__ = ["ClaimFailed", "Screen", "WIDTH", "readable_bytes", "shorten"]

WIDTH = 80
BRANCH_COLOURS = ("cyan", "magenta", "green", "blue")


class ClaimFailed(Exception):
    """Something the demo promises did not happen."""


class Screen:
    """The terminal, with the few shapes that the story is told in."""

    def __init__(self, console: Console | None = None) -> None:
        console = console or Console(highlight=False, emoji=False, markup=False)
        console.width = min(console.width, WIDTH)
        self._console = console
        self._tick = "✓" if console.encoding.lower().startswith("utf") else "ok"
        self._acts = 0
        self.claims = 0

    def act(self, title: str, sentence: str) -> None:
        """Open a section: its title, and what it is about."""
        self._acts += 1
        heading = Text(f"{self._acts}. {title}", style="bold cyan")
        self._console.print()
        self._console.print(Rule(heading, align="left", style="cyan"))
        self._print_wrapped("", sentence, style="dim")
        self._console.print()

    def say(self, sentence: str = "", style: str = "") -> None:
        """A line of its own."""
        self._print_wrapped("", sentence, style)

    def code(self, *lines: str) -> None:
        """Lines of Python, never wrapped."""
        for line in lines:
            self._console.print(Text(f"    {line}", style="bold"), soft_wrap=True)

    def chat(self, speaker: str, words: str) -> None:
        """One message of a conversation."""
        style = "bold yellow" if speaker == "you" else "bold blue"
        self._print_wrapped(f"{speaker:>7}  ", words, label_style=style)

    def claim(self, holds: bool, sentence: str) -> None:
        """Print a sentence that was checked.

        Raises ClaimFailed with that sentence when it does not hold.
        """
        if not holds:
            raise ClaimFailed(f"this should hold and does not: {sentence}")
        self.claims += 1
        self._print_wrapped(f"{self._tick} ", sentence, label_style="bold green")

    def table(self, header: Sequence[str], rows: Sequence[Sequence[str]], right: int = 0) -> None:
        """A table without a frame; the last `right` columns hold figures."""
        table = Table(box=None, padding=(0, 2, 0, 0), header_style="bold", pad_edge=False)
        for place, name in enumerate(header):
            is_figure = place >= len(header) - right
            table.add_column(name, justify="right" if is_figure else "left")
        for row in rows:
            table.add_row(*row)
        self._console.print(table)

    def branch(self, rails: str, columns: Sequence[tuple[str, str]], rail_width: int) -> None:
        """A line of a tree: its rails, each in its colour, then styled columns of text."""
        line = Text(no_wrap=True)
        for place, rail in enumerate(rails):
            line.append(rail, style=BRANCH_COLOURS[place // 2 % len(BRANCH_COLOURS)])
        line.append(" " * (rail_width - len(rails)))
        for words, style in columns:
            line.append(f" {words}", style=style)
        line.rstrip()
        self._console.print(line, soft_wrap=True)

    def _print_wrapped(self, label: str, words: str, style: str = "", label_style: str = "") -> None:
        """Words beside a label, wrapped without the blanks that rich leaves at line ends."""
        lines = textwrap.wrap(words, self._console.width - len(label)) or [""]
        beside = f"\n{' ' * len(label)}".join(lines)
        self._console.print(Text.assemble((label, label_style), (beside, style)), soft_wrap=True)


def shorten(words: str, width: int) -> str:
    """The words, or as many characters of them as fit, with dots for the rest."""
    return words if len(words) <= width else f"{words[: width - 3].rstrip()}..."


def readable_bytes(count: int) -> str:
    """A number of bytes as people say it: `6.4 MB`."""
    return f"{count / 1e6:,.1f} MB" if count >= 1_000_000 else f"{count / 1e3:,.0f} KB"
