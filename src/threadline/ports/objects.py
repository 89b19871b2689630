"""The Objects port: immutable objects by name, outside the database; and how the layer of a cold tier is reached.

Promises:
  - An object is written once and never changed; writing the same bytes again is harmless.
  - What `put` acknowledged is stored as durably as the object store stores anything, and can be read from then on.
  - No call needs a condition or a listing.
  - Methods are coroutines that a blocking implementation finishes without suspending.
  - An object that is not there is an answer. A store that does not answer, a bucket that does not exist and keys that
    are refused raise `Unavailable`, which names the object and never a key.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple, Protocol

from .checkpoints import ChunkRow

__all__ = ["ALTERED", "Absence", "GONE", "Lost", "Objects", "Span", "Tier", "absence_of", "tier_of", "why_lost"]

Span = tuple[int, int]  # offset, length
# The fate of an object that is not there, and of one that is not what it was.
GONE = "is gone"
ALTERED = "was altered or cut short"


class Absence(NamedTuple):
    """An object that does not have what a row says it has: its name, where it should be, and what became of it."""

    name: str
    where: str
    fate: str


class Lost:
    """Stands in a row for bytes that their object does not have any more; `why` ends the sentence "the chunk …"."""

    __slots__ = ("absence", "why")

    def __init__(self, why: str, absence: Absence | None = None) -> None:
        self.why, self.absence = why, absence

    def __repr__(self) -> str:
        return f"<lost: {self.why}>"


class Objects(Protocol):
    """Where objects are; see the promises at the head of this file."""

    # The place as errors and pages name it, without keys.
    where: str

    async def put(self, name: str, content: bytes) -> None:
        """Store an object."""

    async def read(self, name: str, spans: Sequence[Span], *, is_fresh: bool = False) -> list[bytes] | None:
        """These parts of an object, in as few requests as neighbours allow; None where there is no such object.

        Of an object that was cut, a part may be shorter than asked for. With `is_fresh` no cache answers.
        """

    async def size(self, name: str) -> int | None:
        """How many bytes an object has; None without it."""

    async def delete(self, names: Sequence[str]) -> None:
        """Delete objects; those that are not there do no harm."""


class Tier(Protocol):
    """A backend with a cold tier, as those see it who move chunks: rows as they are stored, and the objects."""

    objects: Objects

    async def stored_chunks(self, pool: int, digests: Sequence[bytes]) -> list[tuple[bytes, bytes, int, bytes]]:
        """`chunks` as they are in the database: cold ones hold references."""

    async def swap_chunks(self, pool: int, rows: Sequence[tuple[ChunkRow, ChunkRow]]) -> None:
        """`rewrap` of rows as they are in the database."""


def absence_of(content: Any) -> Absence | None:
    """The object that does not have the bytes of a row any more; None for bytes."""
    return content.absence if isinstance(content, Lost) else None


def tier_of(backend: Any) -> Tier | None:
    """The cold tier of a backend, however many layers are over it; None without one."""
    found: Tier | None = getattr(backend, "tier", None)
    return found


def why_lost(content: Any) -> str | None:
    """Why the bytes of a row are lost; None for bytes."""
    return content.why if isinstance(content, Lost) else None
