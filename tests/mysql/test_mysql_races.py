"""Many writers, deleters and collectors at once: nothing is lost, nothing unreadable, nothing left behind."""

from concurrent.futures import ThreadPoolExecutor
from threading import Barrier

import lives
import pytest
from crowd_checks import check_openings, check_race, run_crowd

from threadline.backends.mysql.binding import bound
from threadline.base.drive import run_now
from threadline.errors import Unavailable


def leaked(saver):
    """Pools that hold chunks although no living thread uses them."""
    backend = saver._engine._blocking
    used = {run_now(backend.thread(info.thread_id)).pool for info in saver.threads()}
    return set(run_now(backend.pools(0, 10_000))) - used


def test_twenty_processes_set_up_one_store_at_the_same_moment(mysql_url, prefix, connect):
    run_crowd("setups", mysql_url, 20, table_prefix=prefix, pool_size=3)
    check_openings(connect(setup=False), 20)


def test_eight_threads_begin_the_same_thread_at_the_same_moment(connect, root, prefix):
    saver = connect(pool_size=8)
    saver.open()
    for turn in range(5):
        gate = Barrier(8)

        def begin(n, turn=turn, gate=gate):
            gate.wait()
            saver.put(*lives.put_arguments(f"same-{turn}", 0, f"ns-{n}"))

        with ThreadPoolExecutor(8) as threads:
            list(threads.map(begin, range(8)))
        for n in range(8):
            assert saver.get_tuple(lives.config(f"same-{turn}", namespace=f"ns-{n}")) is not None
    with root.cursor() as cursor:
        cursor.execute(f"SELECT count(*), count(DISTINCT pool), min(pool = serial) FROM {prefix}threads")
        assert cursor.fetchone() == (5, 5, 1)
    assert leaked(saver) == set()


def test_a_deleted_thread_is_begun_anew_once_by_many(connect, root, prefix):
    saver = connect(pool_size=8)
    for turn in range(5):
        saver.put(*lives.put_arguments("again", 0))
        saver.delete_thread("again")
        gate = Barrier(8)

        def begin(n, gate=gate):
            gate.wait()
            saver.put(*lives.put_arguments("again", 0, f"ns-{n}"))

        with ThreadPoolExecutor(8) as threads:
            list(threads.map(begin, range(8)))
        for n in range(8):
            assert saver.get_tuple(lives.config("again", namespace=f"ns-{n}")) is not None, (turn, n)
    assert leaked(saver) == set()


def test_writers_of_a_pool_share_it_and_a_collector_has_it_alone(connect, root, prefix):
    saver = connect(timeout=1, retry=None)
    saver.put(*lives.put_arguments("held", 0))
    pool = run_now(saver._engine._blocking.thread("held")).pool
    saver.copy_thread("held", "mate")
    root.query("SET SESSION TRANSACTION ISOLATION LEVEL READ COMMITTED")
    root.begin()
    root.query(f"SELECT pool FROM {prefix}pools WHERE pool = {pool} LOCK IN SHARE MODE")
    saver.put(*lives.put_arguments("held", 1))
    with pytest.raises(Unavailable):
        run_now(saver._engine._blocking.collect(pool, [], set()))
    with pytest.raises(Unavailable):
        saver.delete_thread("mate")
    root.rollback()
    root.begin()
    root.query(f"SELECT pool FROM {prefix}pools WHERE pool = {pool} FOR UPDATE")
    with pytest.raises(Unavailable):
        saver.put(*lives.put_arguments("held", 2))
    with pytest.raises(Unavailable):
        saver.copy_thread("held", "another")
    assert lives.check(saver.get_tuple(lives.config("held")), "held") == 1
    root.rollback()
    saver.put(*lives.put_arguments("held", 2))
    saver.delete_thread("mate")


def test_holding_a_pool_leaves_the_rows_of_its_threads_free(connect, root, prefix):
    """Else a collector that raises their epoch, and a writer that waits for the pool, would block each other."""
    saver = connect()
    saver.put(*lives.put_arguments("free", 0))
    hold = bound(saver._engine.sql.hold_of[False], ("free",))

    async def meanwhile(wire):
        connection = wire.connection
        connection.begin()
        connection.query(hold)
        root.query("SET SESSION innodb_lock_wait_timeout = 1")
        root.query(f"UPDATE {prefix}threads SET active = active + 1")
        assert root.affected_rows() == 1
        connection.rollback()

    run_now(saver._engine.blocking.lend(meanwhile))


def race(mysql_url, prefix, connect, tmp_path, seconds):
    acks = tmp_path / "acks"
    run_crowd("race", mysql_url, acks, seconds, seconds=seconds + 90, table_prefix=prefix, pool_size=3)
    saver = connect()
    check_race(saver, acks, at_least=10)
    assert leaked(saver) == set()


def test_prune_fork_and_delete_in_other_processes_leave_nothing_unreadable(mysql_url, prefix, connect, tmp_path):
    race(mysql_url, prefix, connect, tmp_path, 5)


@pytest.mark.soak
def test_minutes_of_races_leave_nothing_unreadable(mysql_url, prefix, connect, tmp_path):
    race(mysql_url, prefix, connect, tmp_path, 120)


def test_collecting_keeps_what_roots_refer_to_far_behind(connect):
    """A server may compare long columns by their first kilobyte only."""
    saver = connect()
    config = {"configurable": {"thread_id": "wide", "checkpoint_ns": ""}}

    def values(last):
        return {
            f"channel-{n:03}": [lives.text(n if n < 150 else (n, last), part) for part in range(8)] for n in range(160)
        }

    for step in range(4):
        versions = {name: step + 1 for name in values(0)}
        checkpoint = {
            "v": 4,
            "id": lives.id_of(step),
            "ts": "2026-01-01T00:00:00+00:00",
            "channel_values": values(step),
            "channel_versions": versions,
            "versions_seen": {},
            "updated_channels": None,
        }
        saver.put(config, checkpoint, {"source": "loop", "step": step}, versions)
        config = {"configurable": {**config["configurable"], "checkpoint_id": lives.id_of(step)}}
    saver.delete_checkpoint(lives.config("wide", lives.id_of(1)))
    saver.copy_thread("wide", "copy")
    saver.delete_thread("wide")
    saver.clear_cache()
    found = {
        lives.step_of(one.checkpoint["id"]): dict(one.checkpoint["channel_values"])
        for one in saver.list(lives.config("copy"))
    }
    assert found == {step: values(step) for step in (0, 2, 3)}
