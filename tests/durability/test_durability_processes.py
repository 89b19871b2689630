"""Several processes on one file: nobody is locked out, nothing is lost, nothing is unreadable."""

import pytest
from crowd_checks import check_openings, check_puts, check_race, run_crowd

PROCESSES = 8


def test_eight_processes_put_five_hundred_times_each_and_all_is_there(connect, database):
    run_crowd("puts", database, 500)
    check_puts(connect(database), 500)


def test_eight_processes_open_a_new_file_at_the_same_moment(connect, database, half):
    run_crowd("openings", database, half.name, 6)
    for turn in range(6):
        check_openings(connect(f"{database}-{turn}"), PROCESSES)


def race(connect, database, seconds):
    run_crowd("race", database, database, seconds, seconds=seconds + 60)
    check_race(connect(database), database, at_least=20)


def test_prune_fork_and_delete_in_other_processes_leave_nothing_unreadable(connect, database):
    race(connect, database, 4)


@pytest.mark.soak
def test_minutes_of_races_between_processes_leave_nothing_unreadable(connect, database):
    race(connect, database, 150)
