"""Commands on a store that is damaged, encrypted or large, at 80 and 120 columns; and what a command loads."""

from __future__ import annotations

import base64
import json
import os
import sqlite3
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from cli_process import settings
from rich.cells import cell_len

import threadline
from tests.commands import Run
from threadline.base.ids import new_id

OnTerminal = Callable[..., str]
KEY = b"k" * 32
_IN_ONE_GO = 5_000
LOOKING = [["threads"], ["why", "t"], ["log", "t"], ["show", "t"], ["writes", "t"], ["diff", "t"], ["interrupts"],
           ["locks"], ["stats"], ["stats", "--by", "thread"], ["stats", "--by", "channel"], ["stats", "--by", "type"],
           ["stats", "--by", "task"]]  # fmt: skip


def widest(shown: str) -> int:
    return max((cell_len(line) for line in shown.splitlines()), default=0)


def fill(path: Path, count: int, *, text: str = "a long text ", **options: Any) -> list[str]:
    """A thread `t` with so many checkpoints, a text of 36 characters for another one's id; gives the ids."""
    ids: list[str] = []
    with threadline.connect(path, **options) as saver:
        at: Any = {"configurable": {"thread_id": "t", "checkpoint_ns": ""}}
        for start in range(0, count, _IN_ONE_GO):
            puts = []
            for step in range(start, min(start + _IN_ONE_GO, count)):
                checkpoint = threadline.empty_checkpoint()
                checkpoint["id"] = new_id(step)
                checkpoint["channel_values"] = {"step": step, "text": f"{text}{step} " * 40 if text else ""}
                checkpoint["channel_versions"] = {"step": step + 1, "text": step + 1}
                puts.append((at, checkpoint, {"step": step, "source": "loop"}, checkpoint["channel_versions"]))
                at = {"configurable": {"thread_id": "t", "checkpoint_ns": "", "checkpoint_id": checkpoint["id"]}}
                ids.append(checkpoint["id"])
            saver.put_many(puts)
        saver.put_writes(at, [("text", "日本語 " * 90)], "task", "~__pregel_pull, a_node_with_a_long_name")
        saver.thread("0f8fad5b-d9cb-469f-a165-70867728950e").create(metadata={"note": "w" * 200})
    return ids


@pytest.mark.parametrize("columns", [80, 120])
def test_an_encrypted_store_is_looked_at(
    run: Run, store: Path, tmp_path: Path, on_terminal: OnTerminal, monkeypatch: pytest.MonkeyPatch, columns: int
) -> None:
    fill(tmp_path / "sealed.db", 5, encryption=threadline.KeyRing({"2026-01": KEY}))
    monkeypatch.setenv("THREADLINE_URL", str(tmp_path / "sealed.db"))
    monkeypatch.setenv("THREADLINE_KEYS", f"2026-01:{base64.b64encode(KEY).decode()}")
    for command in [*LOOKING, ["keys"]]:
        run(*command)
    for command in ["threads"], ["why", "t"], ["log", "t"]:
        assert widest(on_terminal(*command, columns=columns)) <= columns, command
    assert "a long text 4" in on_terminal("show", "t", columns=columns)


@pytest.mark.parametrize("columns", [80, 120])
def test_a_damaged_store_is_looked_at(
    run: Run, store: Path, tmp_path: Path, on_terminal: OnTerminal, monkeypatch: pytest.MonkeyPatch, columns: int
) -> None:
    path = tmp_path / "damaged.db"
    ids = fill(path, 6)
    with sqlite3.connect(path) as connection:
        connection.execute("UPDATE threadline_checkpoints SET document = x'00' WHERE id = ?", (ids[2],))
        connection.execute("UPDATE threadline_threads SET metadata = x'00' WHERE thread_id <> 't'")
    monkeypatch.setenv("THREADLINE_URL", str(path))
    told = json.loads(run("why", "t", "--json")[0])
    assert ids[2] in told["damage"][0]
    assert (told["head"]["checkpoint_id"], told["checkpoints"]) == (ids[5], 6)
    for command in ["threads"], ["why", "t"], ["log", "t"]:
        # A line of the log on standard error is not cut; it begins with what is damaged.
        shown = [line for line in on_terminal(*command, columns=columns).splitlines() if "damaged (" not in line]
        assert command == ["threads"] or max(map(cell_len, shown)) <= columns, command
    assert "damaged]" in on_terminal("log", "t", columns=columns)
    assert "(damaged)" in run("stats", "--by", "channel")[0]
    assert "is damaged" in run("show", "t", ids[2], status=1)[1]


@pytest.mark.parametrize("columns", [80, 120])
def test_damage_of_the_head_is_part_of_the_answer(
    run: Run, store: Path, tmp_path: Path, on_terminal: OnTerminal, monkeypatch: pytest.MonkeyPatch, columns: int
) -> None:
    path = tmp_path / "damaged.db"
    ids = fill(path, 3)
    with sqlite3.connect(path) as connection:
        connection.execute("UPDATE threadline_chunks SET data = x'00'")
        connection.execute("UPDATE threadline_writes SET data = x'00'")
    monkeypatch.setenv("THREADLINE_URL", str(path))
    told = json.loads(run("why", "t", "--json")[0])
    assert told["head"]["checkpoint_id"] == ids[2]
    assert any(ids[2] in one for one in told["damage"])
    shown = on_terminal("why", "t", columns=columns)
    assert widest(shown) <= columns
    assert "damaged" in " ".join(shown.split())


def test_a_store_of_20000_checkpoints_is_looked_at(
    run: Run, store: Path, tmp_path: Path, on_terminal: OnTerminal, monkeypatch: pytest.MonkeyPatch
) -> None:
    ids = fill(tmp_path / "large.db", 20_000, text="")
    monkeypatch.setenv("THREADLINE_URL", str(tmp_path / "large.db"))
    listed = json.loads(run("threads", "--sort", "size", "--json")[0])
    assert (listed[0]["thread_id"], listed[0]["checkpoints"]) == ("t", 20_000)
    assert json.loads(run("why", "t", "--json")[0])["head"]["checkpoint_id"] == ids[-1]
    shown = on_terminal("log", "t", "--limit", "50")
    assert len(shown.splitlines()) == 50
    assert widest(shown) <= 80
    assert widest(on_terminal("threads", columns=120)) <= 120


HEAVY = ("asyncio", "langchain_core", "langgraph", "numpy", "pandas", "psycopg", "pydantic", "pymysql", "redis",
         "cryptography", "zstandard", "rich.progress", "rich.table", "rich.markdown", "rich.syntax", "rich.traceback",
         "pygments", "threadline.transfer", "threadline.demo", "threadline.core.history.merge",
         "threadline.core.integrity.repair",
         "threadline.backends.postgres.backend", "threadline.backends.redis")  # fmt: skip


@pytest.mark.parametrize(
    "command", [["threads"], ["stats"], ["locks"], ["why", "trip"], ["log", "trip"], ["show", "trip"]]
)
def test_a_command_loads_nothing_heavy(store: Path, command: list[str]) -> None:
    script = (
        "import sys\nfrom threadline.cli import main\nstatus = main(sys.argv[1:])\n"
        f"print([name for name in {HEAVY!r} if name in sys.modules], status, file=sys.stderr)"
    )
    done = subprocess.run(
        [sys.executable, "-c", script, *command], env=settings(), capture_output=True, text=True, timeout=60
    )
    loaded, _, status = done.stderr.strip().rpartition(" ")
    assert status == "0", done.stderr
    assert loaded == "[]"


def test_a_command_loads_no_module_of_another(store: Path) -> None:
    script = "import sys\nfrom threadline.cli import main\nmain(['threads'])\nprint(*sys.modules, file=sys.stderr)"
    done = subprocess.run([sys.executable, "-c", script], env=settings(), capture_output=True, text=True, timeout=60)
    loaded = {name.rpartition(".")[2] for name in done.stderr.split() if name.startswith("threadline.cli.")}
    assert loaded == {"app", "commands", "listing", "open", "output"}
    assert os.path.exists(store)
