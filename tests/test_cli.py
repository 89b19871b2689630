"""The command line: what it prints, where, and how it ends."""

from __future__ import annotations

import json
import os
import sqlite3
import subprocess
import sys
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

import threadline
from tests.commands import Run
from threadline.cli.app import COMMANDS


@pytest.fixture(autouse=True)
def plain(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing from outside decides which store is meant, or how it looks."""
    for name in ("THREADLINE_URL", "FORCE_COLOR", "NO_COLOR", "COLUMNS", "TTY_COMPATIBLE"):
        monkeypatch.delenv(name, raising=False)


@pytest.fixture
def store(tmp_path: Path) -> Path:
    """A store with two threads."""
    path = tmp_path / "agents.db"
    with threadline.connect(path) as saver:
        for name, count in (("ann", 3), ("bob", 1)):
            for step in range(count):
                checkpoint = threadline.empty_checkpoint()
                checkpoint["channel_values"] = {"text": ["a word " * 40] * (step + 1)}
                checkpoint["channel_versions"] = {"text": step + 1}
                place: Any = {"configurable": {"thread_id": name, "checkpoint_ns": ""}}
                saver.put(place, checkpoint, {"step": step, "source": "loop"}, {"text": step + 1})
    return path


def test_stats_tell_what_a_store_holds(run: Run, store: Path) -> None:
    told, complaints = run("stats", "--url", store)
    assert complaints == ""
    facts = dict(line.split("  ", 1) for line in told.splitlines() if not line.startswith(" "))
    assert facts["threads"].strip() == "2"
    assert facts["checkpoints"].strip().startswith("4,")
    assert "ann (3 checkpoints)" in told


def test_stats_as_json_are_those_of_the_saver(run: Run, store: Path) -> None:
    figures = json.loads(run("stats", "--url", f"sqlite:///{store}", "--json")[0])
    with threadline.connect(store) as saver:
        expected = saver.stats()
    assert figures["checkpoints"] == expected.checkpoints == 4
    assert figures["bytes_saved"] == expected.bytes_saved
    assert figures["busiest_threads"] == [["ann", 3], ["bob", 1]]


def test_the_environment_may_name_the_store(run: Run, store: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("THREADLINE_URL", f"sqlite:///{store}")
    assert json.loads(run("stats", "--json")[0])["threads"] == 2


def test_health_says_that_a_store_answers(run: Run, store: Path) -> None:
    assert run("health", "--url", store)[0].startswith("ok  ")
    assert json.loads(run("health", "--url", store, "--json")[0])["ok"] is True


def test_health_says_what_is_wrong_and_ends_with_1(run: Run, tmp_path: Path) -> None:
    other = tmp_path / "notes.txt"
    other.write_text("no database at all\n" * 100)
    told, complaints = run("health", "--url", other, status=1)
    assert told == ""
    assert "is not a SQLite database" in complaints
    assert len(complaints.splitlines()) == 1
    assert json.loads(run("health", "--url", other, "--json", status=1)[0])["ok"] is False


def test_setup_makes_a_store_and_may_be_run_again(run: Run, tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path / 'new.db'}"
    assert run("setup", "--url", url)[0] == f"ready  {url}\n"
    assert json.loads(run("setup", "--url", url, "--json")[0]) == {"url": url, "ready": True}
    assert json.loads(run("stats", "--url", url, "--json")[0])["checkpoints"] == 0


@pytest.mark.parametrize("command", ["stats", "health"])
def test_looking_at_a_store_that_is_not_there_makes_none(run: Run, tmp_path: Path, command: str) -> None:
    missing = tmp_path / "mistyped.db"
    told, complaints = run(command, "--url", missing, status=1)
    assert (told, "there is no database at" in complaints) == ("", True)
    assert not missing.exists()


@pytest.mark.parametrize(("command", "status"), [("stats", 2), ("health", 1)])
def test_looking_at_a_database_of_others_adds_nothing_to_it(
    run: Run, tmp_path: Path, command: str, status: int
) -> None:
    import sqlite3

    other = tmp_path / "other.db"
    with sqlite3.connect(other) as connection:
        connection.execute("CREATE TABLE recipes (name TEXT)")
    assert "no Threadline tables" in run(command, "--url", other, status=status)[1]
    assert sqlite3.connect(other).execute("SELECT name FROM sqlite_master").fetchall() == [("recipes",)]


def test_errors_are_one_line_without_passwords(run: Run) -> None:
    told, complaints = run("stats", "--url", "oracle://me:secret@host/db", status=2)
    assert told == ""
    assert len(complaints.splitlines()) == 1
    assert complaints.startswith("threadline: ")
    assert "secret" not in complaints


@pytest.mark.parametrize("arguments", [["stats"], ["import"], ["nonsense"], ["stats", "--url"], ["health", "--no"]])
def test_a_command_typed_wrong_ends_with_2(run: Run, arguments: list[str]) -> None:
    told, complaints = run(*arguments, status=2)
    assert told == ""
    assert "Error: " in complaints


def test_the_missing_url_is_named_with_its_variable(run: Run) -> None:
    complaints = run("stats", status=2)[1]
    assert "--url" in complaints
    assert "THREADLINE_URL" in complaints


def test_help_lists_every_command(run: Run) -> None:
    told, _ = run("--help")
    for command in COMMANDS:
        assert f"\n  {command} " in told
        assert "..." not in next(line for line in told.splitlines() if line.startswith(f"  {command} "))


def test_the_version_is_printed(run: Run) -> None:
    assert run("--version")[0] == f"threadline {threadline.__version__}\n"


def test_the_demo_ends_as_it_says(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    from threadline import demo

    for status in (0, 1):
        monkeypatch.setattr(demo, "run", lambda status=status: status)
        run("demo", status=status)


def test_a_stopped_import_says_how_to_continue(run: Run, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    def interrupted(*_: object, **__: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("threadline.transfer.import_threads", interrupted)
    with closing(sqlite3.connect(tmp_path / "old.db")) as old:
        old.execute("CREATE TABLE checkpoints (thread_id)")
    assert "run the same command again" in run("import", tmp_path / "old.db", status=130)[1]


def test_names_that_the_terminal_cannot_show_do_no_harm(tmp_path: Path) -> None:
    path = tmp_path / "agents.db"
    with threadline.connect(path) as saver:
        checkpoint = threadline.empty_checkpoint()
        saver.put({"configurable": {"thread_id": "Жанна"}}, checkpoint, {}, {})
    done = in_a_process("stats", "--url", str(path), PYTHONIOENCODING="ascii")
    assert done.returncode == 0, done.stderr
    assert done.stdout.isascii()


def test_the_module_runs_and_is_plain_text_in_a_pipe(store: Path) -> None:
    done = in_a_process("stats", "--url", str(store), TERM="xterm-256color")
    assert (done.returncode, done.stderr) == (0, "")
    assert "\x1b" not in done.stdout
    for line in done.stdout.splitlines():
        assert line == line.rstrip()


@pytest.mark.skipif(sys.platform == "win32", reason="there are no pseudo-terminals")
def test_a_long_import_shows_a_bar_on_a_terminal_only(tmp_path: Path) -> None:
    pytest.importorskip("langgraph.checkpoint.sqlite", reason="the source is written by LangGraph's own saver")
    from langgraph.checkpoint.sqlite import SqliteSaver

    with SqliteSaver.from_conn_string(str(tmp_path / "old.db")) as saver:
        checkpoint: Any = threadline.empty_checkpoint()
        saver.put({"configurable": {"thread_id": "1", "checkpoint_ns": ""}}, checkpoint, {}, {})
    arguments = ("import", str(tmp_path / "old.db"), "--to", str(tmp_path / "new.db"))
    shown, printed = on_a_terminal(*arguments)
    assert "importing" in shown
    assert "1/1" in shown
    assert "\x1b" not in printed
    assert "importing" not in printed
    piped = in_a_process(*arguments)
    assert (piped.returncode, piped.stderr) == (0, "")


def test_typer_and_rich_load_only_when_a_command_runs() -> None:
    script = "import sys, threadline.cli; print([name for name in ('typer', 'rich', 'click') if name in sys.modules])"
    done = subprocess.run([sys.executable, "-c", script], env=settings(), capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


def settings(**more: str) -> dict[str, str]:
    root = Path(threadline.__file__).resolve().parents[1]
    return {**os.environ, "PYTHONPATH": str(root), **more}


def in_a_process(*arguments: str, **environment: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "threadline", *arguments]
    return subprocess.run(command, env=settings(**environment), capture_output=True, text=True, timeout=60)


def on_a_terminal(*arguments: str) -> tuple[str, str]:
    """What a command shows when its standard error is a terminal, and what it prints into a pipe."""
    import pty

    terminal, its_end = pty.openpty()
    command = [sys.executable, "-m", "threadline", *arguments]
    with subprocess.Popen(command, env=settings(TERM="xterm"), stdout=subprocess.PIPE, stderr=its_end) as process:
        os.close(its_end)
        shown = b""
        while True:
            try:
                part = os.read(terminal, 4096)
            except OSError:  # the other end was closed
                break
            if not part:
                break
            shown += part
        assert process.stdout is not None
        printed = process.stdout.read()
    os.close(terminal)
    return shown.decode(errors="replace"), printed.decode()
