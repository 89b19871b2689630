"""Along a thread: the checkpoints that match, the history of one channel, the chain of a delta channel."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

from ..base.checkpoint import DeltaChannelHistory, PendingWrite, config_of
from ..base.versions import Version
from ..chunks.gather import Pile
from ..chunks.refs import Pair, Ref
from ..errors import Corrupt, InvalidRequest, NotAllowed, NotFound
from ..ports.checkpoints import Found, Query
from .context import Context, Tools
from .filters import as_metadata, check_filter, database_hints, matches
from .get import Read, Rows, read_page, value_of, write_ref
from .paging import ancestors, checkpoint_pages
from .requests import Place, before_of, check_limit, place_of, plain_text
from .rows import log_damage

__all__ = [
    "ChannelVersion",
    "Search",
    "channel_versions",
    "decode_delta_history",
    "delta_history",
    "next_rows",
    "search",
]

# Pages grow: most callers leave a list at its first item, the others want it all.
_FIRST_PAGE, _LARGEST_PAGE = 8, 256


@dataclass(frozen=True, slots=True)
class ChannelVersion:
    """One value a channel had, and the checkpoint that brought it."""

    version: Version
    checkpoint_id: str
    ts: str
    step: int | None
    value: Any
    config: dict[str, Any]


@dataclass(slots=True)
class Search:
    """A list in progress: the next query, the filter, and how many more are wanted."""

    query: Query
    filter: dict[str, Any]
    left: int | None
    is_over: bool = False


def search(
    tools: Tools,
    config: Mapping[str, Any] | None,
    filter: Mapping[str, Any] | None,
    before: Mapping[str, Any] | None,
    limit: int | None,
) -> Search:
    """Check what a caller wants listed."""
    check_limit(limit)
    checked = as_metadata(check_filter(filter))
    thread_id = namespace = checkpoint_id = None
    if config is not None:
        thread_id, _, checkpoint_id = place_of(config)
        namespace = config["configurable"].get("checkpoint_ns")
    until = before_of(before)
    query = Query(
        thread_id=thread_id,
        namespace=namespace,
        checkpoint_id=checkpoint_id,
        before=until,
        equals=database_hints(checked, tools.indexed),
        limit=_FIRST_PAGE if limit is None else min(max(limit, 1), _LARGEST_PAGE),
    )
    return Search(query, checked, limit, is_over=limit is not None and limit <= 0)


async def next_rows(store: Context, searched: Search) -> list[tuple[Read, dict[str, Any]]]:
    """The next matches with their metadata; moves the search on. Empty pages are skipped."""
    while not searched.is_over:
        rows: Rows = await read_page(store, searched.query)
        if rows.after is None:
            searched.is_over = True
        size = min(searched.query.limit * 4, _LARGEST_PAGE)
        searched.query = replace(searched.query, after=rows.after, limit=size)
        found = [
            (read, metadata) for read, metadata in _described(store.tools, rows) if matches(metadata, searched.filter)
        ]
        if searched.left is not None:
            found = found[: searched.left]
            searched.left -= len(found)
            searched.is_over = searched.is_over or searched.left == 0
        if found:
            return found
    return []


def _described(tools: Tools, rows: Rows) -> Iterator[tuple[Read, dict[str, Any]]]:
    for read in rows.reads:
        try:
            yield read, tools.metadata(read.found)
        except (Corrupt, NotAllowed, NotFound) as damage:
            log_damage(damage)


async def channel_versions(
    store: Context, thread_id: str, channel: str, limit: int | None, namespace: str
) -> list[ChannelVersion]:
    """The values a channel had, newest first, each at the checkpoint that brought it."""
    check_limit(limit)
    if limit is not None and limit < 1:
        raise InvalidRequest(f"limit is at least 1, not {limit}")
    channel = plain_text(channel, "channel")
    query = Query(thread_id=thread_id, namespace=namespace, limit=_LARGEST_PAGE, with_writes=False)
    brought: dict[Any, Found] = {}  # the oldest checkpoint of each version wins
    roots: dict[Any, tuple[Ref, str]] = {}
    async for page in checkpoint_pages(store, query):
        for found in page:
            document = store.tools.document(found)
            version = document.roots.versions.get(channel)
            if version is None or channel not in document.roots.refs:
                continue
            # Two branches may give one number to different values.
            key = (version, document.roots.refs[channel])
            brought[key] = found
            roots[key] = (document.roots.refs[channel], document.ts)
        if limit is not None and len(brought) > limit:
            break
    return await _values_of(store, brought, roots, limit)


async def _values_of(
    store: Context,
    brought: dict[Any, Found],
    roots: dict[Any, tuple[Ref, str]],
    limit: int | None,
) -> list[ChannelVersion]:
    wanted = list(brought)[:limit]
    pile = Pile()
    if wanted:
        pool = brought[wanted[0]].pool
        await store.tools.reader.gather(pool, [roots[v][0] for v in wanted], partial(store.chunks, pool), pile)
    versions = []
    for key in wanted:
        found, (ref, ts) = brought[key], roots[key]
        read = Read(found, store.tools.document(found), [], pile, [])
        value = value_of(store.tools, read, ref, "its channel")
        config = config_of(found.thread_id, *found.key)
        versions.append(ChannelVersion(key[0], found.row.id, ts, found.row.step, value, config))
    return versions


async def delta_history(
    store: Context, place: Place, channels: Sequence[str]
) -> list[tuple[str, list[tuple[Read, Any, Ref | Pair]], tuple[Read, Ref] | None]]:
    """Per channel: its writes along the parent chain, nearest first, and the value they start from.

    The target's own writes are not part of it. The chain is walked in one query per 200 ancestors.
    """
    target = await store.find(*place, with_writes=False)
    collected: dict[str, list[tuple[Found, Any, Ref | Pair]]] = {channel: [] for channel in channels}
    seeds: dict[str, tuple[Found, Ref]] = {}
    seen: set[str] = set()
    async for found in ancestors(store, place.thread_id, target.parent if target is not None else None):
        if found.row.id in seen:
            raise Corrupt(f"thread {place.thread_id!r}: checkpoint {found.row.id} is its own ancestor")
        seen.add(found.row.id)
        document = store.tools.document(found)
        for write in reversed(found.writes):
            if write.channel in collected and write.channel not in seeds:
                collected[write.channel].append((found, write, write_ref(store.tools, found.thread_id, write)))
        for channel in collected.keys() - seeds.keys():
            if channel in document.roots.refs:
                seeds[channel] = (found, document.roots.refs[channel])
        if len(seeds) == len(collected):
            break
    return await _gathered(store, collected, seeds)


async def _gathered(
    store: Context,
    collected: dict[str, list[tuple[Found, Any, Ref | Pair]]],
    seeds: dict[str, tuple[Found, Ref]],
) -> list[tuple[str, list[tuple[Read, Any, Ref | Pair]], tuple[Read, Ref] | None]]:
    refs = [ref for entries in collected.values() for _, _, ref in entries] + [ref for _, ref in seeds.values()]
    pile = Pile()
    places = [found for entries in collected.values() for found, _, _ in entries] + [f for f, _ in seeds.values()]
    if places:
        pool = places[0].pool
        await store.tools.reader.gather(pool, refs, partial(store.chunks, pool), pile)

    def read(found: Found) -> Read:
        return Read(found, None, [], pile, [])  # type: ignore[arg-type]

    return [
        (
            channel,
            [(read(found), write, ref) for found, write, ref in entries],
            (read(seeds[channel][0]), seeds[channel][1]) if channel in seeds else None,
        )
        for channel, entries in collected.items()
    ]


def decode_delta_history(tools: Tools, collected: Any) -> dict[str, DeltaChannelHistory]:
    """The histories that `delta_history` found, decoded, writes oldest first."""
    histories: dict[str, DeltaChannelHistory] = {}
    for channel, entries, seed in collected:
        writes: list[PendingWrite] = [
            (write.task_id, channel, value_of(tools, read, ref, f"a write of channel {channel!r}"))
            for read, write, ref in reversed(entries)
        ]
        histories[channel] = {"writes": writes}
        if seed is not None:
            histories[channel]["seed"] = value_of(tools, seed[0], seed[1], f"channel {channel!r}")
    return histories
