"""The archive file: threads of a store in one file, which is opened as a store of its own.

    magic       8 bytes, `TLARCH1\\n`
    packs       pack files (format.py), one after the other, each of chunks of one pool
    blocks      rows, between the packs and behind them: zstd over a msgpack array of `[kind, field, …]`
    directory   msgpack, what there is and where
    trailer     8 bytes: where the directory begins; 32 bytes: BLAKE2b-256 of the directory; 32 bytes: BLAKE2b-256 of
                everything before these 32

Rows are those of docs/format.md, as they were stored. A chunk's row is cold (cold.py): it names the pack and the place
in it. An archive may name another one as its base: what the base has is not repeated, and what has gone is listed.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, NamedTuple

import ormsgpack

from ..base.hashing import blake2b
from ..codec.envelope import MOST_TIMES, filled
from ..codec.limits import FEW_BYTES, check_room, entries_in, unpack
from ..errors import Corrupt, InvalidRequest, NewerFormat

__all__ = [
    "ARCHIVE_MAGIC",
    "ARCHIVE_TRAILER_BYTES",
    "BACKUP",
    "Base",
    "Block",
    "Directory",
    "EXPORT",
    "PackPlace",
    "Whole",
    "check_directory",
    "check_magic",
    "pack_block",
    "pack_directory",
    "trailer_of",
    "unpack_block",
    "unpack_directory",
    "unpack_trailer",
]

ARCHIVE_MAGIC = b"TLARCH1\n"
BACKUP, EXPORT = "backup", "export"
_FAMILY = b"TLARCH"
_FORMAT = 1
_CHECK = 32
ARCHIVE_TRAILER_BYTES = 8 + 2 * _CHECK
# What a block may hold, so that a few bytes cannot become many.
_LARGEST_BLOCK = 1 << 30
# What is smaller may be of as few bytes as it likes.
_SMALL_BLOCK = 1 << 22
# A block has some thousand rows (backends/memory/archive.py), and a row a few dozen values.
_MOST_VALUES = 1 << 20


class Whole:
    """The checksum of a file that is written or read from its beginning."""

    def __init__(self) -> None:
        self._hashed = blake2b(digest_size=_CHECK, person=b"archive")

    def add(self, content: bytes) -> None:
        self._hashed.update(content)

    def digest(self) -> bytes:
        return self._hashed.digest()


class PackPlace(NamedTuple):
    """A pack: its name, and where it begins in the file. -1: it is an object beside it."""

    name: bytes
    offset: int
    length: int


class Block(NamedTuple):
    """Some rows: where they are, and a check over their stored bytes."""

    offset: int
    length: int
    check: bytes


class Base(NamedTuple):
    """The archive that another one adds to: its id, and the name of its file."""

    id: bytes
    name: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Directory:
    """What an archive holds, and where."""

    id: bytes
    made: float
    # When the archive began to be written: every checkpoint that was acknowledged before is in it.
    began: float
    # `BACKUP` or `EXPORT`; files that were made before there was a mark have none.
    kind: str | None = None
    base: Base | None = None
    packs: tuple[PackPlace, ...] = ()
    blocks: tuple[Block, ...] = ()
    counts: dict[str, int] = field(default_factory=dict)


def check_magic(first: bytes, where: str) -> None:
    """Raise InvalidRequest unless these are the first bytes of an archive, NewerFormat for one of a later format."""
    if first[: len(ARCHIVE_MAGIC)] == ARCHIVE_MAGIC:
        return
    if first.startswith(_FAMILY):
        raise NewerFormat(f"{where} was written by a later Threadline: upgrade this one to read it")
    raise InvalidRequest(f"{where} is no archive of Threadline: `threadline export` and `threadline backup` make them")


def pack_block(rows: list[Any]) -> tuple[bytes, bytes]:
    """The bytes of some rows, and their check."""
    import zstandard

    packed = ormsgpack.packb(rows)
    content = zstandard.ZstdCompressor().compress(packed)
    if MOST_TIMES * len(content) < len(packed):
        content = filled(content, packed)
    return content, _check(content)


def unpack_block(content: bytes, block: Block, where: str) -> list[list[Any]]:
    """The rows of a block; Corrupt where it was cut or altered."""
    import zstandard

    if len(content) != block.length or _check(content) != block.check:
        raise Corrupt(f"{where} was altered or cut short: rows at byte {block.offset} are damaged")
    try:
        if zstandard.frame_content_size(content) > min(_LARGEST_BLOCK, max(_SMALL_BLOCK, MOST_TIMES * len(content))):
            raise Corrupt(f"{where}: rows at byte {block.offset} claim an absurd size")
        packed = zstandard.ZstdDecompressor().decompress(content)
        if len(packed) > FEW_BYTES and entries_in(packed, _MOST_VALUES) > _MOST_VALUES:
            raise Corrupt(f"{where}: rows at byte {block.offset} hold more values than rows have")
        check_room(packed)
        rows = ormsgpack.unpackb(packed)
    except (ValueError, zstandard.ZstdError):
        raise Corrupt(f"{where}: rows at byte {block.offset} are damaged") from None
    if type(rows) is not list or not all(type(row) is list and row for row in rows):
        raise Corrupt(f"{where}: rows at byte {block.offset} have another shape")
    return rows


def pack_directory(directory: Directory) -> bytes:
    """The bytes of a directory."""
    base = list(directory.base) if directory.base is not None else None
    return ormsgpack.packb(
        {
            "format": _FORMAT,
            "id": directory.id,
            "made": directory.made,
            "began": directory.began,
            "kind": directory.kind,
            "base": base,
            "packs": [list(pack) for pack in directory.packs],
            "blocks": [list(block) for block in directory.blocks],
            "counts": directory.counts,
        }
    )


def unpack_directory(packed: bytes, where: str, end: int) -> Directory:
    """The directory in some bytes; Corrupt unless it is one of a file whose packs and blocks end there.

    NewerFormat for one of a later format.
    """
    try:
        held = unpack(packed)
        if held["format"] > _FORMAT:
            raise NewerFormat(f"{where} was written by a later Threadline: upgrade this one to read it")
        directory = Directory(
            id=_typed(held["id"], bytes),
            made=_typed(held["made"], float),
            began=_typed(held["began"], float),
            kind=_typed(held["kind"], str) if held.get("kind") is not None else None,
            base=_base(held["base"]) if held["base"] else None,
            packs=tuple(PackPlace(*_shaped(one, (bytes, int, int))) for one in held["packs"]),
            blocks=tuple(Block(*_shaped(one, (int, int, bytes))) for one in held["blocks"]),
            counts={_typed(name, str): _typed(count, int) for name, count in held["counts"].items()},
        )
        places = [(pack.offset, pack.length) for pack in directory.packs if pack.offset != -1]
        for offset, length in places + [(block.offset, block.length) for block in directory.blocks]:
            if length < 0 or not len(ARCHIVE_MAGIC) <= offset <= end - length:
                raise ValueError("it names what lies outside of the file")
        return directory
    except (ValueError, TypeError, LookupError, AttributeError) as error:
        if isinstance(error, NewerFormat):
            raise
        raise Corrupt(f"{where} was altered: its directory is damaged") from None


def trailer_of(offset: int, directory: bytes, whole: Whole) -> bytes:
    """The trailer of a file whose bytes before it are in `whole`, to which it is added."""
    begin = offset.to_bytes(8, "big") + _directory_check(directory)
    whole.add(begin)
    return begin + whole.digest()


def unpack_trailer(trailer: bytes, size: int, where: str) -> tuple[int, bytes, bytes]:
    """Where the directory begins, its check, and the check of the whole file; Corrupt where the file was cut."""
    offset = int.from_bytes(trailer[:8], "big")
    if len(trailer) != ARCHIVE_TRAILER_BYTES or not len(ARCHIVE_MAGIC) <= offset <= size - ARCHIVE_TRAILER_BYTES:
        raise Corrupt(f"{where} was cut short or altered: it does not end as an archive does")
    return offset, trailer[8 : 8 + _CHECK], trailer[8 + _CHECK :]


def check_directory(packed: bytes, check: bytes, where: str) -> None:
    """Raise Corrupt unless a directory is the one that the trailer was made for."""
    if _directory_check(packed) != check:
        raise Corrupt(f"{where} was cut short or altered: its directory is damaged")


def _base(held: Any) -> Base:
    """The base that a directory names: a file beside it, wherever an altered one may want to lead."""
    base = Base(*_shaped(held, (bytes, str)))
    if base.name in ("", ".", "..") or set(base.name) & set("/\\\0"):
        raise ValueError("its base lies elsewhere")
    return base


def _typed(value: Any, kind: type) -> Any:
    if type(value) is not kind:
        raise ValueError("it has another shape")
    return value


def _shaped(values: Any, kinds: tuple[type, ...]) -> list[Any]:
    if type(values) is not list or tuple(map(type, values)) != kinds:
        raise ValueError("it has another shape")
    return values


def _directory_check(packed: bytes) -> bytes:
    return blake2b(packed, digest_size=_CHECK, person=b"directory").digest()


def _check(content: bytes) -> bytes:
    return blake2b(content, digest_size=16, person=b"block").digest()
