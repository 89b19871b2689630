"""Metrics: what is counted, that nothing is where they are off, and that a put hardly notices where they are on."""

from __future__ import annotations

import asyncio
import os
import shutil
import sqlite3
import subprocess
import sys
import threading
import urllib.error
import urllib.request
from typing import Any

import pytest
from ops_stores import Place, ask, place_on, put

import threadline
from threadline.backends.layers.metered import MeteredLayer
from threadline.backends.layers.retry import Retry, RetryLayer
from threadline.base.drive import BlockingClock, run_now
from threadline.connect import make_engine
from threadline.errors import Conflict, Corrupt, InvalidRequest, Unavailable
from threadline.ops import Meter
from threadline.ops.names import CATALOGUE, DURATION
from threadline.ports.checkpoints import Change, CheckpointRow, ChunkRow

URLS = ["memory://", "sqlite://", "postgresql://u@h/d", "mysql://u@h/d", "redis://h/0"]


def calls(meter: Meter, operation: str, error: str = "") -> int:
    return sum(sum(one.counts) for one in meter.calls() if (one.operation, one.error) == (operation, error))


async def outermost_of(engine: Any) -> list[Any]:
    """What an operation of each half is handed."""

    async def itself(backend: Any) -> Any:
        return backend

    if hasattr(engine, "loop_backend"):
        return [engine.blocking_backend(), engine.loop_backend()]
    return [engine.run(itself), await engine.arun(itself), await engine.awrite(itself)]


def layers_of(engine: Any) -> list[list[Any]]:
    """The layers that operations of this engine go through, from the outside in, for each half."""
    found = []
    for layer in asyncio.run(outermost_of(engine)):
        layers = [layer]
        while (layer := vars(layer).get("_inner")) is not None:
            layers.append(layer)
        found.append(layers)
    return found


@pytest.mark.parametrize("url", URLS)
def test_where_metrics_are_off_there_is_no_layer_and_no_method_is_replaced(url: str) -> None:
    engine: Any = make_engine(url)
    try:
        for layers in layers_of(engine):
            assert layers
            assert not [one for one in layers if isinstance(one, MeteredLayer)]
        assert not {"run", "arun", "awrite", "meter"} & vars(engine).keys()
        commit = getattr(engine, "_commit", None)
        assert commit is None or not {"_commit", "_hand_in"} & vars(commit).keys()
    finally:
        engine.close()


@pytest.mark.parametrize("url", URLS)
def test_where_metrics_are_on_the_layer_is_the_outermost_of_both_halves(url: str) -> None:
    engine: Any = make_engine(url, metrics=True)
    try:
        for layers in layers_of(engine):
            assert [isinstance(one, MeteredLayer) for one in layers] == [True] + [False] * (len(layers) - 1)
    finally:
        engine.close()


def test_a_program_without_metrics_does_not_even_load_the_room(tmp_path: Any) -> None:
    script = (
        f"import sys, threadline\nsaver = threadline.connect({str(tmp_path / 'x.db')!r})\n"
        "saver.get_tuple({'configurable': {'thread_id': 't'}})\n"
        "print([name for name in sys.modules if name.startswith('threadline.ops') or 'metered' in name])"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


def test_both_halves_of_every_backend_are_counted(place: Place, connect: Any) -> None:
    url, options = place
    saver = connect(url, metrics=True, **options)
    meter = saver.metrics
    put(saver, "t")
    found = saver.get_tuple({"configurable": {"thread_id": "t"}})
    assert found.checkpoint["channel_values"]["notes"] == "hello"
    before = calls(meter, "find")
    assert calls(meter, "apply") >= 1
    assert before >= 1

    async def other_half() -> None:
        got = await saver.aget_tuple({"configurable": {"thread_id": "t"}})
        assert got.checkpoint["channel_values"]["notes"] == "hello"
        await saver.aclose()

    asyncio.run(other_half())
    assert calls(meter, "find") == before + 1
    assert meter.total("threadline.checkpoints.written") == 1
    assert meter.total("threadline.written.stored") > 0


@pytest.mark.parametrize("kind", ["memory", "sqlite"])
def test_every_item_and_entry_is_counted_where_metrics_are_on(kind: str, tmp_path: Any) -> None:
    url = "memory://" if kind == "memory" else f"sqlite:///{tmp_path / 'items.db'}"
    meter = Meter()
    with threadline.Store(url, metrics=meter) as store:
        store.put(("users",), "ada", {"n": 1})
        reads, writes = calls(meter, "read_records"), calls(meter, "write_records")
        for _ in range(3):
            store.put(("users",), "ada", {"n": 1})
            store.get(("users",), "ada")
        assert (calls(meter, "read_records"), calls(meter, "write_records")) == (reads + 3, writes + 3)
    cache = threadline.Cache(url, metrics=meter)
    cache.set({(("n",), "k"): (1, None)})
    reads, writes = calls(meter, "read_records"), calls(meter, "write_records")
    for _ in range(3):
        cache.set({(("n",), "k"): (1, None)})
        cache.get([(("n",), "k")])
    assert (calls(meter, "read_records"), calls(meter, "write_records")) == (reads + 3, writes + 3)
    cache.close()


def test_no_figure_names_a_thread_a_user_or_a_run(place: Place, connect: Any) -> None:
    url, options = place
    saver = connect(url, metrics=True, **options)
    put(saver, "thread-of-somebody", "the-secret-value", user_id="user-of-somebody", run_id="run-of-somebody")
    with pytest.raises(InvalidRequest):
        saver.thread("thread-of-somebody").tag("")
    saver.interrupts()
    monitor = saver.monitor("1h")
    monitor.turn()
    text = saver.metrics.exposition()
    assert "threadline_store_threads" in text
    assert "somebody" not in text
    assert "secret" not in text


def test_known_chunks_and_compressed_bytes_are_told_apart(database: Any, connect: Any) -> None:
    saver = connect(database, metrics=True)
    value = [f"message {number} " + "x" * 3000 for number in range(50)]
    config = put(saver, "t", value, step=1)
    first = saver.metrics.total("threadline.chunks.written")
    assert first > 0
    assert saver.metrics.total("threadline.written.raw") > 2 * saver.metrics.total("threadline.written.stored") > 0
    put(saver, "t", [*value, "one more"], config=config, step=2)
    again = saver.metrics.total("threadline.chunks.written") - first
    assert again < first
    assert saver.metrics.total("threadline.chunks.known") > 0


def test_conflicts_are_counted_and_are_no_failures(database: Any, connect: Any) -> None:
    saver = connect(database, metrics=True, fencing=True)
    config = put(saver, "t", step=1)
    other = connect(database)
    put(other, "t", "of another", config=config, step=2)
    with pytest.raises(Conflict):
        put(saver, "t", "too late", config=config, step=2)
    assert saver.metrics.total("threadline.conflicts") == 1
    assert calls(saver.metrics, "apply", "Conflict") == 1


@pytest.mark.parametrize("half_name", ["sync", "async"])
def test_damage_is_counted(half_name: str, database: Any, connect: Any) -> None:
    with threadline.connect(database) as saver:
        put(saver, "t", ["x" * 9000])
    with sqlite3.connect(database) as raw:
        raw.execute("UPDATE threadline_checkpoints SET document = X'00112233445566778899'")
    saver = connect(database, metrics=True)
    config = {"configurable": {"thread_id": "t"}}
    with pytest.raises(Corrupt):
        saver.get_tuple(config) if half_name == "sync" else asyncio.run(saver.aget_tuple(config))
    assert saver.metrics.total("threadline.corrupt") == 1


def test_a_lost_lease_is_counted(database: Any, connect: Any) -> None:
    saver = connect(database, metrics=True)
    with saver.lock("t", ttl=60) as lease:
        saver.unlock("t")
        lease._note(saver._engine.run(lease._taking()), False)
    assert lease.is_lost
    assert saver.metrics.total("threadline.leases.lost") == 1


def test_sweeps_are_counted_and_noted_in_the_store(place: Place, connect: Any) -> None:
    url, options = place
    saver = connect(url, metrics=True, **options)
    put(saver, "t")
    assert saver.sweep(dry_run=True).threads == 1
    assert saver.metrics.total("threadline.sweeps", ("done",)) == 0
    saver.sweep()
    assert saver.metrics.total("threadline.sweeps", ("done",)) == 1
    saver.monitor("1h").turn()
    assert "threadline_sweep_last_time_seconds" in saver.metrics.exposition()


def test_a_retry_is_told_to_the_engine() -> None:
    class Flaky:
        tries = 0

        def __getattr__(self, name: str) -> Any:
            async def call() -> str:
                Flaky.tries += 1
                if Flaky.tries < 3:
                    raise Unavailable("busy")
                return "done"

            return call

    heard: list[int] = []
    layer: Any = RetryLayer(Flaky(), Retry(tries=5), BlockingClock(), lambda: heard.append(1))
    assert run_now(layer.setup()) == "done"
    assert len(heard) == 2


@pytest.mark.parametrize("kind", ["postgres", "mysql", "redis"])
def test_pools_and_retries_of_servers_are_shown(kind: str, request: pytest.FixtureRequest, tmp_path: Any) -> None:
    url, options = place_on(request, kind, tmp_path)
    with threadline.connect(url, metrics=True, pool_size=3, **options) as saver:
        put(saver, "t")
        text = saver.metrics.exposition()
    assert 'db_client_connection_pool_name="sync",db_client_connection_state="idle"} 1' in text
    assert 'db_client_connection_pool_name="sync"} 3' in text
    assert "threadline_retries_total{" in text


@pytest.mark.parametrize("half_name", ["sync", "async"])
def test_callers_that_share_a_commit_are_counted(half_name: str, database: Any, connect: Any) -> None:
    saver = connect(database, metrics=True)
    put(saver, "t")
    if half_name == "sync":
        start = threading.Barrier(8)

        def work(number: int) -> None:
            start.wait()
            for step in range(5):
                put(saver, f"t{number}", step=step)

        threads = [threading.Thread(target=work, args=(number,)) for number in range(8)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    else:
        write = [("notes", "x")]

        async def together() -> None:
            config = {"configurable": {"thread_id": "t", "checkpoint_ns": "", "checkpoint_id": "1"}}
            await asyncio.gather(*(saver.aput_writes(config, write, f"task-{number}") for number in range(20)))

        asyncio.run(together())
    text = saver.metrics.exposition()
    assert 'threadline_commit_group_size_count{db_system_name="sqlite"}' in text
    assert 'threadline_commit_group_wait_seconds_count{db_system_name="sqlite"}' in text


def test_postgres_tells_of_groups_too(request: pytest.FixtureRequest, tmp_path: Any) -> None:
    url, options = place_on(request, "postgres", tmp_path)
    with threadline.connect(url, metrics=True, **options) as saver:
        put(saver, "t", step=1)
        put(saver, "t", step=2)
        assert 'threadline_commit_group_size_count{db_system_name="postgresql"}' in saver.metrics.exposition()


def test_one_meter_serves_several_stores(tmp_path: Any, connect: Any) -> None:
    meter = Meter()
    for name in ("a.db", "b.db"):
        put(connect(tmp_path / name, metrics=meter))
    assert meter.total("threadline.checkpoints.written") == 2


def test_a_view_is_counted_with_the_store_it_is_of(database: Any, connect: Any) -> None:
    saver = connect(database, metrics=True)
    part = saver.within("user-1")
    assert part.metrics is saver.metrics
    put(part, "user-1/t")
    assert saver.metrics.total("threadline.checkpoints.written") == 1


def test_classes_of_errors_that_are_not_ours_stay_few() -> None:
    meter = Meter()
    tell = meter.timing("sqlite", "find")
    for number in range(500):
        tell(0.1, type(f"Strange{number}", (Exception,), {})())
    assert len({one.error for one in meter.calls()}) <= 34
    assert calls(meter, "find", "_OTHER") > 400


@pytest.mark.skipif(not hasattr(os, "fork"), reason="this system cannot fork")
def test_a_meter_works_in_a_child_that_was_forked_while_its_lock_was_held() -> None:
    meter = Meter()
    held, release = threading.Event(), threading.Event()

    def hold() -> None:
        with meter._lock:
            held.set()
            release.wait()

    holder = threading.Thread(target=hold)
    holder.start()
    held.wait()
    child = os.fork()
    if not child:
        meter.count("threadline.corrupt")
        os._exit(0 if meter.total("threadline.corrupt") == 1 else 1)
    _, status = os.waitpid(child, 0)
    release.set()
    holder.join()
    assert status == 0


def test_a_signal_handler_that_counts_in_the_middle_of_a_count_does_not_hang() -> None:
    meter = Meter()
    with meter._lock:
        meter.count("threadline.corrupt")
    assert meter.total("threadline.corrupt") == 1


def test_no_put_is_counted_twice_or_never_while_threads_tell_and_others_look() -> None:
    meter, looked = Meter(), list[float]()
    tell = meter.putting("sqlite")
    row: Any = CheckpointRow("", "1", None, b"l" * 16, 0, b"document", 0, b"metadata", 0, "loop", None, 0.0, None)
    change = Change(thread_id="t", now=0.0, chunks=[ChunkRow(b"d" * 16, b"", 0, b"data")], checkpoints=[row])

    def put() -> None:
        for _ in range(1_000):
            assert tell(0.001, [change]) == (1, 1, 0, 20, 20)

    threads = [threading.Thread(target=put) for _ in range(4)]
    for one in threads:
        one.start()
    while any(one.is_alive() for one in threads):
        looked.append(meter.total("threadline.checkpoints.written"))
    for one in threads:
        one.join()
    assert looked == sorted(looked)
    assert calls(meter, "apply") == meter.total("threadline.checkpoints.written") == 4_000
    assert meter.total("threadline.written.stored") == 80_000
    assert "threadline_chunks_written_total 4000\n" in meter.exposition()


def test_a_put_with_metrics_makes_at_most_three_calls_more(tmp_path: Any, connect: Any) -> None:
    def calls_of_a_put(saver: Any) -> float:
        config = put(saver, "t", "hello", step=1)
        for step in range(2, 6):
            config = put(saver, "t", f"hello {step}", config=config, step=step)
        made = 0

        def count(frame: Any, event: str, argument: Any) -> None:
            nonlocal made
            made += event == "call"

        sys.setprofile(count)
        try:
            for step in range(6, 106):
                config = put(saver, "t", f"hello {step}", config=config, step=step)
        finally:
            sys.setprofile(None)
        return made / 100

    off = calls_of_a_put(connect(tmp_path / "off.db", synchronous="OFF"))
    on = calls_of_a_put(connect(tmp_path / "on.db", synchronous="OFF", metrics=True))
    assert off < on < off + 4  # and now and then what adds their figures up


def test_the_text_is_what_prometheus_reads(database: Any, connect: Any) -> None:
    saver = connect(database, metrics=True)
    put(saver)
    ask(saver, "asks")
    with pytest.raises(Conflict):
        saver.copy_thread("t", "asks")
    saver.monitor("1h").turn()
    text = saver.metrics.exposition()
    assert "threadline_questions_waiting" in text
    for line in text.splitlines():
        assert line.startswith("# ") or line.rpartition(" ")[2].replace(".", "").replace("e-", "").isdigit(), line
    promtool = shutil.which("promtool")
    if promtool:
        done = subprocess.run([promtool, "check", "metrics"], input=text, capture_output=True, text=True)
        assert (done.returncode, done.stdout + done.stderr) == (0, "")


def test_every_name_follows_the_conventions() -> None:
    assert len({one.name for one in CATALOGUE}) == len(CATALOGUE) == len({one.prometheus for one in CATALOGUE})
    for one in CATALOGUE:
        assert one.name.startswith(("db.client.", "threadline."))
        assert one.about.endswith(".")
        assert not {"thread", "user", "run", "tenant"} & {part for label in one.labels for part in label.split(".")}
    assert CATALOGUE[0].name == DURATION
    assert CATALOGUE[0].prometheus == "db_client_operation_duration_seconds"


def test_figures_are_served_until_closed(database: Any, connect: Any) -> None:
    saver = connect(database, metrics=True)
    put(saver)
    with saver.metrics.serve(0) as server:
        with urllib.request.urlopen(server.url, timeout=10) as answer:
            assert answer.headers["Content-Type"].startswith("text/plain; version=0.0.4")
            assert b"threadline_checkpoints_written_total 1\n" in answer.read()
        with pytest.raises(urllib.error.HTTPError) as refused:
            urllib.request.urlopen(server.url.replace("/metrics", "/"), timeout=10)
        assert refused.value.code == 404
        with pytest.raises(Unavailable, match="choose another port"):
            saver.metrics.serve(server.port)
    with pytest.raises(urllib.error.URLError):
        urllib.request.urlopen(server.url, timeout=10)


def test_figures_are_served_on_an_address_of_the_other_family(database: Any, connect: Any) -> None:
    saver = connect(database, metrics=True)
    try:
        server = saver.metrics.serve(0, "::1")
    except Unavailable:
        pytest.skip("this machine has no IPv6")
    with server, urllib.request.urlopen(server.url, timeout=10) as answer:
        assert answer.status == 200


@pytest.mark.parametrize("value", ["yes", 1, "prometheus", []])
def test_what_metrics_may_be_is_checked(value: Any) -> None:
    with pytest.raises(InvalidRequest, match="metrics"):
        threadline.connect("memory://", metrics=value)


@pytest.mark.parametrize("port", [-1, 70000, "9464", 1.5])
def test_a_port_is_checked(port: Any) -> None:
    with pytest.raises(InvalidRequest):
        Meter().serve(port)
