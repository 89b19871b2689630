"""One version, one value: a put that gives a channel another value under its parent's version is refused.

A value counts as the same when it encodes to the same bytes, or when the parent's does so once it was read here: a
class may have got a field since it was stored. Savers of LangGraph skip this check, because its loop keeps versions
itself.
"""

from __future__ import annotations

from functools import partial

from ..chunks.encode import Batch, Source, is_same_value
from ..chunks.gather import Pile
from ..chunks.refs import Pair, unpack_ref
from ..errors import InvalidRequest, ThreadlineError
from .context import Context
from .prepare import PreparedPut

__all__ = ["may_repeat_versions", "refuse_other_values"]


async def refuse_other_values(store: Context, put: PreparedPut) -> None:
    """Raise InvalidRequest where a channel has another value than the parent has under the same version."""
    if put.parent is None or not may_repeat_versions(put):
        return
    versions, parent = put.versions, put.parent
    encoded = {name: (pair, put.sources[name]) for name, pair in put.pairs.items()}
    for name, (pair, source) in {**encoded, **put.compared}.items():
        if name not in versions or not parent.has(name, versions[name]) or pair == parent.pairs[name]:
            continue
        before = put.source_before(name)
        if before is not None:
            is_same = is_same_value(before, source)
        else:
            is_same = await _reads_as(store, put, name, parent.pairs[name], source)
        if not is_same:
            raise InvalidRequest(
                f"thread {put.place.thread_id!r}: channel {name!r} has another value than in the parent checkpoint "
                f"{put.place.checkpoint_id}, and the same version {versions[name]!r}. A version stands for one value: "
                f"give the channel a higher one in channel_versions and in new_versions, as "
                f"saver.get_next_version() makes it, or let thread.put() do that"
            )


def may_repeat_versions(put: PreparedPut) -> bool:
    """Whether a channel that was encoded has the version that it has in the parent."""
    if put.parent is None:
        return False
    versions, before = put.versions, put.parent.versions
    for name in put.pairs:
        if name in before and before[name] == versions.get(name):
            return True
    return bool(put.compared)


async def _reads_as(store: Context, put: PreparedPut, name: str, stored: Pair, source: Source) -> bool:
    """Whether a stored value, read and encoded again, is what was encoded."""
    if put.known is None:
        return False
    pool, pile = put.known.stamp[0], Pile()
    try:
        ref = unpack_ref(*stored)
        await store.tools.reader.gather(pool, [ref], partial(store.chunks, pool), pile)
        value = store.tools.reader.value(ref, pile)
        return is_same_value(put.encoder.value(value, name, Batch())[1], source)
    except ThreadlineError:
        # What cannot be read here was not read by who put this. But the parent may be gone, or its thread begun anew,
        # and what is known of it out of date: then `apply` says so.
        found = await store.backend.find(*put.place, with_writes=False)
        return found is None or found.stamp != put.known.stamp
