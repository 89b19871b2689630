"""Run cases by hand: `python tests/graph/oracle_run.py [--theirs] [name …]` prints where the engines differ."""

from __future__ import annotations

import importlib
import pkgutil
import sys
import traceback
from pathlib import Path
from pprint import pformat

sys.path[:0] = [str(Path(__file__).parent), str(Path(__file__).parents[1])]

from oracle_engines import LANGGRAPH, THREADLINE  # noqa: E402
from oracle_table import TABLE  # noqa: E402
from oracle_trial import observe  # noqa: E402


def difference(one: object, other: object, path: str = "") -> list[str]:
    """The places where two observations differ."""
    if isinstance(one, dict) and isinstance(other, dict):
        lines = []
        for key in {**one, **other}:
            lines += difference(one.get(key, "ABSENT"), other.get(key, "ABSENT"), f"{path}.{key}")
        return lines
    if isinstance(one, (list, tuple)) and isinstance(other, (list, tuple)) and len(one) == len(other):
        return [
            line
            for at, (left, right) in enumerate(zip(one, other, strict=True))
            for line in difference(left, right, f"{path}[{at}]")
        ]
    return [] if one == other else [f"{path}\n     ours   {str(one)[:400]}\n     theirs {str(other)[:400]}"]


def main(names: list[str]) -> None:
    for module in pkgutil.iter_modules([str(Path(__file__).parent)]):
        if module.name.startswith("oracle_cases_"):
            importlib.import_module(module.name)
    only_theirs = "--theirs" in names
    if "--flaky" in names:
        return _flaky()
    shown = "--show" in names
    names = [name for name in names if not name.startswith("--")]
    good = bad = 0
    for name, case in TABLE.items():
        if names and not any(wanted in name or case.section.startswith(wanted) for wanted in names):
            continue
        for half in case.halves:
            lines = _outcome(name, half, only_theirs, shown)
            good, bad = good + (not lines), bad + bool(lines)
            if lines:
                print(f"== {name} ({case.section}, {half})", *lines[:6], sep="\n  ")
    print(f"{good} equal, {bad} different")


def _flaky() -> None:
    """The cases that do not show the same twice on LangGraph: they cannot be compared."""
    for name, case in TABLE.items():
        for half in case.halves:
            one, other = (observe(case.run, LANGGRAPH, half == "async") for _ in range(2))
            if lines := difference(one, other):
                print(f"== {name} ({half})", *lines[:4], sep="\n  ")
    print(f"{len(TABLE)} cases")


def _outcome(name: str, half: str, only_theirs: bool, shown: bool) -> list[str]:
    case = TABLE[name]
    try:
        theirs = observe(case.run, LANGGRAPH, half == "async")
    except Exception:
        return ["LANGGRAPH FAILS", *traceback.format_exc().splitlines()[-6:]]
    if shown:
        print(f"-- {name} {half}\n{pformat(theirs, width=180)}")
    if only_theirs:
        return []
    try:
        ours = observe(case.run, THREADLINE, half == "async")
    except BaseException:
        return traceback.format_exc().splitlines()[-8:]
    if case.differs is None:
        return difference(ours, theirs)
    try:
        case.differs(ours, theirs)
    except AssertionError:
        return ["meant to differ", *traceback.format_exc().splitlines()[-4:], *difference(ours, theirs)]
    return []


if __name__ == "__main__":
    main(sys.argv[1:])
