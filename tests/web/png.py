"""Pictures of a browser made small: 256 colours, no transparency, nothing but pixels."""

from __future__ import annotations

import struct
import zlib
from collections import Counter
from collections.abc import Iterator

__all__ = ["size_of", "small"]

MAGIC = b"\x89PNG\r\n\x1a\n"
COLOURS = 256


def size_of(picture: bytes) -> tuple[int, int]:
    """Width and height of a PNG."""
    assert picture.startswith(MAGIC), "no PNG"
    width, height = struct.unpack(">II", dict(_chunks(picture))[b"IHDR"][:8])
    return width, height


def small(picture: bytes) -> bytes:
    """The same picture in 256 of its colours; any other becomes the nearest of them."""
    width, height = size_of(picture)
    depth, kind = dict(_chunks(picture))[b"IHDR"][8:10]
    assert (depth, kind) in ((8, 2), (8, 6)), "a picture of Chromium has 8 bits for each of 3 or 4 parts of a colour"
    step = 3 if kind == 2 else 4
    packed = zlib.decompress(b"".join(body for name, body in _chunks(picture) if name == b"IDAT"))
    rows = [[row[at : at + 3] for at in range(0, width * step, step)] for row in _rows(packed, width * step, step)]
    palette = _palette(Counter(pixel for row in rows for pixel in row))
    index = _Nearest(palette)
    pixels = b"".join(b"\0" + bytes([index[pixel] for pixel in row]) for row in rows)
    header = struct.pack(">IIBBBBB", width, height, 8, 3, 0, 0, 0)
    parts = [(b"IHDR", header), (b"PLTE", b"".join(palette)), (b"IDAT", zlib.compress(pixels, 9)), (b"IEND", b"")]
    return MAGIC + b"".join(_framed(name, body) for name, body in parts)


def _palette(counted: Counter[bytes]) -> list[bytes]:
    """First the most frequent of each kind of colour, so that a small red sign stays red; then the most frequent."""
    frequent = [colour for colour, _ in counted.most_common()]
    kinds: dict[tuple[int, ...], bytes] = {}
    for colour in frequent:
        kinds.setdefault(tuple(part >> 5 for part in colour), colour)
    return list(dict.fromkeys([*kinds.values(), *frequent]))[:COLOURS]


class _Nearest(dict[bytes, int]):
    """The number of each colour of a palette, and for every other colour that of the nearest."""

    def __init__(self, palette: list[bytes]) -> None:
        super().__init__((colour, number) for number, colour in enumerate(palette))
        self._palette = palette

    def __missing__(self, colour: bytes) -> int:
        def distance(number: int) -> int:
            return sum((one - other) ** 2 for one, other in zip(colour, self._palette[number], strict=True))

        self[colour] = min(range(len(self._palette)), key=distance)
        return self[colour]


def _framed(name: bytes, body: bytes) -> bytes:
    return struct.pack(">I", len(body)) + name + body + struct.pack(">I", zlib.crc32(name + body))


def _chunks(picture: bytes) -> Iterator[tuple[bytes, bytes]]:
    place = len(MAGIC)
    while place < len(picture):
        (length,) = struct.unpack_from(">I", picture, place)
        yield picture[place + 4 : place + 8], picture[place + 8 : place + 8 + length]
        place += length + 12


def _rows(packed: bytes, length: int, step: int) -> Iterator[bytes]:
    """The rows of a picture, each without its filter (the PNG specification, part 9)."""
    above = bytes(length)
    for place in range(0, len(packed), length + 1):
        row = bytearray(packed[place + 1 : place + 1 + length])
        kind = packed[place]
        for at in range(length):
            left, up = row[at - step] if at >= step else 0, above[at]
            if kind == 1:
                guess = left
            elif kind == 2:
                guess = up
            elif kind == 3:
                guess = (left + up) // 2
            elif kind == 4:
                guess = _paeth(left, up, above[at - step] if at >= step else 0)
            else:
                break
            row[at] = (row[at] + guess) & 255
        above = bytes(row)
        yield above


def _paeth(left: int, up: int, corner: int) -> int:
    guess = left + up - corner
    return min((left, up, corner), key=lambda one: abs(guess - one))
