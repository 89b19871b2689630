"""Differences for people: short lines for a terminal, a table for a notebook. Values are cut, never left raw."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from html import escape
from reprlib import Repr
from typing import TYPE_CHECKING, Any

from ..base.checkpoint import Config
from ..base.printable import MOST_BITS, shown
from ..core.history.diff import id_of

if TYPE_CHECKING:
    from ..core.history.diff import ChannelDiff, ItemChange

__all__ = ["as_html", "as_lines"]

_SIGNS = {"added": "+", "removed": "-", "changed": "~", "damaged": "!"}
_ARROW = " → "


def as_lines(channels: Iterable[ChannelDiff]) -> Iterator[str]:
    """One line for each channel and each item: `+` added, `-` removed, `~` changed."""
    for channel in channels:
        line = f"{_SIGNS[channel.kind]} {_printable(channel.channel)}"
        if channel.kind == "damaged":
            yield f"{line}: [damaged]"
        elif channel.items is None:
            yield f"{line}: {_ARROW.join(_sides(channel))}"
        else:
            yield line if channel.items else f"{line}: the same items in another order"
            for item in channel.items:
                yield f"  {_SIGNS[item.kind]} {_label(item)}{_ARROW.join(_sides(item))}"


def as_html(a: Config, b: Config, channels: Sequence[ChannelDiff]) -> str:
    """A table; everything that was stored is escaped."""
    rows = [f"<tr><td colspan='4'>{_place(a)}{_ARROW}{_place(b)}</td></tr>"]
    for channel in channels:
        name = escape(_printable(channel.channel))
        if channel.kind == "damaged":
            rows.append(_row(_SIGNS[channel.kind], f"<b>{name}</b>", ["[damaged]"]))
            continue
        if not channel.items:
            sides = _sides(channel) if channel.items is None else ["the same items in another order"]
            rows.append(_row(_SIGNS[channel.kind], f"<b>{name}</b>", sides))
            continue
        rows.append(_row(_SIGNS[channel.kind], f"<b>{name}</b>", []))
        rows.extend(_row(_SIGNS[item.kind], escape(_label(item)), _sides(item)) for item in channel.items)
    if not channels:
        rows.append("<tr><td colspan='4'>nothing differs</td></tr>")
    return f"<table>{''.join(rows)}</table>"


def _row(sign: str, label: str, sides: list[str]) -> str:
    cells = "".join(f"<td><code>{escape(side)}</code></td>" for side in sides)
    return f"<tr><td>{sign}</td><td>{label}</td>{cells}</tr>"


def _place(config: Config) -> str:
    named = config["configurable"]
    parts = (named["thread_id"], named["checkpoint_ns"], named["checkpoint_id"])
    return escape(" / ".join(_printable(part) for part in parts if part))


def _sides(change: ChannelDiff | ItemChange) -> list[str]:
    """What there was and what there is, as far as there is either."""
    before = [] if change.kind == "added" else [_short(change.before)]
    return before if change.kind == "removed" else [*before, _short(change.after)]


def _label(item: ItemChange) -> str:
    """The key of an item, or else its id."""
    if item.key is not None:
        return f"[{_short(item.key)}] "
    name: Any = id_of(item.before if item.kind == "removed" else item.after)
    return f"id {_printable(str(name[1]))[:60]} " if name is not None else ""


def _short(value: Any) -> str:
    return _printable(_shortener.repr(value))


def _printable(text: str) -> str:
    """Text without what a terminal would obey."""
    return text if text.isprintable() else "".join(char if char.isprintable() else "\ufffd" for char in text)


class _Shortener(Repr):
    def repr_int(self, x: int, level: int) -> str:
        return shown(x) if x.bit_length() > MOST_BITS else super().repr_int(x, level)


_shortener = _Shortener()
_shortener.maxstring = _shortener.maxother = 100
_shortener.maxlevel = 3
