"""Writers that meet: threads of one process, and processes on one server."""

import asyncio
import itertools
from concurrent.futures import ThreadPoolExecutor

import psycopg
import pytest
from crowd_checks import run_crowd

from threadline import Conflict
from threadline.base.drive import run_now
from threadline.ports.checkpoints import Change, CheckpointRow, ChunkRow
from threadline.testing.making import checkpoint, place

VERSIONS = itertools.count(1)


def all_at_once(count, work):
    with ThreadPoolExecutor(count) as threads:
        return list(threads.map(work, range(count)))


def put(saver, at, values):
    made = checkpoint(values, dict.fromkeys(values, next(VERSIONS)))
    return saver.put(at, made, {"source": "input", "step": -1}, made["channel_versions"])


def row(id, links=b""):
    return CheckpointRow("", id, None, links, 0, b"document", 0, b"metadata", 0, "loop", None, 1.0, None)


def apply(saver, *changes):
    return saver._engine.run(lambda backend: backend.apply(changes))


def test_eight_threads_begin_the_same_thread(connect, admin):
    savers = [connect(pool_size=1) for _ in range(8)]
    savers[0].setup()
    for turn in range(5):
        all_at_once(8, lambda n, turn=turn: put(savers[n], place(f"t{turn}"), {"messages": [f"from {n}"] * 3}))
        found = [one.checkpoint["channel_values"] for one in savers[0].list(place(f"t{turn}"))]
        assert len(found) == 8
    assert admin.execute("SELECT count(*), count(DISTINCT pool) FROM threadline_threads").fetchone() == (5, 5)
    assert admin.execute("SELECT count(*) FROM threadline_threads WHERE pool <> serial").fetchone() == (0,)


def test_eight_threads_begin_a_deleted_thread_anew(connect, admin):
    savers = [connect(pool_size=1) for _ in range(8)]
    for turn in range(6):
        put(savers[0], place("t"), {"messages": ["old"] * 3})
        savers[0].delete_thread("t")
        all_at_once(8, lambda n, turn=turn: put(savers[n], place("t"), {"messages": [f"turn {turn} from {n}"] * 3}))
        found = [one.checkpoint["channel_values"]["messages"][0] for one in savers[1].list(place("t"))]
        assert sorted(found) == sorted(f"turn {turn} from {n}" for n in range(8))
    savers[0].delete_thread("t")
    left = [admin.execute(f"SELECT count(*) FROM threadline_{name}").fetchone() for name in ("chunks", "checkpoints")]
    assert left == [(0,), (0,)]


def test_of_writers_who_expect_the_same_head_one_wins(connect):
    savers = [connect(pool_size=1) for _ in range(8)]
    apply(savers[0], Change(thread_id="t", now=1.0, checkpoints=[row("000")]))

    def write(n, turn):
        try:
            head = ("", f"{turn - 1:03}" if turn == 1 else newest[-1])
            change = Change(thread_id="t", now=1.0, checkpoints=[row(f"{turn:03}-{n}")], head=head)
            return apply(savers[n], change)
        except Conflict:
            return None

    newest = ["000"]
    for turn in range(1, 8):
        won = [n for n, found in enumerate(all_at_once(8, lambda n, turn=turn: write(n, turn))) if found]
        assert len(won) == 1
        newest.append(f"{turn:03}-{won[0]}")


def test_a_lost_lease_refuses_a_put(connect):
    saver = connect()
    swap = lambda before, after: saver._engine.run(lambda backend: backend.swap_lease("t", before, after))  # noqa: E731
    assert swap(None, b"a" * 16 + b"1")
    apply(saver, Change(thread_id="t", now=1.0, checkpoints=[row("1")], lease=b"a" * 16))
    assert swap(b"a" * 16 + b"1", b"b" * 16)
    with pytest.raises(Conflict):
        apply(saver, Change(thread_id="t", now=1.0, checkpoints=[row("2")], lease=b"a" * 16))


def test_writers_of_the_same_chunks_do_not_lock_each_other_out(connect):
    savers = [connect(pool_size=1) for _ in range(4)]
    [applied] = apply(savers[0], Change(thread_id="t", now=1.0, checkpoints=[row("0")]))
    chunks = [ChunkRow(bytes([n]) * 16, b"", 0, b"x" * 100) for n in range(60)]

    def write(n):
        ordered = chunks if n % 2 else chunks[::-1]
        for turn in range(10):
            change = Change(
                thread_id="t", now=1.0, stamp=applied.stamp, chunks=ordered, checkpoints=[row(f"{turn}-{n}")]
            )
            assert apply(savers[n], change) == [applied]

    all_at_once(4, write)
    told = savers[0]._engine.run(lambda backend: backend.chunk_sizes(applied.stamp[0], b"", 100))
    digests = [digest for digest, *_ in told]
    assert digests == sorted(chunk.digest for chunk in chunks)


def test_a_change_under_an_old_epoch_writes_nothing(connect, admin):
    saver = connect()
    [applied] = apply(saver, Change(thread_id="t", now=1.0, checkpoints=[row("0")]))
    pool, epoch = applied.stamp
    admin.execute("UPDATE threadline_threads SET epoch = epoch + 1")
    change = Change(
        thread_id="t", now=1.0, stamp=(pool, epoch), checkpoints=[row("1")], chunks=[ChunkRow(b"d" * 16, b"", 0, b"x")]
    )
    [stale] = apply(saver, change)
    assert stale == type(stale)((pool, epoch + 1))
    assert type(stale).__name__ == "Stale"
    assert admin.execute("SELECT count(*) FROM threadline_chunks").fetchone() == (0,)
    assert admin.execute("SELECT count(*) FROM threadline_checkpoints").fetchone() == (1,)


@pytest.mark.parametrize("status", ["archived", "deleted"])
def test_a_change_to_a_closed_thread_writes_nothing(status, connect, admin):
    saver = connect()
    [applied] = apply(saver, Change(thread_id="t", now=1.0, checkpoints=[row("0")]))
    admin.execute("UPDATE threadline_threads SET status = %s, deleted_before = '5'", (status,))
    change = Change(thread_id="t", now=1.0, stamp=applied.stamp, checkpoints=[row("1")], continues="0", begins=False)
    with pytest.raises(Conflict):
        apply(saver, change)
    assert admin.execute("SELECT count(*) FROM threadline_checkpoints").fetchone() == (1,)


def test_writers_survive_everything_that_other_processes_do(postgres_url, schema, tmp_path):
    acks = tmp_path / "acks"
    run_crowd("race_of_children", postgres_url, acks, 6, seconds=240, schema=schema, pool_size=2)


@pytest.mark.parametrize("half", ["sync", "async"])
def test_a_thread_that_somebody_holds_delays_no_put_to_another(connect, postgres_url, schema, half):
    """Two puts wait for a thread that is held; those to other threads do not wait with them."""
    saver = connect(pool_size=6)
    for number in range(4):
        put(saver, place(f"t{number}"), {"a": number})
    with psycopg.connect(postgres_url) as holder:
        holder.execute(f"SELECT 1 FROM \"{schema}\".threadline_threads WHERE thread_id = 't0' FOR UPDATE")
        if half == "sync":
            with ThreadPoolExecutor(8) as threads:
                waiting = [threads.submit(put, saver, place("t0"), {"a": turn}) for turn in range(2)]
                others = [threads.submit(put, saver, place(f"t{1 + n % 3}"), {"a": n}) for n in range(12)]
                for one in others:
                    one.result(timeout=30)
                assert not any(one.done() for one in waiting)
                holder.rollback()
                for one in waiting:
                    one.result(timeout=30)
        else:
            asyncio.run(_meet_held_thread(saver, holder))
    assert len(list(saver.list(place("t0")))) == 3


async def _meet_held_thread(saver, holder):
    async def aput(name, value):
        made = checkpoint({"a": value})
        await saver.aput(place(name), made, {"source": "input", "step": -1}, made["channel_versions"])

    waiting = [asyncio.create_task(aput("t0", turn)) for turn in range(2)]
    await asyncio.sleep(0.2)
    await asyncio.wait_for(asyncio.gather(*(aput(f"t{1 + n % 3}", n) for n in range(12))), 30)
    assert not any(one.done() for one in waiting)
    holder.rollback()
    await asyncio.wait_for(asyncio.gather(*waiting), 30)


async def backend_pid(session):
    return session.connection.execute("SELECT pg_backend_pid()").fetchall()


def test_a_connection_from_before_a_loss_is_not_used_again(connect, admin):
    """It may lead to a server that another one has replaced, whose rows must not be taken for those of the new."""
    saver = connect(pool_size=3)
    all_at_once(6, lambda n: put(saver, place(f"t{n}"), {"a": n}))
    known = {pid for (pid,) in admin.execute("SELECT pid FROM pg_stat_activity WHERE pid <> pg_backend_pid()")}
    before = saver._engine.run(lambda backend: backend.thread("t0")).epoch
    saver._engine.identity.lose()
    assert saver._engine.run(lambda backend: backend.thread("t0")).epoch > before
    [(mine,)] = run_now(saver._engine.blocking.lend(backend_pid))
    assert mine not in known
    put(saver, place("t0"), {"a": "after"})
    assert len(list(saver.list(place("t0")))) == 2
