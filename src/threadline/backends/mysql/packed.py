"""Rows read in one or two columns: the drivers take thirty calls for each column of an answer, and six for each value.

The server puts the numbers of a row, and the lengths of its texts and bytes (-1 for NULL), side by side as words, and
behind them, or in a second column, the texts and bytes themselves. It gives NULL for what exceeds max_allowed_packet,
which was lowered then; such rows are read column by column (sql/backend.py).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ...ports.checkpoints import CheckpointRow, Found
from ..sql.rows import ordered_writes
from .binding import bound
from .statements import MysqlStatements

__all__ = ["PackedStatements", "chunk_of", "found_of"]

_CHECKPOINT = ("c.id", "c.parent", "c.links", "c.document", "c.metadata", "c.source", "c.run_id", "c.searchable")
_WRITE = ("coalesce(w.task_id_full, w.task_id)", "w.task_path", "w.channel", "w.links", "w.data")
_CHUNK = ("digest", "links", "data")
# How many words the row of a write has; that of a checkpoint has more.
_WRITE_WORDS = 2 + len(_WRITE)


class PackedStatements:
    """The queries of a get."""

    def __init__(self, sql: MysqlStatements) -> None:
        numbers = ["t.pool", "t.epoch", "c.form", "c.metadata_form", "c.step IS NULL", "ifnull(c.step, 0)", "c.created"]
        row, write = _columns(numbers, _CHECKPOINT), _columns(["w.idx", "w.form"], _WRITE)
        of_thread = sql.compared("t.thread_id")
        of_write = f"{sql.compared('w.namespace')} AND w.checkpoint_id"
        writes = f"FROM {sql.t} t JOIN {sql.w} w ON w.pool = t.pool AND w.thread = t.serial WHERE {of_thread}"
        newest = f"({sql.newest_of(sql.dialect.mark('namespace'))})"
        self.chunk = f"concat({_words(['form'], _CHUNK)}, ' ', {_bytes(_CHUNK)})"
        self._rows: dict[bool, str] = {}
        # A checkpoint, and below it its writes, in one query and so from one state of the database.
        self._writes: dict[bool, str] = {}
        for is_named, id in ((True, sql.dialect.mark()), (False, newest)):
            found = f"SELECT {row} {sql.joined} {of_thread} AND {sql.compared('c.namespace')} AND c.id = {id}"
            self._rows[is_named] = found
            self._writes[is_named] = f"{found} UNION ALL SELECT {write} {writes} AND {of_write} = {id}"

    def find(self, thread_id: str, namespace: str, checkpoint_id: str | None, *, with_writes: bool) -> bytes:
        """The query for a checkpoint, or the newest of its namespace."""
        is_named = checkpoint_id is not None
        values = (thread_id, namespace, checkpoint_id if is_named else namespace)
        return bound(self._writes[is_named], values * 2) if with_writes else bound(self._rows[is_named], values)


def found_of(rows: Sequence[Any], thread_id: str, namespace: str, epoch_base: int) -> Found | None:
    """The checkpoint that a query of ours found. Raises ValueError where the server left something out."""
    found: CheckpointRow | None = None
    pool = epoch = 0
    packed: list[tuple[Any, bytes]] = []
    for words, body in rows:
        if body is None:
            raise ValueError
        parts = words.split()
        if len(parts) == _WRITE_WORDS:
            packed.append((parts, body))
            continue
        created = float(parts.pop(6))
        pool, epoch, form, metadata_form, has_no_step, step, *lengths = map(int, parts)
        id, parent, links, document, metadata, source, run_id, searchable = _cut(body, lengths)
        found = CheckpointRow(
            namespace, _text(id), _text(parent), links, form, document, metadata_form, metadata,
            None if has_no_step else step, _text(source), _text(run_id), created, _text(searchable),
        )  # fmt: skip
    if found is None:
        return None
    rows_of_writes = []
    for parts, body in packed:
        index, form, *lengths = map(int, parts)
        task_id, task_path, channel, links, data = _cut(body, lengths)
        texts = _text(task_path), _text(channel)
        rows_of_writes.append((namespace, found.id, _text(task_id), index, *texts, links, form, data))
    return Found(thread_id, pool, epoch + epoch_base, found, ordered_writes(rows_of_writes))


def chunk_of(packed: bytes) -> tuple[bytes, bytes, int, bytes]:
    """Digest, links, form and data of a chunk."""
    form, digest, links, _, body = packed.split(b" ", 4)
    end = int(digest) + int(links)
    return body[: int(digest)], body[int(digest) : end], int(form), body[end:]


def _columns(numbers: Sequence[str], parts: Sequence[str]) -> str:
    return f"{_words(numbers, parts)}, {_bytes(parts)}"


def _words(numbers: Sequence[str], parts: Sequence[str]) -> str:
    return f"concat_ws(' ', {', '.join(numbers)}, {', '.join(f'ifnull(length({part}), -1)' for part in parts)})"


def _bytes(parts: Sequence[str]) -> str:
    inside = ", ".join(f"ifnull({part}, '')" for part in parts)
    return f"concat({inside})"


def _cut(body: bytes, lengths: Sequence[int]) -> list[Any]:
    """The parts of a body, None for NULL."""
    parts: list[Any] = []
    at = 0
    for length in lengths:
        parts.append(body[at : at + length] if length >= 0 else None)
        at += max(length, 0)
    return parts


def _text(value: bytes | None) -> Any:
    return value.decode("utf-8", "surrogatepass") if value is not None else None
