"""A process that works on a store with a cold tier and ends itself by SIGKILL between two steps of tiering.

    python tier_killed.py URL COLD SEED STEPS

It ends at the step of that number; what was put and acknowledged before is a line of its output.
"""

from __future__ import annotations

import json
import os
import random
import signal
import sys
from typing import Any

from tier_stores import messages

import threadline
from threadline.backends.layers.tiered import TieredLayer
from threadline.backends.objects.folder import FolderObjects
from threadline.core.tiering import registry, relocating, running

_left = [0]


def step() -> None:
    """One more step; the last one is never left."""
    _left[0] -= 1
    if _left[0] < 0:
        sys.stdout.flush()
        os.kill(os.getpid(), signal.SIGKILL)


def stepping(owner: Any, name: str) -> None:
    """A step before and after each call of a coroutine function."""
    original = getattr(owner, name)

    async def stepped(*args: Any, **options: Any) -> Any:
        step()
        found = await original(*args, **options)
        step()
        return found

    setattr(owner, name, stepped)


def halfway(original: Any) -> Any:
    """An upload that may die in the middle, as one over a network does."""

    def write(self: Any, name: str, content: bytes) -> None:
        if _left[0] == 0:
            self._path.mkdir(parents=True, exist_ok=True)
            (self._path / name).write_bytes(content[: len(content) // 2])
        step()
        original(self, name, content)

    return write


def main(url: str, cold: str, seed: int, steps: int) -> None:
    _left[0] = steps
    chance = random.Random(seed)
    saver = threadline.connect(url, cold=cold)
    FolderObjects._write = halfway(FolderObjects._write)  # type: ignore[method-assign]
    for owner, name in (
        (FolderObjects, "put"),
        (FolderObjects, "read"),
        (FolderObjects, "delete"),
        (TieredLayer, "swap_chunks"),
        (relocating, "note_object"),
        (registry, "note_object"),
        (running, "forget_object"),
    ):
        stepping(owner, name)
    for turn in range(1_000):
        name = chance.choice("abc")
        act = chance.choice(["put", "put", "put", "tier", "tier", "restore", "prune", "fork", "delete"])
        thread = saver.thread(name)
        has = bool(list(saver.list({"configurable": {"thread_id": name}}, limit=1)))
        if act == "put" or not has:
            seed_of_put = chance.randrange(1_000_000)
            thread.put({"messages": messages(chance.choice([3, 20, 60]), seed_of_put % 7), "turn": seed_of_put})
        elif act == "tier":
            saver.tier("0s", grace=chance.choice(["0s", "1d"]))
        elif act == "restore":
            saver.tier_restore([name])
        elif act == "prune":
            thread.prune(keep_last=2)
            saver.collect()
        elif act == "fork":
            to = chance.choice("def")
            if not list(saver.list({"configurable": {"thread_id": to}}, limit=1)):
                thread.fork(to=to)
        else:
            thread.delete()
        heads = {one: saver.thread(one).state()["turn"] for one in "abcdef" if _has(saver, one)}
        print(json.dumps([turn, heads]), flush=True)


def _has(saver: Any, name: str) -> bool:
    return bool(list(saver.list({"configurable": {"thread_id": name}}, limit=1)))


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2], int(sys.argv[3]), int(sys.argv[4]))
