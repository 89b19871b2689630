"""The lock on a thread: one holder at a time, renewed while it is held, free when its holder is gone."""

from __future__ import annotations

import time
from functools import partial

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


async def _outlives_itself(saver: Half, thread: str, ttl: float) -> bool:
    """Whether a lock stays with its holder for longer than its time to live."""
    async with saver.lock(thread, ttl=ttl):
        deadline = time.monotonic() + 1.5 * ttl
        while time.monotonic() < deadline:
            if await _is_free(saver, thread):
                return False
            await saver.sleep(ttl / 10)
    return True


async def test_a_lock_is_renewed_while_it_is_held(saver: Half, thread: str) -> None:
    # A machine that stalls for as long as the lease lasts loses it; then a longer one must be kept.
    for ttl in (0.3, 1.0, 5.0):
        if await _outlives_itself(saver, thread, ttl):
            break
    else:
        raise AssertionError("no lock was renewed")
    assert await _is_free(saver, thread)


async def test_the_lock_of_a_dead_holder_runs_out(saver: Half, thread: str) -> None:
    engine, ttl, began = saver.saver._engine, 0.3, time.monotonic()
    # A holder that takes its lease and never renews it.
    taking = partial(take, thread_id=thread, ttl_seconds=ttl, now=time.time(), token=None)
    assert await engine.arun(taking) if saver.is_async else engine.run(taking)
    assert not await _is_free(saver, thread) or time.monotonic() - began >= ttl
    async with saver.lock(thread, wait=30):
        assert time.monotonic() - began > ttl - 0.05


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
