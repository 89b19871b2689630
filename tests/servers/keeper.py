"""A folder that servers live in, for as long as any process holds it.

Holding is a shared lock on the file `held`, of the kind that belongs to a process: the system drops it however the
process ends, and forked children do not inherit it. The first server brings the guard, a process of its own session
that waits until it can lock the file alone; then it kills what runs and removes the folder. This is the only way
servers end for good: a session that finishes, one that is interrupted and one that is killed all take it.

A test session's keeper is made by the process that runs it and joined by its workers, through the environment.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import shutil
import subprocess
import sys
import tempfile
import uuid
from collections.abc import Iterator
from pathlib import Path

from .processes import kill_tree, unprivileged, wait_until

__all__ = ["PID_FILE", "VARIABLE", "Keeper", "adopt", "keeper", "sweep"]

VARIABLE = "THREADLINE_TEST_KEEPER"
PID_FILE = "server.pid"
PREFIX = "threadline-servers-"
ROOT = Path(__file__).parents[2]


class Keeper:
    """Holds a folder from now on; `close` lets go."""

    def __init__(self, folder: Path | None = None) -> None:
        is_new = folder is None
        if folder is None:
            sweep()
            folder = Path(tempfile.mkdtemp(prefix=f".{PREFIX}"))
        self._held = os.open(folder / "held", os.O_RDWR | os.O_CREAT)
        fcntl.lockf(self._held, fcntl.LOCK_SH)
        if is_new:
            # Servers that run as somebody else must be able to pass.
            folder.chmod(0o711)
            # Only now others see it: a folder that nobody holds is swept away.
            folder = folder.rename(folder.with_name(folder.name.removeprefix(".")))
        self.folder = folder
        self._guard: subprocess.Popen[bytes] | None = None

    def new_folder(self, name: str) -> Path:
        """An empty folder for a server, which the one it runs as owns. From here on the guard is on duty."""
        self._call_guard()
        folder = self.folder / f"{name}-{uuid.uuid4().hex[:8]}"
        folder.mkdir(mode=0o700)
        owner = unprivileged()
        if owner:
            os.chown(folder, owner["user"], owner["group"])
        return folder

    @contextlib.contextmanager
    def alone(self, name: str) -> Iterator[None]:
        """A block that only one process at a time is in."""
        with open(self.folder / f"{name}.lock", "w") as file:
            fcntl.flock(file, fcntl.LOCK_EX)
            yield

    def close(self, *, wait: bool = True) -> None:
        """Let go. Waiting is for the last one out: it returns when no server runs and the folder is gone."""
        os.close(self._held)
        if not (self.folder / "guarded").exists():
            if wait:
                shutil.rmtree(self.folder, ignore_errors=True)
        elif wait and not wait_until(lambda: not self.folder.exists(), seconds=30):
            print(f"servers in {self.folder} are still being stopped", file=sys.stderr)

    def _call_guard(self) -> None:
        with self.alone("guard"):
            if (self.folder / "guarded").exists():
                return
            with open(self.folder / "guard.log", "wb") as log:
                self._guard = subprocess.Popen(
                    [sys.executable, "-S", "-m", "tests.servers.keeper", str(self.folder)],
                    cwd=ROOT,
                    stdin=subprocess.DEVNULL,
                    stdout=log,
                    stderr=log,
                    # Out of reach of Ctrl-C, and of signals to the group that a runner kills.
                    start_new_session=True,
                )
            guard = self._guard
            wait_until(lambda: (self.folder / "guarded").exists() or guard.poll() is not None, seconds=20)
            if guard.poll() is not None:
                raise RuntimeError(f"nobody would stop the servers:\n{(self.folder / 'guard.log').read_text()}")


_own: list[Keeper] = []


def keeper() -> Keeper:
    """The keeper of this process: the session's, or one of its own outside of any session."""
    if not _own or not _own[0].folder.exists():
        named = os.environ.get(VARIABLE)
        _own[:] = [Keeper(Path(named) if named and Path(named, "held").exists() else None)]
    return _own[0]


def adopt(made: Keeper | None) -> None:
    """Make this the keeper of this process and of those that it starts, or none."""
    _own[:] = [made] if made else []
    os.environ.pop(VARIABLE, None)
    if made:
        os.environ[VARIABLE] = str(made.folder)


def _stand_guard(folder: Path) -> None:
    """Wait until nobody holds the folder; then end everything in it, and it."""
    with open(folder / "held", "r+") as file:
        (folder / "guarded").write_text(str(os.getpid()))
        fcntl.lockf(file, fcntl.LOCK_EX)
        _clear(folder)


def sweep() -> None:
    """Clear the folders of sessions that were killed before they had a guard, or whose guard was killed too."""
    for held in Path(tempfile.gettempdir()).glob(f"{PREFIX}*/held"):
        # Closing a file drops this process's own locks on it: its own folder must not be looked into.
        if held.parent in [each.folder for each in _own] or str(held.parent) == os.environ.get(VARIABLE):
            continue
        with contextlib.suppress(OSError), open(held, "r+") as file:
            if os.fstat(file.fileno()).st_uid == os.geteuid():
                fcntl.lockf(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
                _clear(held.parent)


def _clear(folder: Path) -> None:
    for noted in folder.glob(f"*/{PID_FILE}"):
        with contextlib.suppress(ValueError):
            kill_tree(int(noted.read_text()))
    # What a dying server wrote meanwhile may need a second round.
    wait_until(lambda: _is_removed(folder), seconds=20)


def _is_removed(folder: Path) -> bool:
    shutil.rmtree(folder, ignore_errors=True)
    return not folder.exists()


if __name__ == "__main__":
    _stand_guard(Path(sys.argv[1]))
