"""The saver: the contract graphs talk to, sync and async on one object.

Each method is written once in core/ as a coroutine; here it is run now, or awaited. Opening happens on
first use. Clones (`copy.copy`, `with_allowlist`) share the engine. `a…` twins mean the same.
"""

from __future__ import annotations

import copy
import time
from collections.abc import AsyncIterator, Callable, Collection, Coroutine, Iterable, Iterator, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, TypeVar

from .backends.layers.prefix import ViewEngine, WithinLayer
from .backends.layers.read_only import ReadOnlyLayer
from .background import Lease, UnderWay
from .base.checkpoint import ChannelVersions, CheckpointTuple, Config, config_of
from .base.native import native
from .base.versions import V, next_version
from .codec.serializer import Serializer
from .core import operations as ops
from .core.context import Context, Tools
from .core.get import Read, read_now, read_whole, to_tuple
from .core.listing import Search, decode_delta_history, delta_history, next_rows, search
from .core.prepare import PreparedPut, PreparedWrites, prepare_put, prepare_writes
from .core.put import aput_now, put_opened
from .core.requests import Place, place_of, text_id, text_ids, text_names
from .core.rows import log_damage
from .core.straight import put_straight, put_writes_straight
from .errors import Corrupt, InvalidRequest, NotAllowed, NotFound
from .maintenance import Maintenance
from .moving import Moving
from .ports.engine import Engine

if TYPE_CHECKING:
    from .cache import ResultCache
    from .core.leases import LockInfo
    from .core.threads import Waiting
    from .store import ItemStore
    from .thread import Thread

__all__ = ["Saver"]

T = TypeVar("T")
S = TypeVar("S", bound="Saver")
Put = tuple[Config, Any, Any, ChannelVersions]


class Saver(Maintenance, Moving):
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
        if not self._tools.is_open:
            self.open()
        return put_straight(self._tools, self._engine, (config, checkpoint, metadata, new_versions), time.time())

    async def aput(self, config: Any, checkpoint: Any, metadata: Any, new_versions: Any) -> Any:
        if not self._tools.is_open:
            await self._aopen()
        now = time.time()
        prepared = self._preparing(config, checkpoint, metadata, new_versions, now=now)
        await self._aput_now(prepared, now)
        return _config_of(prepared)

    def put_writes(self, config: Any, writes: Sequence[tuple[str, Any]], task_id: str, task_path: str = "") -> None:
        """Keep what a task wrote towards the next checkpoint; may come before its checkpoint."""
        if not self._tools.is_open:
            self.open()
        put_writes_straight(self._tools, self._engine, config, writes, task_id, task_path, time.time())

    async def aput_writes(
        self, config: Any, writes: Sequence[tuple[str, Any]], task_id: str, task_path: str = ""
    ) -> None:
        if not self._tools.is_open:
            await self._aopen()
        prepared = prepare_writes(self._tools, config, writes, task_id, task_path)
        await self._aput_now(prepared, time.time())

    def get_tuple(self, config: Any) -> Any:
        """The checkpoint a config names, or the newest of its thread, decoded; None when there is none."""
        place = (native and native.place(config, Place)) or place_of(config)
        return self._noted(place, read_now(self._tools, self._engine, place))

    async def aget_tuple(self, config: Any) -> Any:
        place = place_of(config)
        await self._under_way.settle(place.thread_id)
        return self._noted(place, await self._arun(read_whole, place))

    def get(self, config: Any) -> Any:
        """The checkpoint itself, without its surroundings."""
        found = self.get_tuple(config)
        return found.checkpoint if found is not None else None

    async def aget(self, config: Any) -> Any:
        found = await self.aget_tuple(config)
        return found.checkpoint if found is not None else None

    def list(self, config: Any, *, filter: Any = None, before: Any = None, limit: int | None = None) -> Iterator[Any]:
        """Checkpoints, newest first; all threads when `config` is None. Values decode when looked at."""
        return self._pages(search(self._tools, config, filter, before, limit))

    def alist(
        self, config: Any, *, filter: Any = None, before: Any = None, limit: int | None = None
    ) -> AsyncIterator[Any]:
        return self._apages(search(self._tools, config, filter, before, limit))

    def delete_thread(self, thread_id: str) -> None:
        """Delete all of a thread; a run still going on is refused, a new start under the same id is not.

        What the trash has of the thread goes as well. `thread(…).delete(trash="7d")` deletes it restorably.
        """
        self._delete(text_id(thread_id, "thread_id"))

    async def adelete_thread(self, thread_id: str) -> None:
        await self._adelete(text_id(thread_id, "thread_id"))

    def delete_for_runs(self, run_ids: Sequence[str]) -> None:
        """Delete the checkpoints of some runs, except those a delta channel is replayed from."""
        if named := text_ids(run_ids, "run_ids"):
            self._run(ops.delete_runs, named)

    async def adelete_for_runs(self, run_ids: Sequence[str]) -> None:
        if named := text_ids(run_ids, "run_ids"):
            await self._arun(ops.delete_runs, named)

    def copy_thread(self, source_thread_id: str, target_thread_id: str) -> None:
        """A new thread with all the checkpoints and writes of another; state is shared, not copied."""
        self._run(ops.copy_thread, source_thread_id, target_thread_id, time.time())

    async def acopy_thread(self, source_thread_id: str, target_thread_id: str) -> None:
        await self._arun(ops.copy_thread, source_thread_id, target_thread_id, time.time())

    def prune(self, thread_ids: Sequence[str], *, strategy: str = "keep_latest") -> None:
        """Keep the newest checkpoint of each namespace and the tagged ones (`keep_latest`), or nothing (`delete`)."""
        for name in _pruned(thread_ids, strategy):
            self._delete(name) if strategy == "delete" else self._run(ops.prune_to_latest, name)

    async def aprune(self, thread_ids: Sequence[str], *, strategy: str = "keep_latest") -> None:
        for name in _pruned(thread_ids, strategy):
            await (self._adelete(name) if strategy == "delete" else self._arun(ops.prune_to_latest, name))

    def get_next_version(self, current: V | None, channel: None = None) -> V:
        """The version after `current`, in the type it has; integers from 1 where there is none."""
        return next_version(current)

    def get_delta_channel_history(self, *, config: Any, channels: Sequence[str]) -> Mapping[str, Any]:
        """Per channel, the writes along the parent chain and the value they start from."""
        found = self._run(delta_history, place_of(config), text_names(channels, "channels"))
        return decode_delta_history(self._tools, found)

    async def aget_delta_channel_history(self, *, config: Any, channels: Sequence[str]) -> Mapping[str, Any]:
        found = await self._arun(delta_history, place_of(config), text_names(channels, "channels"))
        return decode_delta_history(self._tools, found)

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
        if not self._tools.is_open:
            self.open()
        now = time.time()
        prepared = self._prepared(puts, now)
        if prepared:
            self._write(prepared, now)
        return [_config_of(one) for one in prepared]

    async def aput_many(self, puts: Sequence[Put]) -> Any:
        if not self._tools.is_open:
            await self._aopen()
        now = time.time()
        prepared = self._prepared(puts, now)
        if prepared:
            await self._awrite(prepared, now)
        return [_config_of(one) for one in prepared]

    @property
    def prefers_batches(self) -> bool:
        """Whether several puts in one call cost less than one call for each, and any thread may make it."""
        return self._engine.prefers_batches

    def put_batch(self, items: Sequence[Any]) -> None:
        """Keep checkpoints and pending writes in one transaction, in this order: all of them, or none.

        An item is `("put", config, checkpoint, metadata, new_versions)` or `("put_writes", config, writes, task_id,
        task_path)`, with the arguments of these methods. It is made for the loops of graphs, which keep versions
        themselves: a channel that has its parent's version is taken to have its value.
        """
        if not self._tools.is_open:
            self.open()
        now = time.time()
        if prepared := self._prepared_batch(items, now):
            self._write(prepared, now)

    async def aput_batch(self, items: Sequence[Any]) -> None:
        if not self._tools.is_open:
            await self._aopen()
        now = time.time()
        if prepared := self._prepared_batch(items, now):
            await self._awrite(prepared, now)

    def delete_checkpoint(self, config: Any) -> None:
        """Delete one checkpoint; NotFound without it, Conflict when others are replayed from it."""
        self._run(ops.delete_checkpoint, place_of(config))

    async def adelete_checkpoint(self, config: Any) -> None:
        await self._arun(ops.delete_checkpoint, place_of(config))

    def threads(self, *, prefix: str = "", limit: int | None = None, after: str = "", **choice: Any) -> Iterator[Any]:
        """The threads by id; `filter=` on their metadata, `tag=`, `status=` and `active_since=` choose."""
        return self._each(ops.Listing.of(prefix=prefix, limit=limit, after=after, **choice).next_page)

    def athreads(
        self, *, prefix: str = "", limit: int | None = None, after: str = "", **choice: Any
    ) -> AsyncIterator[Any]:
        return self._aeach(ops.Listing.of(prefix=prefix, limit=limit, after=after, **choice).next_page)

    def within(self: S, prefix: str) -> S:
        """A view of the threads whose ids begin with a prefix; it refuses every other thread."""
        checked = text_id(prefix, "prefix")
        clone = copy.copy(self)
        clone._engine = ViewEngine(self._engine, lambda backend: WithinLayer(backend, checked), is_part=True)
        return clone

    def for_run(self: S, *, fencing: bool = True) -> S:
        """A clone for one run: its puts are made under the leases that it takes itself, and fenced if asked."""
        clone = copy.copy(self)
        clone._tools = copy.copy(self._tools)
        clone._tools.leases, clone._tools.fencing = {}, fencing or self._tools.fencing
        return clone

    def structural(self: S) -> S:
        """A clone that needs no class of a program: a stored object is read as a `Structure`, and none is imported."""
        from .codec.structural import StructuralCodec

        clone = copy.copy(self)
        clone._tools = self._tools.with_codec(StructuralCodec())
        clone.serde = Serializer(codec=clone._tools.codec)
        return clone

    def read_only(self: S) -> S:
        """A clone that refuses every write with ReadOnly; closing it leaves this saver open."""
        clone = copy.copy(self)
        clone._engine = ViewEngine(self._engine, ReadOnlyLayer)
        return clone

    def count_threads(self, *, prefix: str = "") -> int:
        """How many threads there are."""
        return self._ask(ops.count_threads, prefix)

    async def acount_threads(self, *, prefix: str = "") -> int:
        return await self._aask(ops.count_threads, prefix)

    def store(self, **options: Any) -> ItemStore:
        """Items across threads on this saver's connections and keys; takes the options of `threadline.Store`."""
        from .store import ItemStore

        return ItemStore(self._engine, self._tools, **options)

    def cache(self, **options: Any) -> ResultCache:
        """Results of nodes on this saver's connections and keys."""
        from .cache import ResultCache

        return ResultCache(self._engine, self._tools, **options)

    def thread(self, thread_id: str) -> Thread:
        """A handle on one thread; it need not exist yet."""
        from .thread import Thread

        return Thread(self._engine, self._tools, text_id(thread_id, "thread_id"))

    def latest(self, thread_ids: Sequence[str], channels: Collection[str] | None = None) -> dict[str, dict[str, Any]]:
        """The newest values of many threads; threads without a checkpoint are left out."""
        return self._values(self._run(ops.heads, thread_ids), channels)

    async def alatest(
        self, thread_ids: Sequence[str], channels: Collection[str] | None = None
    ) -> dict[str, dict[str, Any]]:
        return self._values(await self._arun(ops.heads, thread_ids), channels)

    def interrupts(self, *, prefix: str = "") -> Iterator[Waiting]:
        """The interrupts that wait, over all threads; a value whose class is not here is a `Structure`.

        One that is damaged is listed too: without its id, with a value whose `why` says what is wrong.
        """
        return self._each(ops.Asked(prefix=prefix).next_page)

    def ainterrupts(self, *, prefix: str = "") -> AsyncIterator[Waiting]:
        return self._aeach(ops.Asked(prefix=prefix).next_page)

    def lock(self, thread_id: str, ttl: float = 30.0, *, wait: float | None = None, holder: str | None = None) -> Lease:
        """A lease on a thread for `with` or `async with`; Conflict when it is not free within `wait` seconds.

        Without `wait` it waits until the lease is free, however long that takes; `wait=0` tries once.
        `holder` is how others are told who holds it: this machine and process, unless it is given.
        """
        return Lease(self._engine, self._tools, text_id(thread_id, "thread_id"), ttl, wait, holder)

    def locks(self, *, prefix: str = "") -> Sequence[LockInfo]:
        """The leases that are held: by whom, since when, until when."""
        return self._ask(ops.locks, time.time(), prefix)

    async def alocks(self, *, prefix: str = "") -> Sequence[LockInfo]:
        return await self._aask(ops.locks, time.time(), prefix)

    def unlock(self, thread_id: str) -> LockInfo | None:
        """End a lease whose holder is gone; a holder that is not finds it lost. None where nobody holds one."""
        return self._ask(ops.end, text_id(thread_id, "thread_id"), time.time())

    async def aunlock(self, thread_id: str) -> LockInfo | None:
        return await self._aask(ops.end, text_id(thread_id, "thread_id"), time.time())

    # -- how the above is put together

    def _write(self, prepared: Sequence[PreparedPut | PreparedWrites], now: float) -> None:
        self._engine.run(partial(put_opened, self._tools, prepared, now))

    async def _awrite(self, prepared: Sequence[PreparedPut | PreparedWrites], now: float) -> None:
        """Put; reads of these threads that begin meanwhile wait for it."""
        begun = [self._under_way.begin(one.place.thread_id) for one in prepared]
        try:
            await self._engine.awrite(partial(put_opened, self._tools, prepared, now))
        finally:
            for put in begun:
                self._under_way.end(put)

    async def _aput_now(self, one: PreparedPut | PreparedWrites, now: float) -> None:
        """`_awrite` for one put, which is nearly always of the usual kind."""
        put = self._under_way.begin(one.place[0])
        try:
            await aput_now(self._tools, self._engine, one, now)
        finally:
            self._under_way.end(put)

    def _preparing(self, *put: Any, now: float) -> PreparedPut:
        return prepare_put(self._tools, *put, now=now, checks_versions=self._tools.checks_versions)

    def _prepared(self, puts: Any, now: float) -> Sequence[PreparedPut]:
        siblings: dict[tuple[str, str, str], PreparedPut] = {}
        prepared = []
        if isinstance(puts, (str, bytes)) or not isinstance(puts, Iterable):
            raise InvalidRequest("put_many takes a list of (config, checkpoint, metadata, new_versions)")
        for put in puts:
            if not isinstance(put, (tuple, list)) or len(put) != 4:
                raise InvalidRequest("put_many takes a list of (config, checkpoint, metadata, new_versions)")
            one = self._preparing(*put, siblings, now=now)
            siblings[one.place.thread_id, one.place.namespace, one.checkpoint_id] = one
            prepared.append(one)
        return prepared

    def _prepared_batch(self, items: Any, now: float) -> Sequence[PreparedPut | PreparedWrites]:
        siblings: dict[tuple[str, str, str], PreparedPut] = {}
        prepared: Any = []
        for item in items if type(items) is list or isinstance(items, Iterable) else [None]:
            kind, *arguments = item if isinstance(item, (tuple, list)) and item else (None,)
            if kind == "put" and len(arguments) == 4:
                config, checkpoint, metadata, new_versions = arguments
                one = prepare_put(self._tools, config, checkpoint, metadata, new_versions, siblings, now=now)
                siblings[one.place.thread_id, one.place.namespace, one.checkpoint_id] = one
                prepared.append(one)
            elif kind == "put_writes" and len(arguments) in (3, 4):
                prepared.append(prepare_writes(self._tools, *arguments))
            else:
                raise InvalidRequest(
                    "put_batch takes ('put', config, checkpoint, metadata, new_versions) and ('put_writes', config, "
                    "writes, task_id, task_path)"
                )
        batch: Sequence[PreparedPut | PreparedWrites] = prepared
        return batch

    def _noted(self, place: Place, read: Read | None) -> Any:
        """A checkpoint decoded; under fencing, noted as read by a run: as the newest, or by its id."""
        if self._tools.fencing:
            by_id = place.checkpoint_id is not None
            if read is not None:
                self._tools.note_read(place._replace(checkpoint_id=read.found.row.id), by_id=by_id)
        return None if read is None else to_tuple(self._tools, read, lazy=False, make=self._tuple_type)

    def _pages(self, searched: Search) -> Iterator[Any]:
        while rows := self._run(next_rows, searched):
            yield from self._whole(rows)

    async def _apages(self, searched: Search) -> AsyncIterator[Any]:
        if searched.query.thread_id is not None:
            await self._under_way.settle(searched.query.thread_id)
        while rows := await self._arun(next_rows, searched):
            for found in self._whole(rows):
                yield found

    def _each(self, next_page: Callable[[Context], Coroutine[Any, Any, Sequence[T]]]) -> Iterator[T]:
        while page := self._run(next_page):
            yield from page

    async def _aeach(self, next_page: Callable[[Context], Coroutine[Any, Any, Sequence[T]]]) -> AsyncIterator[T]:
        while page := await self._arun(next_page):
            for one in page:
                yield one

    def _whole(self, rows: Sequence[tuple[Read, dict[str, Any]]]) -> Iterator[Any]:
        """The rows as tuples; one that is damaged is logged and does not end the list."""
        for read, metadata in rows:
            try:
                yield to_tuple(self._tools, read, lazy=True, metadata=metadata, make=self._tuple_type)
            except (Corrupt, NotAllowed, NotFound) as damage:
                log_damage(damage)

    def _delete(self, thread_id: str) -> None:
        self._ask(ops.delete_thread, thread_id, time.time())
        self._tools.known.drop(thread_id)

    async def _adelete(self, thread_id: str) -> None:
        await self._aask(ops.delete_thread, thread_id, time.time())
        self._tools.known.drop(thread_id)

    def _values(self, heads: Sequence[Read], channels: Collection[str] | None) -> dict[str, dict[str, Any]]:
        found = {}
        channels = None if channels is None else text_names(channels, "channels")
        for read in heads:
            values = to_tuple(self._tools, read, lazy=True).checkpoint["channel_values"]
            wanted = values if channels is None else [name for name in channels if name in values]
            found[read.found.thread_id] = {name: values[name] for name in wanted}
        return found


def _pruned(thread_ids: Any, strategy: str) -> list[str]:
    """The threads of a prune, whose strategy is checked."""
    if strategy not in ("keep_latest", "delete"):
        raise InvalidRequest(f"the strategy is 'keep_latest' or 'delete', not {strategy!r}")
    return text_ids(thread_ids, "thread_ids")


def _config_of(prepared: PreparedPut) -> Config:
    return config_of(prepared.place.thread_id, prepared.place.namespace, prepared.checkpoint_id)
