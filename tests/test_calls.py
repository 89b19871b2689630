"""The Python functions that an operation on a small thread calls. Their number is a promise: it does not creep up.

    THREADLINE_RECORD_CALLS=1 python -m pytest tests/test_calls.py

records the figures anew in docs/design/calls.md: after an improvement, or where a change is worth what it adds.
"""

from __future__ import annotations

import os
import platform
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from bench.calls import calls_of
from bench.short import OPERATIONS
from tests.stores import savers
from threadline.langgraph import Checkpointer

PAGE = Path(__file__).parents[1] / "docs" / "design" / "calls.md"
RECORD = "THREADLINE_RECORD_CALLS=1 python -m pytest tests/test_calls.py"
GROWTH = 1.05
PYTHON = ".".join(platform.python_version_tuple()[:2])
# Backend -> the first word of its row, and the official saver's calls, counted the same way.
ROWS = {"memory": ("memory", "25 / 7 / 153"), "sqlite": ("SQLite", "31 / 17 / 161")}
ROWS["postgres"] = ("PostgreSQL", "175 / 131 / 235")
HEAD = f"""\
# Python calls of an operation

What a put, a put of writes and a get of a small thread call, in Python functions: a flat profile has no hot spot, only
too many steps, and their number is the same on every machine. The work is that of `bench/short.py`, threads of 10
checkpoints on a saver in use, called through `threadline.langgraph.Checkpointer`; `bench/calls.py` counts.
`tests/test_calls.py` fails when a figure grows by more than 5 %, and writes this page:

    {RECORD}

Counted with CPython {{python}}; other versions inline other calls. PostgreSQL's include those of its driver.

| | put | put_writes | get | official saver |
|---|--:|--:|--:|--:|
"""


@pytest.fixture(params=list(ROWS))
def backend(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture
def saver(backend: str, request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Any]:
    places = {"memory": lambda: "memory://", "sqlite": lambda: f"sqlite:///{tmp_path / 'calls.db'}"}
    where = places.get(backend, lambda: request.getfixturevalue("postgres_url"))()
    with savers(where, make=Checkpointer) as opening:
        yield opening()


def test_an_operation_calls_no_more_functions_than_was_recorded(saver: Any, backend: str) -> None:
    found = calls_of(saver)
    if os.environ.get("THREADLINE_RECORD_CALLS"):
        record(backend, found)
    version, rows = recorded()
    if version != PYTHON:
        pytest.skip(f"recorded with Python {version}: others inline other calls")
    assert backend in rows, f"{PAGE.name} has no figures of {backend}: {RECORD}"
    allowed = {operation: int(count * GROWTH) for operation, count in rows[backend].items()}
    grown = {operation: found[operation] for operation in OPERATIONS if found[operation] > allowed[operation]}
    assert not grown, f"{backend}: more than {rows[backend]} by over 5 %. If it is worth it, record it: {RECORD}"


def test_the_count_is_the_same_each_time() -> None:
    with savers("memory://", make=Checkpointer) as opening:
        assert calls_of(opening()) == calls_of(opening())


def recorded() -> tuple[str, dict[str, dict[str, int]]]:
    """The version of Python on the page, and its figures."""
    text = PAGE.read_text(encoding="utf-8") if PAGE.exists() else ""
    version = re.search(r"CPython (\d+\.\d+)", text)
    rows = {}
    for backend, (name, _) in ROWS.items():
        found = re.search(rf"^\| {name} \| (\d+) \| (\d+) \| (\d+) \|", text, re.MULTILINE)
        if found:
            rows[backend] = dict(zip(OPERATIONS, map(int, found.groups()), strict=True))
    return (version[1] if version else ""), rows


def record(backend: str, found: dict[str, int]) -> None:
    """Replace the figures of one backend; a page of another version begins anew."""
    version, rows = recorded()
    rows = {**(rows if version == PYTHON else {}), backend: found}
    lines = [
        f"| {name} | {' | '.join(str(rows[key][operation]) for operation in OPERATIONS)} | {peer} |\n"
        for key, (name, peer) in ROWS.items()
        if key in rows
    ]
    PAGE.write_text(HEAD.format(python=PYTHON) + "".join(lines), encoding="utf-8")
