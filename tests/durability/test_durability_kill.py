"""Writers killed with SIGKILL at random moments: what was acknowledged is there, and whole."""

import sqlite3
from collections import defaultdict

import lives
import pytest

KILLS, SOAK_KILLS = 100, 1000


def read_acks(path):
    """What the killed writers were told: steps put, and tasks written, by thread."""
    puts, writes = defaultdict(set), defaultdict(set)
    for line in path.read_text().splitlines():
        kind, thread_id, step, *task = line.split()
        if kind == "put":
            puts[thread_id].add(int(step))
        else:
            writes[thread_id].add((int(step), *task))
    return puts, writes


def check_everything(connect, database, acks):
    """Compare the whole database with what was acknowledged and with what can be made again."""
    puts, writes = read_acks(acks)
    saver = connect(database)
    assert puts.keys() == {"alpha", "beta", "gamma"}
    for thread_id, acknowledged in puts.items():
        tasks = {}
        for found in saver.list(lives.config(thread_id)):
            step = lives.check(found, thread_id)
            tasks[step] = lives.check_writes(found.pending_writes, thread_id, step)
        assert acknowledged <= tasks.keys()
        lost = {(step, task) for step, task in writes[thread_id] if step in tasks and task not in tasks[step]}
        assert not lost
        for step in sorted(acknowledged)[-5:]:  # `list` decodes lazily, `get_tuple` at once
            assert lives.check(saver.get_tuple(lives.config(thread_id, lives.id_of(step))), thread_id) == step
    return sum(map(len, puts.values()))


def check_file(database):
    with sqlite3.connect(database) as connection:
        assert connection.execute("PRAGMA integrity_check").fetchone() == ("ok",)
    connection.close()


def kill_writers(run_script, connect, database, half, kills, seed):
    acks = database.with_name("acks")
    run_script("crash_writer.py", database, acks, half.name, "write", kills, seed, seconds=60 + kills)
    assert check_everything(connect, database, acks) > kills
    check_file(database)


def kill_pruners(run_script, connect, database, half, kills, seed):
    acks = database.with_name("acks")
    run_script("crash_writer.py", database, acks, half.name, "prune", kills, seed, seconds=60 + kills)
    puts, _ = read_acks(acks)
    saver = connect(database)
    names = {info.thread_id for info in saver.threads()}
    assert names >= puts.keys()
    for thread_id in names:
        origin = "alpha" if thread_id.startswith("copy-") else thread_id
        steps = {lives.check_copy(found, origin) for found in saver.list(lives.config(thread_id))}
        if thread_id == "alpha":
            assert max(steps) >= max(puts["alpha"])
        elif thread_id == origin:
            assert puts[thread_id] <= steps
    check_file(database)


def test_acknowledged_puts_and_writes_survive_a_hundred_kills(run_script, connect, database, half):
    kill_writers(run_script, connect, database, half, KILLS, seed=1)


def test_a_kill_during_prune_fork_or_delete_leaves_every_checkpoint_whole(run_script, connect, database, half):
    kill_pruners(run_script, connect, database, half, 30, seed=2)


@pytest.mark.soak
def test_acknowledged_puts_and_writes_survive_a_thousand_kills(run_script, connect, database, half):
    kill_writers(run_script, connect, database, half, SOAK_KILLS, seed=3)


@pytest.mark.soak
def test_a_thousand_kills_during_prune_fork_or_delete_leave_every_checkpoint_whole(run_script, connect, database, half):
    kill_pruners(run_script, connect, database, half, SOAK_KILLS, seed=4)
