"""Where the objects of a store are: noted by the first run, and no run works with another place.

A run at a wrong place would split the store: it would write objects there, find that orphans are not there, and forget
them while they lie at the right one.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable

from ...errors import InvalidRequest
from ...ports.checkpoints import Backend
from ...ports.objects import Tier
from ..paging import each_pool
from ..store_records import change_record, read_record
from .choosing import cold_chunks
from .shapes import PackUse

__all__ = ["settle_place"]

_RECORD = "tier"
# Some objects may have been lost; one that is there shows that the place is theirs.
_MOST_ASKED = 20


async def settle_place(
    backend: Backend, tier: Tier, uses_of: Callable[[], Awaitable[list[PackUse]]], *, moved: bool
) -> None:
    """Note the place of this tier as that of the store's objects; InvalidRequest, with nothing done, where it is not.

    With `moved` another place than the one that was noted is taken, if it has objects that rows need.
    """
    where = tier.objects.where
    noted = await read_record(backend, _RECORD)
    if noted == where.encode():
        return
    uses = await uses_of()
    known = noted.decode(errors="replace") if noted is not None else None
    if known is not None and not moved and await _has_any(backend, tier, uses):
        raise InvalidRequest(
            f"the objects of this store are at {known}, and not at {where}: nothing was done. Name that place; or if "
            f"the objects were moved here, say moved=True, on the command line --moved"
        )
    # A store that was tiered before places were noted has objects, too.
    await _check_there(tier, uses, "at the place that was named before" if known is None else f"at {known}")
    await change_record(backend, _RECORD, lambda _: where.encode(), "the record of the cold tier's place")


async def _has_any(backend: Backend, tier: Tier, uses: list[PackUse]) -> bool:
    if uses:
        return True
    async for pool in each_pool(backend):
        if await cold_chunks(backend, tier, pool):
            return True
    return False


async def _check_there(tier: Tier, uses: list[PackUse], known: str) -> None:
    """Raise InvalidRequest where rows need objects, and not one of them is at this place."""
    needed = [pack.name for pack in uses if pack.live_bytes]
    for name in needed[:_MOST_ASKED]:
        if await tier.objects.size(name) is not None:
            return
    if needed:
        raise InvalidRequest(
            f"none of the {len(needed):,} objects that this store needs is at {tier.objects.where}: nothing was done. "
            f"They are {known}"
        )
