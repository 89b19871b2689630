"""One version, one value: a put that gives a channel another value under the version of its parent is refused.

LangGraph's loop keeps versions itself and is not made to pay for this look; callers of `connect` put what they like.
A value counts as the same when it encodes to the same bytes, or when the parent's does so once it was read here: a
class may have got a field since it was stored.
"""

from __future__ import annotations

from functools import partial

from ..backends.port import Backend
from ..chunks.read import Pile
from ..chunks.refs import Ref
from ..errors import InvalidRequest, ThreadlineError
from .prepare import PreparedPut
from .tools import Tools

__all__ = ["refuse_other_values"]


async def refuse_other_values(backend: Backend, tools: Tools, put: PreparedPut) -> None:
    """Raise InvalidRequest where a channel has another value than the parent has under the same version."""
    if put.parent is None or put.roots is None:
        return
    versions, parent = put.roots.versions, put.parent
    for name, ref in {**put.roots.refs, **put.compared}.items():
        if name not in versions or not parent.has(name, versions[name]) or ref == parent.refs[name]:
            continue
        if put.sibling is not None or not await _reads_as(backend, tools, put, name, parent.refs[name], ref):
            raise InvalidRequest(
                f"thread {put.place.thread_id!r}: channel {name!r} has another value than in the parent checkpoint "
                f"{put.place.checkpoint_id}, and the same version {versions[name]!r}. A version stands for one value: "
                f"give the channel a higher one in channel_versions and in new_versions, as "
                f"saver.get_next_version() makes it, or let thread.put() do that"
            )


async def _reads_as(backend: Backend, tools: Tools, put: PreparedPut, name: str, stored: Ref, ref: Ref) -> bool:
    """Whether a stored value, read and encoded again, is what was encoded."""
    if put.known is None:
        return False
    pool, pile = put.known.stamp[0], Pile()
    try:
        await tools.reader.gather(pool, [stored], partial(tools.fetch, backend, pool), pile)
        return put.encoder.value(tools.reader.value(stored, pile), name).ref == ref
    except ThreadlineError:  # what cannot be read here was not read by who put this
        return False
