"""Which half of a saver the page uses: the async one, or the blocking one on threads of its own.

A saver that was given a blocking connection or pool has no other half.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from itertools import islice
from typing import Any

from ..errors import InvalidRequest

__all__ = ["Half"]


class Half:
    """Calls methods of faces (saver, thread, store) by their sync names."""

    def __init__(self, name: str) -> None:
        if name not in ("async", "sync"):
            raise InvalidRequest(f"half is 'async' or 'sync', not {name!r}")
        self.name = name

    async def call(self, face: Any, verb: str, *args: Any, **options: Any) -> Any:
        """What `face.verb(…)` gives."""
        if self.name == "sync":
            return await asyncio.to_thread(getattr(face, verb), *args, **options)
        return await getattr(face, f"a{verb}")(*args, **options)

    async def first(self, face: Any, verb: str, most: int, **options: Any) -> list[Any]:
        """The first of what an iterating method yields."""
        if self.name == "sync":
            return await asyncio.to_thread(lambda: list(islice(getattr(face, verb)(**options), most)))
        found: list[Any] = []
        async for one in getattr(face, f"a{verb}")(**options):
            found.append(one)
            if len(found) >= most:
                break
        return found

    @staticmethod
    async def aside(work: Callable[[], Any]) -> Any:
        """The result of work that only computes, and would keep others waiting."""
        return await asyncio.to_thread(work)
