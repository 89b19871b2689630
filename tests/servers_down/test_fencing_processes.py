"""Fencing and leases across processes: one writer wins each head, and who lost a lease writes nothing more."""

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

import threadline
from threadline import Conflict
from threadline.testing.making import checkpoint, place

HERE = Path(__file__).parent
ROUNDS = 15
# Long enough that a busy machine renews it in time.
TTL = 2.0


class Process:
    """A lease_holder.py: `do` sends a line, `answer` reads what it came to."""

    def __init__(self, *arguments):
        package_root = Path(threadline.__file__).resolve().parents[1]
        self._process = subprocess.Popen(
            [sys.executable, str(HERE / "lease_holder.py"), *map(str, arguments)],
            env={**os.environ, "PYTHONPATH": str(package_root)},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )

    def do(self, word):
        self._process.stdin.write(word + "\n")
        self._process.stdin.flush()

    def answer(self):
        line = self._process.stdout.readline().strip()
        assert line, "the process ended"
        return line

    def signal(self, number):
        os.kill(self._process.pid, number)

    def end(self):
        if self._process.poll() is None:
            self._process.kill()
        self._process.communicate()


@pytest.fixture
def start():
    started = []

    def begin(*arguments):
        started.append(Process(*arguments))
        return started[-1]

    yield begin
    for process in started:
        process.end()


@pytest.fixture(params=["sqlite", "postgres"])
def url(request, tmp_path):
    return str(tmp_path / "threads.db") if request.param == "sqlite" else request.getfixturevalue("postgres").url


@pytest.fixture
def saver(url):
    with threadline.connect(url) as opened:
        yield opened


def put(saver, head, name):
    words = [*head.checkpoint["channel_values"]["words"], name]
    made = checkpoint({"words": words}, {"words": len(words)})
    return saver.put(head.config, made, {"source": "loop", "step": len(words)}, made["channel_versions"])


def test_of_two_processes_exactly_one_wins_each_head(start, url, saver):
    racers = [start("race", url, "sync", "sync"), start("race", url, "async", "async")]
    won = []
    for _ in range(ROUNDS):
        for word in ("read", "put"):
            for racer in racers:
                racer.do(word)
            answers = [racer.answer() for racer in racers]
        # Both had read the same head, or that there is none.
        assert answers.count("Conflict") == 1, answers
        won += [answer for answer in answers if answer != "Conflict"]
    line = [found.config["configurable"]["checkpoint_id"] for found in saver.list(place("raced"))]
    assert line == won[::-1]
    parents = [
        found.parent_config["configurable"]["checkpoint_id"] for found in saver.list(place("raced"), limit=ROUNDS - 1)
    ]
    assert parents == line[1:]
    assert len(saver.get_tuple(place("raced")).checkpoint["channel_values"]["words"]) == ROUNDS


def test_the_lease_of_a_killed_process_runs_out(start, url, saver):
    holder = start("hold", url, TTL)
    first = holder.answer()
    with pytest.raises(Conflict), saver.lock("leased", ttl=TTL, wait=0):
        pass
    holder.signal(signal.SIGKILL)
    with saver.lock("leased", ttl=TTL, wait=60):
        head = saver.get_tuple(place("leased"))
        assert head.config["configurable"]["checkpoint_id"] == first
        put(saver, head, "next")
    assert saver.get_tuple(place("leased")).checkpoint["channel_values"]["words"] == ["holder", "next"]


@pytest.mark.parametrize("is_over", [False, True], ids=["while another holds it", "after another gave it back"])
def test_the_late_put_of_who_lost_its_lease_is_refused(start, url, saver, is_over):
    """A process that stood still for longer than its lease lasts, as in a long pause of its machine."""
    holder = start("hold", url, TTL)
    holder.answer()
    holder.do("put")
    assert holder.answer() != "Conflict"
    holder.signal(signal.SIGSTOP)
    with saver.lock("leased", ttl=30, wait=60):
        put(saver, saver.get_tuple(place("leased")), "next")
        if not is_over:
            holder.signal(signal.SIGCONT)
            holder.do("put")
            assert holder.answer() == "Conflict"
    if is_over:
        holder.signal(signal.SIGCONT)
        holder.do("put")
        assert holder.answer() == "Conflict"
    assert saver.get_tuple(place("leased")).checkpoint["channel_values"]["words"] == ["holder", "holder", "next"]
    # Who never held a lease is not refused: a lease binds only those who take it.
    put(saver, saver.get_tuple(place("leased")), "last")
