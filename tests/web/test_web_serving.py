"""`threadline web` as a process: the address it prints, and what it says when it cannot start."""

from __future__ import annotations

import os
import re
import signal
import socket
import sqlite3
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import httpx
import pytest

from tests.commands import Run


@contextmanager
def started(database: Path, *options: str) -> Iterator[str]:
    """The page as a process; gives the address that it printed."""
    command = [sys.executable, "-u", "-m", "threadline", "web", "--url", str(database), "--port", "0", *options]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    try:
        assert process.stdout is not None
        said = process.stdout.readline()
        address = re.match(r"open +(http://\S+)$", said)
        assert address is not None, said + process.stdout.read()
        yield address[1]
        process.send_signal(signal.SIGINT)
        assert process.wait(30) == 0
        assert "Traceback" not in process.stdout.read()
    finally:
        process.kill()
        process.wait()


def test_the_printed_address_opens_the_page_and_nothing_else_does(database: Path) -> None:
    with started(database) as address, httpx.Client(timeout=30) as client:
        plain, _, token = address.partition("?token=")
        assert client.get(plain).status_code == 401
        assert client.get(f"{plain}?token=wrong").status_code == 401
        assert client.get(plain, headers={"Host": "evil.example"}).status_code == 400
        opened = client.get(address, follow_redirects=True)
        assert (opened.status_code, "lisbon" in opened.text) == (200, True)
        assert token not in str(opened.url)
        assert "read-only" in opened.text
        act = {"act": "archive", "id": "lisbon"}
        refused = client.post(plain.replace("/threads", "/act"), data=act, headers={"Sec-Fetch-Site": "same-origin"})
        assert refused.status_code == 403


def test_with_write_the_store_changes(database: Path, run: Run) -> None:
    with started(database, "--write", "--token", "a-token-of-sixteen") as address, httpx.Client(timeout=30) as client:
        assert address.endswith("?token=a-token-of-sixteen")
        client.get(address, follow_redirects=True)
        act = {"act": "archive", "id": "lisbon"}
        place = address.partition("/threads")[0] + "/act"
        done = client.post(place, data=act, headers={"Sec-Fetch-Site": "same-origin"}, follow_redirects=True)
        assert "Archived" in done.text
    assert '"archived"' in run("threads", "--prefix", "lisbon", "--json", "--url", database)[0]


def test_what_cannot_be_served_is_told_in_a_line(run: Run, database: Path, tmp_path: Path) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        _, said = run("web", "--url", database, "--port", port, status=1)
        assert f"port {port} of 127.0.0.1 cannot be used" in said
        assert "--port 0" in said
    assert "there is no database" in run("web", "--url", tmp_path / "nope.db", status=1)[1]
    assert "give a token" in run("web", "--url", database, "--host", "0.0.0.0", status=2)[1]
    assert "at least 16 characters" in run("web", "--url", database, "--token", "short", status=2)[1]
    assert not (tmp_path / "nope.db").exists()


def test_a_store_of_a_newer_format_is_told(run: Run, database: Path) -> None:
    with sqlite3.connect(database) as connection:
        changed = connection.execute("UPDATE threadline_meta SET value = CAST('999' AS BLOB) WHERE name = 'format'")
        assert changed.rowcount == 1
    assert "upgrade threadline" in run("web", "--url", database, status=2)[1]


def test_the_extra_is_named_when_it_is_missing(run: Run, database: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in [one for one in sys.modules if one.startswith("threadline.web")]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, "uvicorn", None)
    assert "threadline[web]" in run("web", "--url", database, status=1)[1]


def test_importing_the_command_line_loads_no_web_server() -> None:
    names = ("starlette", "uvicorn", "jinja2")
    script = f"import sys, threadline.cli.app; print([one for one in {names} if one in sys.modules])"
    said = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True, env=os.environ)
    assert said.stdout.strip() == "[]"
