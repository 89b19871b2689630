"""`threadline tier`: the page's examples, JSON, refusals, and other commands on a tiered store."""

from __future__ import annotations

import hashlib
import json
import re
import time
from pathlib import Path
from typing import Any

import pytest
from cli_pages import PAGES, examples_of, run_examples, without_chance

import threadline


@pytest.fixture
def store(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A store with one conversation, and a folder for its objects."""
    with threadline.connect(tmp_path / "agents.db") as saver:
        said = [{"role": "user", "content": f"{at:x} {at * 7919 % 104729:x} " * 30, "at": at} for at in range(90)]
        for turn in range(30, 91, 20):
            saver.thread("chat").put({"messages": said[:turn]})
    monkeypatch.setenv("THREADLINE_COLD", f"file://{tmp_path / 'cold'}")
    monkeypatch.setenv("THREADLINE_URL", f"sqlite:///{tmp_path / 'agents.db'}")
    return tmp_path


def test_the_example_shows_what_the_page_says(store: Path, monkeypatch: Any, capsys: Any) -> None:
    def said() -> str:
        told = capsys.readouterr()
        return told.out + told.err

    page = PAGES / "tier.md"
    shown = run_examples(page, store, monkeypatch, said)
    for (command, expected), (_, told) in zip(examples_of(page), shown, strict=True):
        told = told.replace(f"file://{store}", "file:///var/threadline")
        assert without_chance(told) == without_chance(expected), f"{command}\n{told}"


def test_json_tells_the_same(run: Any, store: Path) -> None:
    plan = json.loads(run("tier", "plan", "--cold-after", "0s", "--json")[0])
    assert plan["threads"] == ["chat"]
    done = json.loads(run("tier", "run", "chat", "--json")[0])
    assert (done["chunks"], done["bytes"]) == (plan["chunks"], plan["bytes"])
    status = json.loads(run("tier", "status", "--json")[0])
    assert status["cold_chunks"] == done["chunks"]
    assert 0 < status["share_in_database"] < 1
    assert json.loads(run("tier", "restore", "chat", "--json")[0])["chunks"] == done["chunks"]


def test_other_commands_read_a_tiered_store_by_the_environment(run: Any, store: Path, monkeypatch: Any) -> None:
    run("tier", "run", "--cold-after", "0s")
    assert "90 items" in run("show", "chat")[0] or "messages" in run("show", "chat")[0]
    run("fsck")
    monkeypatch.delenv("THREADLINE_COLD")
    _, complaints = run("fsck", status=1)
    assert "cold tier" in complaints
    assert "THREADLINE_COLD" in complaints
    assert "cold" in run("tier", "status", status=2)[1]
    run("tier", "status", "--cold", f"file://{store / 'cold'}")


def test_what_is_asked_wrongly(run: Any, store: Path) -> None:
    assert "there are plan, run, restore, status" in run("tier", "freeze", status=2)[1]
    assert "no thread" in run("tier", "run", "nobody", status=1)[1]
    told, complaints = run("tier", "plan", "--cold", "s3://me:secret@bucket", status=2)
    assert "environment" in complaints
    assert "secret" not in told + complaints.replace("AWS_SECRET_ACCESS_KEY", "")
    run("tier", "plan", "--cold-after", "soon", status=2)
    run("tier", "plan", "--large", "0", status=2)


def test_a_run_that_is_left_to_another_process_says_for_how_long_and_what_to_do(run: Any, store: Path) -> None:
    from threadline.core import leases

    with threadline.connect(store / "agents.db") as saver:  # as of a process that was killed
        saver.run(lambda opened: leases.take(opened.backend, "threadline:tier", 600, time.time(), None, "worker-7"))
    out, said = run("tier", "run", "chat", status=3)
    assert "another process is running the cold tier" in out
    assert re.search(r"worker-7, for (600|59\d) s more", out)
    assert "threadline unlock threadline:tier --yes" in said
    told = json.loads(run("tier", "run", "chat", "--json", status=3)[0])
    assert (told["is_elsewhere"], told["holder"], told["chunks"]) == (True, "worker-7", 0)
    assert 590 < told["seconds_left"] <= 600
    run("unlock", "threadline:tier", "--yes")
    assert "moved" in run("tier", "run", "chat")[0]


def test_a_lost_object_is_named_once_with_the_threads_and_what_to_do(run: Any, store: Path) -> None:
    with threadline.connect(store / "agents.db") as saver:
        saver.thread("other").put({"note": "stays"})
    run("tier", "run", "chat")
    for path in [path for path in (store / "cold").rglob("*") if path.is_file()]:
        path.unlink()
        name = path.name
    out, _ = run("fsck", status=1)
    assert out.count(name) == 1
    assert f"the object {name} of file://{store / 'cold'} is gone" in out
    assert "thread 'chat'" in out
    assert "thread 'other'" not in out
    # There is nothing that a reducer could make it from.
    assert "repair" not in out
    assert "next  threadline fsck --quarantine" in out
    report = json.loads(run("fsck", "--json", status=1)[0])
    [lost] = report["lost_objects"]
    assert (lost["name"], lost["fate"]) == (name, "is gone")
    out, complaints = run("tier", "restore", "chat", status=1)
    assert f"lost      {len(lost['chunks'])} chunks" in out
    assert f"the object {name} of file://{store / 'cold'} is gone" in complaints
    run("fsck", "--quarantine", "--yes", status=1)
    run("fsck")


def _said(step: int) -> str:
    return f"message {step} {hashlib.sha256(str(step).encode()).hexdigest()}"


def test_a_repair_is_advised_where_a_lost_object_leaves_what_it_takes(run: Any, store: Path) -> None:
    with threadline.connect(store / "agents.db", cold=f"file://{store / 'cold'}") as saver:
        config: Any = {"configurable": {"thread_id": "runs", "checkpoint_ns": ""}}
        said: list[str] = []
        for step in range(1, 40):
            said = [*said, _said(step)]
            checkpoint = {**threadline.empty_checkpoint(), "channel_values": {"said": said}}
            checkpoint["channel_versions"] = {"said": step}
            config = saver.put(config, checkpoint, {"source": "loop", "step": step}, {"said": step})
            saver.put_writes(config, [("said", [_said(step + 1)])], "task")
        saver.tier(thread_ids=["runs"])
    for path in [path for path in (store / "cold").rglob("*") if path.is_file()]:
        path.unlink()
    out, _ = run("fsck", "runs", status=1)
    assert "is gone" in out
    assert "next  threadline repair runs --reducer said=append" in out
    run("repair", "runs", "--reducer", "said=append", "--yes")
    run("fsck", "runs")


def test_a_wrong_place_of_the_cold_tier_sets_nothing_aside(run: Any, store: Path, monkeypatch: Any) -> None:
    with threadline.connect(store / "agents.db") as saver:
        saver.thread("other").put(
            {"messages": [{"content": f"{at:x} {at * 7919 % 104729:x} " * 30} for at in range(90)]}
        )
    assert json.loads(run("tier", "run", "chat", "other", "--json")[0])["objects"] == 2
    (store / "elsewhere").mkdir()
    with monkeypatch.context() as wrong:
        wrong.setenv("THREADLINE_COLD", f"file://{store / 'elsewhere'}")
        assert "next  none of the 2 objects of the cold tier is at" in run("fsck", status=1)[0]
        _, said = run("fsck", "--quarantine", "--yes", status=2)
        assert "nothing was set aside" in said
        assert "set THREADLINE_COLD" in said
    assert run("fsck")
    next((store / "cold").glob("*")).unlink()
    assert "next  threadline fsck --quarantine" in run("fsck", status=1)[0]
    run("fsck", "--quarantine", "--yes", status=1)
    assert run("fsck")
