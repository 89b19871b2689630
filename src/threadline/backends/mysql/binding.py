"""Values as MySQL's literals, rows as values, and what a column holds of a text.

Values are bound by us, as hexadecimal literals, which no character set or mode of a server can misread, so that both
drivers send the same and nothing is re-encoded. Every text is stored as the bytes of its UTF-8, so that no collation,
no NUL and no lone surrogate ever matters.

InnoDB's keys hold at most 3072 bytes, so a *keyed* text is stored twice at most: its column has the text itself while
that is short, else its head and a digest (`key_of`), and only then does `<column>_full` have the whole. Short texts,
which is all of them in practice, therefore keep their order; longer ones keep some order, the same in every page.
Checkpoint ids must be ordered exactly: they are limited.

In a statement `?` stands for a value, `?[<column>]` for the key of a text, and `?[<column>_full]` for its key and its
whole text.
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Callable, Sequence
from functools import lru_cache
from typing import Any

from ...errors import InvalidRequest
from ...ports.checkpoints import Change

__all__ = [
    "DIGEST_BYTES", "Expression", "ID_BYTES", "Insert", "KEYED", "bound", "bound_many", "bound_text", "check_ids",
    "encoded", "key_of", "with_text",
]  # fmt: skip

# How many bytes the keys take. With the numbers beside them they stay below InnoDB's 3072 in every table, and
# alone below max_sort_length (1024, less 2 for a length): what is longer would be sorted by its head only.
KEYED = {"thread_id": 1016, "name": 1016, "namespace": 500, "task_id": 400}
ID_BYTES = 1000
DIGEST_BYTES = 32

# Columns that hold text, as they are named in results; all others are bytes or numbers.
_TEXT_COLUMNS = frozenset((
    "channel", "checkpoint_id", "deleted_before", "forked_from", "id", "namespace_text", "parent", "run_id",
    "searchable", "source", "status", "tags", "task_id_text", "task_path", "thread_id_text",
))  # fmt: skip


class Expression(str):
    """SQL of our own that stands for a value, such as a variable of the session; never made of anything given."""

    __slots__ = ()


class Insert(str):
    """An INSERT of one row, and its parts, of which one of many rows is made."""

    head: str
    row: str
    tail: str

    def __new__(cls, head: str, row: str, tail: str = "") -> Insert:
        made = super().__new__(cls, head + row + tail)
        made.head, made.row, made.tail = head, row, tail
        return made


def bound(statement: str, values: Sequence[Any]) -> bytes:
    """A statement with its values, ready to be sent."""
    return bound_text(statement, values).encode()


def bound_many(statement: str, values: Sequence[Sequence[Any]], *, most_bytes: float = math.inf) -> list[bytes]:
    """The statements for several sets of values: inserts of many rows, or one statement for each."""
    if not isinstance(statement, Insert):
        return [bound(statement, each) for each in values]
    head, row, tail = statement.head, statement.row, statement.tail
    made: list[bytes] = []
    rows: list[str] = []
    size = 0
    for each in values:
        one = bound_text(row, each)
        if rows and size + len(one) > most_bytes - len(head) - len(tail):
            made.append(f"{head}{', '.join(rows)}{tail}".encode())
            rows, size = [], 0
        rows.append(one)
        size += len(one) + 2
    return [*made, f"{head}{', '.join(rows)}{tail}".encode()] if rows else made


def bound_text(statement: str, values: Sequence[Any]) -> str:
    """The same, as a part of another statement."""
    parts, kinds = _template(statement)
    made = [*parts]
    at = 1
    for kind, value in zip(kinds, values, strict=True):
        # What most values are is written here, without a call for each.
        exact = type(value)
        if kind is not None:
            made[at] = kind(value)
        elif exact is bytes:
            made[at] = f"X'{value.hex()}'"
        elif exact is str:
            made[at] = f"X'{value.encode('utf-8', 'surrogatepass').hex()}'"
        elif value is None:
            made[at] = "NULL"
        else:
            made[at] = _LITERALS[exact](value)
        at += 2
    return "".join(made)


@lru_cache(maxsize=1024)
def _template(statement: str) -> tuple[list[str], list[Callable[[str], str] | None]]:
    """The texts of a statement, each value's place between two of them; and for each that is keyed what writes it."""
    first, *others = statement.split("?")
    parts, kinds = [first], list[Callable[[str], str] | None]()
    for text in others:
        name, _, rest = text[1:].partition("]") if text.startswith("[") else ("", "", text)
        parts += ("", rest)
        kinds.append(_KEY_WRITERS[name] if name else None)
    return parts, kinds


def _key_writer(column: str, *, has_whole: bool) -> Callable[[str], str]:
    """What writes the key of a text, with its whole behind it where there is a column for that."""
    most, none = KEYED[column], ", NULL" if has_whole else ""

    def write(value: str) -> str:
        text = value.encode("utf-8", "surrogatepass")
        if len(text) < most:
            return f"X'{text.hex()}'{none}"
        return _of_bytes(key_of(column, text)) + (f", {_of_bytes(text)}" if has_whole else "")

    return write


_KEY_WRITERS = {f"{column}{end}": _key_writer(column, has_whole=bool(end)) for column in KEYED for end in ("", "_full")}


def _of_bytes(value: bytes | bytearray | memoryview) -> str:
    # Digits only: whatever character set or mode the server parses in, nothing can end the literal.
    return f"X'{value.hex()}'"


def _of_text(value: str) -> str:
    return f"X'{value.encode('utf-8', 'surrogatepass').hex()}'"


def _of_real(value: float) -> str:
    if value - value != 0:
        raise InvalidRequest("MySQL has no column for numbers such as infinity")
    # An exponent makes it a double; without one it would be a decimal.
    text = repr(value)
    return text if "e" in text else f"{text}e0"


class _Literals(dict[type, Callable[[Any], str]]):
    """How values of a type are written."""

    def __missing__(self, kind: type) -> Callable[[Any], str]:
        for known, write in self.items():
            if issubclass(kind, known):
                return write
        raise InvalidRequest(f"MySQL has no column for {kind.__name__} values such as this one")


_LITERALS = _Literals(
    {
        Expression: str,
        str: _of_text,
        bytes: _of_bytes,
        bytearray: _of_bytes,
        memoryview: _of_bytes,
        int: int.__repr__,
        float: _of_real,
        type(None): lambda _: "NULL",
    }
)


def with_text(result: Any) -> list[Any]:
    """The rows of a driver's result; columns that hold text are text."""
    positions = [at for at, column in enumerate(result.description) if column[0] in _TEXT_COLUMNS]
    if not positions:
        return list(result.rows)
    made = [list(row) for row in result.rows]
    for row in made:
        for at in positions:
            if row[at] is not None:
                row[at] = row[at].decode("utf-8", "surrogatepass")
    return made


def key_of(column: str, text: bytes) -> bytes:
    """What a keyed column holds for a text: itself, or its head and digest, which no short text can equal."""
    most = KEYED[column]
    if len(text) < most:
        return text
    return text[: most - DIGEST_BYTES] + hashlib.blake2b(text, digest_size=DIGEST_BYTES).digest()


def check_ids(change: Change) -> None:
    """Refuse checkpoint ids that their key could not hold whole."""
    ids = [id for row in change.checkpoints for id in (row.id, row.parent) if id is not None]
    for id in ids + [write.checkpoint_id for write in change.writes]:
        if len(id) * 4 > ID_BYTES and len(encoded(id)) > ID_BYTES:
            raise InvalidRequest(f"a checkpoint id may take {ID_BYTES} bytes on MySQL, not {len(encoded(id))}")


def encoded(text: str) -> bytes:
    """A text as it is stored."""
    return text.encode("utf-8", "surrogatepass")
