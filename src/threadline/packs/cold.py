"""Cold rows: chunks whose bytes are in an object.

The row of a cold chunk keeps its digest and links. Its form is the form it had with bit 30 set, so that key numbers
stay visible. Its data is a reference of 36 bytes: the name of the object (16), offset (8) and length (4) of the stored
bytes in it, and their BLAKE2b digest of 8 bytes. So history is walked and collected without reading any object.
"""

from __future__ import annotations

from typing import Any, NamedTuple

from ..base.hashing import blake2b
from ..errors import Corrupt
from ..ports.checkpoints import ChunkRow
from .format import NAME_BYTES

__all__ = [
    "COLD",
    "REFERENCE_BYTES",
    "Reference",
    "cold_row",
    "fits",
    "hot_form",
    "is_cold",
    "is_reference",
    "read_reference",
]

_SHIFT = 30
COLD = 1 << _SHIFT
_CHECK_BYTES = 8
REFERENCE_BYTES = NAME_BYTES + 8 + 4 + _CHECK_BYTES
_CHECK = blake2b(digest_size=_CHECK_BYTES, person=b"cold")


class Reference(NamedTuple):
    """Where the stored bytes of a cold chunk are."""

    name: bytes
    offset: int
    length: int
    check: bytes

    @property
    def object_name(self) -> str:
        """The name of the object, as an object store knows it."""
        return self.name.hex()


def is_cold(form: Any) -> bool:
    """Whether the bytes of a row with this form are in an object; a damaged row may hold anything for its form."""
    return type(form) is int and form >> _SHIFT == 1


def hot_form(form: int) -> int:
    """The form that the bytes have, wherever they are."""
    return form & ~COLD


def cold_row(row: ChunkRow, name: bytes, offset: int) -> ChunkRow:
    """The cold row of a chunk whose stored bytes are in an object at an offset."""
    place = name + offset.to_bytes(8, "big") + len(row.data).to_bytes(4, "big")
    return ChunkRow(row.digest, row.links, row.form | COLD, place + _check(row.data))


def is_reference(data: Any) -> bool:
    """Whether the data of a cold row can be a reference; a damaged row may hold anything."""
    return type(data) is bytes and len(data) == REFERENCE_BYTES


def read_reference(data: Any) -> Reference:
    """The reference in a cold row; Corrupt where it is none."""
    if not is_reference(data):
        raise Corrupt("its reference to an object is damaged")
    offset = int.from_bytes(data[NAME_BYTES : NAME_BYTES + 8], "big")
    length = int.from_bytes(data[NAME_BYTES + 8 : NAME_BYTES + 12], "big")
    return Reference(data[:NAME_BYTES], offset, length, data[NAME_BYTES + 12 :])


def fits(reference: Reference, data: bytes) -> bool:
    """Whether some bytes are those that a reference was made for."""
    return len(data) == reference.length and _check(data) == reference.check


def _check(data: bytes) -> bytes:
    hashed = _CHECK.copy()
    hashed.update(data)
    return hashed.digest()
