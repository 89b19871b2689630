"""`trash`, `repair`, and `rm` of many threads with a record, on the command line."""

from __future__ import annotations

import json
import sqlite3
import sys
from datetime import datetime, timedelta
from pathlib import Path

import pytest

import threadline
from tests.commands import Run


def _names(run: Run) -> list[str]:
    return [one["thread_id"] for one in json.loads(run("threads", "--json")[0])]


def test_a_thread_goes_into_the_trash_and_comes_back(run: Run, store: Path) -> None:
    before = run("log", "trip")[0]
    shown = run("show", "trip", "--json")[0]
    assert run("rm", "trip", "--trash", "7d")[0].splitlines()[-1].startswith("not done")
    assert run("trash")[0] == "trash  nothing\n"
    run("rm", "trip", "--trash", "7d", "--yes")
    assert _names(run) == ["other"]
    [entry] = json.loads(run("trash", "list", "--json")[0])
    assert (entry["thread_id"], entry["is_thread"], entry["checkpoints"]) == ("trip", True, 4)
    until, trashed = (datetime.fromisoformat(entry[name]) for name in ("until", "trashed"))
    assert until - trashed == timedelta(days=7)
    assert f"{entry['id']}  trip  thread, 4 checkpoints" in run("trash")[0]
    assert "in the trash     1 deletion, 4 checkpoints" in run("stats")[0]
    run("trash", "restore", entry["id"])
    assert run("log", "trip")[0] == before
    assert run("show", "trip", "--json")[0] == shown
    assert "in the trash" not in run("stats")[0]


def test_prune_and_sweep_take_a_trash(run: Run, store: Path) -> None:
    before = run("log", "trip")[0]
    run("prune", "trip", "--keep-last", "1", "--trash", "1h", "--yes")
    run("trash", "restore", "trip")
    assert run("log", "trip")[0] == before
    run("sweep", "--keep-last", "1", "--trash", "1h", "--yes")
    assert run("log", "trip")[0] != before
    run("trash", "restore", "trip")
    assert run("log", "trip")[0] == before
    for command in (["prune", "trip", "--keep-last", "1"], ["sweep"], ["rm", "trip"]):
        assert "span of time" in run(*command, "--trash", "long", "--yes", status=2)[1]


def test_the_trash_is_emptied_with_yes_only(run: Run, store: Path) -> None:
    run("rm", "trip", "--trash", "7d", "--yes")
    run("rm", "other", "--trash", "7d", "--yes")
    assert run("trash", "empty", "trip")[0].splitlines()[-1].startswith("not done")
    assert len(json.loads(run("trash", "--json")[0])) == 2
    assert json.loads(run("trash", "empty", "trip", "--yes", "--json")[0])["done"] is True
    assert [one["thread_id"] for one in json.loads(run("trash", "--json")[0])] == ["other"]
    run("trash", "empty", "--yes")
    assert json.loads(run("trash", "--json")[0]) == []
    assert "nothing under 'trip'" in run("trash", "restore", "trip", status=1)[1]
    assert "names of entries" in run("trash", "restore", status=2)[1]
    assert "there is no action" in run("trash", "burn", status=2)[1]


def test_rm_erases_what_only_the_trash_has(run: Run, store: Path) -> None:
    run("rm", "trip", "--trash", "7d", "--yes")
    assert "in the trash" in run("rm", "trip")[0]
    run("rm", "trip", "--yes")
    assert json.loads(run("trash", "--json")[0]) == []
    assert "there is no thread" in run("rm", "trip", "--yes", status=1)[1]


def test_an_entry_that_is_not_in_the_trash_is_told_in_words_that_can_be_typed(run: Run, store: Path) -> None:
    said = run("trash", "restore", "180c7dc6", status=1)[1]
    assert "the trash has nothing under '180c7dc6'; `threadline trash list` shows what it has" in said
    assert "--trash is a span of time" in run("prune", "trip", "--keep-last", "1", "--trash", "soon", status=2)[1]


def test_rm_of_many_leaves_a_record(run: Run, store: Path, tmp_path: Path) -> None:
    with threadline.connect(store) as saver:
        for name in ("eu/ada", "eu/bob", "us/cy"):
            saver.thread(name).create(metadata={"user": name[3:], "age": 36})
    planned = json.loads(run("rm", "--prefix", "eu/", "--json")[0])
    assert [one["thread_id"] for one in planned["threads"]] == ["eu/ada", "eu/bob"]
    assert "eu/ada (0 checkpoints)" in run("rm", "--prefix", "eu/")[0]
    assert len(_names(run)) == 5
    record = tmp_path / "deleted.jsonl"
    run("rm", "--filter", "user=ada", "--filter", "age=36", "--yes", "--record", record, "--reason", "asked for")
    run("rm", "trip", "--yes", "--record", record)
    lines = [json.loads(line) for line in record.read_text().splitlines()]
    assert [(one["thread_id"], one["checkpoints"], one["reason"]) for one in lines] == [
        ("eu/ada", 0, "asked for"),
        ("trip", 4, None),
    ]
    assert all("@" in one["by"] and one["bytes"] >= 0 for one in lines)
    assert all(datetime.fromisoformat(one["when"]).tzinfo is not None for one in lines)
    done = json.loads(run("rm", "--prefix", "eu/", "--yes", "--json", "--reason", "why not")[0])
    assert [(one["thread_id"], one["reason"]) for one in done["threads"]] == [("eu/bob", "why not")]
    assert _names(run) == ["other", "us/cy"]


@pytest.mark.parametrize(
    "arguments", [[], ["trip", "--prefix", "t"], ["--prefix", ""], ["--filter", "user"], ["--filter", "=ada"]]
)
def test_rm_that_names_nothing_or_too_much_is_refused(run: Run, store: Path, arguments: list[str]) -> None:
    run("rm", *arguments, "--yes", status=2)
    assert _names(run) == ["other", "trip"]


def test_what_cannot_be_recorded_is_not_deleted(run: Run, store: Path, tmp_path: Path) -> None:
    assert "nothing was deleted" in run("rm", "trip", "--yes", "--record", tmp_path / "no" / "file", status=2)[1]
    assert "trip" in _names(run)


@pytest.fixture
def damaged(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A thread of plain values whose newest list cannot be read."""
    path = tmp_path / "plain.db"
    monkeypatch.setenv("THREADLINE_URL", str(path))
    said: list[str] = []
    with threadline.connect(path) as saver:
        config = {"configurable": {"thread_id": "chat", "checkpoint_ns": ""}}
        for step in range(1, 41):
            said = [*said, f"saying {step}"]
            checkpoint = threadline.empty_checkpoint()
            checkpoint["channel_values"] = {"said": said, "count": step}
            checkpoint["channel_versions"] = {"said": step, "count": step}
            config = saver.put(config, checkpoint, {"source": "loop", "step": step}, {"said": step, "count": step})
            saver.put_writes(config, [("said", [f"saying {step + 1}"])], "task")
    with sqlite3.connect(path) as connection:
        # The root of the newest list.
        newest = "SELECT substr(links, 1, 16) FROM threadline_checkpoints ORDER BY id DESC LIMIT 1"
        connection.execute(f"UPDATE threadline_chunks SET data = x'00' WHERE digest = ({newest})")
    return path


def test_damage_hides_nothing_else_and_fsck_says_what_to_do(run: Run, damaged: Path) -> None:
    told, complaints = run("show", "chat", status=1)
    assert "said  [damaged]" in told
    assert "count  40" in told
    assert "fsck" in complaints
    assert json.loads(run("show", "chat", "--json", status=1)[0])["values"]["said"]["$type"] == "damaged"
    assert run("show", "chat", "--channel", "count")[0] == "count  40\n"
    told = run("diff", "chat", "head~1", status=1)[0]
    assert "! said: [damaged]" in told
    assert "~ count: 39 → 40" in told
    assert json.loads(run("diff", "chat", "head~1", "--json", status=1)[0])[0]["kind"] == "damaged"
    assert len(run("log", "chat")[0].splitlines()) >= 40
    lines = run("fsck", status=1)[0].splitlines()
    assert lines[1].startswith("chunk ")
    assert lines[2].startswith("  thread 'chat': 1 checkpoint, ")
    assert lines[2].endswith(", channel said")
    assert lines[-1] == "next  threadline repair chat --reducer said=append"
    assert json.loads(run("fsck", "--json", status=1)[0])["next"] == lines[-1].removeprefix("next  ")


def test_repair_rebuilds_what_fsck_found(run: Run, damaged: Path) -> None:
    assert run("repair", "chat", "--reducer", "said=append", status=1)[0].splitlines()[-1].startswith("not done")
    told = run("repair", "chat", "--yes", status=1)[0]
    assert "there is no reducer for the channel" in told
    assert told.splitlines()[-1] == "next      threadline fsck chat --quarantine"
    assert run("repair", "chat", "--reducer", "said=operator:add", "--yes")[0] == "repaired  1 of 1\n"
    run("fsck")
    assert "[39] 'saying 40'" in run("show", "chat", "--all")[0]
    assert run("repair", "chat")[0] == "done  nothing is damaged\n"


@pytest.mark.parametrize("reducer", ["said", "said=", "=append", "said=nothing", "said=no_such:thing", "said=os:sep"])
def test_a_reducer_that_is_none_is_refused(run: Run, damaged: Path, reducer: str) -> None:
    run("repair", "chat", "--reducer", reducer, "--yes", status=2)


def test_repair_speaks_of_its_own_options_and_imports_what_it_is_told(
    run: Run, damaged: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "reducing.py").write_text("def other(value, write):\n    return [*value, 'another']\n")
    monkeypatch.chdir(tmp_path)
    told = run("repair", "chat", "--reducer", "said=reducing:other", "--yes", status=1)[0]
    assert "--inexact stores it all the same" in told
    (tmp_path / "models_of_repair.py").write_text("loaded = True\n")
    run("repair", "chat", "--import", "models_of_repair", status=1)
    assert sys.modules["models_of_repair"].loaded
    assert "no_such_module" in run("repair", "chat", "--import", "no_such_module", status=2)[1]


def test_fsck_looks_into_the_trash(run: Run, damaged: Path) -> None:
    run("rm", "chat", "--trash", "7d", "--yes")
    lines = run("fsck", status=1)[0].splitlines()
    [entry] = json.loads(run("trash", "--json")[0])
    assert lines[0].endswith(": damaged")
    assert any(line.startswith(f"damaged in the trash, entry {entry['id']}: thread 'chat'") for line in lines)
    assert lines[-1] == f"next  threadline trash empty {entry['id']}"
    assert run("trash", "empty", entry["id"])[0].splitlines()[-1].startswith("not done")
    run("trash", "empty", entry["id"], "--yes")
    run("fsck")
