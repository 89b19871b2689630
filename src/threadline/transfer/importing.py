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
from contextlib import closing
from dataclasses import dataclass, field
from typing import Any

from ..base.checkpoint import config_of
from ..connect import check_driver, make_engine, make_tools, parse_url, split_options
from ..core.context import Tools, bound
from ..core.get import Read, read_one
from ..core.operations import opened
from ..core.paging import each_found, parts_of
from ..core.prepare import PreparedPut, PreparedWrites, prepare_put, prepare_writes
from ..core.put import put_all
from ..core.requests import Place
from ..core.stats import add_up
from ..errors import Conflict, Corrupt, InvalidRequest, NotAllowed, NotSerializable
from ..ports.checkpoints import Backend, CheckpointKey, Query
from ..ports.engine import Engine
from .compare import Comparison, Wanted, WantedWrite, compare, wanted_from
from .items import WantedItem, bring_items, wanted_item
from .langgraph_sqlite import SqliteSource
from .report import ImportReport
from .source import Source, SourceCheckpoint, SourceTotals
from .transcode import Cipher, TransferCodec, check_tag

__all__ = ["import_postgres", "import_sqlite", "import_threads"]

_BATCH_CHECKPOINTS = 32
_BATCH_BYTES = 16_000_000
_PAGE = 500
# What can be wrong with one row; everything else ends the import.
_PROBLEMS = (Corrupt, InvalidRequest, NotAllowed, NotSerializable)


def import_threads(
    source: str | os.PathLike[str],
    target: str | os.PathLike[str] | None = None,
    *,
    cipher: Cipher | None = None,
    progress: Callable[[int, int], None] | None = None,
    **options: Any,
) -> ImportReport:
    """Copy the threads of one of LangGraph's own savers, and the items of its stores, into a Threadline store.

    `source` is the URL of a database of langgraph-checkpoint-sqlite or langgraph-checkpoint-postgres, or the path of
    a file. `target` is the same database unless it is given; `options` are those of `threadline.connect`.
    LangGraph's tables are only read. May be run again at any time, also after it was killed. `progress` is called
    with the checkpoints and items done and their total. A row that cannot be read is named in the report, and the
    rest is imported; a database that is no source, or is encrypted without its `cipher`, raises before anything is
    written.
    """
    kind, _ = parse_url(source)
    if kind not in _OPENERS:
        raise InvalidRequest("import reads sqlite:///old.db and postgresql://user@host/database, and nothing else")
    return _import_from(_OPENERS[kind], source, target, cipher, progress, options)


def import_sqlite(
    source: str | os.PathLike[str],
    target: str | os.PathLike[str] | None = None,
    *,
    cipher: Cipher | None = None,
    progress: Callable[[int, int], None] | None = None,
    **options: Any,
) -> ImportReport:
    """`import_threads` from a database of langgraph-checkpoint-sqlite and no other."""
    return _import_from(SqliteSource, source, target, cipher, progress, options)


def import_postgres(
    source: str,
    target: str | os.PathLike[str] | None = None,
    *,
    cipher: Cipher | None = None,
    progress: Callable[[int, int], None] | None = None,
    **options: Any,
) -> ImportReport:
    """`import_threads` from a database of langgraph-checkpoint-postgres and no other."""
    return _import_from(_open_postgres, source, target, cipher, progress, options)


def _open_postgres(url: str | os.PathLike[str]) -> Source:
    check_driver("postgresql")
    from .langgraph_postgres import PostgresSource

    return PostgresSource(url)


_Opener = Callable[[str | os.PathLike[str]], Source]
_OPENERS: dict[str, _Opener] = {"sqlite": SqliteSource, "postgresql": _open_postgres}


def _import_from(
    open_source: _Opener,
    source: str | os.PathLike[str],
    target: str | os.PathLike[str] | None,
    cipher: Cipher | None,
    progress: Callable[[int, int], None] | None,
    options: dict[str, Any],
) -> ImportReport:
    engine_options, tool_options = split_options(options)
    if tool_options.get("serde") is not None:
        raise InvalidRequest("import writes Threadline's own encoding: leave serde= away")
    with closing(open_source(source)) as tables:
        for tag in sorted(tables.tags(), key=str):
            check_tag(tag, can_decrypt=cipher is not None)
        engine = make_engine(source if target is None else target, **engine_options)
        tools = make_tools(engine, **tool_options)
        tools = tools.with_codec(TransferCodec(tools.codec.rules))
        try:
            if engine.is_in_memory:
                raise InvalidRequest("a store in memory ends with its process: import into a file or a server")
            return _Import(tables, engine, tools, cipher, progress).run()
        finally:
            engine.close()


class _Import:
    """One run."""

    def __init__(
        self,
        source: Source,
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
        self.engine.run(bound(self.tools, opened))
        totals = self.source.totals()
        report.bytes_before, report.orphan_writes = totals.content_bytes, totals.orphans
        for thread_id in self.source.threads():
            report.threads += 1
            try:
                self._import_thread(thread_id, totals)
            except Conflict as conflict:
                # Archived in the store, say: the other threads do not suffer for it.
                report.problems.append(f"thread {thread_id!r}: {conflict}")
        self._import_items(totals)
        totals_after = self.engine.run(add_up)
        report.bytes_after = totals_after.chunk_bytes + totals_after.row_bytes
        assert isinstance(self.tools.codec, TransferCodec)
        report.unknown_types = dict(self.tools.codec.unknown)
        return report

    def _import_thread(self, thread_id: str, totals: SourceTotals) -> None:
        keys = self.source.keys(thread_id)
        held = self.engine.run(lambda backend: _held_keys(backend, thread_id))
        has_gone_on = bool(held - {CheckpointKey(key.namespace, key.id) for key in keys})
        for batch in parts_of(keys, lambda key: key.size_bytes, _BATCH_BYTES, _BATCH_CHECKPOINTS):
            self._import_batch(self.source.checkpoints(thread_id, batch), held, has_gone_on)
            self._advance(len(batch), totals)

    def _import_items(self, totals: SourceTotals) -> None:
        report, last = self.report, None
        report.embeddings = totals.embeddings
        while page := self.source.items(last):
            wanted: list[WantedItem] = []
            for found in page:
                try:
                    one = wanted_item(found, self.tools.codec)
                except _PROBLEMS as problem:
                    report.problems.append(f"item {found.key!r} in {found.prefix!r}: {problem}")
                    continue
                if one.expires is not None and one.expires <= time.time():
                    report.expired_items += 1
                else:
                    wanted.append(one)
            brought = self.engine.run(bound(self.tools, bring_items, wanted))
            report.items.add(brought.counts)
            report.problems += brought.problems
            self._advance(len(page), totals)
            last = page[-1]

    def _advance(self, count: int, totals: SourceTotals) -> None:
        self.done += count
        if self.progress is not None:
            # The source may have grown since it was counted.
            total = totals.checkpoints + totals.items
            self.progress(min(self.done, total), total)

    def _import_batch(self, batch: Sequence[SourceCheckpoint], held: set[CheckpointKey], has_gone_on: bool) -> None:
        steps: list[_Step] = []
        for found in batch:
            is_held = CheckpointKey(found.namespace, found.id) in held
            try:
                steps.append(self._step(found, is_held, has_gone_on))
            except _PROBLEMS as problem:
                self.report.problems.append(f"{found.name}: {problem}")
        prepared = [one for step in steps for one in step.prepared]
        if prepared:
            _carry_each_chunk_once(prepared)
            self.engine.run(bound(self.tools, put_all, prepared, time.time()))
        for step in steps:
            if not step.prepared or self._is_stored(step):
                self._count(step)

    def _step(self, found: SourceCheckpoint, is_held: bool, has_gone_on: bool) -> _Step:
        """Prepare the puts that give the store one checkpoint as the source has it."""
        assert isinstance(self.tools.codec, TransferCodec)
        wanted = wanted_from(found, self.tools.codec, self.cipher)
        lacks = compare(wanted, self._read(wanted) if is_held else None, self.tools)
        step = _Step(wanted, lacks, keeps=has_gone_on or lacks.has_more_writes)
        if lacks.is_absent or (lacks.is_different and not step.keeps):
            versions = wanted.checkpoint.get("channel_versions", {})
            config = config_of(wanted.thread_id, wanted.namespace, wanted.parent)
            parts = config, wanted.checkpoint, wanted.metadata, versions
            step.prepared.append(prepare_put(self.tools, *parts, now=time.time()))
        step.prepared.extend(_prepare_writes(self.tools, wanted, lacks.absent_writes, replaces=False))
        if not step.keeps:
            step.prepared.extend(_prepare_writes(self.tools, wanted, lacks.different_writes, replaces=True))
        for one in step.prepared:
            one.made_at = wanted.made_at
        return step

    def _read(self, wanted: Wanted) -> Read | None:
        place = Place(wanted.thread_id, wanted.namespace, wanted.id)
        return self.engine.run(bound(self.tools, read_one, place))

    def _is_stored(self, step: _Step) -> bool:
        """Read back what was put, and note where it is not what the source has."""
        wanted = step.wanted
        lacks = compare(wanted, self._read(wanted), self.tools)
        is_whole = not lacks.is_absent and not lacks.absent_writes
        if is_whole and (lacks.is_same or step.keeps or lacks.has_more_writes):
            return True
        self.report.problems.append(
            f"thread {wanted.thread_id!r}, checkpoint {wanted.id}: what was read back is not what the source has"
        )
        return False

    def _count(self, step: _Step) -> None:
        lacks, checkpoints, writes = step.lacks, self.report.checkpoints, self.report.writes
        checkpoints.copied += lacks.is_absent
        checkpoints.present += not lacks.is_absent and not lacks.is_different
        checkpoints.renewed += lacks.is_different and not step.keeps
        checkpoints.kept += lacks.is_different and step.keeps
        absent, different = len(lacks.absent_writes), len(lacks.different_writes)
        writes.copied += absent
        writes.present += len(step.wanted.writes) - absent - different
        writes.renewed += 0 if step.keeps else different
        writes.kept += different if step.keeps else 0


@dataclass(slots=True)
class _Step:
    """One checkpoint on its way: what the store lacks of it, and what is put."""

    wanted: Wanted
    lacks: Comparison
    # Whether what differs is left as the store has it, because the thread went on there.
    keeps: bool
    prepared: list[PreparedPut | PreparedWrites] = field(default_factory=list)


def _prepare_writes(
    tools: Tools, wanted: Wanted, writes: Iterable[WantedWrite], *, replaces: bool
) -> Iterator[PreparedWrites]:
    """The writes of each task, at the indexes they have in the source."""
    config = config_of(wanted.thread_id, wanted.namespace, wanted.id)
    tasks: dict[tuple[str, str], list[WantedWrite]] = {}
    for write in writes:
        tasks.setdefault((write.task_id, write.task_path), []).append(write)
    for (task_id, task_path), own in tasks.items():
        values = [(write.channel, write.value) for write in own]
        prepared = prepare_writes(tools, config, values, task_id, task_path, are_final=False)
        prepared.writes = [
            row._replace(idx=write.idx, replaces=replaces) for row, write in zip(prepared.writes, own, strict=True)
        ]
        yield prepared


def _carry_each_chunk_once(prepared: Iterable[PreparedPut | PreparedWrites]) -> None:
    """Leave out of each put the chunks that an earlier one of the same transaction brings."""
    carried: set[bytes] = set()
    for one in prepared:
        chunks = one.batch.chunks
        one.batch.chunks = {digest: chunk for digest, chunk in chunks.items() if digest not in carried}
        carried.update(one.batch.chunks)


async def _held_keys(backend: Backend, thread_id: str) -> set[CheckpointKey]:
    """The checkpoints of a thread that the store has."""
    query = Query(thread_id=thread_id, limit=_PAGE, with_writes=False)
    return {found.key async for found in each_found(backend, query)}
