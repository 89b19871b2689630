"""`thread.put`: a checkpoint made of a few values. Ids, versions and inherited channels are decided here.

The values given replace those of the checkpoint that the new one follows, and all others are inherited. A channel whose
value is another one gets a version above every version there is; one that is given the value it had keeps its version.
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from datetime import datetime, timezone
from typing import Any, NamedTuple

from ..base.attempts import ATTEMPTS, gave_up
from ..base.checkpoint import config_of, empty_checkpoint
from ..base.ids import id_after
from ..base.versions import next_version, sort_key
from ..errors import Conflict, InvalidRequest
from ..ports.checkpoints import CheckpointKey
from .context import Context, Tools
from .history.revisions import At, find
from .history.state import Point
from .prepare import PreparedPut, prepare_put
from .put import put_all
from .requests import Place, plain_text
from .rows import DELTA_COUNTERS, Document, Roots

__all__ = ["put_update"]

# What describes every checkpoint, and is not for callers to say otherwise.
_OWN_KEYS = ("source", "step", DELTA_COUNTERS)
_PASSED_ON = ("parents", DELTA_COUNTERS)


class _Update(NamedTuple):
    """The arguments of `thread.put`, checked."""

    values: dict[str, Any]
    step: int | None
    metadata: dict[str, Any]


def _checked(values: Any, step: Any, metadata: Any) -> _Update:
    """Check the arguments of a caller."""
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
    return _Update(dict(values), step, dict(metadata or {}))


async def put_update(
    store: Context,
    thread_id: str,
    values: Any,
    at: At,
    namespace: str,
    *,
    step: Any = None,
    metadata: Any = None,
) -> Point:
    """Put an update on the checkpoint at a place, or on the newest of the thread, which need not exist yet.

    Where another put has made the newest one meanwhile, it goes on from that. Durable when this returns.
    """
    namespace = plain_text(namespace, "namespace")
    update = _checked(values, step, metadata)
    seen: str | None = ""
    for _ in range(ATTEMPTS):
        base = await _base_of(store, thread_id, at, namespace)
        now = time.time()
        put = _prepared(store.tools, base, update, now)
        try:
            await put_all(store, [put], now)
        except Conflict:
            if base.is_named or base.place.checkpoint_id == seen:
                raise  # not because of another put
            seen = base.place.checkpoint_id
        else:
            return Point(thread_id, CheckpointKey(put.place.namespace, put.checkpoint_id))
    raise gave_up(f"put to thread {thread_id!r}", "another put made the newest checkpoint during each of them")


class _Base(NamedTuple):
    """The checkpoint that an update builds on."""

    place: Place
    # Above this is every id of the namespace.
    newest: str | None
    document: Document | None
    metadata: dict[str, Any]
    # Whether the caller named the place: only then may the thread go on elsewhere meanwhile.
    is_named: bool


async def _base_of(store: Context, thread_id: str, at: At, namespace: str) -> _Base:
    """The checkpoint at a place, or the newest of a thread, which need not exist yet."""
    target = await find(store, thread_id, at, namespace) if at is not None else None
    if target is not None:
        namespace = target.row.namespace
    newest = await store.find(thread_id, namespace, None, with_writes=False)
    parent = target or newest
    if parent is None:
        return _Base(Place(thread_id, namespace, None), None, None, {}, False)
    document = store.tools.document(parent)
    metadata = store.tools.lenient.metadata(parent)
    store.tools.remember(parent, (), document.roots)
    above = newest.row.id if newest is not None else parent.row.id
    return _Base(Place(thread_id, namespace, parent.row.id), above, document, metadata, target is not None)


def _prepared(tools: Tools, base: _Base, update: _Update, now: float) -> PreparedPut:
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
    put = prepare_put(tools, config_of(thread_id, namespace, parent), made, described, new_versions, now=now)
    if document is not None:
        _keep_versions(put, document.roots, update.values)
    if not base.is_named:
        put.head = (namespace, parent)
    return put


def _keep_versions(put: PreparedPut, parent: Roots, given: Mapping[str, Any]) -> None:
    for name in given:
        if name in parent.versions and put.pairs[name] == parent.pairs.get(name):
            put.versions[name] = parent.versions[name]
            put.row = None  # it has the other version


def _next_step(step: Any) -> int:
    return step + 1 if type(step) is int else 0
