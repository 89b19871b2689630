"""A bounded cache on disk before an object store: one file for each part that was read, with a check of its own.

The files hold what the objects hold: sealed bytes of an encrypted store are sealed here, too. Whatever goes wrong with
the cache is as if it were empty. Several processes may share one: files come whole, by a rename.
"""

from __future__ import annotations

import logging
import os
import secrets
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

from ...base.hashing import blake2b
from ...ports.objects import Objects, Span
from .folder import write_file

__all__ = ["CachedObjects"]

log = logging.getLogger("threadline")
_CHECK_BYTES = 16
# So much of the bound is written before the folder is looked through again.
_BETWEEN_SCANS = 16


class CachedObjects:
    """Objects of which the parts that were read last are kept in a folder, within a bound in bytes."""

    def __init__(self, inner: Objects, folder: Path, most_bytes: int, call: Any) -> None:
        self.where = inner.where
        self._inner, self._folder, self._most, self._call = inner, folder, most_bytes, call
        # Since the folder was last looked through; the first write looks through it.
        self._written = most_bytes
        self._is_broken = False

    async def put(self, name: str, content: bytes) -> None:
        await self._inner.put(name, content)

    async def read(self, name: str, spans: Sequence[Span], *, is_fresh: bool = False) -> list[bytes] | None:
        held: dict[Span, bytes] = {} if is_fresh else await self._call(lambda: self._held(name, spans))
        absent = [span for span in spans if span not in held]
        if absent:
            parts = await self._inner.read(name, absent)
            if parts is None:
                return None
            held.update(zip(absent, parts, strict=True))
            await self._call(lambda: self._keep(name, {span: held[span] for span in absent}))
        return [held[span] for span in spans]

    async def size(self, name: str) -> int | None:
        return await self._inner.size(name)

    async def delete(self, names: Sequence[str]) -> None:
        await self._inner.delete(names)

    def _held(self, name: str, spans: Sequence[Span]) -> dict[Span, bytes]:
        found: dict[Span, bytes] = {}
        for span in spans:
            path = self._path(name, span)
            try:
                content = path.read_bytes()
                os.utime(path)
            except OSError:
                continue
            body, check = content[:-_CHECK_BYTES], content[-_CHECK_BYTES:]
            if len(body) == span[1] and check == _check(path.name, body):
                found[span] = body
        return found

    def _keep(self, name: str, parts: dict[Span, bytes]) -> None:
        try:
            for span, content in parts.items():
                if len(content) == span[1]:  # of a cut object nothing is kept
                    path = self._path(name, span)
                    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
                    draft = path.with_name(f"{path.name}.{secrets.token_hex(6)}")
                    write_file(path, content + _check(path.name, content), draft, is_durable=False)
                    self._written += len(content)
            if self._written * _BETWEEN_SCANS > self._most:
                self._make_room()
                self._written = 0
        except OSError as error:
            if not self._is_broken:
                log.warning("the cache of the cold tier cannot be written (%r): reading goes on without it", error)
            self._is_broken = True

    def _make_room(self) -> None:
        """Delete the files that were used longest ago, until a tenth of the bound is free."""
        files: list[tuple[float, int, str]] = []
        for folder, _, names in os.walk(self._folder):
            for name in names:
                path = os.path.join(folder, name)
                with suppress(OSError):
                    told = os.stat(path)
                    files.append((told.st_mtime, told.st_size, path))
        taken = sum(size for _, size, _ in files)
        if taken <= self._most:
            return
        for _, size, path in sorted(files):
            with suppress(OSError):
                os.unlink(path)
            taken -= size
            if taken <= self._most * 0.9:
                return

    def _path(self, name: str, span: Span) -> Path:
        key = blake2b(f"{self.where}/{name}:{span[0]}:{span[1]}".encode(), digest_size=20, person=b"cached").hexdigest()
        return self._folder / key[:2] / key


def _check(key: str, content: bytes) -> bytes:
    return blake2b(content, digest_size=_CHECK_BYTES, key=key.encode(), person=b"cached").digest()
