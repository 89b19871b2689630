"""What all servers have in common: a folder, a port, a process, and ways to start and end it."""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import subprocess
from collections.abc import Callable
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any, ClassVar

from .binaries import KINDS, find, missing
from .keeper import PID_FILE, keeper
from .processes import free_port, is_alive, kill_tree, tree, unprivileged, wait_until

if TYPE_CHECKING:
    from typing_extensions import Self

__all__ = ["Server", "StartFailed"]


class StartFailed(RuntimeError):
    """The server did not come up; the end of its log is in the message."""


class Server:
    """One server in a folder of its own, on a port that it keeps when it starts again.

    As a block it is running inside and removed after. What it stored survives everything but `remove`.
    """

    kind: ClassVar[str]
    # What asks the process to end in good order.
    gentle: ClassVar[signal.Signals] = signal.SIGTERM

    def __init__(self) -> None:
        lacking = missing(self.kind)
        if lacking:
            known = KINDS[self.kind]
            raise StartFailed(f"{known.title} needs {', '.join(lacking)}: install {known.package}")
        self.folder = keeper().new_folder(self.kind)
        self.port = free_port()
        self._process: subprocess.Popen[bytes] | None = None
        self._was_up = False

    @property
    def url(self) -> str:
        raise NotImplementedError

    @property
    def log(self) -> str:
        with contextlib.suppress(FileNotFoundError):
            return (self.folder / "log").read_text(errors="replace")
        return ""

    @property
    def pid(self) -> int | None:
        """The main process, or None when it does not run."""
        if self._process is not None:
            self._process.poll()
        with contextlib.suppress(OSError, ValueError):
            pid = int((self.folder / PID_FILE).read_text())
            return pid if is_alive(pid) else None
        return None

    @property
    def pids(self) -> list[int]:
        """The main process and all its children."""
        return tree(self.pid) if self.pid else []

    def start(self) -> Self:
        """Returns when the server answers."""
        if self.pid:
            return self
        for _ in range(3):
            self._prepare()
            if self._launch():
                self._was_up = True
                return self
            # Between finding a port and taking it, somebody else may have taken it.
            if self._was_up or "in use" not in self.log:
                break
            self.port = free_port()
        raise StartFailed(f"{KINDS[self.kind].title} does not start:\n{self.log[-4000:]}")

    def stop(self) -> None:
        """End in good order, as for maintenance."""
        pid = self.pid
        if pid:
            os.kill(pid, self.gentle)
            if not wait_until(lambda: self.pid is None, seconds=30):
                self.stop_hard()
        self._forget()

    def stop_hard(self) -> None:
        """End all processes at once with SIGKILL, as a crash does."""
        pid = self.pid
        if pid:
            kill_tree(pid)
        self._forget()

    def restart(self) -> Self:
        self.stop()
        return self.start()

    def remove(self) -> None:
        """End it and delete all that it stored."""
        self.stop_hard()
        shutil.rmtree(self.folder, ignore_errors=True)

    def __enter__(self) -> Self:
        return self.start()

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.remove()

    def _prepare(self) -> None:
        """Put what the process needs into its folder; called before every start."""

    def _command(self) -> list[str]:
        raise NotImplementedError

    def _answers(self) -> bool:
        raise NotImplementedError

    def _runs_as(self) -> dict[str, Any]:
        """As whom `subprocess` runs it."""
        return unprivileged()

    def _launch(self) -> bool:
        # The process notes its own number before it becomes the server: the guard can never miss one.
        script = f'echo $$ >{PID_FILE} && exec "$@"'
        with open(self.folder / "log", "ab") as log:
            self._process = subprocess.Popen(
                ["/bin/sh", "-c", script, "sh", *self._command()],
                cwd=self.folder,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,
                **self._runs_as(),
            )
        process = self._process
        wait_until(lambda: process.poll() is not None or self._answers(), seconds=60)
        if process.poll() is None and self._answers():
            return True
        kill_tree(process.pid)
        self._forget()
        return False

    def _forget(self) -> None:
        (self.folder / PID_FILE).unlink(missing_ok=True)
        if self._process is not None:
            self._process.wait()
            self._process = None


def program(name: str) -> str:
    """The path of a program that `missing` has found."""
    found = find(name)
    assert found is not None, name
    return found


def copy_template(name: str, target: Path, make: Callable[[Path], None]) -> None:
    """Fill a folder with what `make` makes, which is made once for all servers of a keeper."""
    kept = keeper()
    with kept.alone(name):
        noted = kept.folder / f"{name}.template"
        if not noted.exists():
            folder = kept.new_folder(name)
            make(folder / "data")
            noted.write_text(str(folder / "data"))
    # Owners and times stay as they are.
    subprocess.run(["cp", "-Rp", noted.read_text(), str(target)], check=True)
