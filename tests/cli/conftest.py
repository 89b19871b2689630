"""A store that another process wrote, and commands run on a terminal of 80 columns."""

from __future__ import annotations

import os
import re
import shutil
import sqlite3
import struct
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from cli_process import HERE, settings


@pytest.fixture(autouse=True)
def plain(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing from outside decides which store is meant, or how it looks."""
    for name in (
        "THREADLINE_URL",
        "THREADLINE_KEYS",
        "LANGGRAPH_AES_KEY",
        "FORCE_COLOR",
        "NO_COLOR",
        "COLUMNS",
        "TTY_COMPATIBLE",
    ):
        monkeypatch.delenv(name, raising=False)


@pytest.fixture(scope="session")
def written(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """What the application wrote, in a process that has its classes. This one has not."""
    path = tmp_path_factory.mktemp("application") / "agents.db"
    script = "import sys, cli_app; cli_app.write(sys.argv[1])"
    subprocess.run([sys.executable, "-c", script, str(path)], env=settings(str(HERE)), check=True, timeout=120)
    return path


@pytest.fixture
def store(written: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A copy of that store, which THREADLINE_URL names."""
    path = tmp_path / "agents.db"
    shutil.copy(written, path)
    monkeypatch.setenv("THREADLINE_URL", str(path))
    return path


@pytest.fixture
def contents(store: Path) -> Callable[[], list[str]]:
    """Everything in the database, to compare before and after."""

    def dump() -> list[str]:
        with sqlite3.connect(store) as connection:
            return list(connection.iterdump())

    return dump


@pytest.fixture
def on_terminal(store: Path) -> Callable[..., str]:
    """What a command shows on a terminal of 80 columns, without its colours."""
    pty = pytest.importorskip("pty", reason="there are no pseudo-terminals here")
    import fcntl
    import termios

    def call(*arguments: str, status: int = 0, columns: int = 80) -> str:
        terminal, its_end = pty.openpty()
        fcntl.ioctl(its_end, termios.TIOCSWINSZ, struct.pack("HHHH", 40, columns, 0, 0))
        command = [sys.executable, "-m", "threadline", *arguments]
        environment = {**settings(), "TERM": "xterm-256color", "PAGER": "cat"}
        with subprocess.Popen(command, env=environment, stdin=its_end, stdout=its_end, stderr=its_end) as process:
            os.close(its_end)
            shown = b"".join(iter(lambda: _read(terminal), b""))
        os.close(terminal)
        assert process.returncode == status, shown.decode()
        assert b"\x1b[" in shown
        return re.sub(r"\x1b\[[0-9;?]*[a-zA-Z]", "", shown.decode()).replace("\r\n", "\n")

    return call


def _read(terminal: int) -> bytes:
    try:
        return os.read(terminal, 4096)
    except OSError:  # the other end was closed
        return b""
