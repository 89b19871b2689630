"""A value as a small tree of texts, cut where it is long: what a page lays out. Nothing of it is markup."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from ..base.printable import about_digits, printable, shown
from ..codec import StoredException
from ..codec.structural import Structure
from .parts import Large
from .values import Damaged, plain, text_of

__all__ = ["Shape", "json_text", "legible", "shape_of"]

# Characters of a text, and of one that is shown alone: browsers lay out no more in reasonable time.
_MOST_TEXT, _MOST_WHOLE = 2_000, 1_000_000
_MOST_ITEMS = 12
_DEEPEST = 4
_MOST_BITS = 1024
# Joins the parts of one emoji; every other invisible sign is escaped.
_JOINER = "\u200d"


@dataclass(frozen=True, slots=True)
class Shape:
    """A value to lay out: a text, or entries with labels."""

    kind: str  # text, plain, list, dict, object, bytes, large, damaged or deeper
    text: str = ""
    # The name of a type, where the value is an object.
    name: str = ""
    entries: tuple[tuple[str, Shape], ...] = ()
    # How many characters or entries are left out.
    left_out: int = 0


def legible(text: str) -> str:
    """A text with its line breaks, in which everything else that is not to be seen is escaped."""
    return "\n".join(_line(line) for line in text.split("\n"))


def _line(line: str) -> str:
    if line.isprintable():
        return line
    return "".join(char if char.isprintable() or char in ("\t", _JOINER) else printable(char) for char in line)


def json_text(value: Any) -> str:
    """A value as JSON that people read and edit; what JSON has no form for is an object with `$type`."""
    return json.dumps(plain(value), indent=2, ensure_ascii=False)


def shape_of(value: Any, *, whole: bool = False, depth: int = 0) -> Shape:
    """The shape of a value, cut unless `whole`."""
    if isinstance(value, Damaged):
        return Shape("damaged", printable(value.why))
    if isinstance(value, Large):
        return Shape("large", legible(value.beginning), value.what)
    if isinstance(value, str):
        most = _MOST_WHOLE if whole else _MOST_TEXT
        return Shape("text", legible(value[:most]), left_out=max(len(value) - most, 0))
    if value is None or isinstance(value, (bool, int, float)):
        return Shape("plain", _number(value))
    if isinstance(value, (bytes, bytearray)):
        return Shape("bytes", bytes(value[:48]).hex(" "), f"{len(value):,} bytes", left_out=max(len(value) - 48, 0))
    if isinstance(value, StoredException):
        return Shape("object", legible(value.message), value.type_name)
    if isinstance(value, Structure):
        return _object(value, whole, depth)
    if isinstance(value, (list, tuple, set, frozenset)):
        pairs = [(str(at), item) for at, item in enumerate(value)]
        return _entries("list", pairs, whole, depth, "" if isinstance(value, list) else type(value).__name__)
    if isinstance(value, Mapping):
        return _entries("dict", [(_key(key), item) for key, item in value.items()], whole, depth)
    return Shape("plain", printable(text_of(value))[:_MOST_TEXT], type(value).__name__)


def _object(value: Structure, whole: bool, depth: int) -> Shape:
    name = printable(value.type_name)
    fields = value.fields
    if fields is None:
        inner = shape_of(value.shown, whole=whole, depth=depth + 1)
        return Shape("object", "", name, (("", inner),))
    # Messages have a dozen fields that are mostly empty.
    is_message = value.type_name.startswith("langchain_core.messages.")
    told = [(_key(key), item) for key, item in fields.items() if not is_message or _says_something(item)]
    return _entries("object", told, whole, depth, name)


def _says_something(value: Any) -> bool:
    return value is not None and value is not False and value not in ("", [], {})


def _entries(kind: str, pairs: list[tuple[str, Any]], whole: bool, depth: int, name: str = "") -> Shape:
    if depth >= _DEEPEST and pairs:
        return Shape("deeper", f"{len(pairs):,} more", name)
    most = 20 * _MOST_ITEMS if whole else _MOST_ITEMS
    shown = tuple((label, shape_of(item, whole=whole, depth=depth + 1)) for label, item in pairs[:most])
    return Shape(kind, "", name, shown, max(len(pairs) - most, 0))


def _number(value: Any) -> str:
    if value is None:
        return "null"
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, float) and not math.isfinite(value):
        return repr(value)
    if isinstance(value, int) and value.bit_length() > _MOST_BITS:
        return about_digits(value)
    return repr(value)


def _key(key: Any) -> str:
    return printable(key if isinstance(key, str) else shown(key))[:200]
