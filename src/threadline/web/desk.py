"""What the views of one page share: the store, which half of it is used, jobs, plans that wait, and what was said."""

from __future__ import annotations

import secrets
import time
from collections import OrderedDict
from typing import Any, Generic, TypeVar

from ..errors import NotFound, ReadOnly
from ..saver import Saver
from ..show.tree import History, read_history
from ..thread import Thread
from .half import Half
from .jobs import Jobs

__all__ = ["Desk", "Shelf"]

T = TypeVar("T")
_MOST_HISTORIES = 3


class Shelf(Generic[T]):
    """Things under secret names, for a while; each is taken once."""

    def __init__(self, most: int, seconds: float) -> None:
        self._most, self._seconds = most, seconds
        self._held: OrderedDict[str, tuple[float, T]] = OrderedDict()

    def put(self, thing: T) -> str:
        """Keep a thing; the name to take it by."""
        name = secrets.token_urlsafe(16)
        self._held[name] = time.monotonic(), thing
        while len(self._held) > self._most:
            self._held.popitem(last=False)
        return name

    def take(self, name: str) -> T | None:
        """The thing of this name, which is then gone; None without it, or when its time is over."""
        since, thing = self._held.pop(name, (0.0, None))
        return thing if time.monotonic() - since < self._seconds else None


class Desk:
    """The store as the page sees it: by structures, and read-only but for what a person does."""

    def __init__(self, saver: Saver, *, write: bool, half: str, url: str | None) -> None:
        structural = saver.structural()
        self.reading: Saver = structural.read_only()
        self._writing = structural if write else None
        self.half = Half(half)
        self.url = url or saver.url
        self.jobs = Jobs()
        # How many pages follow a thread at this moment.
        self.tails = 0
        # Set when the server is about to end: whoever follows a thread is let go.
        self.is_closing = False
        # A plan is carried out within this time, or made again.
        self.plans: Shelf[Any] = Shelf(100, 1800.0)
        # The long threads that were looked at last: opening a fold of one need not read it again.
        self.histories: OrderedDict[str, History] = OrderedDict()
        self.notes: Shelf[str] = Shelf(200, 120.0)

    def let_go(self) -> None:
        """Let pages go that follow a thread."""
        self.is_closing = True

    @property
    def can_write(self) -> bool:
        return self._writing is not None

    @property
    def writing(self) -> Saver:
        """The store for an act of a person; ReadOnly where the page may only look."""
        if self._writing is None:
            raise ReadOnly(
                "this page only looks: start it with --write, or mount it with write=True, to change anything"
            )
        return self._writing

    def thread(self, thread_id: str) -> Thread:
        return self.reading.thread(_named(thread_id))

    def own_thread(self, thread_id: str) -> Thread:
        """A thread, for an act of a person."""
        return self.writing.thread(_named(thread_id))

    async def history(self, thread_id: str) -> History:
        """The checkpoints of a thread."""
        found: History = await self.run(read_history, thread_id, self.histories.pop(thread_id, None))
        if found.is_brief:
            self.histories[thread_id] = found
            while len(self.histories) > _MOST_HISTORIES:
                self.histories.popitem(last=False)
        return found

    async def ask(self, face: Any, verb: str, *args: Any, **options: Any) -> Any:
        return await self.half.call(face, verb, *args, **options)

    async def run(self, operation: Any, *args: Any, **options: Any) -> Any:
        """The result of an operation that only reads."""
        return await self.half.call(self.reading, "run", operation, *args, **options)


def _named(thread_id: str) -> str:
    if not thread_id:
        raise NotFound("the address names no thread; the list of threads leads to each")
    return thread_id
