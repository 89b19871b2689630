"""The lock on a thread: one holder at a time, renewed while it is held, free when its holder is gone."""

from __future__ import annotations

import time

from ...core.leases import take
from ...errors import Conflict, InvalidRequest
from ..half import Half
from ..raising import refused
from .marks import two_savers


async def _is_free(saver: Half, thread: str) -> bool:
    try:
        async with saver.lock(thread, wait=0):
            return True
    except Conflict:
        return False


async def test_a_lock_has_one_holder(saver: Half, thread: str) -> None:
    async with saver.lock(thread):
        assert not await _is_free(saver, thread)
        with refused(Conflict):
            async with saver.lock(thread, wait=0.05):
                pass
        assert await _is_free(saver, thread + "-other")
    assert await _is_free(saver, thread)


async def test_both_halves_share_the_locks(saver: Half, thread: str) -> None:
    if not saver.is_async:
        return  # the sync half runs without a loop; the async half tries this for both
    other = saver.other_half()
    async with saver.lock(thread):
        assert not await _is_free(other, thread)
    async with other.lock(thread):
        assert not await _is_free(saver, thread)
    assert await _is_free(saver, thread)


@two_savers
async def test_a_lock_counts_for_every_saver_of_the_store(saver: Half, thread: str) -> None:
    other = saver.another()
    async with saver.lock(thread):
        assert not await _is_free(other, thread)
    async with other.lock(thread):
        assert not await _is_free(saver, thread)


async def test_a_lock_is_given_back_when_the_block_fails(saver: Half, thread: str) -> None:
    with refused(KeyError):
        async with saver.lock(thread):
            raise KeyError("inside")
    assert await _is_free(saver, thread)


async def test_who_waits_gets_the_lock_when_it_is_given_back(saver: Half, thread: str) -> None:
    inside = 0
    turns: list[int] = []

    async def work() -> None:
        nonlocal inside
        async with saver.lock(thread, wait=20):
            inside += 1
            turns.append(inside)
            await saver.sleep(0.002)
            inside -= 1

    await saver.together(*[work] * 6)
    assert turns == [1] * 6


async def test_a_lock_is_renewed_while_it_is_held(saver: Half, thread: str) -> None:
    async with saver.lock(thread, ttl=0.6):
        deadline = time.monotonic() + 0.8
        while time.monotonic() < deadline:
            assert not await _is_free(saver, thread)
            await saver.sleep(0.1)
    assert await _is_free(saver, thread)


async def test_the_lock_of_a_dead_holder_runs_out(saver: Half, thread: str) -> None:
    engine, began = saver.saver._engine, time.monotonic()
    # A holder that takes its lease and never renews it.
    taking = take, thread, 0.2, time.time()
    if saver.is_async:
        assert await engine.arun(lambda backend: taking[0](backend, *taking[1:], None))
    else:
        assert engine.run(lambda backend: taking[0](backend, *taking[1:], None))
    assert not await _is_free(saver, thread)
    async with saver.lock(thread, wait=10):
        assert 0.15 < time.monotonic() - began < 5


async def test_a_lock_given_back_stays_free(saver: Half, thread: str) -> None:
    """A renewal that is under way when the block ends must not take the lock again."""
    for _ in range(40):
        async with saver.lock(thread, ttl=0.003):
            await saver.sleep(0.001)
        async with saver.lock(thread, ttl=5, wait=0):
            pass


async def test_a_lock_without_time_is_refused(saver: Half, thread: str) -> None:
    for ttl in (0, -1):
        with refused(InvalidRequest):
            async with saver.lock(thread, ttl=ttl):
                pass
