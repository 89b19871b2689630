"""Databases that a real LangGraph wrote with its own saver, and processes to import and resume them in.

Rules of this folder:
- `source` is written once per worker by `travel_app.play_all`, and copied for each test.
- `run_import` runs in a process that has neither the application's module nor LangGraph; `imported` is
  what such a process made of the source.
- `resume` runs a few lines in a new process that has both, and gives the JSON value of its last line.
"""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
import textwrap
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("langgraph.checkpoint.sqlite", reason="the sources are written by LangGraph's own saver")
from import_cases import HERE, environment

from tests.commands import Run


@pytest.fixture(scope="session")
def played(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A database with all threads of the application."""
    folder = tmp_path_factory.mktemp("played")
    script = (
        "import travel_app; from langgraph.checkpoint.sqlite import SqliteSaver\n"
        "with SqliteSaver.from_conn_string('old.db') as saver: travel_app.play_all(saver)"
    )
    settings = environment(HERE, TRAVEL_JOURNAL=str(folder / "journal.txt"))
    subprocess.run([sys.executable, "-c", script], cwd=folder, env=settings, check=True, timeout=120)
    assert not (folder / "old.db-wal").exists()
    return folder / "old.db"


@pytest.fixture
def source(played: Path, tmp_path: Path) -> Path:
    return Path(shutil.copy(played, tmp_path / "old.db"))


@pytest.fixture
def target(tmp_path: Path) -> Path:
    return tmp_path / "new.db"


@pytest.fixture(scope="session")
def imported_once(played: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("imported")
    import_bare(folder, played, "--to", folder / "new.db")
    return folder / "new.db"


@pytest.fixture
def imported(imported_once: Path, target: Path) -> Path:
    """A store into which everything was imported by a bare process."""
    return Path(shutil.copy(imported_once, target))


@pytest.fixture
def run_import(tmp_path: Path) -> Callable[..., subprocess.CompletedProcess[str]]:
    """`threadline import` in a bare process; fails the test unless it ends with `status`."""
    return partial(import_bare, tmp_path)


@pytest.fixture
def import_here(run: Run) -> Callable[..., Any]:
    """`threadline import` in this process, for what does not depend on what is installed."""

    def call(*arguments: object, status: int = 0) -> Any:
        said, complaints = run("import", *arguments, status=status)
        return subprocess.CompletedProcess(["threadline"], status, said, complaints)

    return call


def import_bare(folder: Path, *arguments: object, status: int = 0) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, str(HERE / "bare.py"), "import", *map(str, arguments)]
    done = subprocess.run(command, cwd=folder, env=environment(), capture_output=True, text=True, timeout=120)
    assert done.returncode == status, done.stdout + done.stderr
    return done


@pytest.fixture
def resume(tmp_path: Path) -> Callable[..., Any]:
    """Runs lines with `saver`, a Checkpointer on the store, `app`, and `show`, which prints a JSON value."""

    def run(store: Path, lines: str) -> Any:
        head = f"""
            import json, travel_app as app
            from langgraph.types import Command
            from threadline.langgraph import Checkpointer
            saver = Checkpointer({str(store)!r})
            show = lambda value: print(json.dumps(value, default=repr))
        """
        journal = tmp_path / "journal.txt"
        journal.write_text("")
        done = subprocess.run(
            [sys.executable, "-c", textwrap.dedent(head) + textwrap.dedent(lines)],
            cwd=tmp_path,
            env=environment(HERE, TRAVEL_JOURNAL=str(journal)),
            capture_output=True,
            text=True,
            timeout=120,
        )
        assert done.returncode == 0, done.stderr
        return json.loads(done.stdout.strip().splitlines()[-1])

    return run
