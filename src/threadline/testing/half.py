"""One half of a saver, so that one test body serves both.

A promise awaits the sync names (`await saver.put(…)`). On the sync half that calls `put` here and now; on
the async half it awaits `aput`. A promise on the sync half therefore never suspends, and is run without
any event loop.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any, Protocol

from ..base.drive import run_now
from ..core.threads import ThreadInfo, Waiting
from ..saver import Saver
from ..thread import Thread

__all__ = ["Half", "HalfThread", "Promise", "Store", "run_promise"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Store:
    """Where promises are tried."""

    # Opens a saver there; takes the options of `threadline.connect`.
    connect: Callable[..., Saver]
    # Whether all savers that `connect` opens see the same records.
    is_shared: bool = True


class Half:
    """The sync or the async half of a saver: methods to be awaited, iterators for `async for`."""

    def __init__(self, store: Store, *, is_async: bool, **options: Any) -> None:
        self.store = store
        self.is_async = is_async
        self.saver = store.connect(**options)
        self._others: list[Half] = []

    def __getattr__(self, name: str) -> Callable[..., Coroutine[Any, Any, Any]]:
        """Any method of the saver, under its sync name."""
        if name.startswith("_"):
            raise AttributeError(name)
        method = getattr(self.saver, f"a{name}" if self.is_async else name)

        async def call(*args: Any, **options: Any) -> Any:
            result = method(*args, **options)
            return await result if self.is_async else result

        return call

    def list(self, config: Any, **options: Any) -> AsyncIterator[Any]:
        """The checkpoints that `list` yields."""
        return self._each("list", config, **options)

    def threads(self, **options: Any) -> AsyncIterator[ThreadInfo]:
        """The threads that `threads` yields."""
        return self._each("threads", **options)

    def interrupts(self, **options: Any) -> AsyncIterator[Waiting]:
        """What `interrupts` yields."""
        return self._each("interrupts", **options)

    def of(self, thread_id: str) -> HalfThread:
        """One half of the handle on a thread: its verbs, under their sync names."""
        return HalfThread(self.saver.thread(thread_id), is_async=self.is_async)

    @asynccontextmanager
    async def lock(self, thread_id: str, **options: Any) -> AsyncIterator[None]:
        """The lease on a thread, entered by `with` or by `async with`."""
        lease = self.saver.lock(thread_id, **options)
        if self.is_async:
            async with lease:
                yield
        else:
            with lease:
                yield

    async def sleep(self, seconds: float) -> None:
        """Let time pass, blocking or not."""
        if self.is_async:
            await asyncio.sleep(seconds)
        else:
            time.sleep(seconds)

    async def together(self, *work: Callable[[], Coroutine[Any, Any, Any]]) -> Any:
        """The results of work done side by side: by OS threads, or by tasks of the loop."""
        if self.is_async:
            return await asyncio.gather(*[begin() for begin in work])
        with ThreadPoolExecutor(len(work)) as threads:
            return [*threads.map(lambda begin: run_now(begin()), work)]

    def view(self, saver: Saver) -> Half:
        """The same half of another saver over the same engine."""
        twin = object.__new__(Half)
        twin.store, twin.saver, twin._others = self.store, saver, []
        twin.is_async = self.is_async
        return twin

    def another(self, **options: Any) -> Half:
        """A further saver on the same store, or on a store of its own where stores are not shared."""
        self._others.append(Half(self.store, is_async=self.is_async, **options))
        return self._others[-1]

    def other_half(self) -> Half:
        """The other half of the very same saver."""
        twin = object.__new__(Half)
        twin.store, twin.saver, twin._others = self.store, self.saver, self._others
        twin.is_async = not self.is_async
        return twin

    async def close_all(self) -> None:
        """Close this saver and those that it opened."""
        for other in self._others:
            await other.close()
        await self.close()

    async def _each(self, name: str, *args: Any, **options: Any) -> AsyncIterator[Any]:
        if self.is_async:
            async for one in getattr(self.saver, f"a{name}")(*args, **options):
                yield one
        else:
            for one in getattr(self.saver, name)(*args, **options):
                yield one


class HalfThread:
    """The sync or the async half of a thread's handle."""

    def __init__(self, thread: Thread, *, is_async: bool) -> None:
        self.thread = thread
        self._is_async = is_async

    def __getattr__(self, name: str) -> Callable[..., Coroutine[Any, Any, Any]]:
        method = getattr(self.thread, f"a{name}" if self._is_async else name)

        async def call(*args: Any, **options: Any) -> Any:
            result = method(*args, **options)
            return await result if self._is_async else result

        return call


class Promise(Protocol):
    """What a backend must keep: a test of one half of a saver, on a thread of its own."""

    __name__: str

    def __call__(self, saver: Half, thread: str, /) -> Awaitable[None]: ...


def run_promise(promise: Promise, store: Store, *, is_async: bool) -> None:
    """Try a promise on a new saver and a thread of its own; AssertionError when it is broken."""

    async def tried() -> None:
        half = Half(store, is_async=is_async)
        try:
            await promise(half, f"{promise.__name__}-{time.time_ns():x}")
        finally:
            await half.close_all()

    if is_async:
        asyncio.run(tried())
    else:
        run_now(tried())
