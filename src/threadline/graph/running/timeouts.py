"""Timeouts of async nodes: how long an attempt may take, and how long it may be silent."""

from __future__ import annotations

import asyncio
import time
from typing import TYPE_CHECKING, Any

from ..errors import NodeTimeoutError

if TYPE_CHECKING:
    from .hosts import Host
    from .tasks import Task

__all__ = ["call_timed"]


async def call_timed(task: Task, host: Host) -> None:
    """One attempt under the task's timeouts; late writes of an attempt that was cut go nowhere."""
    policy = task.timeout
    assert policy is not None
    run_seconds = policy.run_timeout
    idle_seconds = policy.idle_timeout
    begun = last = time.monotonic()

    def beat() -> None:
        nonlocal last
        last = time.monotonic()

    task.beat = beat
    attempt = asyncio.ensure_future(host.call(task))
    try:
        while True:
            now = time.monotonic()
            limits = []
            if run_seconds is not None:
                limits.append((begun + float(run_seconds) - now, "run"))  # type: ignore[arg-type]
            if idle_seconds is not None:
                limits.append((last + float(idle_seconds) - now, "idle"))  # type: ignore[arg-type]
            left, kind = min(limits)
            if left <= 0:
                raise _timed_out(task, kind, now - begun if kind == "run" else now - last)
            done, _ = await asyncio.wait({attempt}, timeout=left)
            if done:
                attempt.result()
                return
    finally:
        task.beat = None
        if not attempt.done():
            task.writes = []
            attempt.cancel()
            await asyncio.gather(attempt, return_exceptions=True)
            task.writes = []


def _timed_out(task: Task, kind: Any, elapsed: float) -> NodeTimeoutError:
    policy = task.timeout
    assert policy is not None
    return NodeTimeoutError(
        task.name,
        elapsed,
        kind=kind,
        idle_timeout=policy.idle_timeout,  # type: ignore[arg-type]
        run_timeout=policy.run_timeout,  # type: ignore[arg-type]
    )
