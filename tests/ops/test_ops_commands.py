"""`threadline metrics`, `monitor` and `report`: what they print, how they end, what they say to a wrong question."""

from __future__ import annotations

import dataclasses
import json
import os
import re
import signal
import socket
import subprocess
import sys
import urllib.request
from datetime import datetime
from pathlib import Path
from typing import Any

import pytest
from ops_places import webhook
from ops_stores import ask, put

import threadline
from tests.commands import Run
from tests.servers.processes import wait_until
from threadline.ops import Thresholds
from threadline.ops.names import CATALOGUE
from threadline.ops.rules import rules
from threadline.show.figures import readable_latency

HOSTILE = "<script>alert(1)</script>\x1b[31m"


@pytest.fixture
def store(database: Path) -> Path:
    with threadline.connect(database) as saver:
        put(saver, "t")
        ask(saver, "asks")
    return database


def threadline_of(*arguments: object, **variables: str) -> subprocess.Popen[str]:
    command = [sys.executable, "-m", "threadline", *map(str, arguments)]
    settings = {**os.environ, **variables}
    return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=settings)


# -- metrics


def test_metrics_are_printed_once(store: Path, run: Run) -> None:
    out, _ = run("metrics", "print", "--url", store)
    assert 'threadline_store_up{db_system_name="sqlite"} 1\n' in out
    assert 'threadline_questions_waiting{db_system_name="sqlite"} 1\n' in out


def test_rules_and_dashboard_need_no_store(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("THREADLINE_URL", raising=False)
    assert "alert: ThreadlineSlow" in run("metrics", "rules")[0]
    assert "> 0.25" in run("metrics", "rules", "--latency-ms", 250)[0]
    assert json.loads(run("metrics", "dashboard")[0])["title"] == "Threadline"


def test_metrics_are_served_until_the_process_is_interrupted(store: Path) -> None:
    process = threadline_of("metrics", "--url", store, "--listen", "127.0.0.1:0", "--every", "0.05s")
    try:
        assert process.stderr is not None
        line = process.stderr.readline()
        address = re.search(r"http://127\.0\.0\.1:\d+/metrics", line)
        assert address, line

        def text() -> str:
            with urllib.request.urlopen(address[0], timeout=10) as answer:
                return str(answer.read(), "utf-8")

        assert "threadline_questions_waiting" in text()
        # What another process does to the store is seen at the next look.
        with threadline.connect(store) as saver:
            put(saver, "a third")
        assert wait_until(lambda: 'threadline_store_threads{db_system_name="sqlite"} 3\n' in text(), seconds=30)
        process.send_signal(signal.SIGINT)
        assert process.wait(30) == 0
    finally:
        process.kill()
        process.communicate()


def test_a_port_that_is_taken_is_told(store: Path, run: Run) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        _, err = run("metrics", "--url", store, "--listen", f"127.0.0.1:{taken.getsockname()[1]}", status=1)
    assert "choose another port" in err


@pytest.mark.parametrize(
    "words",
    [
        ["metrics", "everything"],
        ["metrics", "print"],
        ["metrics", "serve", "--url", "URL", "--listen", "nowhere"],
        ["metrics", "rules", "--error-rate", "500"],
        ["monitor", "--url", "URL", "--once", "--latency-ms", "-1"],
        ["monitor", "--url", "URL", "--once", "--work", "tomorrow"],
        ["monitor", "--url", "URL", "--once", "--every", "0s"],
        ["monitor", "--url", "URL", "--once", "--to", "nosuch://secret-word"],
        ["monitor", "--url", "URL", "--once", "--to-file", "nothing.txt"],
        ["report", "--url", "URL", "--html", "--json"],
        ["report", "--url", "URL", "--output", "/nowhere/at/all"],
    ],
)
def test_what_is_asked_wrongly_is_told(
    words: list[str], store: Path, run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("THREADLINE_URL", raising=False)
    _, err = run(*[str(store) if word == "URL" else word for word in words], status=2)
    assert err.startswith("threadline: ")
    assert "secret-word" not in err


@pytest.mark.parametrize("command", [["metrics", "print"], ["monitor", "--once"], ["report"]])
def test_a_store_that_is_not_there_is_not_made(command: list[str], tmp_path: Path, run: Run) -> None:
    path = tmp_path / "nothing.db"
    run(*command, "--url", path, status=1)
    assert not path.exists()


# -- monitor


def test_one_look_ends_with_what_it_found(store: Path, run: Run) -> None:
    out, _ = run("monitor", "--once", "--url", store)
    assert "questions  1, the oldest for" in out
    out, _ = run("monitor", "--once", "--url", store, "--latency-ms", "0.0001", status=1)
    assert "latency firing" in out
    told = json.loads(run("monitor", "--once", "--url", store, "--latency-ms", "0.0001", "--json", status=1)[0])
    assert told["ok"] is False
    assert told["firing"][0]["name"] == "latency"
    assert told["survey"]["questions"] == 1
    assert told["survey"]["at"].endswith("+00:00")


def test_a_monitor_tells_its_channels_and_programs(store: Path, tmp_path: Path) -> None:
    with webhook() as hook:
        channels = tmp_path / "channels"
        channels.write_text(f"# where alerts go\njson://somebody:secret-word@127.0.0.1:{hook.port}/secret-path\n")
        process = threadline_of(
            "monitor", "--url", store, "--latency-ms", "0.0001", "--every", "0.1s", "--json", "--to-file", channels
        )
        try:
            assert hook.waits_for(1)
            assert process.stdout is not None
            event = json.loads(process.stdout.readline())
        finally:
            process.send_signal(signal.SIGINT)
            _, err = process.communicate(timeout=30)
    assert (event["name"], event["kind"]) == ("latency", "firing")
    assert hook.bodies[0]["title"] == "Threadline: latency firing"
    assert "tells json (channel 1)" in err
    assert "latency" not in err, "what is printed is not told a second time by the log"
    assert "secret" not in err
    assert process.returncode == 0


def test_channels_may_stand_in_the_environment(store: Path, run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    with webhook() as hook:
        monkeypatch.setenv("THREADLINE_ALERTS", f"json://127.0.0.1:{hook.port}/a json://127.0.0.1:{hook.port}/b")
        run("monitor", "--once", "--url", store, "--latency-ms", "0.0001", status=1)
        assert sorted(hook.paths) == ["/a", "/b"]


# -- report


def test_a_report_is_text_json_and_a_page(store: Path, run: Run, tmp_path: Path) -> None:
    out, _ = run("report", "--url", store)
    assert re.search(r"^threads +2, 0 held by runs$", out, re.MULTILINE)
    told = json.loads(run("report", "--url", store, "--json")[0])
    assert datetime.fromisoformat(told["survey"]["at"]) == datetime.fromisoformat(told["at"])
    assert told["stats"]["threads"] == 2
    assert told["survey"]["questions"] == 1
    page = tmp_path / "report.html"
    run("report", "--url", store, "--html", "--output", page)
    assert page.read_text(encoding="utf-8").startswith("<!doctype html>")


@pytest.mark.parametrize(
    ("seconds", "told"), [(0.0000424, "42 µs"), (0.00099, "990 µs"), (0.0031, "3.1 ms"), (1.5, "1,500.0 ms")]
)
def test_a_fast_store_answers_in_microseconds(seconds: float, told: str) -> None:
    assert readable_latency(seconds) == told


def test_a_report_never_says_that_a_store_answers_in_no_time(store: Path, run: Run) -> None:
    out, _ = run("report", "--url", store)
    assert re.search(r"^answers +in [1-9][\d,.]* (µs|ms)$", out, re.MULTILINE)


def test_a_report_escapes_what_comes_from_outside(database: Path, run: Run) -> None:
    with threadline.connect(database) as saver:
        put(saver, HOSTILE, ["x" * 5000])
    page, _ = run("report", "--url", database, "--html")
    assert "<script" not in page
    assert "&lt;script&gt;" in page
    text, _ = run("report", "--url", database)
    assert "\x1b" not in text
    assert "\x1b" not in run("doctor", "--url", database)[0]


def test_a_report_shows_no_password(postgres: Any, run: Run) -> None:
    with threadline.connect(postgres.url) as saver:
        put(saver)
    url = re.sub(r"//([^@/:]+)(:[^@]*)?@", r"//\1:secret-word@", postgres.url)
    out, err = run("report", "--url", url)
    assert "secret-word" not in out + err


def test_the_pages_list_every_metric_every_limit_and_every_alert() -> None:
    docs = Path(__file__).parents[2] / "docs"
    listing, page = ((docs / name).read_text(encoding="utf-8") for name in ("metrics.md", "operations.md"))
    for one in CATALOGUE:
        labels = ", ".join(f"`{label}`" for label in one.labels) or "–"
        row = f"| `{one.name}` | `{one.prometheus}` | {one.kind} | `{one.unit}` | {labels} | {one.about} |"
        assert row in listing, row
    for field in dataclasses.fields(Thresholds):
        assert f"`{field.name}`" in page
    assert re.findall(r"^\| `(Threadline\w+)` \|", page, re.MULTILINE) == [rule.name for rule in rules()]
    listed = re.findall(r"^\| `((?:db|threadline)\.[\w.]+)` \|", listing, re.MULTILINE)
    assert listed == [one.name for one in CATALOGUE]
