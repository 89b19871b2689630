"""The import itself: one pass over the source, thread by thread, oldest checkpoint first.

Each batch is read from the source, compared with what the store has of it, completed in one transaction,
then read back and compared again. So a run that was killed is continued by running it again, a run on a
source that has grown adds what is new, and a run that had nothing to do has verified everything.

Where the store has a checkpoint or a write that differs, the source is newer unless the thread has gone on
in the store: then it is left as it is, and counted.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from ..backends.engine import Engine
from ..backends.port import Backend, CheckpointKey, Query
from ..connecting import make_engine, make_tools, split_options
from ..core.checkpoints import PreparedPut, PreparedWrites, prepare_put, prepare_writes, put_all
from ..core.reading import Read, read_one
from ..core.requests import Place
from ..core.tools import Tools
from ..errors import Conflict, Corrupt, InvalidRequest, NotAllowed, NotSerializable, ThreadlineError
from .compare import Comparison, Wanted, WantedWrite, compare, wanted_from
from .source import SourceCheckpoint, SourceKey, SqliteSource
from .transcode import Cipher, TransferCodec, check_tag

__all__ = ["Counts", "ImportReport", "import_sqlite"]

_BATCH_CHECKPOINTS = 32
_BATCH_BYTES = 8_000_000
_PAGE = 500
# What is wrong with one row; everything else ends the import.
_PROBLEMS = (Conflict, Corrupt, InvalidRequest, NotAllowed, NotSerializable)


@dataclass(slots=True)
class Counts:
    """What became of the checkpoints, or of the writes, of the source."""

    copied: int = 0
    # There already, and the same.
    present: int = 0
    # There already, and replaced by what the source has now.
    renewed: int = 0
    # There already, different, and left alone because the thread has gone on in the store.
    kept: int = 0

    @property
    def total(self) -> int:
        return self.copied + self.present + self.renewed + self.kept


@dataclass(slots=True, kw_only=True)
class ImportReport:
    """What an import did. Everything it counts as copied, renewed or present was read back and compared."""

    threads: int = 0
    checkpoints: Counts = field(default_factory=Counts)
    writes: Counts = field(default_factory=Counts)
    # Writes of checkpoints that the source does not hold; they are left out.
    orphan_writes: int = 0
    # The rows of LangGraph's tables, and everything in Threadline's afterwards.
    bytes_before: int = 0
    bytes_after: int = 0
    # What could not be imported, one sentence each.
    problems: list[str] = field(default_factory=list)

    @property
    def is_complete(self) -> bool:
        return not self.problems


def import_sqlite(
    source: str | os.PathLike[str],
    target: str | os.PathLike[str] | None = None,
    *,
    cipher: Cipher | None = None,
    progress: Callable[[int, int], None] | None = None,
    **options: Any,
) -> ImportReport:
    """Copy the threads of a database of langgraph-checkpoint-sqlite into a Threadline store.

    `target` is the same file unless it is given; `options` are those of `threadline.connect`. LangGraph's
    tables are only read. May be run again at any time, also after it was killed. `progress` is called with
    the checkpoints done and their total. A row that cannot be read is named in the report, and the rest is
    imported; a database that is no source, or is encrypted without its `cipher`, raises before anything
    is written.
    """
    engine_options, tool_options = split_options(options)
    if tool_options.get("serde") is not None:
        raise InvalidRequest("import writes Threadline's own encoding: leave serde= away")
    with SqliteSource(source) as tables:
        for tag in sorted(tables.tags(), key=str):
            check_tag(tag, can_decrypt=cipher is not None)
        engine = make_engine(source if target is None else target, **engine_options)
        tools = make_tools(**tool_options)
        tools = tools.with_codec(TransferCodec(tools.codec.rules))
        try:
            return _Import(tables, engine, tools, cipher, progress).run()
        finally:
            engine.close()


class _Import:
    """One run."""

    def __init__(
        self,
        source: SqliteSource,
        engine: Engine,
        tools: Tools,
        cipher: Cipher | None,
        progress: Callable[[int, int], None] | None,
    ) -> None:
        self.source, self.engine, self.tools = source, engine, tools
        self.cipher, self.progress = cipher, progress
        self.report = ImportReport()
        self.done = 0

    def run(self) -> ImportReport:
        report = self.report
        self.engine.run(self.tools.open)
        totals = self.source.totals()
        report.bytes_before, report.orphan_writes = totals.content_bytes, totals.orphans
        for thread_id in self.source.threads():
            report.threads += 1
            keys = self.source.keys(thread_id)
            try:
                self._import_thread(thread_id, keys, totals.checkpoints)
            except _PROBLEMS as problem:
                report.problems.append(f"thread {thread_id!r}: {problem}")
        summary = self.engine.run(lambda backend: backend.summary(time.time()))
        report.bytes_after = summary.chunk_bytes + summary.row_bytes
        return report

    def _import_thread(self, thread_id: str, keys: Sequence[SourceKey], total: int) -> None:
        held = self.engine.run(lambda backend: _held_keys(backend, thread_id))
        has_gone_on = bool(held - {CheckpointKey(key.namespace, key.id) for key in keys})
        for batch in _batches(keys):
            self._import_batch(self.source.checkpoints(thread_id, batch), held, has_gone_on)
            self.done += len(batch)
            if self.progress is not None:
                self.progress(min(self.done, total), total)

    def _import_batch(self, batch: Sequence[SourceCheckpoint], held: set[CheckpointKey], has_gone_on: bool) -> None:
        written: list[Wanted] = []
        prepared: list[PreparedPut | PreparedWrites] = []
        for found in batch:
            try:
                wanted = wanted_from(found, self._codec, self.cipher)
                there = self._stored(wanted) if CheckpointKey(found.namespace, found.id) in held else None
                parts = self._prepare(wanted, compare(wanted, there, self.tools), has_gone_on)
            except _PROBLEMS as problem:
                self.report.problems.append(f"{found.name}: {problem}")
                continue
            if parts:
                written.append(wanted)
                prepared.extend(parts)
        if not prepared:
            return
        _carry_each_chunk_once(prepared)
        self.engine.run(lambda backend: put_all(backend, self.tools, prepared, time.time()))
        for wanted in written:
            self._verify(wanted, has_gone_on)

    @property
    def _codec(self) -> TransferCodec:
        assert isinstance(self.tools.codec, TransferCodec)
        return self.tools.codec

    def _stored(self, wanted: Wanted) -> Read | None:
        place = Place(wanted.thread_id, wanted.namespace, wanted.id)
        return self.engine.run(lambda backend: read_one(backend, self.tools, place))

    def _prepare(
        self, wanted: Wanted, comparison: Comparison, has_gone_on: bool
    ) -> list[PreparedPut | PreparedWrites]:
        """What to put so that the store has what the source has; counts it."""
        keeps = has_gone_on or comparison.has_more_writes
        prepared: list[PreparedPut | PreparedWrites] = []
        if comparison.is_absent or (comparison.is_different and not keeps):
            versions = wanted.checkpoint.get("channel_versions", {})
            config = wanted.config(wanted.parent)
            prepared.append(prepare_put(self.tools, config, wanted.checkpoint, wanted.metadata, versions))
        prepared.extend(_prepare_writes(self.tools, wanted, comparison.absent_writes, replaces=False))
        if not keeps:
            prepared.extend(_prepare_writes(self.tools, wanted, comparison.different_writes, replaces=True))
        for one in prepared:
            one.made_at = wanted.made_at
        self._count(wanted, comparison, keeps)
        return prepared

    def _count(self, wanted: Wanted, comparison: Comparison, keeps: bool) -> None:
        checkpoints, writes = self.report.checkpoints, self.report.writes
        different = len(comparison.different_writes)
        if comparison.is_absent:
            checkpoints.copied += 1
        elif not comparison.is_different:
            checkpoints.present += 1
        elif keeps:
            checkpoints.kept += 1
        else:
            checkpoints.renewed += 1
        writes.copied += len(comparison.absent_writes)
        writes.present += len(wanted.writes) - len(comparison.absent_writes) - different
        if keeps:
            writes.kept += different
        else:
            writes.renewed += different

    def _verify(self, wanted: Wanted, has_gone_on: bool) -> None:
        """Read back what was put, and say where it is not what the source has."""
        try:
            comparison = compare(wanted, self._stored(wanted), self.tools)
        except ThreadlineError as damage:
            self.report.problems.append(str(damage))
            return
        if has_gone_on or comparison.has_more_writes:
            comparison = replace(comparison, is_different=False, different_writes=[])
        if not comparison.is_same:
            self.report.problems.append(
                f"thread {wanted.thread_id!r}, checkpoint {wanted.id}: what was read back is not what the source has"
            )


def _prepare_writes(
    tools: Tools, wanted: Wanted, writes: Iterable[WantedWrite], *, replaces: bool
) -> Iterator[PreparedWrites]:
    """The writes of each task, at the indexes they have in the source."""
    config = wanted.config(wanted.id)
    tasks: dict[tuple[str, str], list[WantedWrite]] = {}
    for write in writes:
        tasks.setdefault((write.task_id, write.task_path), []).append(write)
    for (task_id, task_path), own in tasks.items():
        prepared = prepare_writes(tools, config, [(write.channel, write.value) for write in own], task_id, task_path)
        prepared.writes = [
            row._replace(idx=write.idx, replaces=replaces) for row, write in zip(prepared.writes, own, strict=True)
        ]
        yield prepared


def _carry_each_chunk_once(prepared: Iterable[PreparedPut | PreparedWrites]) -> None:
    """Leave out of each put the chunks that an earlier one of the same transaction brings."""
    carried: set[bytes] = set()
    for one in prepared:
        one.chunks = {digest: chunk for digest, chunk in one.chunks.items() if digest not in carried}
        carried.update(one.chunks)


def _batches(keys: Sequence[SourceKey]) -> Iterator[list[SourceKey]]:
    batch: list[SourceKey] = []
    size_bytes = 0
    for key in keys:
        if batch and (len(batch) == _BATCH_CHECKPOINTS or size_bytes + key.size_bytes > _BATCH_BYTES):
            yield batch
            batch, size_bytes = [], 0
        batch.append(key)
        size_bytes += key.size_bytes
    if batch:
        yield batch


async def _held_keys(backend: Backend, thread_id: str) -> set[CheckpointKey]:
    """The checkpoints of a thread that the store has."""
    held: set[CheckpointKey] = set()
    query = Query(thread_id=thread_id, limit=_PAGE, with_writes=False)
    while True:
        page = await backend.page(query)
        held.update(CheckpointKey(found.row.namespace, found.row.id) for found in page)
        if len(page) < _PAGE:
            return held
        query = replace(query, after=(page[-1].row.id, thread_id, page[-1].row.namespace))
