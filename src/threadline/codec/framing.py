"""The headers of msgpack's arrays and maps, for joining what was packed apart."""

from __future__ import annotations

__all__ = ["EXT_HEADERS", "array_header", "ext_frame", "is_container", "map_header"]

# How many bytes the header of an extension takes, by its first byte; the last of them is its code.
EXT_HEADERS = {0xC7: 3, 0xC8: 4, 0xC9: 6, 0xD4: 2, 0xD5: 2, 0xD6: 2, 0xD7: 2, 0xD8: 2}

_SHORT_EXTS = {1: 0xD4, 2: 0xD5, 4: 0xD6, 8: 0xD7, 16: 0xD8}


def array_header(length: int) -> bytes:
    """The header of an array."""
    if length < 16:
        return bytes((0x90 | length,))
    return _header(length, 0x90, b"\xdc", b"\xdd")


def map_header(length: int) -> bytes:
    """The header of a map."""
    return _header(length, 0x80, b"\xde", b"\xdf")


def is_container(packed: bytes) -> bool:
    """Whether what was packed is an array or a map."""
    return 0x80 <= packed[0] <= 0x9F or 0xDC <= packed[0] <= 0xDF


def ext_frame(code: int, *data: bytes) -> bytes:
    """An extension with the parts of its data, which may be large and are copied once."""
    length = sum(map(len, data))
    if length in _SHORT_EXTS:
        header = bytes((_SHORT_EXTS[length],))
    elif length < 256:
        header = bytes((0xC7, length))
    else:
        header = b"\xc8" + length.to_bytes(2, "big") if length < 65536 else b"\xc9" + length.to_bytes(4, "big")
    return b"".join((header, bytes((code,)), *data))


def _header(length: int, short: int, middle: bytes, long: bytes) -> bytes:
    if length < 16:
        return bytes((short | length,))
    return middle + length.to_bytes(2, "big") if length < 65536 else long + length.to_bytes(4, "big")
