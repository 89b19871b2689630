"""An archive as a backend: its rows in memory, its chunks cold, with their bytes in the file.

The same class reads an archive and writes one. What is applied to it goes into packs of the file; what is new since its
base was loaded is what `finish` writes.
"""

from __future__ import annotations

import time
import uuid
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from ...base.checkpoint import INTERRUPT
from ...base.namespaces import ROOT
from ...errors import Corrupt, NotFound, ThreadlineError
from ...packs.archive import BACKUP, Base, Block, Directory, PackPlace, pack_block, unpack_block
from ...packs.cold import cold_row, is_cold, read_reference
from ...packs.writer import PackWriter
from ...ports.checkpoints import (
    Applied,
    Change,
    CheckpointKey,
    CheckpointKeys,
    CheckpointRow,
    ChunkRow,
    Guard,
    Stale,
    Stamp,
    ThreadRow,
    WriteRow,
)
from ...ports.records import Record, RecordChange, RecordSpace
from ..layers.read_only import ReadOnlyLayer
from ..layers.tiered import TieredLayer
from ..objects.archive import ArchiveObjects, ArchiveWriter, read_directory, read_range
from .backend import MemoryBackend
from .engine import MemoryEngine

__all__ = ["ArchiveBackend", "archive_engine", "files_of", "load_archive", "newest_backup"]

THREAD, CHECKPOINT, WRITE, CHUNK, RECORD, GONE = range(6)
# The types of the fields of each kind of row.
_TEXT, _TIME = str | None, float | int | None
_SHAPES: tuple[tuple[Any, ...], ...] = (
    (str, int, int, int, str, _TEXT, _TEXT, float, float, _TIME, str, bytes | None),
    (str, str, str, _TEXT, bytes, int, bytes, int, bytes, int | None, _TEXT, _TEXT, float, _TEXT),
    (str, str, str, str, int, str, str, bytes, int, bytes),
    (int, bytes, bytes, int, bytes),
    (int, bytes, int, bytes, _TEXT, float, float, _TIME, int),
)
_BLOCK_ROWS = 2_000
_BLOCK_BYTES = 1 << 20
# How many archives may stand upon each other; a circle ends here, too.
_LONGEST_CHAIN = 1_000


class ArchiveBackend(MemoryBackend):
    """The rows of an archive; with a writer, of one that is being made."""

    def __init__(self, objects: ArchiveObjects, writer: ArchiveWriter | None = None) -> None:
        super().__init__()
        self.objects, self.writer = objects, writer
        self.began = time.time()
        self._pack: PackWriter | None = None
        self._pack_pool = 0
        # Rows of the pack that is being filled, as they are and with their places.
        self._filling: list[tuple[ChunkRow, int]] = []
        self._packs: list[PackPlace] = []
        # What was changed since the base was loaded, by kind and place; threads that went, which may be there anew.
        self._new: dict[tuple[Any, ...], None] = {}
        self._gone: list[str] = []
        self._new_chunks: list[list[Any]] = []
        self._blocks: list[Block] = []

    # -- reading a file

    def load(self, rows: Sequence[list[Any]], where: str) -> None:
        """Take the rows of a block."""
        loaders = (self._load_thread, self._load_row, self._load_write, self._load_chunk, self._load_record)
        try:
            for kind, *parts in rows:
                if kind == GONE:
                    self._drop(*parts)
                elif len(parts) == len(_SHAPES[kind]) and all(map(isinstance, parts, _SHAPES[kind])):
                    loaders[kind](*parts)
                else:
                    raise ValueError("its fields are of other types")
        except (TypeError, ValueError, LookupError, AttributeError) as error:
            raise Corrupt(f"{where}: a row of it is damaged ({error})") from None

    def _load_thread(self, *parts: Any) -> None:
        row = ThreadRow(*parts)
        self._threads[row.thread_id] = row
        self._mates[row.pool].add(row.thread_id)
        self._serial = max(self._serial, row.serial, row.pool)

    def _load_row(self, thread_id: str, *parts: Any) -> None:
        self._rows.place(self._threads[thread_id].serial, CheckpointRow(*parts))

    def _load_write(self, thread_id: str, *parts: Any) -> None:
        write, serial = WriteRow(*parts), self._threads[thread_id].serial
        self._rows.add_writes(serial, [write._replace(replaces=True)])
        self._rows.writes[serial, write.namespace, write.checkpoint_id][write.task_id, write.idx] = write
        if write.channel == INTERRUPT and write.namespace == ROOT:
            self._asked.add(thread_id)

    def _load_chunk(self, pool: int, digest: bytes, links: bytes, form: int, data: bytes) -> None:
        if not is_cold(form):
            raise ValueError("a chunk of it has no place in a pack")
        self._chunks[pool][digest] = links, form, data

    def _load_record(self, space: int, *parts: Any) -> None:
        record = Record(*parts)
        held = self._spaces[RecordSpace(space)]
        held.make(record.name, record)
        held.records[record.name] = record  # with its own version

    def _drop(self, kind: int, *parts: Any) -> None:
        """Take out what has gone since the base; what the base did not have does no harm."""
        if kind == THREAD:
            row = self._threads.pop(parts[0], None)
            if row is not None:
                self._forget(row)
        elif kind == CHECKPOINT:
            thread_id, *key = parts
            self._rows.remove(self._threads[thread_id].serial, [CheckpointKey(*key)])
        elif kind == WRITE:
            thread_id, namespace, checkpoint_id, task_id, idx = parts
            held = self._rows.writes.get((self._threads[thread_id].serial, namespace, checkpoint_id), {})
            held.pop((task_id, idx), None)
        else:
            space = self._spaces[RecordSpace(parts[0])]
            space.drop([name for name in parts[1:] if name in space.records])

    def _forget(self, row: ThreadRow) -> None:
        self._mates[row.pool].discard(row.thread_id)
        self._asked.discard(row.thread_id)
        self._rows.drop(row.serial)
        if not self._mates[row.pool]:
            self._chunks.pop(row.pool, None)

    async def chunk_sizes(self, pool: int, after: bytes, limit: int) -> list[tuple[bytes, bytes, int, int]]:
        """As of chunks that are at hand: what a pack holds of them, not the place in it."""
        held = self._chunks.get(pool, {})
        return [
            (digest, links, form, read_reference(held[digest][2]).length if is_cold(form) else size)
            for digest, links, form, size in await super().chunk_sizes(pool, after, limit)
        ]

    # -- writing one

    def adopt(self, thread: ThreadRow) -> Stamp:
        """Take over a thread as it is in its store, with its pool: sealed bytes are bound to that."""
        self._load_thread(*thread._replace(epoch=0, status="active"))
        self._note(THREAD, thread.thread_id)
        return thread.pool, 0

    async def apply(self, changes: Sequence[Change]) -> list[Applied | Stale]:
        outcomes = await super().apply([replace(change, chunks=(), moved=()) for change in changes])
        for change, outcome in zip(changes, outcomes, strict=True):
            if isinstance(outcome, Stale):
                break
            for row in (*change.chunks, *change.moved):
                self._add_chunk(outcome.stamp[0], row)
            self._note(THREAD, change.thread_id)
            for checkpoint in change.checkpoints:
                self._note(CHECKPOINT, change.thread_id, *checkpoint.key)
            for write in change.writes:
                self._note(WRITE, change.thread_id, *write.key, write.task_id, write.idx)
        return outcomes

    async def swap_thread(self, before: ThreadRow, after: ThreadRow) -> bool:
        self._note(THREAD, before.thread_id)
        return await super().swap_thread(before, after)

    async def write_records(self, changes: Sequence[RecordChange]) -> int | None:
        refused = await super().write_records(changes)
        for change in changes if refused is None else ():
            if change.record is not None:
                # An archive holds a record as it was, with its version.
                self._spaces[change.space].records[change.name] = change.record
            self._note(RECORD, int(change.space), change.name)
        return refused

    async def remove_thread(self, thread_id: str, deleted_before: str, now: float) -> None:
        """Leave a thread out that its store does not have any more; an archive needs no tombstone."""
        self._forget(self._threads.pop(thread_id))
        self._gone.append(thread_id)

    async def remove_checkpoints(
        self, thread_id: str, keys: CheckpointKeys, settled: CheckpointKeys = (), guard: Guard | None = None
    ) -> int | None:
        serial = self._threads[thread_id].serial
        for key in (*keys, *settled):
            for task_id, idx in self._rows.writes.get((serial, *key), ()):
                self._note(WRITE, thread_id, *key, task_id, idx)
        for key in keys:
            self._note(CHECKPOINT, thread_id, *key)
        return await super().remove_checkpoints(thread_id, keys, settled, guard)

    def _note(self, *what: Any) -> None:
        self._new[what] = None

    def _add_chunk(self, pool: int, row: ChunkRow) -> None:
        if row.digest in self._chunks[pool]:
            return
        if self._pack is not None and (self._pack_pool != pool or not self._pack.takes(len(row.data))):
            self._close_pack()
        if self._pack is None:
            self._pack, self._pack_pool = PackWriter(pool), pool
        entry = self._pack.add(row)
        self._filling.append((row, entry.offset))
        self._chunks[pool][row.digest] = row.links, row.form, row.data

    def _close_pack(self) -> None:
        """Write the pack that was filled; its rows are cold from now on."""
        if self._pack is None:
            return
        assert self.writer is not None
        packed = self._pack.finish()
        offset = self.writer.add(packed.content)
        self.objects.know(packed.name, self.writer, offset)
        self._packs.append(PackPlace(packed.name, offset, len(packed.content)))
        held = self._chunks[self._pack_pool]
        for row, at in self._filling:
            cold = cold_row(row, packed.name, at)
            held[row.digest] = cold.links, cold.form, cold.data
            self._new_chunks.append([CHUNK, self._pack_pool, *cold])
        self._pack, self._filling = None, []
        if len(self._new_chunks) >= _BLOCK_ROWS:
            self._write_rows(self._new_chunks)
            self._new_chunks = []

    def finish(self, base: Base | None, kind: str) -> Directory:
        """Write the rows and the directory; the file is whole, and has its name, when this returns."""
        assert self.writer is not None
        self._close_pack()
        self._write_rows(self._new_chunks)
        # Read before all others: with the last thread of a pool its chunks go, and its number may be another's now.
        chunks, self._blocks = self._blocks, []
        self._write_rows([[GONE, THREAD, thread_id] for thread_id in self._gone])
        self._blocks += chunks
        # In the order of the kinds: a thread comes before its rows.
        self._write_rows(self._changed_rows(sorted(self._new, key=lambda what: what[0])))
        kinds = ("threads", "checkpoints", "writes")
        counts = {name: sum(1 for what in self._new if what[0] == kind) for kind, name in enumerate(kinds)}
        directory = Directory(
            id=uuid.uuid4().bytes,
            made=time.time(),
            began=self.began,
            kind=kind,
            base=base,
            packs=tuple(self._packs),
            blocks=tuple(self._blocks),
            counts=counts,
        )
        self.writer.finish(directory)
        return directory

    def _changed_rows(self, noted: list[tuple[Any, ...]]) -> Iterator[list[Any]]:
        """What is to be written of what was changed: the row as it is now, or that it is gone."""
        for what in noted:
            row = self._row_now(*what)
            if row is not None:
                yield row
            elif what[0] == RECORD or (what[0] != THREAD and what[1] in self._threads):
                yield [GONE, *what]

    def _row_now(self, kind: int, first: Any, *place: Any) -> list[Any] | None:
        if kind == RECORD:
            record = self._spaces[RecordSpace(first)].records.get(place[0])
            return None if record is None else [RECORD, first, *record]
        thread = self._threads.get(first)
        if thread is None:
            return None
        if kind == THREAD:
            return [THREAD, *thread]
        if kind == CHECKPOINT:
            row = self._rows.checkpoints.get((thread.serial, *place))
            return None if row is None else [CHECKPOINT, first, *row]
        write = self._rows.writes.get((thread.serial, place[0], place[1]), {}).get((place[2], place[3]))
        return None if write is None else [WRITE, first, *write[:9]]

    def _write_rows(self, rows: Any) -> None:
        assert self.writer is not None
        block: list[Any] = []
        size = 0
        for row in rows:
            block.append(row)
            size += sum(len(part) for part in row if isinstance(part, (bytes, str)))
            if size > _BLOCK_BYTES or len(block) == _BLOCK_ROWS:
                self._write_block(block)
                block, size = [], 0
        if block:
            self._write_block(block)

    def _write_block(self, rows: list[Any]) -> None:
        assert self.writer is not None
        content, check = pack_block(rows)
        self._blocks.append(Block(self.writer.add(content), len(content), check))


def archive_engine(path: str) -> MemoryEngine:
    """An archive as a store that is only read."""
    backend = ArchiveBackend(ArchiveObjects(path))
    load_archive(backend, Path(path))
    made = MemoryEngine(ReadOnlyLayer(TieredLayer(backend, backend.objects)), f"archive:///{path}")
    # Its records hold bytes, and its chunks are in a file.
    made.is_in_memory = False
    return made


def load_archive(backend: ArchiveBackend, path: Path) -> Directory:
    """Fill a backend with the rows of an archive, those of its base first."""
    chain = _chain(path)
    for file, held in reversed(chain):
        for pack in held.packs:
            backend.objects.know(pack.name, file, pack.offset)
        for block in held.blocks:
            backend.load(unpack_block(read_range(file, block.offset, block.length), block, str(file)), str(file))
    return chain[0][1]


def files_of(path: Path) -> list[Path]:
    """An archive's file and those of its bases."""
    return [file for file, _ in _chain(path)]


def newest_backup(paths: Iterable[Path]) -> tuple[Path | None, list[ThreadlineError]]:
    """The backup of some files that was made last, and why others cannot be added to. Exports are no backups.

    A file that does not say what it is counts as a backup: it was made before files did.
    """
    made: dict[Path, float] = {}
    passed: list[ThreadlineError] = []
    for path in sorted(paths):
        try:
            directory = _chain(path)[0][1]
            if directory.kind in (None, BACKUP):
                made[path] = directory.made
        except ThreadlineError as trouble:
            passed.append(trouble)
    return max(made, key=lambda path: (made[path], path), default=None), passed


def _chain(path: Path) -> list[tuple[Path, Directory]]:
    """An archive and its bases, each above the next."""
    chain: list[tuple[Path, Directory]] = []
    at: Path | None = path
    while at is not None:
        directory = read_directory(at)
        if chain:
            _check_base(chain[-1], at, directory)
        chain.append((at, directory))
        if len(chain) > _LONGEST_CHAIN:
            raise Corrupt(f"{path}: its bases lead in a circle")
        at = at.with_name(directory.base.name) if directory.base is not None else None
    return chain


def _check_base(above: tuple[Path, Directory], path: Path, directory: Directory) -> None:
    base = above[1].base
    assert base is not None
    if directory.id != base.id:
        raise NotFound(f"{above[0]} adds to another {path.name} than the one beside it: put its own base there")
