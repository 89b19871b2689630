"""How encoded bytes are wrapped for storage: compression, then a seal or, for rows, a checksum.

A row's `form` says what to take off: `form & 1` is zstd, `form >> 1` is the number of the sealing key,
0 for none. A row that is not sealed ends with 8 bytes of BLAKE2b, personalised `row`, over what a seal
would be bound to and the bytes before. Compression is tried from 2 KB up and kept where it saves a tenth:
below that, decompressing costs more than decoding. What is longer than 1 MiB is not compressed, and what compresses to
less than a 64th is filled up to it by a skippable frame: so a frame that claims more is hostile, and so are many that
become more than 64 times what they are: a few bytes cannot become many.
"""

from __future__ import annotations

import threading
from collections.abc import Sequence
from typing import Any

from ..base.hashing import blake2b
from ..errors import Corrupt, InvalidRequest
from .limits import FEW_BYTES, check_room
from .seal import Ring

__all__ = ["Envelope", "FEW_EXCESS", "MOST_TIMES", "WORTH_COMPRESSING", "filled", "load_compression"]

WORTH_COMPRESSING = 2_000
_CHECK_BYTES = 8
_LARGEST_COMPRESSED = 1 << 20
# A writer stores nothing that becomes more than so many times what it is; a reader lets a little pass (`FEW_EXCESS`),
# which was stored before that rule.
MOST_TIMES = 64
FEW_EXCESS = 1 << 26
_SKIPPABLE = b"\x50\x2a\x4d\x18"
_ROW = blake2b(digest_size=_CHECK_BYTES, person=b"row")


class Envelope:
    """Compresses and seals on the way in; opens and decompresses on the way out."""

    def __init__(self, *, compression: str | None = "zstd", ring: Ring | None = None) -> None:
        if compression not in ("zstd", None):
            raise InvalidRequest(f"compression is 'zstd' or None, not {compression!r}")
        self.compression = compression
        self.ring = ring
        # The hash that the checksum of a row begins with; None where rows are sealed.
        self.begun: Any = _ROW if ring is None else None
        # The numbers of the store's keys; filled from the store when it opens.
        self.key_numbers: dict[str, int] = {}
        self._local = threading.local()

    def wrap(self, content: bytes, bound_to: bytes) -> tuple[int, bytes]:
        """The form and the stored bytes of some content that belongs at `bound_to`."""
        form = 0
        if self.compression and WORTH_COMPRESSING <= len(content) <= _LARGEST_COMPRESSED:
            smaller = self._zstd("ZstdCompressor").compress(content)
            if len(smaller) <= len(content) * 0.9:
                form, content = 1, smaller if MOST_TIMES * len(smaller) >= len(content) else filled(smaller, content)
        if self.ring is not None:
            content = self.ring.seal(content, bound_to)
            form |= self.key_numbers[self.ring.current] << 1
        return form, content

    def wrap_row(self, content: bytes, bound_to: bytes) -> tuple[int, bytes]:
        """The form and the stored bytes of a row. No digest names it: without a seal it ends with a checksum."""
        if self.ring is None and len(content) < WORTH_COMPRESSING:
            hashed = _ROW.copy()
            hashed.update(bound_to)
            hashed.update(content)
            return 0, content + hashed.digest()
        form, stored = self.wrap(content, bound_to)
        return form, stored if self.ring is not None else stored + _check(stored, bound_to)

    def wrap_rows(self, contents: Sequence[bytes], bound_to: Sequence[bytes]) -> tuple[list[int], list[bytes]]:
        """The forms and the stored bytes of many rows; see `wrap_row`."""
        forms, rows = [0] * len(contents), []
        if self.ring is None and max(map(len, contents), default=0) < WORTH_COMPRESSING:
            begun = _ROW.copy
            for content, place in zip(contents, bound_to, strict=True):
                hashed = begun()
                hashed.update(place)
                hashed.update(content)
                rows.append(content + hashed.digest())
        else:
            for position, (content, place) in enumerate(zip(contents, bound_to, strict=True)):
                forms[position], stored = self.wrap_row(content, place)
                rows.append(stored)
        return forms, rows

    def unwrap_row(self, form: int, stored: bytes, bound_to: bytes) -> bytes:
        """The content of a row; Corrupt when it was altered or moved, TooLarge where it cannot be unpacked here."""
        if self.ring is None and not form >> 1:
            stored, check = stored[:-_CHECK_BYTES], stored[-_CHECK_BYTES:]
            hashed = _ROW.copy()
            hashed.update(bound_to)
            hashed.update(stored)
            if check != hashed.digest():
                raise Corrupt("its bytes were altered, cut short or moved")
            if not form:
                if len(stored) > FEW_BYTES:
                    check_room(stored)
                return stored
        content = self.unwrap(form, stored, bound_to)
        if len(content) > FEW_BYTES:
            check_room(content)
        return content

    def unwrap(self, form: int, content: bytes, bound_to: bytes, most: int | None = None) -> bytes:
        """The content of stored bytes; plaintext is refused where encryption is on, and what decompresses to more
        than `most`."""
        number = form >> 1
        if number:
            if self.ring is None:
                raise InvalidRequest("this store is encrypted: open it with encryption=KeyRing(…)")
            content = self.ring.open(self._key_id(number), content, bound_to)
        elif self.ring is not None:
            raise Corrupt("plaintext in an encrypted store")
        if form & 1:
            content = self._decompress(content, min(most or _LARGEST_COMPRESSED, _LARGEST_COMPRESSED))
        return content

    def _key_id(self, number: int) -> str:
        for key_id, known in self.key_numbers.items():
            if known == number:
                return key_id
        raise Corrupt(f"bytes are sealed under key number {number}, which the store does not know")

    def _decompress(self, content: bytes, most: int) -> bytes:
        import zstandard

        try:
            if zstandard.frame_content_size(content) > most:
                raise Corrupt(f"compressed bytes claim an absurd size: more than {most:,} bytes")
            plain: bytes = self._zstd("ZstdDecompressor").decompress(content)
            if MOST_TIMES * (len(content) - 8) <= len(plain):
                self._check_filling(content, plain)
        except zstandard.ZstdError as error:
            raise Corrupt(f"compressed bytes are damaged ({error})") from None
        return plain

    def _check_filling(self, content: bytes, plain: bytes) -> None:
        """Corrupt where something else follows compressed bytes than what fills them up, or less of it."""
        frame = self._zstd("ZstdDecompressor").decompressobj()
        frame.decompress(content)
        rest = frame.unused_data
        if rest and content != filled(content[: len(content) - len(rest)], plain):
            raise Corrupt("compressed bytes are damaged (they are not filled up as they should be)")

    def _zstd(self, kind: str) -> Any:
        # Neither object may be used by two threads at once.
        worker = getattr(self._local, kind, None)
        if worker is None:
            import zstandard

            worker = getattr(zstandard, kind)()
            setattr(self._local, kind, worker)
        return worker


def load_compression() -> None:
    """Import the compressor, for a program that makes a saver, before anything is under way.

    An interrupt within the first import of a module leaves the lock of that import taken, and every thread that imports
    the module then waits for ever. A command of the command line, which may never need it, loads it when it does.
    """
    import zstandard  # noqa: F401


def filled(smaller: bytes, content: bytes) -> bytes:
    """Compressed bytes and a frame that is skipped, together as long as they must be for this content."""
    lacking = max(-(-len(content) // MOST_TIMES) - len(smaller) - 8, 0)
    return b"".join((smaller, _SKIPPABLE, lacking.to_bytes(4, "little"), bytes(lacking)))


def _check(stored: bytes, bound_to: bytes) -> bytes:
    hashed = _ROW.copy()
    hashed.update(bound_to)
    hashed.update(stored)
    return hashed.digest()
