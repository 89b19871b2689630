"""A process that forks with a saver open: parent and children both go on, and lose nothing."""

import pytest


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
