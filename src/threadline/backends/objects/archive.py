"""Archives as files: written under another name and renamed when they are whole, read by ranges.

A file of an archive is made readable by its owner alone, and never takes the place of one that is there.
"""

from __future__ import annotations

import errno
import os
import secrets
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import NoReturn

from ...errors import Conflict, Corrupt, NotFound, StorageFull, Unavailable
from ...packs.archive import (
    ARCHIVE_MAGIC,
    ARCHIVE_TRAILER_BYTES,
    Directory,
    Whole,
    check_directory,
    check_magic,
    pack_directory,
    trailer_of,
    unpack_directory,
    unpack_trailer,
)
from ...ports.objects import Span

__all__ = ["ArchiveObjects", "ArchiveWriter", "read_directory", "read_range", "verify_file"]

_BINARY = getattr(os, "O_BINARY", 0)
_FULL = (errno.ENOSPC, errno.EDQUOT)
# What a file system says that has no links.
_NO_LINKS = (errno.EPERM, errno.ENOTSUP, errno.EOPNOTSUPP, errno.ENOSYS)
_STRETCH = 1 << 20


class ArchiveWriter:
    """A new archive file. What is added can be read at once; the file has its name when `finish` returns."""

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self.path = Path(path)
        if self.path.exists():
            raise Conflict(f"{self.path} exists already: choose another name, an archive is never written over")
        self._draft = self.path.with_name(f".{self.path.name}.{secrets.token_hex(6)}")
        self._whole = Whole()
        self.size = 0
        try:
            self._file = os.open(self._draft, os.O_RDWR | os.O_CREAT | os.O_EXCL | _BINARY, 0o600)
        except OSError as error:
            _raise(error, self.path)
        self.add(ARCHIVE_MAGIC)

    def add(self, content: bytes) -> int:
        """Add bytes; returns where they begin."""
        self._whole.add(content)
        return self._write(content)

    def _write(self, content: bytes) -> int:
        offset = self.size
        try:
            view = memoryview(content)
            while view:  # a disk that is nearly full takes a part, and fails at the next
                view = view[os.write(self._file, view) :]
        except OSError as error:
            self.discard()
            _raise(error, self.path)
        self.size += len(content)
        return offset

    def read(self, offset: int, length: int) -> bytes:
        """Bytes that were added."""
        parts, left = [], length
        os.lseek(self._file, offset, os.SEEK_SET)
        while left and (part := os.read(self._file, left)):
            parts.append(part)
            left -= len(part)
        os.lseek(self._file, 0, os.SEEK_END)
        return b"".join(parts)

    def finish(self, directory: Directory) -> None:
        """Add the directory, flush to the disk, and give the file its name; Conflict where that was taken meanwhile."""
        packed = pack_directory(directory)
        offset = self.add(packed)
        self._write(trailer_of(offset, packed, self._whole))
        self._check_size()
        try:
            os.fsync(self._file)
            self._close()
            self._give_name()
            _flush_folder(self.path.parent)
        except FileExistsError:
            with suppress(OSError):
                os.unlink(self._draft)
            raise Conflict(f"{self.path} was made by somebody else meanwhile: choose another name") from None
        except OSError as error:
            _raise(error, self.path)

    def _give_name(self) -> None:
        """Give the draft its name; FileExistsError where that is taken."""
        try:
            # A link fails where the name is taken; a rename would replace the file.
            os.link(self._draft, self.path)
            os.unlink(self._draft)
        except OSError as error:
            if error.errno not in _NO_LINKS:
                raise
            if self.path.exists():
                raise FileExistsError from None
            os.rename(self._draft, self.path)

    def _check_size(self) -> None:
        """Raise Unavailable unless the file system has all that was written: only a whole file gets its name."""
        size = os.fstat(self._file).st_size
        if size != self.size:
            self.discard()
            raise Unavailable(
                f"{self.path}: the file system has {size:,} of {self.size:,} bytes that were written; nothing was kept "
                f"of the archive"
            )

    def _close(self) -> None:
        # By now the number may be that of another file.
        file, self._file = self._file, -1
        if file >= 0:
            os.close(file)

    def discard(self) -> None:
        """Remove what was written; harmless after `finish`."""
        with suppress(OSError):
            self._close()
        with suppress(OSError):
            os.unlink(self._draft)


class ArchiveObjects:
    """The packs of archive files as objects, by their names; of a file that is being written, too."""

    def __init__(self, where: str) -> None:
        self.where = where
        # Where each pack is: a path or a writer, and the offset there.
        self._places: dict[str, tuple[Path | ArchiveWriter, int]] = {}

    def know(self, name: bytes, place: Path | ArchiveWriter, offset: int) -> None:
        """Note where a pack is."""
        self._places[name.hex()] = place, offset

    async def put(self, name: str, content: bytes) -> None:
        raise Unavailable(f"object {name}: an archive is written once, by export or backup")

    async def read(self, name: str, spans: Sequence[Span], *, is_fresh: bool = False) -> list[bytes] | None:
        place = self._places.get(name)
        if place is None:
            return None
        return _parts(*place, spans)

    async def size(self, name: str) -> int | None:
        return None

    async def delete(self, names: Sequence[str]) -> None:
        raise Unavailable("an archive is written once, and nothing is deleted from it")


def read_directory(path: Path, where: str | None = None) -> Directory:
    """The directory of an archive file. Raises NotFound, InvalidRequest, NewerFormat or Corrupt, which name `where`."""
    where = where or str(path)
    try:
        with path.open("rb") as file:
            check_magic(file.read(len(ARCHIVE_MAGIC)), where)
            size = file.seek(0, os.SEEK_END)
            file.seek(max(0, size - ARCHIVE_TRAILER_BYTES))
            offset, check, _ = unpack_trailer(file.read(ARCHIVE_TRAILER_BYTES), size, where)
            file.seek(offset)
            packed = file.read(size - ARCHIVE_TRAILER_BYTES - offset)
    except FileNotFoundError:
        raise NotFound(f"there is no file {where}") from None
    except OSError as error:
        _raise(error, path)
    check_directory(packed, check, where)
    return unpack_directory(packed, where, offset)


def verify_file(path: Path, where: str | None = None) -> None:
    """Read all of an archive file; Corrupt, which names `where`, where one bit of it was altered."""
    whole = Whole()
    try:
        with path.open("rb") as file:
            left = file.seek(0, os.SEEK_END) - 32
            file.seek(0)
            while left > 0:
                part = file.read(min(left, _STRETCH))
                if not part:
                    break
                whole.add(part)
                left -= len(part)
            check = file.read(32)
    except OSError as error:
        _raise(error, path)
    if whole.digest() != check:
        raise Corrupt(f"{where or path} was altered or cut short: its checksum differs")


def read_range(path: Path, offset: int, length: int) -> bytes:
    """A part of a file; shorter where the file ends."""
    return _parts(path, 0, [(offset, length)])[0]


def _parts(place: Path | ArchiveWriter, base: int, spans: Sequence[Span]) -> list[bytes]:
    if isinstance(place, ArchiveWriter):
        return [place.read(base + offset, length) for offset, length in spans]
    parts = []
    try:
        with place.open("rb") as file:
            for offset, length in spans:
                file.seek(base + offset)
                parts.append(file.read(length))
    except OSError as error:
        _raise(error, place)
    return parts


def _flush_folder(path: Path) -> None:
    if os.name == "posix":
        folder = os.open(path, os.O_RDONLY)
        try:
            os.fsync(folder)
        finally:
            os.close(folder)


def _raise(error: OSError, path: Path) -> NoReturn:
    reason = os.strerror(error.errno) if error.errno else "an error of the system"
    if error.errno in _FULL:
        raise StorageFull(f"{path}: {reason}; nothing was kept of the archive") from None
    if isinstance(error, FileNotFoundError):
        raise NotFound(f"{path}: there is no such file or folder") from None
    raise Unavailable(f"{path}: {reason}") from None
