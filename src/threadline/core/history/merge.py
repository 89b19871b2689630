"""Three-way merge of branches, from their common ancestor.

A channel changed on one side is taken from there. Where both sides changed it, lists are joined by the ids
of their items, dicts by key, sets as sets; a strategy decides what is left, or MergeConflict names it.
Values are compared by their bytes. The merge checkpoint is a child of our side, names both, and its versions
are above both.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping, Sequence
from datetime import datetime, timezone
from typing import Any

from ...base.checkpoint import config_of, is_engine_channel
from ...base.ids import id_after
from ...base.versions import next_version, sort_key
from ...chunks.refs import Ref
from ...codec.codec import Codec
from ...errors import InvalidRequest, MergeConflict
from ...ports.checkpoints import CheckpointKey, Found
from ..context import Context, Tools
from ..get import Read, read_one, value_of
from ..paging import ancestors
from ..prepare import prepare_put
from ..put import put_all
from ..requests import Place, place_of
from ..rows import DELTA_COUNTERS
from .revisions import find
from .state import Point

__all__ = ["Strategy", "merge", "merge_values"]

# `ours`, `theirs`, `latest`, a function of (base, ours, theirs), or one of these per channel.
Strategy = Any
_NAMES = ("ours", "theirs", "latest")
_ABSENT = object()


async def merge(store: Context, thread_id: str, others: Sequence[Any], strategy: Strategy, now: float) -> Point:
    """Merge other checkpoints, one after the other, into the head of a thread."""
    _check(strategy)
    found = [await _branch(store, thread_id, other) for other in others]
    if not found:
        raise InvalidRequest("merge takes the branches to merge: places of this thread, or other threads")
    for one in found:
        head = await _merge_one(store, thread_id, one, strategy, now)
    return Point(thread_id, head)


async def _branch(store: Context, thread_id: str, other: Any) -> Found:
    """A branch to merge: a thread, a config of any thread, or a place of this one."""
    config = getattr(other, "config", other)
    if isinstance(config, Mapping):
        return await find(store, place_of(config).thread_id, config)
    return await find(store, thread_id, other)


async def _merge_one(store: Context, thread_id: str, other: Found, strategy: Strategy, now: float) -> CheckpointKey:
    ours = await _read(store, thread_id, other.row.namespace, None)
    theirs = await _read(store, other.thread_id, other.row.namespace, other.row.id)
    base_place = await _common(store, ours.found, theirs.found)
    base = await _read(store, *base_place)
    refs = [one.document.roots.refs for one in (base, ours, theirs)]
    changed = _taken(refs)
    values: dict[str, Any] = {}
    conflicts: list[str] = []
    latest_is_theirs = theirs.found.row.id > ours.found.row.id
    for name in changed:
        sides = [_value(store.tools, read, name) for read in (base, ours, theirs)]
        chosen = _choose(store.tools.codec, name, sides, refs, strategy, latest_is_theirs)
        if chosen is MergeConflict:
            conflicts.append(name)
        elif chosen is not _ABSENT:
            values[name] = chosen
    conflicts += _lost_deltas(store.tools, base, ours, theirs, strategy)
    if conflicts:
        raise MergeConflict(
            f"both sides changed {', '.join(sorted(conflicts))} since {base.found.row.id}: "
            f"give strategy= 'ours', 'theirs', 'latest', or a function for each channel"
        )
    return await _put(store, ours, theirs, set(changed), values, now)


def _taken(refs: Sequence[Mapping[str, Ref]]) -> list[str]:
    """The channels that do not simply stay as ours: changed on their side, or on both."""
    base, our, their = refs
    names = [name for name in {**our, **their} if not is_engine_channel(name)]
    return [name for name in names if their.get(name) != base.get(name) and their.get(name) != our.get(name)]


def _lost_deltas(tools: Tools, base: Read, ours: Read, theirs: Read, strategy: Strategy) -> list[str]:
    """Delta channels that their side wrote to: such values are replayed from writes, and cannot be merged."""
    deltas: set[str] = set()
    for side in (ours, theirs):
        counted = tools.metadata(side.found).get(DELTA_COUNTERS)
        deltas.update(counted if isinstance(counted, Mapping) else ())
    before, after = base.document.roots.versions, theirs.document.roots.versions
    changed = [
        name for name in deltas if name not in theirs.document.roots.refs and after.get(name) != before.get(name)
    ]
    pending = [write.channel for write, _ in ours.writes if write.channel in deltas]
    if pending:
        raise InvalidRequest(
            f"the head has pending writes of the delta channel {pending[0]!r}: let its run finish before merging"
        )
    wanted = strategy if isinstance(strategy, Mapping) else dict.fromkeys(changed, strategy)
    return [name for name in changed if wanted.get(name) != "ours"]


def _choose(
    codec: Codec,
    name: str,
    sides: Sequence[Any],
    refs: Sequence[Mapping[str, Ref]],
    strategy: Strategy,
    latest_is_theirs: bool,
) -> Any:
    base, ours, theirs = sides
    if refs[1].get(name) == refs[0].get(name):
        return theirs  # only their side changed it
    wanted = strategy.get(name) if isinstance(strategy, Mapping) else strategy
    if callable(wanted):
        return wanted(*(None if side is _ABSENT else side for side in sides))
    if wanted is None:
        return merge_values(codec, base, ours, theirs)
    return theirs if wanted == "theirs" or (wanted == "latest" and latest_is_theirs) else ours


def merge_values(codec: Codec, base: Any, ours: Any, theirs: Any) -> Any:
    """The merge of two changed values by their structure; MergeConflict (the class) where there is none."""
    kinds = {type(side) for side in (ours, theirs)}
    if kinds == {list}:
        return _merge_lists(codec, base if type(base) is list else [], ours, theirs)
    if kinds == {dict}:
        return _merge_dicts(codec, base if type(base) is dict else {}, ours, theirs)
    if kinds == {set}:
        before = base if type(base) is set else set()
        return (ours | theirs) - (before - ours) - (before - theirs)
    return MergeConflict


def _merge_lists(codec: Codec, base: list[Any], ours: list[Any], theirs: list[Any]) -> Any:
    sides = [[_identity(item) for item in side] for side in (base, ours, theirs)]
    if all(None not in ids and len(set(ids)) == len(ids) for ids in sides):
        by_id = [dict(zip(ids, side, strict=True)) for ids, side in zip(sides, (base, ours, theirs), strict=True)]
        merged = _merge_dicts(codec, *by_id)
        return merged if merged is MergeConflict else list(merged.values())
    # Without ids the only safe case: both sides added at the end of what was there.
    count = len(base)
    packed = codec.encode_natively(base)
    if codec.encode_natively(ours[:count]) == packed == codec.encode_natively(theirs[:count]):
        return [*ours, *theirs[count:]]
    return MergeConflict


def _merge_dicts(codec: Codec, base: dict[Any, Any], ours: dict[Any, Any], theirs: dict[Any, Any]) -> Any:
    """By key: the order is ours, then what only they have, in their order."""
    merged: dict[Any, Any] = {}
    for key in {**ours, **theirs}:
        sides = [side.get(key, _ABSENT) for side in (base, ours, theirs)]
        was, our, their = (None if side is _ABSENT else codec.encode_natively(side) for side in sides)
        if their == was or our == their:
            chosen = sides[1]
        elif our == was:
            chosen = sides[2]
        else:
            return MergeConflict
        if chosen is not _ABSENT:
            merged[key] = chosen
    return merged


def _identity(item: Any) -> Any:
    found = item.get("id") if isinstance(item, dict) else getattr(item, "id", None)
    return found if isinstance(found, (str, int)) else None


async def _put(
    store: Context, ours: Read, theirs: Read, changed: set[str], values: Mapping[str, Any], now: float
) -> CheckpointKey:
    """The merge checkpoint: ours with what was merged, as a child of our side."""
    document, row = ours.document, ours.found.row
    metadata = store.tools.metadata(ours.found)
    their_versions = theirs.document.roots.versions
    versions = dict(document.roots.versions)
    new_versions: dict[str, Any] = {}
    for name in changed:
        present: list[Any] = [side[name] for side in (versions, their_versions) if name in side]
        above: Any = next_version(max(present, key=sort_key) if present else None)
        new_versions[name] = versions[name] = above
    kept = {
        name: value_of(store.tools, ours, ref, f"channel {name!r}")
        for name, ref in document.roots.refs.items()
        if name not in changed
    }
    new_id = id_after(max(row.id, theirs.found.row.id))
    checkpoint = {
        **document.other,
        "v": document.v,
        "id": new_id,
        "ts": datetime.fromtimestamp(now, timezone.utc).isoformat(),
        "channel_values": {**kept, **values},
        "channel_versions": versions,
        "versions_seen": document.versions_seen,
        "updated_channels": sorted(changed),
    }
    origin = {"thread_id": theirs.found.thread_id, "checkpoint_id": theirs.found.row.id}
    described = {
        **{key: metadata[key] for key in ("parents", DELTA_COUNTERS) if key in metadata},
        "source": "update",
        "step": (metadata.get("step") or 0) + 1,
        "merged_from": [origin],
    }
    put = prepare_put(
        store.tools, config_of(ours.found.thread_id, *ours.found.key), checkpoint, described, new_versions, now=now
    )
    put.head = (row.namespace, row.id)
    await put_all(store, [put], now)
    return CheckpointKey(row.namespace, new_id)


async def _read(store: Context, thread_id: str, namespace: str, checkpoint_id: str | None) -> Read:
    read = await read_one(store, Place(thread_id, namespace, checkpoint_id))
    if read is None:
        raise InvalidRequest(f"thread {thread_id!r} has no checkpoint {checkpoint_id or ''}to merge".replace("  ", " "))
    return read


def _value(tools: Tools, read: Read, name: str) -> Any:
    ref = read.document.roots.refs.get(name)
    return _ABSENT if ref is None else value_of(tools, read, ref, f"channel {name!r}")


async def _common(store: Context, ours: Found, theirs: Found) -> tuple[str, str, str]:
    """The nearest checkpoint that both sides come from: thread, namespace, id."""
    line: dict[str, str] = {}
    async for thread_id, checkpoint_id in _ancestry(store, ours):
        line.setdefault(checkpoint_id, thread_id)
    async for thread_id, checkpoint_id in _ancestry(store, theirs):
        for owner in (line.get(checkpoint_id), thread_id):
            if checkpoint_id in line and owner is not None:
                found = await store.find(owner, ours.row.namespace, checkpoint_id, with_writes=False)
                if found is not None:
                    return owner, ours.row.namespace, checkpoint_id
    raise InvalidRequest(
        f"{theirs.row.id} of thread {theirs.thread_id!r} and {ours.row.id} of thread {ours.thread_id!r} have no common "
        f"ancestor that is still there: only branches of one history can be merged"
    )


async def _ancestry(store: Context, found: Found) -> AsyncIterator[tuple[str, str]]:
    """A checkpoint and what it comes from, nearest first, as thread and id; a fork comes from its origin."""
    key: CheckpointKey | None = found.key
    thread_id, seen = found.thread_id, set[tuple[str, str]]()
    while key is not None and (thread_id, key.id) not in seen:
        start, key = key, None
        async for one in ancestors(store, thread_id, start):
            seen.add((thread_id, one.row.id))
            yield thread_id, one.row.id
            for merged in _merged(store.tools, one):
                yield merged
            origin = _origin(store.tools, one)
            if origin is not None:
                yield origin
                if one.row.parent is None or origin[0] != thread_id:
                    thread_id, key = origin[0], CheckpointKey(one.row.namespace, origin[1])
                    break
            if one.row.parent is not None:
                yield thread_id, one.row.parent


def _origin(tools: Tools, found: Found) -> tuple[str, str] | None:
    if found.row.source != "fork":
        return None
    return _named(tools.metadata(found).get("forked_from"))


def _merged(tools: Tools, found: Found) -> list[tuple[str, str]]:
    """The checkpoints that were merged into this one: they are its ancestors too."""
    if found.row.source != "update":
        return []
    named = tools.metadata(found).get("merged_from")
    places = [_named(one) for one in named] if isinstance(named, (list, tuple)) else []
    return [place for place in places if place is not None]


def _named(origin: Any) -> tuple[str, str] | None:
    if not isinstance(origin, dict):
        return None
    place = (origin.get("thread_id"), origin.get("checkpoint_id"))
    return place if all(isinstance(part, str) for part in place) else None  # type: ignore[return-value]


def _check(strategy: Strategy) -> None:
    choices: list[Any] = list(strategy.values()) if isinstance(strategy, Mapping) else [strategy]
    for choice in choices:
        if choice is not None and not callable(choice) and choice not in _NAMES:
            raise InvalidRequest(f"a strategy is 'ours', 'theirs', 'latest' or a function, not {choice!r}")
