"""Looking back over many checkpoints: threads, log, filters, diff, fork and prune, on SQLite and PostgreSQL.

Only ours is measured, against bounds: the peers have no such verbs. What is looked for is the hard case, the user
whose checkpoints are the oldest of all. The many small checkpoints are put once, on SQLite, and their rows copied to
PostgreSQL; all else is put there by Threadline itself.
"""

from __future__ import annotations

import copy
import gc
import sqlite3
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from time import perf_counter
from typing import TYPE_CHECKING, Any

from langchain_core.messages import BaseMessage
from langchain_core.runnables import RunnableConfig
from langgraph.checkpoint.base.id import uuid6

from bench import servers
from bench.arena import Arena, Entrant, Reading, Size, Skipped
from bench.chat import THREAD_ID, make_message, play
from bench.checks import check
from bench.savers import Ours
from bench.text import Writer

if TYPE_CHECKING:
    from contextlib import AbstractContextManager

Put = tuple[RunnableConfig, Any, Any, Any]

USER_KEY = "user_id"
THREADS_PER_USER = 10
PUTS_PER_BATCH = 1_000
REPEATS = 5
LISTED = 10
FIRST_THREADS = 50
CHANGED_MESSAGES = 3
FORKS = 50
KEPT = 10
KEPT_OF_MANY = 100
TABLES = ("threads", "checkpoints", "writes", "chunks")


@dataclass(frozen=True, slots=True)
class Library:
    """Where the many checkpoints and the many threads are."""

    checkpoints: Path
    threads: Path


def history(arena: Arena) -> Iterator[Reading]:
    """Measured in the first round only: what takes long is to build it."""
    if arena.is_calibration or arena.round_number:
        return
    on_files = Ours()
    library = _build(arena, on_files)
    yield from _measure(arena, on_files, library, "sqlite")
    try:
        with servers.postgres() as server:
            on_server = servers.OursOnServer(server)
            for place in (library.checkpoints, library.threads):
                _copy(on_files, place, on_server)
            yield from _measure(arena, on_server, library, "postgres")
    except Skipped as skipped:
        raise Skipped(f"on PostgreSQL: {skipped}") from skipped


def _measure(arena: Arena, side: Ours, library: Library, name: str) -> Iterator[Reading]:
    for part in (_looks(side, library, arena.size), _long_thread(arena, side), _pruning(arena, side)):
        for key, value in part:
            yield Reading(f"history.{name}_{key}", value)


def _build(arena: Arena, side: Ours) -> Library:
    """Both stores, each checkpoint small: this is about their number."""
    checkpoints, threads = (arena.new_place(Entrant(name, side)) for name in ("library", "crowd"))
    size = arena.size
    with _open(side, checkpoints) as saver:
        for number in range(size.history_threads):
            saver.put_many(_thread_puts(number, size.history_steps))
    with _open(side, threads) as saver:
        for start in range(0, size.many_threads, PUTS_PER_BATCH):
            end = min(start + PUTS_PER_BATCH, size.many_threads)
            saver.put_many([put for number in range(start, end) for put in _thread_puts(number, 1)])
    return Library(checkpoints, threads)


def _looks(side: Ours, library: Library, size: Size) -> Iterator[tuple[str, float]]:
    """Seconds of what only looks, each time by a new saver, which remembers nothing."""
    everywhere, here = None, _config(_thread_id(0))

    def measure(place: Path, look: Callable[[Any], list[Any]], expected: int) -> float:
        return median(_look_seconds(side, place, look, expected) for _ in range(REPEATS))

    def found(config: RunnableConfig | None, user: str) -> Callable[[Any], list[Any]]:
        return lambda saver: list(saver.list(config, filter={USER_KEY: user}, limit=LISTED))

    books, crowd = library.checkpoints, library.threads
    yield "threads", measure(books, lambda saver: list(saver.threads()), size.history_threads)
    yield "log", measure(books, lambda saver: list(saver.thread(_thread_id(0)).log()), size.history_steps)
    yield "first_threads", measure(crowd, lambda saver: list(saver.threads(limit=FIRST_THREADS)), FIRST_THREADS)
    yield "filter", measure(books, found(everywhere, _user(0)), LISTED)
    yield "filter_none", measure(books, found(everywhere, "nobody"), 0)
    yield "filter_thread", measure(books, found(here, _user(0)), LISTED)


def _look_seconds(side: Ours, place: Path, look: Callable[[Any], list[Any]], expected: int) -> float:
    with _open(side, place) as saver:
        gc.collect()
        start = perf_counter()
        found = look(saver)
        seconds = perf_counter() - start
    check(len(found) == expected, f"{len(found)} were found instead of {expected}")
    return seconds


def _long_thread(arena: Arena, side: Ours) -> Iterator[tuple[str, float]]:
    """How much of a long thread `diff` reads, and what a fork of it adds."""
    place = arena.new_place(Entrant("long", side))
    messages = _put_long_thread(side, place, arena.size.long_thread)
    with _open(side, place) as saver:
        chunk_count = saver.stats().chunks
        watched, fetched = _watched(saver)
        found = watched.thread(THREAD_ID).diff("head~1")
    changes = [change for channel in found.channels if channel.channel == "messages" for change in channel.items]
    changed = [change for change in changes if change.after in messages]
    check(len(changes) == len(changed) == CHANGED_MESSAGES, f"diff found {len(changes)} changes")
    yield "diff", len(fetched) / chunk_count
    before = side.bytes_of(place)
    with _open(side, place) as saver:
        for number in range(FORKS):
            saver.thread(THREAD_ID).fork(to=f"fork-{number}")
        forked = saver.get_tuple(_config(f"fork-{FORKS - 1}"))
    check(forked.checkpoint["channel_values"]["messages"] == messages, "a fork has other messages")
    yield "fork", (side.bytes_of(place) - before) / FORKS


def _put_long_thread(side: Ours, place: Path, length: int) -> list[BaseMessage]:
    """A thread of two checkpoints that differ in a few messages; returns those of the second."""
    writer = Writer(seed=11)
    messages = [make_message(writer, number, 400) for number in range(length)]
    changed = list(messages)
    for number in range(CHANGED_MESSAGES):
        position = length * (2 * number + 1) // (2 * CHANGED_MESSAGES)
        changed[position] = messages[position].model_copy(update={"content": writer.text(400)})
    with _open(side, place) as saver:
        config = _config(THREAD_ID)
        for step, value in enumerate((messages, changed)):
            config = saver.put(config, *_checkpoint(step, {"messages": value}))
    return changed


def _watched(saver: Any) -> tuple[Any, set[bytes]]:
    """A clone of the saver, and the digests that it asks its backend for."""
    from threadline.backends.layers.prefix import ViewEngine

    fetched: set[bytes] = set()

    class Counting:
        def __init__(self, backend: Any) -> None:
            self._backend = backend

        def __getattr__(self, name: str) -> Any:
            return getattr(self._backend, name)

        async def chunks(self, pool: int, digests: Any) -> Any:
            fetched.update(digests)
            return await self._backend.chunks(pool, digests)

    clone = copy.copy(saver)
    clone._engine = ViewEngine(saver._engine, Counting)
    return clone, fetched


def _pruning(arena: Arena, side: Ours) -> Iterator[tuple[str, float]]:
    """Seconds to have the long chat pruned to a few checkpoints, its chunks collected."""
    place = arena.new_place(Entrant("prune", side))
    with _open(side, place) as saver:
        play(saver, arena.work)
        gc.collect()
        start = perf_counter()
        saver.thread(THREAD_ID).prune(keep_last=KEPT)
        seconds = perf_counter() - start
        left = list(saver.list(_config(THREAD_ID)))
    check(len(left) == KEPT, f"{len(left)} checkpoints are left")
    last = arena.work.expected(len(arena.work.steps) - 1)
    check(left[0].checkpoint["channel_values"] == last, "the head is not what was put")
    yield "prune", seconds
    yield "prune_many", _prune_many(side, arena.new_place(Entrant("many", side)), arena.size.prune_checkpoints)


def _prune_many(side: Ours, place: Path, count: int) -> float:
    """Seconds to have very many small checkpoints of one thread pruned to 100."""
    puts = _thread_puts(0, count)
    with _open(side, place) as saver:
        for start in range(0, count, PUTS_PER_BATCH):
            saver.put_many(puts[start : start + PUTS_PER_BATCH])
        gc.collect()
        start_time = perf_counter()
        saver.thread(_thread_id(0)).prune(keep_last=KEPT_OF_MANY)
        seconds = perf_counter() - start_time
        left = len(list(saver.list(_config(_thread_id(0)))))
    check(left == KEPT_OF_MANY, f"{left} checkpoints are left")
    return seconds


def _copy(source: Ours, place: Path, target: Any) -> None:
    """The rows of a SQLite file in a database of PostgreSQL: putting them there again would take ten times as long."""
    import psycopg

    with _open(target, place):
        pass  # the tables are there now
    rows = sqlite3.connect(source.connection(place)["url"].removeprefix("sqlite:///"))
    with psycopg.connect(target.server.url(place), autocommit=True) as connection:
        for table in (f"threadline_{name}" for name in TABLES):
            # What the server fills in itself cannot be copied.
            own = "SELECT column_name FROM information_schema.columns WHERE table_name = %s AND is_generated = 'NEVER'"
            written = {name for (name,) in connection.execute(own, (table,))}
            named = [name for _, name, *_ in rows.execute(f"PRAGMA table_info({table})")]
            columns = ", ".join(name for name in named if name in written)
            with connection.cursor().copy(f"COPY {table} ({columns}) FROM STDIN") as target_rows:
                for row in rows.execute(f"SELECT {columns} FROM {table}"):
                    target_rows.write_row(row)
        serial = "pg_get_serial_sequence('threadline_threads', 'serial')"
        connection.execute(f"SELECT setval({serial}, (SELECT max(serial) FROM threadline_threads))")
        connection.execute("VACUUM ANALYZE")
    rows.close()


def _open(side: Ours, place: Path) -> AbstractContextManager[Any]:
    """A saver with the verbs that LangGraph's do not have."""
    return side.open(place, index_metadata=(USER_KEY,))


def _thread_puts(number: int, step_count: int) -> list[Put]:
    """The puts of one thread, in the order of their time, for one of its user's conversations."""
    config, puts = _config(_thread_id(number)), []
    for step in range(step_count):
        checkpoint, metadata, versions = _checkpoint(step, {"step": step})
        puts.append((config, checkpoint, {**metadata, USER_KEY: _user(number)}, versions))
        config = _config(_thread_id(number), checkpoint["id"])
    return puts


def _checkpoint(step: int, values: dict[str, Any]) -> tuple[Any, Any, Any]:
    versions = dict.fromkeys(values, step + 1)
    checkpoint = {
        "v": 4,
        "ts": "2025-01-01T00:00:00+00:00",
        "id": str(uuid6(clock_seq=step)),
        "channel_values": values,
        "channel_versions": versions,
        "versions_seen": {},
        "updated_channels": list(values),
    }
    return checkpoint, {"source": "loop", "step": step, "parents": {}}, versions


def _config(thread_id: str, checkpoint_id: str | None = None) -> RunnableConfig:
    place = {"thread_id": thread_id, "checkpoint_ns": ""}
    return {"configurable": place if checkpoint_id is None else {**place, "checkpoint_id": checkpoint_id}}


def _thread_id(number: int) -> str:
    return f"thread-{number:06}"


def _user(number: int) -> str:
    return f"user-{number // THREADS_PER_USER}"
