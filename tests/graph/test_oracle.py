"""The same graphs on LangGraph and on threadline.graph: equal outputs, streams, histories, stored checkpoints."""

from __future__ import annotations

import importlib
import pkgutil
from pathlib import Path

import pytest
from langgraph.checkpoint.memory import InMemorySaver
from oracle_engines import LANGGRAPH, THREADLINE, Engine
from oracle_table import TABLE, Case
from oracle_trial import observe

for module in pkgutil.iter_modules([str(Path(__file__).parent)]):
    if module.name.startswith("oracle_cases_"):
        importlib.import_module(module.name)

PAIRS = [pytest.param(case, half, id=f"{name}-{half}") for name, case in TABLE.items() for half in case.halves]


@pytest.mark.parametrize(("case", "half"), PAIRS)
def test_both_engines_show_the_same(case: Case, half: str) -> None:
    theirs = observe(case.run, LANGGRAPH, half == "async")
    ours = observe(case.run, THREADLINE, half == "async")
    if case.differs is None:
        assert ours == theirs
    else:
        case.differs(ours, theirs)


def test_the_table_covers_every_section() -> None:
    sections = {case.section.split(".")[0] for case in TABLE.values()}
    assert sections >= {str(number) for number in range(1, 20)}
    assert len(TABLE) >= 80


SHARED = [case for case in TABLE.values() if case.section.split(".")[0] in ("4", "8", "9", "11", "15")]


@pytest.mark.parametrize("case", [pytest.param(case, id=case.name) for case in SHARED if "sync" in case.halves])
def test_our_engine_runs_on_langgraphs_saver(case: Case, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Engine, "saver", lambda self: InMemorySaver())
    ours, theirs = observe(case.run, THREADLINE, False), observe(case.run, LANGGRAPH, False)
    if case.differs is None:
        assert ours == theirs
    else:
        case.differs(ours, theirs)
