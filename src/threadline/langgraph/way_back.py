"""The way back: threads of a store, written to the tables of LangGraph's own savers, from which these resume.

LangGraph's savers write their tables themselves. All values are rebuilt before the first row is written, so a class
that this process does not know is told while nothing has changed. Checkpoints go oldest first, each with its parent and
its pending writes: a run that was stopped leaves an earlier state of each thread, and the next one completes it.
"""

from __future__ import annotations

import asyncio
import importlib
import json
import sqlite3
from collections.abc import Callable, Collection, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from ..base.checkpoint import ANSWERED, config_of
from ..connect import parse_url
from ..core.get import read_one, to_tuple
from ..core.moving.copy import threads_chosen
from ..core.moving.report import CopyChoice
from ..core.paging import thread_rows
from ..core.requests import Place
from ..errors import Conflict, InvalidRequest, MissingExtra, NotAllowed, NotFound, NotSerializable
from ..ports.checkpoints import CheckpointKey, WriteRow
from ..saver import Saver
from .types import register_langgraph_types

__all__ = ["WayBack", "awrite_back", "write_back"]

_KINDS = {
    "sqlite": ("langgraph.checkpoint.sqlite", "SqliteSaver", "langgraph-checkpoint-sqlite"),
    "postgresql": ("langgraph.checkpoint.postgres", "PostgresSaver", "langgraph-checkpoint-postgres"),
}
_MOST_TOLD = 10


@dataclass(slots=True)
class WayBack:
    """What was written to LangGraph's tables, and read back by its saver."""

    threads: int = 0
    checkpoints: int = 0
    writes: int = 0


def write_back(
    source: Saver,
    url: str,
    *,
    threads: Collection[str] | None = None,
    prefix: str = "",
    progress: Callable[[int, int], None] | None = None,
) -> WayBack:
    """Write threads to the tables of langgraph-checkpoint-sqlite or -postgres at a URL.

    Raises NotAllowed or NotSerializable, which name the first checkpoints whose values cannot be rebuilt or are not
    for LangGraph's tables, and Conflict where a thread there has checkpoints that the store has not; nothing was
    written then.
    """
    register_langgraph_types()
    # As LangGraph's savers give values, whatever else this process uses: a Send of the runtime is none to LangGraph.
    source = source.with_allowlist([])
    source._tools.codec.rules.preferred = dict
    choice = CopyChoice(prefix=prefix, thread_ids=threads)
    chosen = [row.thread_id for row in source.run(threads_chosen, choice)]
    keys = {thread_id: _keys(source, thread_id) for thread_id in chosen}
    total = 2 * sum(map(len, keys.values()))
    work, done = _Work(source, WayBack()), 0

    def advance() -> None:
        nonlocal done
        done += 1
        if progress is not None:
            progress(done, total)

    kind, place, saver = _saver_at(url)
    # Before the database is opened, which makes a file or tables there.
    for thread_id, own in keys.items():
        for key in own:
            work.check(saver.serde, thread_id, key)
            advance()
    work.raise_troubles()
    with _opened(kind, place, saver) as target:
        _refuse_what_went_on(target, keys)
        for thread_id, own in keys.items():
            for key in own:
                work.put(target, thread_id, key)
                advance()
            work.report.threads += 1
        _verify(target, keys)
    return work.report


async def awrite_back(
    source: Saver,
    url: str,
    *,
    threads: Collection[str] | None = None,
    prefix: str = "",
    progress: Callable[[int, int], None] | None = None,
) -> WayBack:
    """`write_back` beside an event loop: on a thread of its own, where `progress` is called too.

    A task that is cancelled does not stop that thread.
    """
    return await asyncio.to_thread(
        lambda: write_back(source, url, threads=threads, prefix=prefix, progress=progress),
    )


def _keys(source: Saver, thread_id: str) -> list[CheckpointKey]:
    """The checkpoints of a thread: those of subgraphs before those of the root, each oldest first."""
    keys = [found.key for found in source.run(thread_rows, thread_id)]
    return sorted(keys, key=lambda key: (key.namespace == "", key.id))


class _Work:
    def __init__(self, source: Saver, report: WayBack) -> None:
        self.source, self.report = source, report
        self.troubles: list[str] = []
        self.kind: type[Exception] = NotAllowed

    def check(self, serde: Any, thread_id: str, key: CheckpointKey) -> None:
        """Rebuild all values of a checkpoint, and let LangGraph's serializer take them; what cannot be is noted."""
        try:
            found, _ = self._read(thread_id, key)
        except (NotAllowed, NotSerializable) as trouble:
            self.troubles.append(str(trouble))
            return
        values: dict[str, Any] = dict(found.checkpoint["channel_values"])
        written = [(channel, value) for _, channel, value in found.pending_writes or ()]
        for what, value in [*values.items(), *written]:
            self._try(serde.dumps_typed, value, thread_id, key, f"channel {what!r}")
        self._try(json.dumps, found.metadata, thread_id, key, "its metadata")

    def _try(self, dump: Callable[[Any], Any], value: Any, thread_id: str, key: CheckpointKey, what: str) -> None:
        try:
            dump(value)
        except Exception as trouble:  # whatever a class or a serializer raises for a value
            self.kind = NotSerializable
            told = f"{type(trouble).__name__}: {trouble}"
            self.troubles.append(f"thread {thread_id!r}, checkpoint {key.id}, {what}: not for LangGraph ({told})")

    def raise_troubles(self) -> None:
        if self.troubles:
            more = len(self.troubles) - _MOST_TOLD
            told = "; ".join(dict.fromkeys(self.troubles[:_MOST_TOLD]))
            rest = f"; and {more} more" if more > 0 else ""
            hint = "" if self.kind is NotSerializable else ". Import the modules of these classes first"
            raise self.kind(f"nothing was written: {told}{rest}{hint}")

    def put(self, target: Any, thread_id: str, key: CheckpointKey) -> None:
        """Write a checkpoint and its pending writes."""
        found, rows = self._read(thread_id, key)
        checkpoint: dict[str, Any] = dict(found.checkpoint)
        checkpoint["channel_values"] = dict(checkpoint["channel_values"])
        checkpoint["channel_versions"] = _versions(checkpoint["channel_versions"])
        checkpoint["versions_seen"] = {node: _versions(seen) for node, seen in checkpoint["versions_seen"].items()}
        parent = found.parent_config["configurable"]["checkpoint_id"] if found.parent_config else None
        config = config_of(thread_id, key.namespace, parent) if parent else config_of(thread_id, key.namespace)
        target.put(config, checkpoint, found.metadata, checkpoint["channel_versions"])
        self.report.checkpoints += 1
        tasks: dict[tuple[str, str], list[tuple[int, str, Any]]] = {}
        for write, (_, channel, value) in zip(rows, found.pending_writes or (), strict=True):
            if channel != ANSWERED:  # a note of Threadline's own; the answer is a write of its own
                tasks.setdefault((write.task_id, write.task_path), []).append((write.idx, channel, value))
        at = config_of(thread_id, key.namespace, key.id)
        for (task_id, task_path), own in tasks.items():
            self._put_writes(target, at, task_id, task_path, own)

    def _put_writes(
        self, target: Any, config: Any, task_id: str, task_path: str, own: list[tuple[int, str, Any]]
    ) -> None:
        """Write what a task wrote. LangGraph numbers writes by their place, and special ones by their channel."""
        special = [(channel, value) for idx, channel, value in own if idx < 0]
        usual = [(channel, value) for idx, channel, value in sorted(own, key=lambda one: one[0]) if idx >= 0]
        for writes in (usual, special):
            if writes:
                target.put_writes(config, writes, task_id, task_path)
        self.report.writes += len(own)

    def _read(self, thread_id: str, key: CheckpointKey) -> tuple[Any, list[WriteRow]]:
        read = self.source.run(read_one, Place(thread_id, key.namespace, key.id))
        if read is None:
            raise NotFound(f"thread {thread_id!r}: {key.id} was deleted while it was read")
        tools = self.source._tools
        return to_tuple(tools, read, lazy=False), [write for write, _ in read.writes]


def _saver_at(url: str) -> tuple[str, str, Any]:
    """The kind of database at a URL, its place, and the class of LangGraph's saver; MissingExtra names the package."""
    kind, place = parse_url(url)
    if kind not in _KINDS:
        raise InvalidRequest("LangGraph's savers are written for sqlite:/// and postgresql://, and nothing else")
    module, name, package = _KINDS[kind]
    try:
        saver = getattr(importlib.import_module(module), name)
    except ImportError:
        raise MissingExtra(f"the tables of LangGraph's saver need its package: pip install {package}") from None
    return kind, place, saver


@contextmanager
def _opened(kind: str, place: str, saver: Any) -> Iterator[Any]:
    """LangGraph's saver at a place, with its tables."""
    with _translated(kind, place) as conninfo, saver.from_conn_string(conninfo) as target:
        target.setup()
        yield target


@contextmanager
def _translated(kind: str, place: str) -> Iterator[str]:
    """What the driver takes for a place; its errors become those of the house."""
    if kind == "sqlite":
        from ..backends.sqlite.errors import translate as of_sqlite

        try:
            yield place
        except sqlite3.Error as error:
            raise of_sqlite(error, place) from error
        return
    import psycopg

    from ..backends.postgres.errors import translate as of_postgres
    from ..backends.postgres.url import read_url

    conninfo, where, _ = read_url(place)
    try:
        yield conninfo
    except psycopg.Error as error:
        raise of_postgres(error, where) from error


def _refuse_what_went_on(target: Any, keys: dict[str, list[CheckpointKey]]) -> None:
    for thread_id, own in keys.items():
        there = {_key_of(found) for found in target.list({"configurable": {"thread_id": thread_id}})}
        if there - set(own):
            raise Conflict(
                f"LangGraph's tables have checkpoints of thread {thread_id!r} that the store has not: nothing was "
                f"written. Delete the thread there, or leave it out here"
            )


def _verify(target: Any, keys: dict[str, list[CheckpointKey]]) -> None:
    for thread_id, own in keys.items():
        there = {_key_of(found) for found in target.list({"configurable": {"thread_id": thread_id}})}
        if not there.issuperset(own):
            raise NotFound(f"thread {thread_id!r}: LangGraph's saver does not show all that was written; run it again")


def _key_of(found: Any) -> CheckpointKey:
    place = found.config["configurable"]
    return CheckpointKey(place["checkpoint_ns"], place["checkpoint_id"])


def _versions(versions: Any) -> dict[str, Any]:
    """Versions as LangGraph's database savers count them, in texts: numbers and texts are not compared."""
    return {name: _version(version) for name, version in versions.items()}


def _version(version: Any) -> Any:
    if isinstance(version, str) or version is None:
        return version
    return f"{int(version):032}.{version - int(version):016}"
