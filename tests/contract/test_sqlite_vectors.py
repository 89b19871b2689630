"""Semantic search by sqlite-vec: the answers of the exact search, in a Python that can load extensions."""

import logging
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

import threadline
from tests.servers.plugin import lack
from threadline.backends.sqlite import vectors

HERE = Path(__file__).resolve().parent
PROBE = "import sqlite3, sys; sqlite3.Connection.enable_load_extension; print(*sys.version_info[:2])"


def able_python():
    """A Python of this version whose sqlite3 loads extensions: this one, or the system's with the packages of this."""
    wanted = f"{sys.version_info[0]} {sys.version_info[1]}"
    for name in (
        sys.executable,
        "/usr/bin/python3",
        shutil.which(f"python{sys.version_info[0]}.{sys.version_info[1]}"),
    ):
        if name is not None and Path(name).exists():
            done = subprocess.run([name, "-c", PROBE], capture_output=True, text=True, check=False)
            if done.returncode == 0 and done.stdout.strip() == wanted:
                return name
    return None


def test_sqlite_vec_gives_the_answers_of_the_exact_search(tmp_path):
    python = able_python()
    if python is None:
        lack(f"sqlite-vec is not tested: no Python {sys.version_info[0]}.{sys.version_info[1]} here loads extensions")
    packages = os.pathsep.join([str(HERE.parents[1] / "src"), *(path for path in sys.path if "site-packages" in path)])
    done = subprocess.run(
        [python, str(HERE / "sqlite_vectors.py"), str(tmp_path)],
        env={**os.environ, "PYTHONPATH": packages},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.stdout.endswith("the same answers\n"), done.stderr[-3000:]
    assert "sqlite-vec" not in done.stderr


def test_a_python_that_cannot_load_it_says_so_once(tmp_path, caplog, monkeypatch):
    monkeypatch.setattr(vectors, "reason_without_extensions", lambda: "it cannot load extensions")
    monkeypatch.setattr(vectors, "_said", set())
    caplog.set_level(logging.WARNING, "threadline.store")
    for name in ("a", "b"):
        index = {"dims": 1, "embed": lambda texts: [[1.0] for _ in texts]}
        with threadline.Store(tmp_path / name, index=index) as store:
            store.put(("n",), "k", {"text": "tea"})
            assert store.search(("n",), query="tea")[0].score == pytest.approx(1)
    assert [record.getMessage() for record in caplog.records if "cannot load extensions" in record.getMessage()] != []
    assert len(caplog.records) == 1
