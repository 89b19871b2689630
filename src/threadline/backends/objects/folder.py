"""Objects as files of a folder. An object is on disk before `put` returns: then the database gives its bytes up."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, TypeVar

from ...errors import StorageFull, ThreadlineError, Unavailable
from ...ports.objects import Span

__all__ = ["FolderObjects", "beside_the_loop", "here", "write_file"]

T = TypeVar("T")
_FULL = {"ENOSPC", "EDQUOT"}


class FolderObjects:
    """A folder. `call` runs what blocks: on the calling thread, or beside an event loop."""

    def __init__(self, path: Path, call: Any) -> None:
        self.where = f"file://{path}"
        self._path = path
        self._call = call

    async def put(self, name: str, content: bytes) -> None:
        await self._call(lambda: self._guarded(name, lambda: self._write(name, content)))

    async def read(self, name: str, spans: Sequence[Span], *, is_fresh: bool = False) -> list[bytes] | None:
        found: list[bytes] | None = await self._call(lambda: self._guarded(name, lambda: self._parts(name, spans)))
        return found

    async def size(self, name: str) -> int | None:
        found: int | None = await self._call(lambda: self._guarded(name, lambda: (self._path / name).stat().st_size))
        return found

    async def delete(self, names: Sequence[str]) -> None:
        for name in names:
            # An upload that died may have left its draft.
            for path in (self._draft(name), self._path / name):
                await self._call(lambda name=name, path=path: self._guarded(name, path.unlink))

    def _write(self, name: str, content: bytes) -> None:
        self._path.mkdir(parents=True, exist_ok=True)
        write_file(self._path / name, content, self._draft(name), is_durable=True)

    def _draft(self, name: str) -> Path:
        return self._path / f".{name}.draft"

    def _parts(self, name: str, spans: Sequence[Span]) -> list[bytes]:
        with (self._path / name).open("rb") as file:
            parts = []
            for offset, length in spans:
                file.seek(offset)
                parts.append(file.read(length))
            return parts

    def _guarded(self, name: str, act: Callable[[], T]) -> T | None:
        """What an act gives; None where there is no such file in the folder."""
        try:
            return act()
        except FileNotFoundError:
            if not self._path.is_dir():
                raise Unavailable(f"object {name}: there is no folder {self.where}: is it mounted?") from None
            return None
        except OSError as error:
            raise _translated(error, name, self.where) from None


def _translated(error: OSError, name: str, where: str) -> ThreadlineError:
    import errno

    reason = os.strerror(error.errno) if error.errno else "an error of the system"
    kind = StorageFull if errno.errorcode.get(error.errno or 0) in _FULL else Unavailable
    return kind(f"object {name} of {where}: {reason}")


def write_file(path: Path, content: bytes, draft: Path, *, is_durable: bool) -> None:
    """Write a file that is there whole or not at all; durable also through a power cut."""
    try:
        with draft.open("wb") as file:
            file.write(content)
            if is_durable:
                file.flush()
                os.fsync(file.fileno())
        draft.replace(path)
    except BaseException:
        with suppress(OSError):
            draft.unlink()
        raise
    if is_durable and os.name == "posix":
        folder = os.open(path.parent, os.O_RDONLY)
        try:
            os.fsync(folder)
        finally:
            os.close(folder)


async def here(act: Callable[[], T]) -> T:
    """Run what blocks on the calling thread."""
    return act()


async def beside_the_loop(act: Callable[[], T]) -> T:
    """Run what blocks on a thread of the event loop's own."""
    import asyncio

    return await asyncio.to_thread(act)
