"""Places for so many threads at once: none is lost to an interrupt, and nobody waits beside a free one."""

import asyncio
import inspect
import sys
import threading
import time
import types

import pytest

from threadline.backends.lending import Given, LoopPlaces, Places
from threadline.base.drive import run_now


def own_lines(code):
    """The lines of the functions within a function, each with the innermost one; their first is the outer one's."""
    found = {}
    for one in code.co_consts:
        if isinstance(one, types.CodeType):
            found |= {line: one for *_, line in one.co_lines() if line != one.co_firstlineno} | own_lines(one)
    return found


def lines_of(function):
    """Its lines, and what it says there; but for those where only tracing can come in between, never an interrupt."""
    lines, first = inspect.getsourcelines(function)
    outer, inside = function.__code__, own_lines(function.__code__)
    found = [(inside.get(at, outer), at, text.strip()) for at, text in enumerate(lines, first) if at > first]
    return [line for line in found if line[2] != "try:" and not line[2].startswith("with ")]


LINES = [line for name in ("run", "take", "take_now", "leave", "_look") for line in lines_of(getattr(Places, name))]


def interrupted_at(code, line, work):
    """Whether work was interrupted when it came to a line."""
    pending = [KeyboardInterrupt()]

    def trace(frame, event, argument):
        if frame.f_code is not code:
            return trace if event == "call" else None
        if event == "line" and frame.f_lineno == line and pending:
            raise pending.pop()
        return trace

    sys.settrace(trace)
    try:
        work()
    except KeyboardInterrupt:
        return True
    finally:
        sys.settrace(None)
    return False


@pytest.mark.parametrize(("code", "line", "text"), LINES, ids=[f"{c.co_name}:{text[:40]}" for c, _, text in LINES])
def test_an_interrupt_at_any_line_leaves_all_places_free(code, line, text):
    places = Places(2)
    interrupted_at(code, line, lambda: places.run(lambda: None))
    assert not places.door.locked()
    assert places._inside == set()


GIVEN_LINES = [line for function in (Given.lend, Given._lend, Places.leave) for line in lines_of(function)]


@pytest.mark.parametrize(
    ("code", "line", "text"), GIVEN_LINES, ids=[f"{c.co_name}:{text[:40]}" for c, _, text in GIVEN_LINES]
)
def test_an_interrupt_at_any_line_leaves_a_given_connection_free(code, line, text):
    places = Places(1)
    given = Given(places, lambda: "the connection")

    async def act(connection):
        return connection

    interrupted_at(code, line, lambda: run_now(given.lend(act)))
    assert not places.door.locked()
    assert places._inside == set()


def test_no_more_are_inside_than_there_are_places():
    places, inside, most = Places(3), [], []

    def work():
        inside.append(1)
        most.append(len(inside))
        time.sleep(0.001)
        inside.pop()

    threads = [threading.Thread(target=lambda: [places.run(work) for _ in range(20)]) for _ in range(12)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(20)
    assert (max(most), len(most), places._inside) == (3, 240, set())


def waiter(places, seconds, told):
    def wait():
        place = object()
        told.append(places.take(place, seconds))
        places.leave(place)

    thread = threading.Thread(target=wait, daemon=True)
    thread.start()
    while not places._change._waiters:
        time.sleep(0.001)
    return thread


def test_a_place_that_comes_free_as_the_time_ends_is_taken():
    places, first, told = Places(1), object(), []
    places.take(first)
    thread = waiter(places, 1.0, told)
    with places.door:
        time.sleep(1.1)
        places._inside.discard(first)
    thread.join(10)
    assert told == [True]


def test_one_who_is_told_and_interrupted_tells_the_next():
    places, first, told = Places(1), object(), []
    places.take(first)
    thread = waiter(places, 30, told)
    with places.door:
        places._inside.discard(first)  # and whoever was told of it never came to take it
    places.leave(object())
    thread.join(10)
    assert told == [True]


def test_who_waits_is_let_go_when_they_close_and_when_the_time_is_over():
    places, told = Places(1), []
    places.take(object())
    assert places.take(object(), 0.01) is False
    thread = waiter(places, None, told)
    places.close()
    thread.join(10)
    assert told == [False]
    assert places.take(object()) is False


def test_a_task_that_is_cancelled_as_its_turn_comes_gives_the_place_on():
    async def use():
        places, first, second, third = LoopPlaces(1), object(), object(), object()
        assert await places.take(first)
        cancelled = asyncio.create_task(places.take(second))
        waiting = asyncio.create_task(places.take(third))
        await asyncio.sleep(0)
        assert places.leave(first)  # the place is the second's from now on
        cancelled.cancel()
        with pytest.raises(asyncio.CancelledError):
            await cancelled
        assert places.leave(second)
        assert await asyncio.wait_for(waiting, 10)
        assert places.leave(third)
        assert not places.leave(third)
        assert places._inside == set()

    asyncio.run(use())


def test_tasks_that_wait_too_long_or_for_closed_places_are_refused():
    async def use():
        places, inside = LoopPlaces(1), object()
        assert await places.take(inside)
        assert not await places.take(object(), 0.01)
        waiting = asyncio.create_task(places.take(object(), 60))
        await asyncio.sleep(0)
        places.close()
        assert not await asyncio.wait_for(waiting, 10)
        assert not await places.take(object())
        assert places.leave(inside)
        assert places._inside == set()

    asyncio.run(use())


def test_never_more_tasks_are_inside_than_there_are_places():
    async def use():
        places, inside, most = LoopPlaces(3), set(), []

        async def visit(number):
            place = object()
            try:
                if await places.take(place, 60):
                    inside.add(place)
                    most.append(len(inside))
                    await asyncio.sleep(0.001 * (number % 3))
            finally:
                inside.discard(place)
                places.leave(place)

        tasks = [asyncio.create_task(visit(number)) for number in range(60)]
        await asyncio.sleep(0.002)
        for task in tasks[::4]:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        assert max(most) == 3
        assert places._inside == set()

    asyncio.run(use())
