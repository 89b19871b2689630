"""A process that forks with a saver open: parent and children both go on, and lose nothing."""

import lives
import pytest
from test_durability_places import interrupted_at, lines_of

from threadline.backends.shared_commit import SharedCommit
from threadline.backends.sqlite import engine
from threadline.backends.sqlite.connections import SqliteConnections


def test_parent_and_children_write_at_once(run_script, database, half):
    run_script("forking.py", "both_write", database, half.name)


def test_a_child_keeps_what_it_was_told_after_its_parent_has_closed(run_script, database, half):
    run_script("forking.py", "parent_closes", database, half.name)


def test_a_killed_child_leaves_its_puts_and_an_undisturbed_parent(run_script, database, half):
    run_script("forking.py", "killed_child", database, half.name)


def test_a_child_that_exits_takes_nothing_from_its_parent(run_script, database, half):
    run_script("forking.py", "child_exits", database, half.name)


@pytest.mark.parametrize("store", ["sqlite", "memory"])
def test_a_child_forked_in_the_middle_of_puts_can_write_and_read(run_script, database, half, store):
    run_script("forking.py", "fork_while_writing", database if store == "sqlite" else "memory://", half.name)


LINES = [
    line
    for function in (
        engine._bring_to_rest,
        engine._go_on,
        SharedCommit.paused,
        SqliteConnections.closed_to_fork,
        SqliteConnections._without_readers,
    )
    for line in lines_of(function)
]


@pytest.mark.parametrize(("code", "line", "text"), LINES, ids=[f"{c.co_name}:{text[:40]}" for c, _, text in LINES])
def test_an_interrupt_at_any_line_around_a_fork_leaves_a_saver_that_can_be_written(connect, database, code, line, text):
    """The hooks themselves: Python prints what they raise, and forks all the same."""
    saver = connect(database)
    saver.put(*lives.put_arguments("t", 0))
    interrupted_at(code, line, engine._before_fork)
    assert saver._engine._commit._turn.locked()
    assert saver._engine._connections._writer is None
    interrupted_at(code, line, engine._after_fork_in_parent)
    assert not saver._engine._commit._door.locked()
    assert not saver._engine._commit._turn.locked()
    saver.put(*lives.put_arguments("t", 1))
    assert lives.check(saver.get_tuple(lives.config("t")), "t") == 1


def test_a_hook_that_is_interrupted_before_its_first_line_runs_once_more(connect, database):
    saver = connect(database)
    saver.put(*lives.put_arguments("t", 0))
    engine._before_fork()
    engine._before_fork()
    engine._after_fork_in_parent()
    engine._after_fork_in_parent()
    saver.put(*lives.put_arguments("t", 1))
    assert lives.check(saver.get_tuple(lives.config("t")), "t") == 1


def test_an_interrupt_while_a_fork_waits_for_a_commit_leaves_a_saver_that_tasks_can_write(run_script, database):
    run_script("forking.py", "interrupted_fork", database, "sync")
