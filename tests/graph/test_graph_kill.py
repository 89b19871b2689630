"""Runs killed with SIGKILL at random points: nothing acknowledged is done again, and the end is right every time."""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
import time
from contextlib import suppress
from pathlib import Path

import pytest
from program_killed import NODES

PROGRAM = Path(__file__).with_name("program_killed.py")
ROOT = Path(__file__).parents[2]


class Zygote:
    """The process that forks the runs."""

    def __init__(self, url: str) -> None:
        environment = {**os.environ, "PYTHONPATH": os.pathsep.join([str(ROOT / "src"), str(PROGRAM.parent)])}
        self.process = subprocess.Popen(
            [sys.executable, str(PROGRAM), url],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            env=environment,
        )

    def run(self, thread: str, log: Path, seconds: float | None) -> int:
        """Run the graph in a child, killed after some time; the exit code of the child."""
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        self.process.stdin.write(f"{thread} {log}\n")
        self.process.stdin.flush()
        child = int(self.process.stdout.readline())
        if seconds is not None:
            time.sleep(seconds)
            with suppress(ProcessLookupError):  # it was done before
                os.kill(child, signal.SIGKILL)
        return int(self.process.stdout.readline())

    def close(self) -> None:
        assert self.process.stdin is not None
        self.process.stdin.close()
        self.process.wait(timeout=30)


def check(log: Path) -> None:
    """The promises, read from what one thread's runs have noted."""
    lines = [tuple(line.split(" ", 1)) for line in log.read_text().splitlines()]
    assert not [line for line in lines if line[0] == "failed"]
    assert lines[-1] == ("done", " ".join(NODES))
    for name in NODES:
        assert ("ran", name) not in _after(lines, ("stored", name)), f"{name} was acknowledged and ran again"
        assert ("effect", name) not in _after(lines, ("kept", name)), f"the effect of {name} was kept and repeated"


def _after(lines: list[tuple[str, ...]], first: tuple[str, str]) -> list[tuple[str, ...]]:
    """What was noted after a line; nothing where a kill came before the line could be written."""
    return lines[lines.index(first) :] if first in lines else []


def kill_often(url: str, folder: Path, kills: int) -> None:
    zygote = Zygote(url)
    chance = random.Random(1)
    try:
        assert zygote.run("first", folder / "first.log", None) == 0
        # How long an undisturbed run takes here and now: kills are spread over it.
        began = time.monotonic()
        assert zygote.run("calm", folder / "calm.log", None) == 0
        usual = time.monotonic() - began
        check(folder / "calm.log")
        killed = thread = 0
        while killed < kills:
            thread += 1
            log = folder / f"{thread}.log"
            for _ in range(50):
                code = zygote.run(f"t{thread}", log, chance.uniform(0, usual))
                if code == 0:
                    break
                assert code == -signal.SIGKILL, log.read_text()
                killed += 1
            else:
                assert zygote.run(f"t{thread}", log, None) == 0
            check(log)
    finally:
        zygote.close()


@pytest.mark.skipif(sys.platform == "win32", reason="there is no SIGKILL")
@pytest.mark.parametrize("kills", [20, pytest.param(200, marks=pytest.mark.soak)])
def test_runs_on_sqlite_survive_being_killed(tmp_path: Path, kills: int) -> None:
    kill_often(f"sqlite:///{tmp_path / 'agents.db'}", tmp_path, kills)


@pytest.mark.skipif(sys.platform == "win32", reason="there is no SIGKILL")
@pytest.mark.parametrize("kills", [10, pytest.param(200, marks=pytest.mark.soak)])
def test_runs_on_postgres_survive_being_killed(postgres_url: str, tmp_path: Path, kills: int) -> None:
    kill_often(postgres_url, tmp_path, kills)
