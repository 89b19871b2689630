"""Deleting: told first, done with --yes; sweeping again and again, one replica at a time."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from cli_process import settings

import threadline
from tests.commands import Run

Contents = Callable[[], list[str]]
DELETING = [
    ["rm", "trip"],
    ["rm", "trip", "step:0"],
    ["prune", "trip", "--keep-last", "1"],
    ["sweep", "--keep-last", "1"],
    ["gc"],
]


@pytest.mark.parametrize("command", DELETING, ids=" ".join)
def test_without_yes_the_plan_is_told_and_nothing_happens(
    run: Run, store: Path, contents: Contents, command: list[str]
) -> None:
    before = contents()
    told = run(*command)[0]
    assert told.splitlines()[-1].startswith("not done")
    assert "--yes does it" in told
    assert json.loads(run(*command, "--json")[0])["done"] is False
    assert contents() == before


@pytest.mark.parametrize("command", DELETING, ids=" ".join)
def test_the_plan_is_what_is_done(run: Run, store: Path, command: list[str]) -> None:
    planned = json.loads(run(*command, "--json")[0])
    done = json.loads(run(*command, "--yes", "--json")[0])
    assert done.pop("done") is True
    assert planned.pop("done") is False
    for one in (planned, done):
        for name in ("chunks", "when", "by", "reason", "restorable_until"):
            one.pop(name, None)
    assert done == planned


def test_rm_tells_what_goes_with_a_thread(run: Run, store: Path) -> None:
    run("tag", "trip", "good")
    told = json.loads(run("rm", "trip", "--json")[0])
    assert told.pop("bytes") > 0
    assert told == {"thread_id": "trip", "checkpoints": 4, "pending_writes": 3, "tags": ["good"], "done": False}
    assert run("rm", "trip", "--yes")[0].splitlines()[-1] == "done            deleted"
    assert [one["thread_id"] for one in json.loads(run("threads", "--json")[0])] == ["other"]


def test_rm_of_a_checkpoint_leaves_the_others(run: Run, store: Path) -> None:
    gone = json.loads(run("rm", "trip", "step:0", "--yes", "--json")[0])["checkpoint_id"]
    left = [one["id"] for one in json.loads(run("log", "trip", "--json")[0])]
    assert len(left) == 3
    assert gone not in left
    assert "Stop(city='Bern', nights=0)" in run("show", "trip")[0]


def test_prune_keeps_heads_tags_pins_and_what_a_rule_names(run: Run, store: Path) -> None:
    run("pin", "trip", "step:-1")
    plan = json.loads(run("prune", "trip", "--keep-last", 1, "--drop-settled-writes", "--json")[0])
    # Both heads, and the pinned one; the fourth has writes that a checkpoint has taken up.
    assert (len(plan["keeps"]), len(plan["removes"])) == (3, 1)
    assert plan["freed_bytes"] > 0
    run("prune", "trip", "--keep-last", 1, "--drop-settled-writes", "--yes")
    assert len(json.loads(run("log", "trip", "--json")[0])) == 3
    everything = json.loads(run("prune", "trip", "--keep-within", "30d", "--json")[0])
    assert everything["removes"] == []


def test_sweep_deletes_what_has_expired(run: Run, store: Path) -> None:
    with threadline.connect(store) as saver:
        saver.thread("other").create(ttl=0.001)
    time.sleep(0.01)
    assert json.loads(run("sweep", "--json")[0])["expired"] == ["other"]
    told = run("sweep", "--yes")[0].splitlines()
    assert told[1].split() == ["expired", "1"]
    assert told[2].split() == ["other"]
    assert [one["thread_id"] for one in json.loads(run("threads", "--json")[0])] == ["trip"]


def test_one_sweeper_works_at_a_time(run: Run, store: Path, contents: Contents) -> None:
    from threadline.core import leases
    from threadline.core.retention.sweep import SWEEPER

    with threadline.connect(store) as saver:
        taken = saver._engine.run(lambda backend: leases.take(backend, SWEEPER, 600, time.time(), None))
        assert taken is not None
    before = contents()
    assert "another process is sweeping" in run("sweep", "--keep-last", 1, "--yes")[0]
    told = json.loads(run("sweep", "--keep-last", 1, "--yes", "--json")[0])
    assert (told["is_elsewhere"], told["done"]) == (True, False)
    assert contents() == before


@pytest.mark.skipif(sys.platform == "win32", reason="there are no such signals")
@pytest.mark.parametrize("stop", [signal.SIGINT, signal.SIGTERM])
def test_sweeping_every_so_often_goes_on_until_it_is_stopped(store: Path, stop: signal.Signals) -> None:
    command = [sys.executable, "-m", "threadline", "sweep", "--keep-last", "1", "--yes", "--every", "0.2s"]
    pipes: Any = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
    with subprocess.Popen(command, env=settings(), **pipes) as process:
        assert process.stdout is not None
        rounds = [process.stdout.readline() for _ in range(3)]
        os.kill(process.pid, stop)
        _, complaints = process.communicate(timeout=60)
    assert process.returncode == 0, complaints
    assert complaints == "threadline: stopped\n"
    assert "2 threads, 0 expired, 2 checkpoints" in rounds[0]
    assert "0 checkpoints and 0 chunks deleted" in rounds[2]


def test_gc_collects_what_nothing_refers_to(run: Run, store: Path) -> None:
    import sqlite3

    with sqlite3.connect(store) as connection:
        pool = connection.execute("SELECT pool FROM threadline_threads LIMIT 1").fetchone()[0]
        connection.execute(
            "INSERT INTO threadline_chunks (pool, digest, links, form, data) VALUES (?, ?, x'', 0, ?)",
            (pool, b"d" * 16, b"x" * 1000),
        )
    assert json.loads(run("gc", "--json")[0]) == {"chunks": 1, "bytes": 1000, "done": False}
    assert json.loads(run("gc", "--yes", "--json")[0])["chunks"] == 1
    assert json.loads(run("gc", "--json")[0])["chunks"] == 0


def test_compact_gives_space_back(run: Run, store: Path) -> None:
    with threadline.connect(store) as saver:
        checkpoint = threadline.empty_checkpoint()
        checkpoint["channel_values"], checkpoint["channel_versions"] = {"blob": os.urandom(500_000)}, {"blob": 1}
        saver.put({"configurable": {"thread_id": "large"}}, checkpoint, {}, {"blob": 1})
    run("rm", "large", "--yes")
    sizes = json.loads(run("compact", "--json")[0])
    assert sizes["bytes_after"] <= sizes["bytes_before"]
    assert store.stat().st_size < 500_000
    assert [line.split()[0] for line in run("compact")[0].splitlines()] == ["before", "after"]
