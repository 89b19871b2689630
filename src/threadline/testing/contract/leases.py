"""The lock on a thread: one holder at a time, renewed while it is held, free when its holder is gone."""

from __future__ import annotations

import os
import time
from functools import partial

from ...core.leases import take
from ...errors import Conflict, InvalidRequest
from ..half import Half
from ..making import place, put
from ..marks import two_savers
from ..raising import refused


async def _is_free(saver: Half, thread: str) -> bool:
    try:
        async with saver.lock(thread, wait=0):
            return True
    except Conflict:
        return False


async def _refusal(saver: Half, thread: str) -> str:
    """What is said to somebody who cannot have the lock."""
    try:
        async with saver.lock(thread, wait=0):
            return ""
    except Conflict as conflict:
        return str(conflict)


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


async def test_a_lock_tells_who_holds_it_and_since_when(saver: Half, thread: str) -> None:
    before = time.time()
    async with saver.lock(thread, ttl=60, holder="worker 7"):
        [info] = await saver.locks(prefix=thread)
        assert (info.thread_id, info.holder) == (thread, "worker 7")
        assert before - 1 <= info.since <= info.ends - 59 <= time.time() + 2
        said = await _refusal(saver, thread)
        assert f"thread {thread!r} is locked by worker 7 since 20" in said
        assert " s more unless it is renewed" in said
        assert "`threadline unlock`" in said
    assert await saver.locks(prefix=thread) == []


async def test_a_lock_without_a_name_tells_machine_and_process(saver: Half, thread: str) -> None:
    async with saver.lock(thread):
        [info] = await saver.locks(prefix=thread)
        assert info.holder.endswith(f"(process {os.getpid()})")
        assert not info.holder.startswith(" ")


async def _is_renewed_as_it_was(saver: Half, thread: str, ttl: float) -> bool:
    """Whether a lock is renewed, and is the same one then; not where the machine was too busy to keep it."""
    async with saver.lock(thread, ttl=ttl, holder="w"):
        first = await saver.locks(prefix=thread)
        deadline = time.monotonic() + 2 * ttl
        while first and time.monotonic() < deadline:
            await saver.sleep(0.02)
            held = await saver.locks(prefix=thread)
            if held and held[0].ends > first[0].ends:
                assert (held[0].holder, held[0].since) == ("w", first[0].since)
                return True
    return False


async def test_a_renewal_keeps_the_holder_and_the_beginning(saver: Half, thread: str) -> None:
    for ttl in (0.3, 3.0, 20.0):
        if await _is_renewed_as_it_was(saver, thread, ttl):
            return
    raise AssertionError("the lock was not renewed")


async def test_locks_are_listed_by_thread_whatever_its_id(saver: Half, thread: str) -> None:
    names = [f"{thread}{end}" for end in ("", "%", "\0", "x" * 1100, "\U0010ffff")]
    for name in names:
        engine, taking = saver.saver._engine, partial(take, thread_id=name, ttl_seconds=60, now=time.time(), token=None)
        assert await engine.arun(taking) if saver.is_async else engine.run(taking)
    assert [info.thread_id for info in await saver.locks(prefix=thread)] == sorted(names)
    view = saver.view(saver.saver.within(names[1]))
    assert [info.thread_id for info in await view.locks()] == [names[1]]
    for name in names:
        assert (await saver.unlock(name)).thread_id == name
    assert await saver.locks(prefix=thread) == []


async def test_a_lock_that_was_ended_is_free_and_its_holder_is_refused(saver: Half, thread: str) -> None:
    async with saver.lock(thread, ttl=60, holder="gone"):
        assert (await saver.unlock(thread)).holder == "gone"
        assert await saver.unlock(thread) is None
        with refused(Conflict):
            await put(saver, place(thread), {"n": 1})
    assert await _is_free(saver, thread)
