"""SIGKILL between any two steps of tiering, and object stores that die under it: nothing becomes unreadable."""

from __future__ import annotations

import json
import random
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest
from tier_stores import converse, object_names, read

import threadline
from tests.servers.plugin import require_programs
from tests.servers.s3 import BUCKET, RcloneServer, SeaweedServer
from threadline import Unavailable
from threadline.core import leases

HERE = Path(__file__).parent
NOW = "0s"


def _kill_and_check(url: str, cold: str, seed: int, steps: int) -> bool:
    """Let a process work until it ends itself. Whatever it had put must be there, and no orphan stay."""
    path = f"{HERE}:{HERE.parent.parent}:{Path(threadline.__file__).parent.parent}"
    done = subprocess.run(
        [sys.executable, str(HERE / "tier_killed.py"), url, cold, str(seed), str(steps)],
        capture_output=True,
        text=True,
        timeout=300,
        env={"PYTHONPATH": path, "PATH": "/usr/bin:/bin"},
    )
    assert done.returncode == -signal.SIGKILL, done.stderr[-3000:]
    lines = done.stdout.splitlines()
    heads = json.loads(lines[-1])[1] if lines else {}
    with threadline.connect(url, cold=cold) as saver:
        report = saver.fsck()
        assert report.ok, f"seed {seed}, {steps} steps: {report}"
        for name, turn in heads.items():
            listed = list(saver.list({"configurable": {"thread_id": name}}))
            turns = [one.checkpoint["channel_values"]["turn"] for one in listed]
            # The act that was killed may have added a checkpoint, or deleted the thread.
            assert not turns or turn in turns[:2], f"seed {seed}, {steps} steps: {name}"
            assert all(one.checkpoint["channel_values"]["messages"] for one in listed)
        # Who died held the right to run for some minutes more.
        saver._ask(leases.end, "threadline:tier", time.time())
        saver.tier("7d", grace=NOW)
        status = saver.tier_status()
        assert (status.orphans, status.objects) == (0, len(object_names(cold))), f"seed {seed}, {steps} steps"
        assert saver.fsck().ok
    return True


@pytest.mark.parametrize("seed", range(3))
def test_a_process_that_is_killed_between_two_steps_leaves_everything_readable(tmp_path, cold, seed):
    chance = random.Random(seed)
    url = f"sqlite:///{tmp_path / 'threads.db'}"
    for _ in range(2):
        assert _kill_and_check(url, cold, chance.randrange(10_000), chance.randrange(60))


def test_a_process_that_is_killed_between_two_steps_on_a_server_leaves_everything_readable(postgres_url, cold):
    for seed, steps in ((3, 25), (4, 70)):
        assert _kill_and_check(postgres_url, cold, seed, steps)


@pytest.mark.soak
def test_three_hundred_kills_between_the_steps_leave_nothing_unreadable_and_no_orphan(tmp_path, cold):
    """300 kills at steps 0 to 149, each on what the one before left; a new store for every ten."""
    chance = random.Random(7)
    for kill in range(300):
        url = f"sqlite:///{tmp_path / f'threads{kill // 10}.db'}"
        place = f"{cold}/{kill // 10}"
        assert _kill_and_check(url, place, chance.randrange(10_000), chance.randrange(150))


def _tier_while_it_is_killed(server, saver, chance, kills):
    """Kill the server at random moments of tiering and restoring; returns how many calls failed."""
    failed = 0
    for _ in range(kills):
        timer = threading.Timer(chance.uniform(0.0, 0.25), server.stop_hard)
        timer.start()
        try:
            saver.tier(NOW)
            saver.tier_restore()
        except Unavailable:
            failed += 1
        timer.join()
        server.start()
        saver._ask(leases.end, "threadline:tier", time.time())
    return failed


def _killed(kind, tmp_path, monkeypatch, kills):
    require_programs(kind.kind)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    with kind() as server:
        server.make_bucket()
        for name, value in server.environment.items():
            monkeypatch.setenv(name, value)
        url = f"sqlite:///{tmp_path / 'a.db'}"
        with threadline.connect(url, cold=f"s3://{BUCKET}/p", cold_cache_bytes=0) as saver:
            said = {name: converse(saver, name, turns=30, seed=at) for at, name in enumerate("abc")}
            _tier_while_it_is_killed(server, saver, random.Random(kills), kills)
            _until_it_answers(saver)
            for name, expected in said.items():
                assert read(saver, name)["messages"] == expected
            assert saver.fsck().ok
            saver.tier(NOW, grace=NOW)
            assert saver.tier_status().orphans == 0
            for name, expected in said.items():
                assert read(saver, name)["messages"] == expected


def _until_it_answers(saver):
    """A server that came up is not ready for all of its parts at once."""
    for _ in range(60):
        try:
            saver.clear_cache()
            saver.tier(NOW)
            return
        except Unavailable:
            saver._ask(leases.end, "threadline:tier", time.time())
            time.sleep(0.5)
    raise AssertionError("the server does not come back")


def test_an_object_store_that_is_killed_under_tiering_leaves_everything_readable(tmp_path, monkeypatch):
    # rclone is up again at once; SeaweedFS takes 20 seconds, and is killed in the soak.
    _killed(RcloneServer, tmp_path, monkeypatch, kills=4)


@pytest.mark.soak
def test_an_object_store_that_is_killed_thirty_times_leaves_everything_readable(tmp_path, monkeypatch):
    """30 kills of SeaweedFS while chunks go there and come back."""
    _killed(SeaweedServer, tmp_path, monkeypatch, kills=30)
