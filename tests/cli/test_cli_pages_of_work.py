"""The commands that how-to pages tell people to type: each exists, with these options, and deletes nothing unasked."""

from __future__ import annotations

import re
import shlex
from pathlib import Path

import pytest

import threadline
from tests.commands import Run

DOCS = Path(__file__).parents[2] / "docs"
COMMAND = re.compile(r"^ {4}(threadline (?!web|import\b).*?)(?: {2,}#.*)?$", re.MULTILINE)
# Nothing was deleted before, so there is nothing to restore.
STATUS = {"threadline trash restore user-17": 1}


def commands_of(page: str) -> list[str]:
    return COMMAND.findall((DOCS / page).read_text(encoding="utf-8"))


def fill(saver: threadline.Saver) -> None:
    for name in ("user-1", "user-17", "acme/chat-1"):
        thread = saver.thread(name)
        for step in range(45):
            thread.put({"lines": [f"line {line}" for line in range(step)]}, step=step)


@pytest.mark.parametrize("page", ["incidents.md", "production.md", "tenants.md", "quickstart.md", "switch.md"])
def test_each_command_of_a_page_runs_and_deletes_nothing_unasked(
    page: str, run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("THREADLINE_URL", f"sqlite:///{tmp_path / 'agents.db'}")
    with threadline.connect(tmp_path / "agents.db") as saver:
        fill(saver)
    commands = commands_of(page)
    assert len(commands) >= 2
    for command in commands:
        run(*shlex.split(command)[1:], status=STATUS.get(command, 0))
    # What tells `--yes` deletes, and nothing else does. A rollback adds a checkpoint.
    left = 45 * (2 if any("--yes" in command for command in commands) else 3)
    with threadline.connect(tmp_path / "agents.db") as saver:
        assert saver.stats().checkpoints == left + sum("rollback" in command for command in commands)
