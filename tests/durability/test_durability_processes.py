"""Several processes on one file: nobody is locked out, nothing is lost, nothing is unreadable."""

import lives
import pytest

PROCESSES = 8


def test_eight_processes_put_five_hundred_times_each_and_all_is_there(run_script, connect, database):
    run_script("crowd.py", "puts", database, 500)
    saver = connect(database)
    total = 0
    for writer in range(PROCESSES):
        thread_id = f"writer-{writer}"
        own = [lives.check(found, thread_id) for found in saver.list(lives.config(thread_id))]
        met = [lives.check(found, "shared") for found in saver.list(lives.config("shared", namespace=thread_id))]
        assert own == list(range(449, -1, -1))
        assert met == list(range(49, -1, -1))
        total += len(own) + len(met)
    assert total == PROCESSES * 500


def test_eight_processes_open_a_new_file_at_the_same_moment(run_script, connect, database, half):
    run_script("crowd.py", "openings", database, half.name)
    for turn in range(6):
        saver = connect(f"{database}-{turn}")
        assert sorted(info.thread_id for info in saver.threads()) == [f"opener-{n}" for n in range(PROCESSES)]
        for writer in range(PROCESSES):
            assert lives.check(saver.get_tuple(lives.config(f"opener-{writer}")), f"opener-{writer}") == 0


def check_race(run_script, connect, database, seconds):
    run_script("crowd.py", "race", database, seconds, seconds=seconds + 60)
    saver = connect(database)
    for name in ("kept", "pruned"):
        acknowledged = [int(line) for line in database.with_name(f"{database.name}.{name}").read_text().split()]
        steps = {lives.check_copy(found, "origin") for found in saver.list(lives.config(name))}
        assert len(acknowledged) > 20
        assert max(steps) == acknowledged[-1]
        if name == "kept":
            assert steps >= set(acknowledged)
    for info in saver.threads():
        # A deleted thread that was begun anew has no parent at its first step.
        if info.thread_id != "deleted":
            assert [lives.check_copy(found, "origin") for found in saver.list(lives.config(info.thread_id))]


def test_prune_fork_and_delete_in_other_processes_leave_nothing_unreadable(run_script, connect, database):
    check_race(run_script, connect, database, 4)


@pytest.mark.soak
def test_minutes_of_races_between_processes_leave_nothing_unreadable(run_script, connect, database):
    check_race(run_script, connect, database, 150)
