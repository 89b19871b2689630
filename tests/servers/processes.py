"""Processes and ports: as whom servers run, how they are killed with all their children, which port is free.

Killing goes by the tree of parents. Process groups would not do: every PostgreSQL backend leads one of its own.
"""

from __future__ import annotations

import contextlib
import os
import pwd
import random
import signal
import socket
import subprocess
import time
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

__all__ = ["free_port", "is_alive", "kill_tree", "listens", "run_as", "tree", "unprivileged", "wait_until"]

# Below the ports that systems give to outgoing connections, so that a port is still free when its server restarts,
# and low enough that a port of a Redis Cluster's bus, 10,000 above, is too.
PORTS = range(12_000, 22_000)
BUS = 10_000


@cache
def unprivileged() -> dict[str, Any]:
    """The arguments with which `subprocess` runs servers as somebody without rights; none when we have none."""
    if os.geteuid() != 0:
        return {}
    nobody = pwd.getpwnam("nobody")
    return {"user": nobody.pw_uid, "group": nobody.pw_gid, "extra_groups": []}


def run_as(folder: Path, *command: str) -> None:
    """Run a command to its end, in this folder, as servers run; its output is part of the error if it fails."""
    done = subprocess.run(
        command,
        cwd=folder,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        errors="replace",
        **unprivileged(),
    )
    if done.returncode:
        raise RuntimeError(f"{command[0]} ended with {done.returncode}:\n{done.stdout[-4000:]}")


def free_port() -> int:
    """A port of 127.0.0.1 that nobody uses, as is the one for a cluster's bus that goes with it."""
    for port in random.SystemRandom().sample(PORTS, 200):
        if _can_bind(port) and _can_bind(port + BUS):
            return port
    raise RuntimeError(f"no free port between {PORTS.start} and {PORTS.stop}")


def listens(port: int) -> bool:
    """Whether somebody accepts connections on this port."""
    try:
        socket.create_connection(("127.0.0.1", port), timeout=1).close()
    except OSError:
        return False
    return True


def is_alive(pid: int) -> bool:
    """Whether a process runs. One that ended and was not asked for its status does not."""
    return pid in _table()


def tree(pid: int) -> list[int]:
    """A process and all that descend from it, as far as they run."""
    table = _table()
    found = [pid] if pid in table else []
    for parent in found:
        found += [child for child, its_parent in table.items() if its_parent == parent]
    return found


def kill_tree(pid: int) -> None:
    """End a process and all that descend from it, at once, and return when they are gone."""
    # A process that stands still starts no further children while they are counted; it takes a moment to stand.
    _signal(pid, signal.SIGSTOP)
    wait_until(lambda: not _goes_on(pid), seconds=5)
    doomed = tree(pid)
    for each in doomed:
        _signal(each, signal.SIGKILL)
    if not wait_until(lambda: not _table().keys() & set(doomed), seconds=20):
        raise RuntimeError(f"processes {doomed} do not end")


def _goes_on(pid: int) -> bool:
    """Whether a process runs, or may run again by itself."""
    try:
        state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except (OSError, IndexError):
        return False
    return state not in "TtZX"


def wait_until(happened: Callable[[], bool], *, seconds: float) -> bool:
    """Whether it happened within this time."""
    deadline = time.monotonic() + seconds
    pause = 0.002
    while not happened():
        if time.monotonic() > deadline:
            return False
        time.sleep(pause)
        pause = min(pause * 1.5, 0.05)
    return True


def _table() -> dict[int, int]:
    """Every process that runs, with its parent."""
    if not Path("/proc/self/stat").exists():
        listed = subprocess.run(["ps", "-axo", "pid=,ppid=,stat="], capture_output=True, text=True, check=True).stdout
        rows = [line.split() for line in listed.splitlines()]
        return {int(pid): int(parent) for pid, parent, state in rows if not state.startswith("Z")}
    table = {}
    for name in os.listdir("/proc"):
        if not name.isdigit():
            continue
        with contextlib.suppress(OSError), open(f"/proc/{name}/stat", errors="replace") as file:
            # The program's name stands in brackets and may hold anything.
            state, parent = file.read().rpartition(")")[2].split()[:2]
            if state not in "ZX":
                table[int(name)] = int(parent)
    return table


def _signal(pid: int, number: int) -> None:
    with contextlib.suppress(ProcessLookupError):
        os.kill(pid, number)


def _can_bind(port: int) -> bool:
    with socket.socket() as probe:
        # A port whose last connections are still in TIME_WAIT can be listened on; servers ask for it likewise.
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind(("127.0.0.1", port))
        except OSError:
            return False
    return True
