"""Side effects exactly once, as far as a store can give that: results kept under a name of their own.

A result is a write of its own task id, derived from the task and the name: it is found again on resume, on a retry
and after a crash, wherever in the node the effect moved to. It is durable before it is returned. The key for the
receiver is derived from the same names, so a repetition after a crash in between can be recognised there.

The name of a task comes from the checkpoint that its step starts from. That checkpoint is durable before the effect
happens, under any durability: a crash that lost it would begin the step anew, with other names and another key.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Awaitable, Callable, Coroutine
from typing import TYPE_CHECKING, Any

from xxhash import xxh3_128_hexdigest

from .._base import InvalidRequest, run_now
from ..constants import MISSING, PUSH, RETURN
from ..storing.saving import make_durable, store_writes
from .ids import path_text

if TYPE_CHECKING:
    from .tasks import Task

__all__ = ["Effect", "aonce", "idempotency_key", "once"]


class Effect:
    """An effect of a task that began in this process.

    Whoever asks for it meanwhile waits. A result that the store did not take is stored by the next attempt.
    """

    __slots__ = ("lock", "result")

    def __init__(self, lock: Any) -> None:
        self.lock = lock
        self.result: Any = MISSING


def once(task: Task, name: str, effect: Callable[[], Any]) -> Any:
    """The result of the effect, from the store if it is there."""
    known = _known(task, name)
    if known is not MISSING:
        return known
    host = task.run.host
    if host.is_async and _is_on_loop(host):
        raise RuntimeError(
            f"once({name!r}) would block the event loop: write `await runtime.aonce(...)` in async nodes"
        )
    begun = task.effects.setdefault(name, Effect(threading.RLock()))
    with begun.lock:
        if (known := _known(task, name)) is not MISSING:
            return known
        _wait_for(host, make_durable(task.run))
        if begun.result is MISSING:
            begun.result = effect()
        _wait_for(host, _keep(task, name, begun.result))
        return begun.result


async def aonce(task: Task, name: str, effect: Callable[[], Awaitable[Any]]) -> Any:
    """The twin of `once` for effects that are awaited."""
    known = _known(task, name)
    if known is not MISSING:
        return known
    begun = task.effects.setdefault(name, Effect(asyncio.Lock()))
    async with begun.lock:
        if (known := _known(task, name)) is not MISSING:
            return known
        await make_durable(task.run)
        if begun.result is MISSING:
            begun.result = await effect()
        await _keep(task, name, begun.result)
        return begun.result


def idempotency_key(task: Task, name: str) -> str:
    """A key that is equal for every attempt and resume of this task."""
    _check(name)
    return xxh3_128_hexdigest(f"{task.run.thread_id}|{task.namespace}|once|{name}".encode())


def _known(task: Task, name: str) -> Any:
    _check(name)
    for channel, value in task.run.pending.get(_id(task, name), ()):
        if channel == RETURN:
            return value
    return MISSING


def _wait_for(host: Any, work: Coroutine[Any, Any, None]) -> None:
    if not host.is_async:
        run_now(work)
        return
    try:
        future = asyncio.run_coroutine_threadsafe(work, host.loop)
    except RuntimeError:
        work.close()  # the loop is closed: the run is gone
        raise
    future.result()


async def _keep(task: Task, name: str, result: Any) -> None:
    run = task.run
    task_id = _id(task, name)
    if run.writer is not None:
        await store_writes(run, task_id, [(RETURN, result)], path_text((PUSH, task.path, name, True)))
        await run.writer.settle()
    run.pending[task_id] = [(RETURN, result)]


def _id(task: Task, name: str) -> str:
    digits = xxh3_128_hexdigest(f"{task.namespace}|once|{name}".encode())
    return f"{digits[:8]}-{digits[8:12]}-{digits[12:16]}-{digits[16:20]}-{digits[20:]}"


def _check(name: str) -> None:
    if type(name) is not str or not name:
        raise InvalidRequest("once takes a name for the effect, such as 'charge-card'")


def _is_on_loop(host: Any) -> bool:
    try:
        return asyncio.get_running_loop() is host.loop
    except RuntimeError:
        return False
