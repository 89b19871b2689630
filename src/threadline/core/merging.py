"""Three-way merge of branches, from their common ancestor.

A channel changed on one side is taken from there. Where both sides changed it, lists are joined by the ids
of their items, dicts by key, sets as sets; a strategy decides what is left, or MergeConflict names it.
Values are compared by their bytes. The merge checkpoint is a child of our side, names both, and its versions
are above both.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from ..backends.port import Backend, CheckpointKey, Found
from ..chunks.refs import Ref
from ..codec.wire import Codec
from ..errors import InvalidRequest, MergeConflict
from ..ids import id_after
from ..model import is_engine_channel
from ..versions import next_version, sort_key
from .checkpoints import put_all
from .documents import DELTA_COUNTERS, read_metadata
from .pages import learn_keys_of
from .prepare import prepare_put
from .reading import Read, read_one, value_of
from .requests import Place
from .timeline import config_of
from .tools import Tools

__all__ = ["Strategy", "merge", "merge_values"]

# `ours`, `theirs`, `latest`, a function of (base, ours, theirs), or one of these per channel.
Strategy = Any
_NAMES = ("ours", "theirs", "latest")
_CHAIN = 200
_ABSENT = object()


async def merge(
    backend: Backend,
    tools: Tools,
    thread_id: str,
    others: Sequence[Found],
    strategy: Strategy,
    now: float,
) -> CheckpointKey:
    """Merge other checkpoints, one after the other, into the head of a thread."""
    _check(strategy)
    head: CheckpointKey | None = None
    for other in others:
        head = await _merge_one(backend, tools, thread_id, other, strategy, now)
    assert head is not None
    return head


async def _merge_one(
    backend: Backend, tools: Tools, thread_id: str, other: Found, strategy: Strategy, now: float
) -> CheckpointKey:
    ours = await _read(backend, tools, thread_id, other.row.namespace, None)
    theirs = await _read(backend, tools, other.thread_id, other.row.namespace, other.row.id)
    base_place = await _common(backend, tools, ours.found, theirs.found)
    base = await _read(backend, tools, *base_place)
    refs = [one.document.roots.refs for one in (base, ours, theirs)]
    changed = _taken(refs)
    values: dict[str, Any] = {}
    conflicts: list[str] = []
    latest_is_theirs = theirs.found.row.id > ours.found.row.id
    for name in changed:
        sides = [_value(tools, read, name) for read in (base, ours, theirs)]
        chosen = _choose(tools.codec, name, sides, refs, strategy, latest_is_theirs)
        if chosen is MergeConflict:
            conflicts.append(name)
        elif chosen is not _ABSENT:
            values[name] = chosen
    conflicts += _lost_deltas(tools, base, ours, theirs, strategy)
    if conflicts:
        raise MergeConflict(
            f"both sides changed {', '.join(sorted(conflicts))} since {base.found.row.id}: "
            f"give strategy= 'ours', 'theirs', 'latest', or a function for each channel"
        )
    return await _put(backend, tools, ours, theirs, set(changed), values, now)


def _taken(refs: Sequence[Mapping[str, Ref]]) -> list[str]:
    """The channels that do not simply stay as ours: changed on their side, or on both."""
    base, our, their = refs
    names = [name for name in {**our, **their} if not is_engine_channel(name)]
    return [name for name in names if their.get(name) != base.get(name) and their.get(name) != our.get(name)]


def _lost_deltas(tools: Tools, base: Read, ours: Read, theirs: Read, strategy: Strategy) -> list[str]:
    """Delta channels that their side wrote to: such values are replayed from writes, and cannot be merged."""
    deltas: set[str] = set()
    for side in (ours, theirs):
        counted = read_metadata(side.found, tools.codec, tools.envelope).get(DELTA_COUNTERS)
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
    merged = merge_values(codec, base, ours, theirs) if wanted is None else MergeConflict
    if wanted is None:
        return merged
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
    backend: Backend, tools: Tools, ours: Read, theirs: Read, changed: set[str], values: Mapping[str, Any], now: float
) -> CheckpointKey:
    """The merge checkpoint: ours with what was merged, as a child of our side."""
    document, row = ours.document, ours.found.row
    metadata = read_metadata(ours.found, tools.codec, tools.envelope)
    their_versions = theirs.document.roots.versions
    versions = dict(document.roots.versions)
    new_versions: dict[str, Any] = {}
    for name in changed:
        present: list[Any] = [side[name] for side in (versions, their_versions) if name in side]
        above: Any = next_version(max(present, key=sort_key) if present else None)
        new_versions[name] = versions[name] = above
    kept = {
        name: value_of(tools, ours, ref, f"channel {name!r}")
        for name, ref in document.roots.refs.items()
        if name not in changed
    }
    new_id = id_after(max(row.id, theirs.found.row.id))
    checkpoint = {
        **document.other,
        "v": document.v,
        "id": new_id,
        "ts": _timestamp(now),
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
    key = CheckpointKey(row.namespace, row.id)
    put = prepare_put(tools, config_of(ours.found.thread_id, key), checkpoint, described, new_versions)
    put.head = (row.namespace, row.id)
    await put_all(backend, tools, [put], now)
    return CheckpointKey(row.namespace, new_id)


def _timestamp(now: float) -> str:
    from datetime import datetime, timezone

    return datetime.fromtimestamp(now, timezone.utc).isoformat()


async def _read(backend: Backend, tools: Tools, thread_id: str, namespace: str, checkpoint_id: str | None) -> Read:
    read = await read_one(backend, tools, Place(thread_id, namespace, checkpoint_id))
    if read is None:
        raise InvalidRequest(f"thread {thread_id!r} has no checkpoint {checkpoint_id or ''}to merge".replace("  ", " "))
    return read


def _value(tools: Tools, read: Read, name: str) -> Any:
    ref = read.document.roots.refs.get(name)
    return _ABSENT if ref is None else value_of(tools, read, ref, f"channel {name!r}")


async def _common(backend: Backend, tools: Tools, ours: Found, theirs: Found) -> tuple[str, str, str]:
    """The nearest checkpoint that both sides come from: thread, namespace, id."""
    line: dict[str, str] = {}
    async for thread_id, checkpoint_id in _ancestry(backend, tools, ours):
        line.setdefault(checkpoint_id, thread_id)
    async for thread_id, checkpoint_id in _ancestry(backend, tools, theirs):
        for owner in (line.get(checkpoint_id), thread_id):
            if checkpoint_id in line and owner is not None:
                found = await backend.find(owner, ours.row.namespace, checkpoint_id, with_writes=False)
                if found is not None:
                    return owner, ours.row.namespace, checkpoint_id
    raise InvalidRequest(
        f"{theirs.row.id} of thread {theirs.thread_id!r} and {ours.row.id} of thread {ours.thread_id!r} have no common "
        f"ancestor that is still there: only branches of one history can be merged"
    )


async def _ancestry(backend: Backend, tools: Tools, found: Found) -> Any:
    """A checkpoint and what it comes from, nearest first, as thread and id; a fork comes from its origin."""
    current: tuple[str, str] | None = (found.thread_id, found.row.id)
    seen: set[tuple[str, str]] = set()
    while current is not None and current not in seen:
        thread_id, checkpoint_id = current
        chain = await backend.chain(thread_id, found.row.namespace, checkpoint_id, _CHAIN)
        await learn_keys_of(backend, tools, chain)
        current = None
        for one in chain:
            seen.add((thread_id, one.row.id))
            yield thread_id, one.row.id
            for merged in _merged(tools, one):
                yield merged
            origin = _origin(tools, one)
            if origin is not None:
                yield origin
                if one.row.parent is None or origin[0] != thread_id:
                    current = origin
                    break
        else:
            if chain and chain[-1].row.parent:
                current = (thread_id, chain[-1].row.parent)
                yield current


def _origin(tools: Tools, found: Found) -> tuple[str, str] | None:
    if found.row.source != "fork":
        return None
    return _named(read_metadata(found, tools.codec, tools.envelope).get("forked_from"))


def _merged(tools: Tools, found: Found) -> list[tuple[str, str]]:
    """What was merged into a checkpoint: it comes from there too."""
    if found.row.source != "update":
        return []
    named = read_metadata(found, tools.codec, tools.envelope).get("merged_from")
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
