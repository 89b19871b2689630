"""The headers of msgpack's arrays and maps, for joining what was packed apart."""

from __future__ import annotations

__all__ = ["EXT_HEADERS", "array_header", "array_header_size", "map_header"]

_ARRAY_HEADERS = {0xDC: 3, 0xDD: 5}
# How many bytes the header of an extension takes, by its first byte; 2 for all others.
EXT_HEADERS = {0xC7: 3, 0xC8: 4, 0xC9: 6}


def array_header(length: int) -> bytes:
    """The header of an array."""
    return _header(length, 0x90, b"\xdc", b"\xdd")


def map_header(length: int) -> bytes:
    """The header of a map."""
    return _header(length, 0x80, b"\xde", b"\xdf")


def array_header_size(packed: bytes) -> int:
    """How many bytes the header of a packed array takes."""
    return _ARRAY_HEADERS.get(packed[0], 1)


def _header(length: int, short: int, middle: bytes, long: bytes) -> bytes:
    if length < 16:
        return bytes((short | length,))
    return middle + length.to_bytes(2, "big") if length < 65536 else long + length.to_bytes(4, "big")
