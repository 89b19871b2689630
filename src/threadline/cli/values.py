"""A channel's value on a terminal: on one line, or its items below its name."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any

import typer

from ..codec.structural import Structure
from ..show.values import one_line_of
from .output import print_line, screen_width

__all__ = ["Reveal", "print_value"]


def _reveal(wanted: bool) -> bool:
    Structure.reveals_secrets = wanted
    return wanted


Reveal = Annotated[
    bool, typer.Option("--reveal", callback=_reveal, help="Show secrets (SecretStr, SecretBytes), not their masks.")
]

# A list or dict that is longer shows its two ends on a terminal.
_MOST_ITEMS = 20
_FIRST, _LAST = 12, 5


def print_value(name: str, value: Any, *, everything: bool = False) -> None:
    """A channel: its value behind its name, or its items below it. On a terminal long ones are cut."""
    items = _items(value)
    if not items:
        print_line((name, "bold"), ("  ", ""), (one_line_of(value), ""), is_cut=not everything)
        return
    kind = type(value).__name__
    print_line((name, "bold"), (f"  {kind} of {len(items):,}", "dim"))
    for line in items if everything or screen_width() is None else _ends(items):
        print_line(("  ", ""), (line, ""), is_cut=not everything)


def _items(value: Any) -> list[str]:
    if isinstance(value, (list, tuple)):
        return [f"[{place}] {one_line_of(item)}" for place, item in enumerate(value)]
    if isinstance(value, Mapping):
        return [f"{one_line_of(key)}: {one_line_of(item)}" for key, item in value.items()]
    return []


def _ends(lines: list[str]) -> list[str]:
    if len(lines) <= _MOST_ITEMS:
        return lines
    left_out = len(lines) - _FIRST - _LAST
    return [*lines[:_FIRST], f"… {left_out:,} more (--all shows them)", *lines[-_LAST:]]
