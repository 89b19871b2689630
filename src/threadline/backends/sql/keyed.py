"""Indexes on the metadata keys that `index_metadata` names: which keys may have one, and what it is called.

An index on an expression serves only statements that hold the very same expression, so here, and nowhere else, a
key becomes part of a statement: none but letters, digits, `_` and `-` pass. Other keys, and those with a column of
their own, are looked for without an index of this kind. The index holds the id too: a page is read from its end.
"""

from __future__ import annotations

import re
from collections.abc import Iterable

from ...codec.hashing import blake2b

__all__ = ["index_name", "indexed_keys"]

_PLAIN_KEY = re.compile(r"[A-Za-z0-9_-]{1,200}")
_OWN_COLUMNS = frozenset(("run_id", "source", "step"))


def indexed_keys(named: Iterable[str]) -> tuple[str, ...]:
    """The keys among these that get an index, in an order that every process has."""
    return tuple(sorted({key for key in named if _PLAIN_KEY.fullmatch(key)} - _OWN_COLUMNS))


def index_name(prefix: str, key: str) -> str:
    """A name that fits every database, however long the key."""
    return f"{prefix}found_by_{blake2b(key.encode(), digest_size=4).hexdigest()}"
