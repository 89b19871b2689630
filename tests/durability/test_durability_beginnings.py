"""The first put of a thread on SQLite: few statements, and a pool of its own whatever happens beside it."""

import sqlite3

import lives
import pytest

import threadline


@pytest.fixture
def saver(tmp_path):
    with threadline.connect(f"sqlite:///{tmp_path / 'threads.db'}") as opened:
        opened.put(*lives.put_arguments("warm", 0))
        yield opened


def pools(tmp_path):
    connection = sqlite3.connect(tmp_path / "threads.db")
    try:
        return dict(connection.execute("SELECT serial, pool FROM threadline_threads").fetchall())
    finally:
        connection.close()


def test_the_first_put_of_a_thread_looks_for_it_by_making_it(saver, tmp_path):
    statements = []
    saver._engine.writing_connection().set_trace_callback(statements.append)
    saver.put(*lives.put_arguments("new", 0))
    saver._engine.writing_connection().set_trace_callback(None)
    of_threads = [each for each in statements if "threadline_threads" in each]
    assert [each.split()[0] for each in of_threads] == ["INSERT", "SELECT"]
    assert set(pools(tmp_path).items()) == {(1, 1), (2, 2)}


def test_a_thread_has_a_pool_of_its_own_although_the_sequence_was_altered(saver, tmp_path):
    for name in ("a", "b", "c"):
        saver.put(*lives.put_arguments(name, 0))
    with saver._engine.alone() as connection:
        connection.execute("DELETE FROM sqlite_sequence WHERE name = 'threadline_threads'")
    saver.put(*lives.put_arguments("d", 0))
    assert pools(tmp_path) == {serial: serial for serial in range(1, 6)}
    lives.check(saver.get_tuple(lives.config("d")), "d")


def test_a_deleted_thread_begins_anew_in_a_new_pool(saver, tmp_path):
    saver.put(*lives.put_arguments("t", 0))
    [(_, before)] = [entry for entry in pools(tmp_path).items() if entry[0] > 1]
    saver.delete_thread("t")
    saver.put(*lives.put_arguments("t", 0))
    found = pools(tmp_path)
    assert before not in found.values()
    assert all(serial == pool for serial, pool in found.items())
    lives.check(saver.get_tuple(lives.config("t")), "t")


def test_threads_that_begin_at_once_are_all_there(saver, tmp_path, in_threads, switch_often):
    def begin(who):
        def work():
            for number in range(20):
                saver.put(*lives.put_arguments(f"{who}-{number}", 0))
                saver.put(*lives.put_arguments(f"shared-{number}", 0))

        return work

    in_threads(*[begin(who) for who in range(8)])
    found = pools(tmp_path)
    assert len(found) == 1 + 8 * 20 + 20
    assert all(serial == pool for serial, pool in found.items())
    for number in range(20):
        for name in (*(f"{who}-{number}" for who in range(8)), f"shared-{number}"):
            lives.check(saver.get_tuple(lives.config(name)), name)
