"""The page for those who come from LangGraph names what exists, and nothing else."""

from __future__ import annotations

import re
from pathlib import Path

import threadline.graph

PAGE = Path(__file__).parents[2] / "docs" / "from-langgraph.md"


def test_the_page_has_every_name_of_the_room_once() -> None:
    table = PAGE.read_text(encoding="utf-8").partition("## Every name\n")[2].partition("\n## ")[0]
    rows = [line.split("|")[1] for line in table.splitlines() if line.startswith("| `")]
    named = [name for row in rows for name in re.findall(r"`(\w+)`", row)]
    assert sorted(named) == sorted(threadline.graph.__all__)


def test_every_name_can_be_imported() -> None:
    for name in threadline.graph.__all__:
        assert getattr(threadline.graph, name) is not None
