"""The examples on the pages of commands: what is typed behind `$`, and what it shows."""

from __future__ import annotations

import re
import shlex
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from cli_process import settings
from rich.console import Console

from threadline.cli import main

DOCS = Path(__file__).parents[2] / "docs"
PAGES = DOCS / "cli"
BLOCK = re.compile(r"^```console\n(.*?)^```$", re.MULTILINE | re.DOTALL)
SCRIPT = re.compile(r"^<!-- run -->\n```python\n(.*?)^```$", re.MULTILINE | re.DOTALL)
INTERRUPT = re.compile(r"\b[0-9a-f]{32}\b")


def examples_of(page: Path) -> list[tuple[str, str]]:
    """Commands and what the page says they show."""
    shown: list[tuple[str, str]] = []
    for block in BLOCK.findall(page.read_text(encoding="utf-8")):
        for line in block.splitlines():
            if line.startswith("$ "):
                shown.append((line[2:], ""))
            else:
                shown[-1] = (shown[-1][0], shown[-1][1] + line + "\n")
    return shown


def make_the_store(folder: Path) -> None:
    """The store of the examples, made as docs/cli.md says."""
    script = "\n".join(SCRIPT.findall((DOCS / "cli.md").read_text(encoding="utf-8")))
    subprocess.run([sys.executable, "-c", script], cwd=folder, env=settings(), check=True, timeout=120)


def run_examples(
    page: Path, folder: Path, monkeypatch: pytest.MonkeyPatch, said: Callable[[], str]
) -> list[tuple[str, str]]:
    """What the commands of a page show on a terminal of 80 columns, in a folder that holds the store."""
    monkeypatch.chdir(folder)
    monkeypatch.setenv("THREADLINE_URL", "sqlite:///agents.db")
    monkeypatch.setenv("COLUMNS", "80")
    monkeypatch.setattr(Console, "is_terminal", property(lambda self: True))
    shown: list[tuple[str, str]] = []
    asked = ""
    for command, _ in examples_of(page):
        said()
        typed = shlex.split(INTERRUPT.sub(asked, command))
        assert typed[0] == "threadline"
        status = main(typed[1:])
        told = re.sub(r"\x1b\[[0-9;?]*[a-zA-Z]", "", said())
        assert status == 0, told
        asked = next(iter(INTERRUPT.findall(told)), asked)
        shown.append((command, told))
    return shown


def copied(folder: Path, into: Path) -> Path:
    for file in folder.glob("agents.db*"):
        shutil.copy(file, into)
    return into


def without_chance(text: str) -> str:
    """A text without ids, times, sizes and where lines are broken, which differ from run to run."""
    text = INTERRUPT.sub("ID", text)
    text = re.sub(r"\b[0-9a-f]{8}(-[0-9a-f]*)*(?![0-9a-z])", "ID", text)
    text = re.sub(r"\d{4}-\d\d-\d\d[ T][\d:.]+(Z|\+00:00)", "TIME", text)
    text = text.replace(" µs", " ms")
    text = re.sub(r"\b[\d,.]+(?= (B|KB|MB|bytes?|ms|s)\b)|\b[\d,]+(?= \()|\b\d+\.\d+\b", "N", text)
    text = re.sub(r"\b(B|KB|MB|bytes?)\b", "SIZE", text)
    return re.sub(r"[\s|*/\\]+", " ", text).strip()
