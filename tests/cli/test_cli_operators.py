"""What operators look for: which threads are large or wait, where the bytes are, figures that `ls` agrees with."""

from __future__ import annotations

import json
import os
import re
import socket
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from cli_process import settings

import threadline
from tests.commands import Run

OnTerminal = Callable[..., str]


@pytest.fixture
def many(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Three threads: `big` has few large checkpoints, `long` many small ones, `new` was active last."""
    path = tmp_path / "many.db"
    with threadline.connect(path) as saver:
        for thread, count, size in (("big", 2, 50_000), ("long", 9, 10), ("new", 1, 10)):
            saver.thread(thread).create(metadata={"user": "ann" if thread != "new" else "bob", "n": count})
            for step in range(count):
                checkpoint = threadline.empty_checkpoint()
                checkpoint["channel_values"] = {"text": os.urandom(size).hex(), "step": step}
                checkpoint["channel_versions"] = {"text": step + 1, "step": step + 1}
                place: Any = {"configurable": {"thread_id": thread, "checkpoint_ns": ""}}
                saver.put(place, checkpoint, {"step": step}, checkpoint["channel_versions"])
    monkeypatch.setenv("THREADLINE_URL", str(path))
    return path


def names(run: Run, *arguments: str) -> list[str]:
    listed = json.loads(run("threads", "--json", *arguments)[0])
    return [one["thread_id"] for one in listed]


def test_threads_are_sorted(run: Run, many: Path) -> None:
    assert names(run) == ["big", "long", "new"]
    assert names(run, "--sort", "size") == ["big", "long", "new"]
    assert names(run, "--sort", "checkpoints") == ["long", "big", "new"]
    assert names(run, "--sort", "recent") == ["new", "long", "big"]
    assert names(run, "--sort", "checkpoints", "--limit", "1") == ["long"]
    assert "--sort is recent, size, checkpoints" in run("threads", "--sort", "colour", status=2)[1]


def test_threads_are_chosen_by_time_and_metadata(run: Run, many: Path) -> None:
    assert names(run, "--since", "1h") == ["big", "long", "new"]
    assert names(run, "--since", "2999-01-01") == []
    assert names(run, "--filter", "user=ann") == ["big", "long"]
    assert names(run, "--filter", "user=ann", "--filter", "n=9") == ["long"]
    for command in (["threads", "--filter", "user=nobody"], ["rm", "--filter", "user=nobody"]):
        assert "--filter looks at the metadata of threads" in run(*command)[1]
    assert run("threads", "--filter", "user=ann")[1] == ""
    assert "--filter is KEY=VALUE" in run("threads", "--filter", "user", status=2)[1]
    assert "--since" in run("threads", "--since", "yesterday", status=2)[1]


def test_threads_tell_size_and_count(run: Run, many: Path) -> None:
    big, long, _ = json.loads(run("threads", "--json")[0])
    assert (big["checkpoints"], long["checkpoints"]) == (2, 9)
    assert big["stored_bytes"] > 100_000 > long["stored_bytes"] > 0
    assert re.fullmatch(r"big +active +\d+\.\d KB +2  .*", run("threads")[0].splitlines()[0])


def test_a_limit_says_how_many_are_left_out(run: Run, many: Path) -> None:
    told, complaints = run("threads", "--limit", "2")
    assert len(told.splitlines()) == 2
    assert "1 thread more: --limit 0 lists all" in complaints
    assert run("threads", "--limit", "0")[1] == run("threads", "--limit", "3")[1] == ""
    with threadline.connect(many) as saver:
        for number in range(120):
            saver.thread(f"t{number:03}").create()
    told, complaints = run("threads")
    assert len(told.splitlines()) == 100
    assert "23 threads more" in complaints
    assert len(json.loads(run("threads", "--limit", "0", "--json")[0])) == 123


def test_what_is_left_out_does_not_look_like_an_error(run: Run, many: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TERM", "xterm-256color")
    monkeypatch.setenv("FORCE_COLOR", "1")
    monkeypatch.delenv("NO_COLOR", raising=False)
    remarks = run("threads", "--limit", "2")[1]
    assert "1 thread more" in remarks
    assert "\x1b[2m" in remarks
    assert "31m" not in remarks


def test_a_long_list_goes_through_the_pager_on_a_terminal(many: Path, tmp_path: Path, monkeypatch: Any) -> None:
    import pty

    pager = tmp_path / "pager"
    pager.write_text(
        f"#!/bin/sh\necho PAGED $LESS\nexec {sys.executable} -c 'import sys; print(len(list(sys.stdin)))'\n"
    )
    pager.chmod(0o755)
    terminal, its_end = pty.openpty()
    environment = {**settings(), "TERM": "xterm", "PAGER": str(pager)}
    command = [sys.executable, "-m", "threadline", "threads"]
    with subprocess.Popen(command, env=environment, stdin=its_end, stdout=its_end, stderr=its_end) as process:
        os.close(its_end)
        shown = b""
        while True:
            try:
                shown += os.read(terminal, 4096)
            except OSError:
                break
    os.close(terminal)
    assert process.returncode == 0
    assert shown.decode().split() == ["PAGED", "FRX", "4"]


def test_bytes_are_told_by_thread_channel_type_and_task(run: Run, many: Path, store: Path, monkeypatch: Any) -> None:
    monkeypatch.setenv("THREADLINE_URL", str(many))
    assert [line.split()[-1] for line in run("stats", "--by", "thread")[0].splitlines()] == ["big", "long", "new"]
    channels = {one["name"]: one for one in json.loads(run("stats", "--by", "channel", "--json")[0])}
    assert channels["text"]["stored_bytes"] > 100_000 > channels["step"]["stored_bytes"]
    types = {one["name"]: one for one in json.loads(run("stats", "--by", "type", "--json")[0])}
    assert (types["str"]["count"], types["int"]["count"]) == (12, 12)
    assert json.loads(run("stats", "--by", "type", "--prefix", "none", "--json")[0]) == []
    # No class of the application is needed.
    monkeypatch.setenv("THREADLINE_URL", str(store))
    assert "cli_app:Guest" in run("stats", "--by", "type")[0]


def on_disk(path: Path) -> int:
    return sum(file.stat().st_size for file in (path, path.with_name(path.name + "-wal")) if file.exists())


def test_figures_are_those_of_ls(run: Run, many: Path) -> None:
    figures = json.loads(run("stats", "--json")[0])
    assert figures["bytes_on_disk"] == on_disk(many)
    run("rm", "big", "--yes")
    run("gc", "--yes")
    figures = json.loads(run("stats", "--json")[0])
    assert figures["bytes_on_disk"] == on_disk(many)
    assert figures["bytes_free"] > 50_000
    assert "\nfree " in run("stats")[0]
    before = on_disk(many)
    told = json.loads(run("compact", "--json")[0])
    assert told == {"bytes_before": before, "bytes_after": on_disk(many)}
    assert told["bytes_after"] < told["bytes_before"] - 50_000
    # While a writer has the file open, its log counts too.
    with threadline.connect(many) as saver:
        saver.put({"configurable": {"thread_id": "x"}}, threadline.empty_checkpoint(), {}, {})
        assert json.loads(run("stats", "--json")[0])["bytes_on_disk"] == on_disk(many) > many.stat().st_size


def test_times_are_iso_in_every_json(run: Run, store: Path) -> None:
    [other, _] = json.loads(run("threads", "--json")[0])
    entry = json.loads(run("log", "other", "--json")[0])[0]
    shown = json.loads(run("show", "other", "--json")[0])
    times = [other["created"], other["last_active"], entry["created"], shown["created"]]
    times.append(json.loads(run("why", "other", "--json")[0])["head"]["created"])
    for one in times:
        assert re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d+)?\+00:00", one), one


def test_a_thread_alone_is_compared_with_what_was_before(run: Run, store: Path) -> None:
    assert run("diff", "trip")[0] == run("diff", "trip", "head~1", "head")[0] != ""
    assert "only 0 of 1 checkpoints" in run("diff", "other", status=1)[1]


def test_options_are_named_as_they_are_typed(run: Run, store: Path) -> None:
    complaints = run("prune", "trip", status=2)[1]
    assert "give --keep-last, --keep-within, --keep-hourly or --keep-daily" in complaints
    assert "--keep-last is a number" in run("prune", "trip", "--keep-last", "0", status=2)[1]
    assert "keep_" not in complaints


def test_a_file_of_langgraphs_saver_names_the_import(run: Run, tmp_path: Path) -> None:
    sqlite = pytest.importorskip("langgraph.checkpoint.sqlite", reason="the file is written by LangGraph's own saver")
    old = tmp_path / "old.db"
    with sqlite.SqliteSaver.from_conn_string(str(old)) as saver:
        checkpoint: Any = threadline.empty_checkpoint()
        saver.put({"configurable": {"thread_id": "1", "checkpoint_ns": ""}}, checkpoint, {}, {})
    complaints = run("threads", "--url", old, status=2)[1]
    assert f"`threadline import {old}`" in complaints or f"`threadline import sqlite:///{old}`" in complaints
    assert "`threadline setup`" in complaints
    assert "setup=" not in complaints


def test_a_namespace_is_named_without_its_task(run: Run, store: Path) -> None:
    with threadline.connect(store) as saver:
        for task in ("1", "2"):
            checkpoint = threadline.empty_checkpoint()
            checkpoint["channel_values"], checkpoint["channel_versions"] = {"task": task}, {"task": 1}
            place: Any = {"configurable": {"thread_id": "trip", "checkpoint_ns": f"child:{task}|deep:9"}}
            saver.put(place, checkpoint, {"step": 1}, {"task": 1})
    told = run("log", "trip", "--ns", "child|deep")[0]
    assert re.findall(r"namespace (\S+)", told) == ["child:1|deep:9", "child:2|deep:9"]
    assert "task  '2'" in run("show", "trip", "--ns", "child|deep")[0]
    assert "task  '1'" in run("show", "trip", "--ns", "child:1|deep:9")[0]
    told, complaints = run("log", "trip", "--ns", "nowhere", status=1)
    assert (told, "has no namespace 'nowhere'" in complaints) == ("", True)
    assert "in namespace 'nowhere'" in run("show", "trip", "--ns", "nowhere", status=1)[1]


def test_a_plan_says_how_many_it_does_not_list(on_terminal: OnTerminal, store: Path, run: Run) -> None:
    with threadline.connect(store) as saver:
        at: Any = {"configurable": {"thread_id": "long", "checkpoint_ns": ""}}
        for step in range(40):
            at = saver.put(at, threadline.empty_checkpoint(), {"step": step, "source": "loop"}, {})
    assert "… 19 more (--json lists them)" in on_terminal("prune", "long", "--keep-last", "1")
    assert "more (" not in run("prune", "long", "--keep-last", "1")[0]


@pytest.mark.parametrize("scheme", ["postgresql", "mysql", "redis"])
def test_a_server_that_does_not_answer_is_said_to_be_tried_again(run: Run, scheme: str) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))  # bound and not listening: connections are refused
        port = taken.getsockname()[1]
        told, complaints = run("threads", "--url", f"{scheme}://me:secret@127.0.0.1:{port}/0", status=1)
    assert told == ""
    *retries, last = complaints.splitlines()
    assert len(retries) >= 1
    assert all("trying again in" in line for line in retries)
    assert "trying again" not in last
    assert "secret" not in complaints
