"""One writer per thread, when asked: `compile(exclusive=True)`.

A root run takes the saver's lease on its thread, and uses a clone of the saver that holds nothing else. So every put
and every write proves in its own transaction that the lease is still this run's, also when the next run of the same
process holds it by now. Checkpoints are fenced as well: each expects its parent to be the newest still, which finds out
writers that ask for no lease. A run that starts at a checkpoint which its caller named means to branch: it has the
lease, and no fence. `update_state` does the same.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from .._base import Conflict, InvalidRequest
from .hosts import to_the_end

__all__ = ["Hold", "take"]


@dataclass(frozen=True, slots=True)
class Hold:
    """A thread that is held for one writer, and the saver that writes it."""

    saver: Any
    lease: Any
    is_async: bool

    def check(self) -> None:
        """Raise Conflict when the lease was lost: what this run would do now, another one may be doing."""
        if self.lease.is_lost:
            raise Conflict(f"the lease on thread {self.lease.thread_id!r} was lost: another run may be writing to it")

    async def leave(self) -> None:
        """Give the lease back."""
        if self.is_async:
            await self.lease.__aexit__(None, None, None)
        else:
            self.lease.__exit__(None, None, None)


async def take(saver: Any, thread_id: str, *, branches: bool, is_async: bool) -> Hold:
    """Hold a thread for one writer; Conflict when another one has it. One that `branches` is not fenced."""
    if not all(callable(getattr(saver, name, None)) for name in ("lock", "for_run", "open")):
        raise InvalidRequest("compile(exclusive=True) needs a saver with leases: checkpointer=threadline.connect(url)")
    # Its clones are open then: they live for one run each.
    await saver.aopen() if is_async else saver.open()
    own = saver.for_run(fencing=not branches)
    lease = own.lock(thread_id, wait=0)
    if is_async:
        await _enter(lease)
    else:
        lease.__enter__()
    return Hold(own, lease, is_async)


async def _enter(lease: Any) -> None:
    """Take a lease to the end, cancelled or not: one that the store gave away meanwhile would lock the thread."""
    import asyncio

    taking, cancelled = await to_the_end(lease.__aenter__())
    if cancelled is None:
        taking.result()
        return
    if taking.exception() is None:
        await asyncio.shield(lease.__aexit__(None, None, None))
    raise cancelled
