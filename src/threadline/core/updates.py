"""A checkpoint made of a few values: ids, versions and what is taken over are seen to here.

The values given replace those of the checkpoint that the new one follows, and all others are inherited. A channel whose
value is another one gets a version above every version there is; one that is given the value it had keeps its version.
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from datetime import datetime, timezone
from typing import Any, NamedTuple

from ..backends.port import Backend, CheckpointKey, Found
from ..errors import Conflict, InvalidRequest, Unavailable
from ..ids import id_after
from ..model import empty_checkpoint
from ..versions import next_version, sort_key
from .checkpoints import put_all
from .documents import DELTA_COUNTERS, Document, Roots, read_document, read_metadata
from .known import witness_of
from .pages import learn_keys_of
from .places import At, find
from .prepare import PreparedPut, prepare_put
from .requests import Place, plain_text
from .timeline import config_of
from .tools import Tools

__all__ = ["Update", "check_update", "put_update"]

# How often an update follows a thread that others go on with all the time.
_TRIES = 32

# What describes every checkpoint, and is not for callers to say otherwise.
_OWN_KEYS = ("source", "step", DELTA_COUNTERS)
_PASSED_ON = ("parents", DELTA_COUNTERS)


class Update(NamedTuple):
    """What a caller wants put, checked."""

    values: dict[str, Any]
    step: int | None
    metadata: dict[str, Any]


def check_update(values: Any, step: Any, metadata: Any) -> Update:
    """What a caller hands in; InvalidRequest says what is wrong with it."""
    if not isinstance(values, Mapping):
        raise InvalidRequest(f"put takes a dict of channels and their values, not {type(values).__name__}")
    for name in values:
        plain_text(name, "the name of a channel")
    if step is not None and (isinstance(step, bool) or not isinstance(step, int)):
        raise InvalidRequest(f"step is an integer, not {type(step).__name__}")
    if metadata is not None and not isinstance(metadata, Mapping):
        raise InvalidRequest(f"metadata is a dict, not {type(metadata).__name__}")
    own = next((key for key in _OWN_KEYS if key in (metadata or ())), None)
    if own is not None:
        raise InvalidRequest(f"metadata[{own!r}] is set by put itself; a step is given as step=")
    return Update(dict(values), step, dict(metadata or {}))


async def put_update(
    backend: Backend, tools: Tools, thread_id: str, update: Update, at: At, namespace: str
) -> CheckpointKey:
    """Put an update on the checkpoint at a place, or on the newest of the thread, which need not exist yet.

    Where another put has made the newest one meanwhile, it goes on from that. Durable when this returns.
    """
    plain_text(namespace, "namespace")
    seen: str | None = ""
    for _ in range(_TRIES):
        base = await _base_of(backend, tools, thread_id, at, namespace)
        now = time.time()
        put = _prepared(tools, base, update, now)
        try:
            await put_all(backend, tools, [put], now)
        except Conflict:
            if base.is_named or base.place.checkpoint_id == seen:
                raise  # not because of another put
            seen = base.place.checkpoint_id
        else:
            return CheckpointKey(put.place.namespace, put.checkpoint_id)
    raise Unavailable(f"thread {thread_id!r} was put to again and again by others while this was put; try again")


class _Base(NamedTuple):
    """What an update builds on."""

    place: Place
    # Above this is every id of the namespace.
    newest: str | None
    document: Document | None
    metadata: dict[str, Any]
    # Whether the caller named the place: only then may the thread go on elsewhere meanwhile.
    is_named: bool


async def _base_of(backend: Backend, tools: Tools, thread_id: str, at: At, namespace: str) -> _Base:
    """The checkpoint at a place, or the newest of a thread, which need not exist yet."""
    await tools.open(backend)
    target = await find(backend, thread_id, at, namespace) if at is not None else None
    if target is not None:
        namespace = target.row.namespace
    newest = await backend.find(thread_id, namespace, None, with_writes=False)
    parent = target or newest
    if parent is None:
        return _Base(Place(thread_id, namespace, None), None, None, {}, False)
    await learn_keys_of(backend, tools, [parent])
    document = read_document(parent, tools.codec, tools.envelope)
    metadata = read_metadata(parent, tools.lenient.codec, tools.envelope)
    _remember(tools, parent, document.roots)
    above = newest.row.id if newest is not None else parent.row.id
    return _Base(Place(thread_id, namespace, parent.row.id), above, document, metadata, target is not None)


def _prepared(tools: Tools, base: _Base, update: Update, now: float) -> PreparedPut:
    """Encode an update; what it is given unchanged keeps its version."""
    thread_id, namespace, parent = base.place
    document = base.document
    before = document.roots.versions if document is not None else {}
    newest: Any = max(before.values(), key=sort_key) if before else None
    new_versions = dict.fromkeys(update.values, next_version(newest))
    made = {
        **(document.other if document is not None else {}),
        "v": document.v if document is not None else empty_checkpoint()["v"],
        "id": id_after(base.newest),
        "ts": datetime.fromtimestamp(now, timezone.utc).isoformat(),
        "channel_values": update.values,
        "channel_versions": {**before, **new_versions},
        "versions_seen": document.versions_seen if document is not None else {},
        "updated_channels": sorted(update.values),
    }
    described = {
        **{key: base.metadata[key] for key in _PASSED_ON if key in base.metadata},
        **update.metadata,
        "source": "update",
        "step": _next_step(base.metadata.get("step")) if update.step is None else update.step,
    }
    config: dict[str, Any] = {"configurable": {"thread_id": thread_id, "checkpoint_ns": namespace}}
    if parent is not None:
        config = config_of(thread_id, CheckpointKey(namespace, parent))
    put = prepare_put(tools, config, made, described, new_versions)
    if document is not None:
        _keep_versions(put, document.roots, update.values)
    if not base.is_named:
        put.head = (namespace, parent)
    return put


def _keep_versions(put: PreparedPut, parent: Roots, given: Mapping[str, Any]) -> None:
    assert put.roots is not None
    versions, refs = put.roots
    for name in given:
        if name in parent.versions and refs[name] == parent.refs.get(name):
            versions[name] = parent.versions[name]


def _next_step(step: Any) -> int:
    return step + 1 if type(step) is int else 0


def _remember(tools: Tools, found: Found, roots: Roots) -> None:
    """Keep the parent for the put that follows, which then need not read it again."""
    if not tools.knows(found):
        witness, stamp = witness_of(found.row), (found.pool, found.epoch)
        known = tools.known.learn(found.thread_id, stamp, (), witness)
        if known.stamp == stamp:
            tools.keep_parent(found.thread_id, witness, known.mark, roots)
