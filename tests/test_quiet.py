"""Python's garbage collector waits for a piece of work, and goes on whatever becomes of that."""

import gc
import os
import signal
import sys
import threading

import pytest

from threadline import quiet
from threadline.quiet import quietly

USUAL = (700, 10, 10)


@pytest.fixture(autouse=True)
def collector():
    before = gc.get_threshold()
    gc.set_threshold(*USUAL)
    yield
    gc.set_threshold(*before)


@quietly
def threshold_inside(work=lambda: None):
    work()
    return gc.get_threshold()[0]


def test_the_collector_waits_and_goes_on():
    assert threshold_inside() > 100_000
    assert gc.get_threshold() == USUAL
    assert gc.isenabled()


def test_it_stays_enabled_for_whoever_asks():
    seen = []
    threshold_inside(lambda: seen.append(gc.isenabled()))
    assert seen == [True]


def test_it_does_not_collect_what_is_being_made():
    collected = []
    gc.callbacks.append(lambda phase, info: collected.append(info))
    try:
        quietly(lambda: [[] for _ in range(50_000)])()
        during = len(collected)
        [[] for _ in range(50_000)]
    finally:
        gc.callbacks.pop()
    assert during <= 1
    assert len(collected) > 10


def test_it_goes_on_after_a_failure():
    def fail():
        raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        threshold_inside(fail)
    assert gc.get_threshold() == USUAL


@pytest.mark.parametrize("own", [(0, 10, 10), (1_000_000, 5, 5)])
def test_a_program_that_wants_it_less_often_is_left_alone(own):
    gc.set_threshold(*own)
    assert threshold_inside() == own[0]
    assert gc.get_threshold() == own


def test_a_program_that_changes_it_meanwhile_keeps_its_choice():
    threshold_inside(lambda: gc.set_threshold(5_000, 7, 7))
    assert gc.get_threshold() == (5_000, 7, 7)


def test_work_inside_such_work_does_not_set_it_off():
    seen = []
    threshold_inside(lambda: (threshold_inside(), seen.append(gc.get_threshold()[0])))
    assert seen[0] > 100_000
    assert gc.get_threshold() == USUAL


def test_threads_that_overlap_leave_it_as_it_was():
    """The second begins while the first is at work, and ends after it."""
    first_is_in, second_is_in, first_is_out = (threading.Event() for _ in range(3))
    seen = []

    def first():
        threshold_inside(lambda: (first_is_in.set(), second_is_in.wait(10)))
        seen.append(gc.get_threshold()[0])
        first_is_out.set()

    def second():
        first_is_in.wait(10)
        threshold_inside(lambda: (second_is_in.set(), first_is_out.wait(10)))

    threads = [threading.Thread(target=work) for work in (first, second)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(20)
    assert seen[0] > 100_000
    assert gc.get_threshold() == USUAL


def test_a_child_forked_meanwhile_has_it_as_it_was():
    def fork():
        child = os.fork()
        if child == 0:
            os._exit(0 if gc.get_threshold() == USUAL and threshold_inside() > 100_000 else 1)
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0

    threshold_inside(fork)
    assert gc.get_threshold() == USUAL


def test_a_signal_handler_may_be_at_such_work_too():
    """It runs on the very thread that was interrupted, at whatever line: nothing there may wait for it."""
    seen = []
    before = signal.signal(signal.SIGALRM, lambda *_: seen.append(threshold_inside()))
    signal.setitimer(signal.ITIMER_REAL, 0.0005, 0.0005)
    try:
        while len(seen) < 200:
            threshold_inside()
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)
    assert gc.get_threshold() == USUAL


@pytest.mark.parametrize("function", ["_begin", "_end"])
@pytest.mark.parametrize("line", range(6))
def test_an_interrupt_at_any_line_leaves_it_as_it_was(function, line):
    code, pending = getattr(quiet, function).__code__, [KeyboardInterrupt()]

    def trace(frame, event, argument):
        if frame.f_code is not code:
            return None
        if event in ("line", "call") and frame.f_lineno == code.co_firstlineno + line and pending:
            raise pending.pop()
        return trace

    sys.settrace(trace)
    try:
        threshold_inside()
    except KeyboardInterrupt:
        pass
    finally:
        sys.settrace(None)
    assert gc.get_threshold() == USUAL
    assert threshold_inside() > 100_000
    assert gc.get_threshold() == USUAL
