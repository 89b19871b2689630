"""The verbs that move threads between stores, sync and async on one object; `Saver` has them."""

from __future__ import annotations

import logging
import os
from collections.abc import Collection, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from .base.drive import run_now
from .base.printable import printable
from .core.context import Tools
from .core.operations import Face
from .core.requests import plain_text, text_ids
from .errors import InvalidRequest

if TYPE_CHECKING:
    from pathlib import Path

    from .core.context import Context
    from .core.moving.copy import Adopt
    from .core.moving.report import Archived, CopyChoice, CopyReport, Progress

__all__ = ["Moving", "choice_of"]

log = logging.getLogger("threadline")
_Path = str | os.PathLike[str]


class Moving(Face):
    """Copying to another store and to files; `a…` twins mean the same."""

    def copy_to(
        self,
        other: Moving,
        *,
        threads: Collection[str] | None = None,
        prefix: str = "",
        filter: Mapping[str, Any] | None = None,
        since: Any = None,
        until: Any = None,
        merge: bool = False,
        records: bool = True,
        progress: Progress | None = None,
    ) -> CopyReport:
        """Copy threads to another saver's store, by their rows: ids, times, tags, branches and writes stay.

        What the other store has already is skipped, so the same call again goes on after a stop and adds what is
        new. Everything that is written there is read back and compared. `since` chooses threads by their last
        activity, `until` (a time, or a checkpoint's id) leaves out later checkpoints. A thread that the other store
        has, and that did not come from here, is a problem of the report; with `merge` it comes under another id.
        Items of a Store come along with whole stores, unless `records=False`.
        """
        _refuse_itself(self, other)
        choice = choice_of(threads, prefix, filter, since, until, merge, records and _are_whole(self, other))
        return run_now(self._copied(other, choice, progress, is_async=False))

    async def acopy_to(
        self,
        other: Moving,
        *,
        threads: Collection[str] | None = None,
        prefix: str = "",
        filter: Mapping[str, Any] | None = None,
        since: Any = None,
        until: Any = None,
        merge: bool = False,
        records: bool = True,
        progress: Progress | None = None,
    ) -> CopyReport:
        _refuse_itself(self, other)
        choice = choice_of(threads, prefix, filter, since, until, merge, records and _are_whole(self, other))
        return await self._copied(other, choice, progress, is_async=True)

    def export(
        self,
        path: str | os.PathLike[str],
        *,
        threads: Collection[str] | None = None,
        prefix: str = "",
        filter: Mapping[str, Any] | None = None,
        since: Any = None,
        until: Any = None,
        plain: bool = False,
        progress: Progress | None = None,
    ) -> Archived:
        """Write threads to a new file, which `threadline.connect("archive:///file")` opens as a store to be read.

        The file has its name when it is whole and on the disk; Conflict where there is one. An encrypted store's
        threads stay sealed, and are read with its keys, unless `plain`.
        """
        _refuse_remote(path)
        choice = choice_of(threads, prefix, filter, since, until, records=False)
        return run_now(self._archived(path, None, plain, "export", choice, progress, is_async=False))

    async def aexport(
        self,
        path: str | os.PathLike[str],
        *,
        threads: Collection[str] | None = None,
        prefix: str = "",
        filter: Mapping[str, Any] | None = None,
        since: Any = None,
        until: Any = None,
        plain: bool = False,
        progress: Progress | None = None,
    ) -> Archived:
        _refuse_remote(path)
        choice = choice_of(threads, prefix, filter, since, until, records=False)
        return await self._archived(path, None, plain, "export", choice, progress, is_async=True)

    def backup(
        self,
        path: str | os.PathLike[str],
        *,
        base: str | os.PathLike[str] | None = None,
        plain: bool = False,
        progress: Progress | None = None,
    ) -> Archived:
        """Write all threads and items to a new file, while writers go on.

        Every checkpoint that was acknowledged before this began is in it, and each thread in it is whole. With
        `base`, a former backup in the same folder, only what has changed since is written: restoring the new file
        reads both. A base that is no backup of this store is not added to, as after a restore into a new one: the file
        is whole then, and the `base` of the answer None. `s3://bucket/backups/name` and the like go to an object store,
        by way of a temporary folder.
        """
        return run_now(self._backed_up(path, base, plain, progress, is_async=False))

    async def abackup(
        self,
        path: str | os.PathLike[str],
        *,
        base: str | os.PathLike[str] | None = None,
        plain: bool = False,
        progress: Progress | None = None,
    ) -> Archived:
        return await self._backed_up(path, base, plain, progress, is_async=True)

    async def _copied(
        self, other: Moving, choice: CopyChoice, progress: Progress | None, *, is_async: bool
    ) -> CopyReport:
        from .core.moving.copy import copy_between

        source, target = await self._apart(is_async), await other._apart(is_async)
        return await copy_between(source, target, choice, progress)

    async def _backed_up(
        self, path: _Path, base: _Path | None, plain: bool, progress: Progress | None, *, is_async: bool
    ) -> Archived:
        if is_remote(path):
            with _temporary_folder() as folder:
                remote = _Remote(path, base, folder, is_of_loop=is_async)
                fetched = await remote.fetch()
                done = await self._backed_up(remote.path, fetched, plain, progress, is_async=is_async)
                await remote.send()
            return remote.told(done)
        choice = choice_of(None, "", None, None, None, records=_are_whole(self))
        return await self._archived(path, base, plain, "backup", choice, progress, is_async=is_async)

    async def _archived(
        self,
        path: _Path,
        base: _Path | None,
        plain: bool,
        kind: str,
        choice: CopyChoice,
        progress: Progress | None,
        *,
        is_async: bool,
    ) -> Archived:
        source = await self._apart(is_async)
        with _Filling(self._tools, path, base, plain, kind) as filling:
            return filling.done(await filling.fill(source, choice, progress))

    async def _apart(self, is_async: bool) -> Context:
        """This store, opened for an operation over several."""
        from .core.moving.through import through

        return await through(self._engine, self._tools, is_async=is_async)


@contextmanager
def _temporary_folder() -> Iterator[Path]:
    # Few programs need these, and they take a while to import.
    from pathlib import Path
    from tempfile import TemporaryDirectory

    with TemporaryDirectory() as folder:
        yield Path(folder)


class _Remote:
    """A backup that goes to an object store: the file that is made here, and the bases that are fetched for it."""

    def __init__(
        self,
        url: str | os.PathLike[str],
        base: str | os.PathLike[str] | None,
        folder: Path,
        *,
        is_of_loop: bool,
    ) -> None:
        from .backends.objects.opening import open_objects
        from .backends.objects.parts import split_place

        self._urls = os.fspath(url), None if base is None else os.fspath(base)
        place, self._name = split_place(os.fspath(url))
        self._base = None
        if base is not None:
            if not is_remote(base):
                raise InvalidRequest(f"a backup lies beside its base: restoring it reads both. Write {place}/… for it")
            base_place, self._base = split_place(os.fspath(base))
            if base_place != place:
                raise InvalidRequest("a backup lies beside its base: restoring it reads both")
        self._folder, self.path = folder, folder / self._name
        self._objects = open_objects(place, is_of_loop=is_of_loop, cache_bytes=0)

    async def fetch(self) -> Path | None:
        """Bring the base here, with its own bases; Conflict where there is a file of the name that is to be made."""
        from .backends.objects.parts import check_absent, fetch_chain

        await check_absent(self._objects, self._name)
        return await fetch_chain(self._objects, self._base, self._folder) if self._base is not None else None

    async def send(self) -> None:
        """Store the file that was made."""
        from .backends.objects.parts import send_file

        await send_file(self._objects, self._name, self.path)

    def told(self, done: Archived) -> Archived:
        """What was made, by the names that the caller has for it."""
        url, base = self._urls
        return replace(done, path=url, base=base if done.base is not None else None)


class _Filling:
    """An archive while it is written; what was written goes when the block ends before it is whole."""

    def __init__(
        self, tools: Tools, path: str | os.PathLike[str], base: str | os.PathLike[str] | None, plain: bool, kind: str
    ) -> None:
        from pathlib import Path

        from .backends.memory.archive import ArchiveBackend, load_archive
        from .backends.objects.archive import ArchiveObjects, ArchiveWriter

        self._kind = kind
        self._path, self._base = Path(path), Path(base) if base is not None else None
        if self._base is not None and self._base.parent.resolve() != self._path.parent.resolve():
            raise InvalidRequest("a backup lies in the folder of its base: restoring it reads both")
        self._objects = ArchiveObjects(str(path))
        self._backend = ArchiveBackend(self._objects)
        self._loaded = load_archive(self._backend, self._base) if self._base is not None else None
        self._writer = self._backend.writer = ArchiveWriter(path)
        # Rows stay as they are stored, and sealed ones need the keys of their store; or else they become plain.
        self._is_plain = plain and tools.envelope.ring is not None
        self._tools = Tools(tools.codec) if self._is_plain else tools

    async def fill(self, source: Context, choice: CopyChoice, progress: Progress | None) -> CopyReport:
        from .core.moving.archive import fill_archive, why_no_base

        archive, adopt = self._opened()
        why = await why_no_base(source, archive, adopt) if self._base is not None else None
        if self._base is not None and why is not None:
            base, file = self._base.name, self._path.name
            log.warning("%r %s: %r is a whole backup, and adds to none", base, printable(why), file)
            self._begin_anew()
            archive, adopt = self._opened()
        mirrors = self._base is not None
        return await fill_archive(source, archive, choice, progress, adopt=adopt, mirrors=mirrors)

    def _opened(self) -> tuple[Context, Adopt | None]:
        from .backends.layers.tiered import TieredLayer
        from .core.context import Context

        backend: Any = TieredLayer(self._backend, self._objects)
        return Context(backend, self._tools), None if self._is_plain else self._backend.adopt

    def _begin_anew(self) -> None:
        """Write a file that stands alone."""
        from .backends.memory.archive import ArchiveBackend
        from .backends.objects.archive import ArchiveObjects

        self._base = self._loaded = None
        self._objects = ArchiveObjects(str(self._path))
        self._backend = ArchiveBackend(self._objects, self._writer)

    def done(self, report: CopyReport) -> Archived:
        """Finish the file."""
        from .core.moving.report import Archived
        from .packs.archive import Base

        base = None
        if self._loaded is not None and self._base is not None:
            base = Base(self._loaded.id, self._base.name)
        self._backend.finish(base, self._kind)
        base_name = str(self._base) if self._base is not None else None
        return Archived(path=str(self._path), size_bytes=self._path.stat().st_size, base=base_name, report=report)

    def __enter__(self) -> _Filling:
        return self

    def __exit__(self, *_: object) -> None:
        self._writer.discard()


def choice_of(
    threads: Any, prefix: Any, filter: Any, since: Any, until: Any, merge: bool = False, records: bool = True
) -> CopyChoice:
    """What is to be moved, checked."""
    from .core.filters import check_filter
    from .core.moments import moment_of, until_of
    from .core.moving.report import CopyChoice

    until_id, until_time = until_of(until, "until")
    return CopyChoice(
        prefix=plain_text(prefix, "prefix"),
        thread_ids=None if threads is None else text_ids(threads, "threads"),
        filter=check_filter(filter) or None,
        since=moment_of(since, "since"),
        until_id=until_id,
        until_time=until_time,
        merge=merge,
        records=records,
    )


def is_remote(path: str | os.PathLike[str]) -> bool:
    """Whether this names an object and no file."""
    return "://" in os.fspath(path)


def _refuse_remote(path: str | os.PathLike[str]) -> None:
    if is_remote(path):
        raise InvalidRequest("an export is a file of this machine: name a path; `backup` goes to an object store too")


def _are_whole(*savers: Moving) -> bool:
    """Whether none of them sees only some threads of its store: items belong to no thread."""
    return not any(getattr(saver._engine, "is_part", False) for saver in savers)


def _refuse_itself(source: Moving, target: Any) -> None:
    if not isinstance(target, Moving):
        raise InvalidRequest(f"copy_to takes another saver, not {type(target).__name__}")
    if target._engine is source._engine:
        raise InvalidRequest("a store cannot be copied onto itself: thread.fork(to=…) and copy_thread copy within one")
