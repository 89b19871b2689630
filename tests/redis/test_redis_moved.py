"""Chunks that move, and records that are read beside a writer."""

import threading

import pytest

from threadline.base.drive import run_now
from threadline.ports.checkpoints import Applied, Change, CheckpointRow, ChunkRow, Stale
from threadline.ports.records import Record, RecordChange, RecordSpace


@pytest.fixture
def backend(connect):
    saver = connect()
    saver.open()
    return saver._engine.blocking_backend()


def row(id):
    return CheckpointRow("", id, None, b"", 0, b"d", 0, b"m", -1, None, None, 1767323045.6789012, None)


def chunk(letter, data=b"x", links=b""):
    return ChunkRow(letter * 16, links, 0, data)


def begun(backend):
    change = Change(thread_id="t", now=1.0, chunks=[chunk(b"a"), chunk(b"k")], checkpoints=[row("1")])
    [applied] = run_now(backend.apply([change]))
    return applied.stamp


@pytest.mark.parametrize("together", [False, True], ids=["alone", "together"])
def test_a_moved_chunk_takes_the_place_of_its_row_or_is_added(backend, together):
    stamp = begun(backend)
    moved = [chunk(b"a", b"pointer", b"p" * 16), chunk(b"n", b"new")]
    kept = [chunk(b"k", b"other bytes")]
    change = Change(thread_id="t", now=2.0, stamp=stamp, chunks=kept, moved=moved, checkpoints=[row("2")])
    other = Change(thread_id="t", now=2.0, checkpoints=[row("3")])
    run_now(backend.apply([change, other] if together else [change]))
    found = run_now(backend.chunks(stamp[0], [b"a" * 16, b"k" * 16, b"n" * 16, b"none" * 4]))
    # A chunk that was there stays as it was; one that moved does not.
    assert sorted(found) == sorted(map(tuple, [*moved, chunk(b"k")]))
    assert run_now(backend.links(stamp[0], [b"a" * 16])) == {b"a" * 16: b"p" * 16}


def test_a_stale_change_moves_nothing(backend):
    pool, epoch = begun(backend)
    moved = [chunk(b"a", b"pointer")]
    change = Change(thread_id="t", now=2.0, stamp=(pool, epoch + 1), moved=moved, checkpoints=[row("2")])
    assert run_now(backend.apply([change])) == [Stale((pool, epoch))]
    assert run_now(backend.chunks(pool, [b"a" * 16])) == [tuple(chunk(b"a"))]
    change.stamp = (pool, epoch)
    assert run_now(backend.apply([change])) == [Applied((pool, epoch))]
    assert run_now(backend.chunks(pool, [b"a" * 16])) == [tuple(moved[0])]


def test_a_record_is_read_with_the_expiry_that_it_was_written_with(connect):
    reader, writer = (connect()._engine.blocking_backend() for _ in range(2))
    space, name = RecordSpace.META, b"name\0"

    def record(number):
        return Record(name, 0, b"%d" % number, None, 1.0, 1.0, 4e9 + number, 0)

    def write(number):
        return run_now(writer.write_records([RecordChange(space, name, record(number), None)]))

    write(0)
    is_over = threading.Event()

    def writes():
        number = 0
        while not is_over.is_set():
            number += 1
            write(number)

    writing = threading.Thread(target=writes)
    writing.start()
    try:
        for _ in range(200):
            [found] = run_now(reader.read_records(space, [name]))
            assert found.expires == 4e9 + int(found.value)
    finally:
        is_over.set()
        writing.join()
