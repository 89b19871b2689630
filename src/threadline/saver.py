"""The saver: the contract graphs talk to, sync and async on one object.

Each method is written once in core/ as a coroutine; here it is run now, or awaited. Opening happens on
first use. Clones (`copy.copy`, `with_allowlist`) share the engine. `a…` twins mean the same.
"""

from __future__ import annotations

import copy
import time
from collections.abc import AsyncIterator, Callable, Collection, Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, TypeVar

from .backends.engine import Engine, Operation, ViewEngine
from .backends.layers import WithinLayer
from .codec.serializer import Serializer
from .core import copies, history, retention
from .core.checkpoints import put_all
from .core.documents import log_damage
from .core.prepare import PreparedPut, PreparedWrites, prepare_put, prepare_writes
from .core.reading import Read, read_one, to_tuple
from .core.requests import Place, place_of, plain_text, text_id, text_ids, text_names
from .core.tools import Tools
from .errors import Corrupt, InvalidRequest, NotAllowed, NotFound
from .lease import Lease
from .model import ChannelVersions, CheckpointTuple, Config
from .underway import UnderWay
from .upkeep import Upkeep
from .versions import V, next_version

if TYPE_CHECKING:
    from .core import survey
    from .core.leases import LockInfo
    from .thread import Thread

__all__ = ["Saver"]

T = TypeVar("T")
S = TypeVar("S", bound="Saver")
Put = tuple[Config, Any, Any, ChannelVersions]


class Saver(Upkeep):
    """Checkpoints of graphs in one store. Made by `threadline.connect`."""

    _tuple_type: Callable[..., Any] = CheckpointTuple

    def __init__(self, engine: Engine, tools: Tools) -> None:
        super().__init__(engine, tools)
        self._under_way = UnderWay()
        self.serde: Any = tools.codec.foreign or Serializer(codec=tools.codec)

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self._engine.url!r})"

    # -- the contract of LangGraph

    def put(self, config: Any, checkpoint: Any, metadata: Any, new_versions: Any) -> Any:
        """Keep a checkpoint; durable when this returns. Putting the same id again replaces it.

        A saver of `threadline.connect` refuses a channel that has its parent's version and another value.
        """
        self._open()
        prepared = self._preparing(config, checkpoint, metadata, new_versions)
        self._engine.run(self._putting([prepared]))
        return _config_of(prepared)

    async def aput(self, config: Any, checkpoint: Any, metadata: Any, new_versions: Any) -> Any:
        if not self._tools.is_open:
            await self._aopen()
        prepared = self._preparing(config, checkpoint, metadata, new_versions)
        await self._awrite([prepared])
        return _config_of(prepared)

    def put_writes(self, config: Any, writes: Sequence[tuple[str, Any]], task_id: str, task_path: str = "") -> None:
        """Keep what a task wrote towards the next checkpoint; may come before its checkpoint."""
        self._open()
        prepared = prepare_writes(self._tools, config, writes, task_id, task_path)
        self._engine.run(self._putting([prepared]))

    async def aput_writes(
        self, config: Any, writes: Sequence[tuple[str, Any]], task_id: str, task_path: str = ""
    ) -> None:
        if not self._tools.is_open:
            await self._aopen()
        prepared = prepare_writes(self._tools, config, writes, task_id, task_path)
        await self._awrite([prepared])

    def get_tuple(self, config: Any) -> Any:
        """The checkpoint a config names, or the newest of its thread, decoded; None when there is none."""
        place = place_of(config)
        return self._noted(place, self._engine.run(lambda backend: read_one(backend, self._tools, place)))

    async def aget_tuple(self, config: Any) -> Any:
        place = place_of(config)
        await self._under_way.settle(place.thread_id)
        return self._noted(place, await self._engine.arun(lambda backend: read_one(backend, self._tools, place)))

    def get(self, config: Any) -> Any:
        """The checkpoint itself, without its surroundings."""
        found = self.get_tuple(config)
        return found.checkpoint if found is not None else None

    async def aget(self, config: Any) -> Any:
        found = await self.aget_tuple(config)
        return found.checkpoint if found is not None else None

    def list(self, config: Any, *, filter: Any = None, before: Any = None, limit: int | None = None) -> Iterator[Any]:
        """Checkpoints, newest first; all threads when `config` is None. Values decode when looked at."""
        return self._pages(history.search(self._tools, config, filter, before, limit))

    def alist(
        self, config: Any, *, filter: Any = None, before: Any = None, limit: int | None = None
    ) -> AsyncIterator[Any]:
        return self._apages(history.search(self._tools, config, filter, before, limit))

    def delete_thread(self, thread_id: str) -> None:
        """Delete all of a thread; a run still going on is refused, a new start under the same id is not.

        What the trash has of the thread goes as well. `thread(…).delete(trash="7d")` deletes it restorably.
        """
        self._engine.run(self._deleting(thread_id))

    async def adelete_thread(self, thread_id: str) -> None:
        await self._engine.arun(self._deleting(thread_id))

    def delete_for_runs(self, run_ids: Sequence[str]) -> None:
        """Delete the checkpoints of some runs, except those a delta channel is replayed from."""
        if named := text_ids(run_ids, "run_ids"):
            self._engine.run(lambda backend: retention.delete_runs(backend, self._tools, named))

    async def adelete_for_runs(self, run_ids: Sequence[str]) -> None:
        if named := text_ids(run_ids, "run_ids"):
            await self._engine.arun(lambda backend: retention.delete_runs(backend, self._tools, named))

    def copy_thread(self, source_thread_id: str, target_thread_id: str) -> None:
        """A new thread with all the checkpoints and writes of another; state is shared, not copied."""
        self._engine.run(self._copying(source_thread_id, target_thread_id))

    async def acopy_thread(self, source_thread_id: str, target_thread_id: str) -> None:
        await self._engine.arun(self._copying(source_thread_id, target_thread_id))

    def prune(self, thread_ids: Sequence[str], *, strategy: str = "keep_latest") -> None:
        """Keep the newest checkpoint of each namespace and the tagged ones (`keep_latest`), or nothing (`delete`)."""
        for operation in self._pruning(thread_ids, strategy):
            self._engine.run(operation)

    async def aprune(self, thread_ids: Sequence[str], *, strategy: str = "keep_latest") -> None:
        for operation in self._pruning(thread_ids, strategy):
            await self._engine.arun(operation)

    def get_next_version(self, current: V | None, channel: None = None) -> V:
        """The version after `current`, in the type it has; integers from 1 where there is none."""
        return next_version(current)

    def get_delta_channel_history(self, *, config: Any, channels: Sequence[str]) -> Mapping[str, Any]:
        """Per channel, the writes along the parent chain and the value they start from."""
        found = self._engine.run(self._replaying(config, channels))
        return history.decode_delta_history(self._tools, found)

    async def aget_delta_channel_history(self, *, config: Any, channels: Sequence[str]) -> Mapping[str, Any]:
        found = await self._engine.arun(self._replaying(config, channels))
        return history.decode_delta_history(self._tools, found)

    @property
    def config_specs(self) -> Any:
        """Options a graph's config may set: none."""
        return []

    def with_allowlist(self: S, extra_allowlist: Collection[Any]) -> S:
        """A clone that may also rebuild these types: classes or (module, name) pairs."""
        clone = copy.copy(self)
        clone._tools = self._tools.with_codec(self._tools.codec.with_allowlist(extra_allowlist))
        clone.serde = self._tools.codec.foreign or Serializer(codec=clone._tools.codec)
        return clone

    # -- Threadline's own

    def put_many(self, puts: Sequence[Put]) -> Any:
        """Keep several checkpoints in one transaction: all of them, or none."""
        self._open()
        prepared = self._prepared(puts)
        if prepared:
            self._engine.run(self._putting(prepared))
        return [_config_of(one) for one in prepared]

    async def aput_many(self, puts: Sequence[Put]) -> Any:
        if not self._tools.is_open:
            await self._aopen()
        prepared = self._prepared(puts)
        if prepared:
            await self._awrite(prepared)
        return [_config_of(one) for one in prepared]

    def delete_checkpoint(self, config: Any) -> None:
        """Delete one checkpoint; NotFound without it, Conflict when others are replayed from it."""
        place = place_of(config)
        self._engine.run(lambda backend: retention.delete_checkpoint(backend, self._tools, place))

    async def adelete_checkpoint(self, config: Any) -> None:
        place = place_of(config)
        await self._engine.arun(lambda backend: retention.delete_checkpoint(backend, self._tools, place))

    def threads(self, *, prefix: str = "", limit: int | None = None, after: str = "", **choice: Any) -> Iterator[Any]:
        """The threads by id; `filter=` on their metadata, `tag=`, `status=` and `active_since=` choose."""
        return self._thread_pages(_listing(prefix=prefix, limit=limit, after=after, **choice))

    def athreads(
        self, *, prefix: str = "", limit: int | None = None, after: str = "", **choice: Any
    ) -> AsyncIterator[Any]:
        return self._athread_pages(_listing(prefix=prefix, limit=limit, after=after, **choice))

    def within(self: S, prefix: str) -> S:
        """A view of the threads whose ids begin with a prefix; it refuses every other thread."""
        checked = text_id(prefix, "prefix")
        clone = copy.copy(self)
        clone._engine = ViewEngine(self._engine, lambda backend: WithinLayer(backend, checked))
        return clone

    def count_threads(self, *, prefix: str = "") -> int:
        """How many threads there are."""
        text = plain_text(prefix, "prefix")
        return self._engine.run(lambda backend: backend.count_threads(text))

    async def acount_threads(self, *, prefix: str = "") -> int:
        text = plain_text(prefix, "prefix")
        return await self._engine.arun(lambda backend: backend.count_threads(text))

    def thread(self, thread_id: str) -> Thread:
        """A handle on one thread; it need not exist yet."""
        from .thread import Thread  # what looks into history loads when somebody does

        return Thread(self._engine, self._tools, text_id(thread_id, "thread_id"))

    def latest(self, thread_ids: Sequence[str], channels: Collection[str] | None = None) -> dict[str, dict[str, Any]]:
        """The newest values of many threads; threads without a checkpoint are left out."""
        return self._values(self._engine.run(self._heads(thread_ids)), channels)

    async def alatest(
        self, thread_ids: Sequence[str], channels: Collection[str] | None = None
    ) -> dict[str, dict[str, Any]]:
        return self._values(await self._engine.arun(self._heads(thread_ids)), channels)

    def interrupts(self, *, prefix: str = "") -> Iterator[survey.Waiting]:
        """What waits for an answer, over all threads; a value whose class is not here is a `Structure`."""
        asked = _asked(prefix)
        while page := self._engine.run(lambda backend: asked.next_page(backend, self._tools)):
            yield from page

    async def ainterrupts(self, *, prefix: str = "") -> AsyncIterator[survey.Waiting]:
        asked = _asked(prefix)
        while page := await self._engine.arun(lambda backend: asked.next_page(backend, self._tools)):
            for waiting in page:
                yield waiting

    def lock(self, thread_id: str, ttl: float = 30.0, *, wait: float | None = None, holder: str | None = None) -> Lease:
        """A lease on a thread for `with` or `async with`; Conflict when it is not free within `wait` seconds.

        `holder` is how others are told who holds it: this machine and process, unless it is given.
        """
        return Lease(self._engine, self._tools, text_id(thread_id, "thread_id"), ttl, wait, holder)

    def locks(self, *, prefix: str = "") -> Sequence[LockInfo]:
        """The leases that are held: by whom, since when, until when."""
        return self._engine.run(_locks(prefix))

    async def alocks(self, *, prefix: str = "") -> Sequence[LockInfo]:
        return await self._engine.arun(_locks(prefix))

    def unlock(self, thread_id: str) -> LockInfo | None:
        """End a lease whose holder is gone; a holder that is not finds it lost. None where nobody holds one."""
        return self._engine.run(_unlocking(thread_id))

    async def aunlock(self, thread_id: str) -> LockInfo | None:
        return await self._engine.arun(_unlocking(thread_id))

    # -- how the above is put together

    def _putting(self, prepared: Sequence[PreparedPut | PreparedWrites]) -> Operation[None]:
        return lambda backend: put_all(backend, self._tools, prepared, time.time())

    async def _awrite(self, prepared: Sequence[PreparedPut | PreparedWrites]) -> None:
        """Put; reads of these threads that begin meanwhile wait for it."""
        begun = [(one.place.thread_id, self._under_way.begin(one.place.thread_id)) for one in prepared]
        try:
            await self._engine.awrite(self._putting(prepared))
        finally:
            for thread_id, ended in begun:
                self._under_way.end(thread_id, ended)

    def _preparing(self, *put: Any) -> PreparedPut:
        return prepare_put(self._tools, *put, checks_versions=self._tools.checks_versions)

    def _prepared(self, puts: Any) -> Sequence[PreparedPut]:
        siblings: dict[tuple[str, str, str], PreparedPut] = {}
        prepared = []
        if isinstance(puts, (str, bytes)) or not isinstance(puts, Iterable):
            raise InvalidRequest("put_many takes a list of (config, checkpoint, metadata, new_versions)")
        for put in puts:
            if not isinstance(put, (tuple, list)) or len(put) != 4:
                raise InvalidRequest("put_many takes a list of (config, checkpoint, metadata, new_versions)")
            one = self._preparing(*put, siblings)
            siblings[one.place.thread_id, one.place.namespace, one.checkpoint_id] = one
            prepared.append(one)
        return prepared

    def _noted(self, place: Place, read: Read | None) -> Any:
        """A checkpoint decoded; under fencing, noted as read by a run: as the newest, or by its id."""
        if self._tools.fencing:
            by_id = place.checkpoint_id is not None
            if read is not None:
                self._tools.note_read(place._replace(checkpoint_id=read.found.row.id), by_id=by_id)
        return None if read is None else to_tuple(self._tools, read, lazy=False, make=self._tuple_type)

    def _pages(self, searched: history.Search) -> Iterator[Any]:
        while rows := self._engine.run(lambda backend: history.next_rows(backend, self._tools, searched)):
            yield from self._whole(rows)

    async def _apages(self, searched: history.Search) -> AsyncIterator[Any]:
        if searched.query.thread_id is not None:
            await self._under_way.settle(searched.query.thread_id)
        while rows := await self._engine.arun(lambda backend: history.next_rows(backend, self._tools, searched)):
            for found in self._whole(rows):
                yield found

    def _thread_pages(self, listing: survey.Listing) -> Iterator[survey.ThreadInfo]:
        while page := self._engine.run(lambda backend: listing.next_page(backend, self._tools)):
            yield from page

    async def _athread_pages(self, listing: survey.Listing) -> AsyncIterator[survey.ThreadInfo]:
        while page := await self._engine.arun(lambda backend: listing.next_page(backend, self._tools)):
            for info in page:
                yield info

    def _whole(self, rows: Sequence[tuple[Read, dict[str, Any]]]) -> Iterator[Any]:
        """The rows as tuples; one that is damaged is logged and does not end the list."""
        for read, metadata in rows:
            try:
                yield to_tuple(self._tools, read, lazy=True, metadata=metadata, make=self._tuple_type)
            except (Corrupt, NotAllowed, NotFound) as damage:
                log_damage(damage)

    def _deleting(self, thread_id: str) -> Operation[None]:
        named = text_id(thread_id, "thread_id")
        return lambda backend: retention.delete_thread(backend, self._tools, named, time.time())

    def _copying(self, source: str, target: str) -> Operation[None]:
        names = text_id(source, "source_thread_id"), text_id(target, "target_thread_id")
        return lambda backend: copies.copy_thread(backend, self._tools, *names, time.time())

    def _pruning(self, thread_ids: Sequence[str], strategy: str) -> Sequence[Operation[Any]]:
        from .core import sweeping

        names = text_ids(thread_ids, "thread_ids")
        if strategy == "delete":
            return [self._deleting(name) for name in names]
        if strategy != "keep_latest":
            raise InvalidRequest(f"the strategy is 'keep_latest' or 'delete', not {strategy!r}")
        return [
            lambda backend, name=name: sweeping.prune_to_latest(backend, self._tools, name)  # type: ignore[misc]
            for name in names
        ]

    def _replaying(self, config: Any, channels: Sequence[str]) -> Operation[Any]:
        place, named = place_of(config), text_names(channels, "channels")
        return lambda backend: history.delta_history(backend, self._tools, place, named)

    def _heads(self, thread_ids: Sequence[str]) -> Operation[Any]:
        from .core import survey

        names = text_ids(thread_ids, "thread_ids")
        return lambda backend: survey.heads(backend, self._tools, names)

    def _values(self, heads: Sequence[Read], channels: Collection[str] | None) -> dict[str, dict[str, Any]]:
        found = {}
        channels = None if channels is None else text_names(channels, "channels")
        for read in heads:
            values = to_tuple(self._tools, read, lazy=True).checkpoint["channel_values"]
            wanted = values if channels is None else [name for name in channels if name in values]
            found[read.found.thread_id] = {name: values[name] for name in wanted}
        return found


def _locks(prefix: str) -> Operation[Sequence[LockInfo]]:
    from .core.leases import locks

    checked = plain_text(prefix, "prefix")
    return lambda backend: locks(backend, time.time(), checked)


def _unlocking(thread_id: str) -> Operation[LockInfo | None]:
    from .core.leases import end

    named = text_id(thread_id, "thread_id")
    return lambda backend: end(backend, named, time.time())


def _listing(**choice: Any) -> survey.Listing:
    from .core import survey

    try:
        return survey.Listing.of(**choice)
    except TypeError:
        known = ("prefix", "limit", "after", "filter", "tag", "status", "active_since")
        unknown = ", ".join(sorted(set(choice) - set(known)))
        raise InvalidRequest(f"threads takes {', '.join(known)}, not {unknown}") from None


def _asked(prefix: str) -> survey.Asked:
    from .core import survey

    return survey.Asked(prefix=plain_text(prefix, "prefix"))


def _config_of(prepared: PreparedPut) -> Config:
    thread_id, namespace, _ = prepared.place
    return {
        "configurable": {
            "thread_id": thread_id,
            "checkpoint_ns": namespace,
            "checkpoint_id": prepared.checkpoint_id,
        }
    }
