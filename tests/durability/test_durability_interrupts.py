"""Ctrl-C at any moment: in a notebook the saver lives on, so an interrupted call must leave it usable."""

import threading
import time

import lives
import pytest
from test_durability_places import interrupted_at, lines_of

from threadline.backends.group import GroupCommit
from threadline.backends.memory import MemoryBackend
from threadline.backends.sqlite import SqliteConnections

MOMENTS = [
    (GroupCommit, "run", "before"),
    (GroupCommit, "run", "after"),
    (GroupCommit, "_commit", "before"),
    (GroupCommit, "_commit", "after"),
    (GroupCommit, "_do", "before"),
    (GroupCommit, "_do", "after"),
    (GroupCommit, "_attempt", "before"),
    (GroupCommit, "_attempt", "after"),
    (GroupCommit, "_tell_later", "before"),
    (GroupCommit, "_tell_later", "after"),
    (GroupCommit, "_tell_earlier", "before"),
    (GroupCommit, "_tell_earlier", "after"),
    (SqliteConnections, "_begin", "before"),
    (SqliteConnections, "_begin", "after"),
]


class TimeIsOver(Exception):
    """What the soft time limit of a worker raises: to the drivers an error like any other."""


IDS = [f"{when} {owner.__name__}.{method}" for owner, method, when in MOMENTS]


@pytest.fixture
def interrupt(monkeypatch):
    """Raises in the main thread, once, where a method of these objects begins or ends."""

    def arrange(targets, owner, method, when, kind=KeyboardInterrupt):
        original, pending = getattr(owner, method), [kind()]

        def strike(moment, target):
            is_main = threading.current_thread() is threading.main_thread()
            if moment == when and pending and is_main and target in targets:
                raise pending.pop()

        def interrupted(self, *args, **kwargs):
            strike("before", self)
            result = original(self, *args, **kwargs)
            strike("after", self)
            return result

        monkeypatch.setattr(owner, method, interrupted)

    return arrange


@pytest.mark.parametrize("moment", MOMENTS, ids=IDS)
def test_an_interrupted_put_leaves_a_saver_and_a_file_that_can_be_written(connect, database, interrupt, moment):
    saver, other = connect(database, timeout=1.0), connect(database, timeout=1.0)
    if moment[1] != "_attempt":  # which only the first put of a thread comes to
        saver.put(*lives.put_arguments("t", 0))
    interrupt((saver._engine._group, saver._engine._connections), *moment)
    with pytest.raises(KeyboardInterrupt):
        saver.put(*lives.put_arguments("t", 1))
    saver.put(*lives.put_arguments("t", 1))
    other.put(*lives.put_arguments("t", 2))
    saver.put(*lives.put_arguments("t", 3))
    steps = [lives.check(found, "t") for found in other.list(lives.config("t"))]
    assert steps == ([3, 2, 1] if moment[1] == "_attempt" else [3, 2, 1, 0])


@pytest.mark.parametrize("kind", [KeyboardInterrupt, TimeIsOver])
@pytest.mark.parametrize("most_together", [128, 2])
@pytest.mark.parametrize("moment", MOMENTS, ids=IDS)
def test_puts_in_the_group_of_an_interrupted_one_are_tried_again_and_stored(
    connect, database, interrupt, moment, most_together, kind, monkeypatch
):
    """The main thread commits for four others when it is interrupted: none of them hears of it."""
    saver, other = connect(database, timeout=1.0), connect(database, timeout=1.0)
    saver.put(*lives.put_arguments("t", 0))
    group, outcomes = saver._engine._group, {}
    monkeypatch.setattr(group, "most_together", most_together)
    group.pause()  # nobody leads until the main thread does

    def put(name):
        try:
            outcomes[name] = saver.put(*lives.put_arguments(name, 0))
        except Exception as error:
            outcomes[name] = error

    waiting = [threading.Thread(target=put, args=(f"waiting-{n}",), daemon=True) for n in range(4)]
    for thread in waiting:
        thread.start()
    while len(group._waiting) < 4:
        time.sleep(0.001)
    group._is_paused = False
    interrupt((group, saver._engine._connections), *moment, kind)
    with pytest.raises(kind):
        saver.put(*lives.put_arguments("t", 1))
    if not group._leaders:  # the main thread never came to lead: whoever puts next does
        saver.put(*lives.put_arguments("t", 1))
    for thread in waiting:
        thread.join(10)
    assert len(outcomes) == 4
    for name, outcome in outcomes.items():
        assert not isinstance(outcome, Exception), outcome
        assert lives.check(other.get_tuple(lives.config(name)), name) == 0


MEMORY_LINES = [
    line for name in ("_apply", "remove_checkpoints", "collect") for line in lines_of(getattr(MemoryBackend, name))
]


@pytest.mark.parametrize(
    ("code", "line", "text"), MEMORY_LINES, ids=[f"{code.co_name}:{text[:40]}" for code, _, text in MEMORY_LINES]
)
def test_an_interrupt_at_any_line_leaves_records_in_memory_that_agree(connect, code, line, text):
    saver = connect("memory://")
    for step in range(4):
        saver.put(*lives.put_arguments("t", step))
    thread = saver.thread("t")
    interrupted_at(code, line, lambda: saver.put(*lives.put_arguments("t", 4)))
    saver.put(*lives.put_arguments("t", 4))
    interrupted_at(code, line, lambda: thread.prune(keep_last=2))
    thread.prune(keep_last=2)
    # What was let go is not relied on by the next put.
    saver.put(*lives.put_arguments("t", 5))
    assert [lives.check(found, "t") for found in saver.list(lives.config("t"))] == [5, 4, 3]


@pytest.mark.parametrize("store", ["memory", "sqlite"])
def test_interrupts_at_random_moments_lose_nothing_and_disturb_no_other_thread(run_script, database, store):
    run_script("interrupted.py", "memory://" if store == "memory" else database)
