"""Fixtures for pytest: name this module in `pytest_plugins` of a conftest.py."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from .crashes import CrashReport, crashes

__all__ = ["survives_crashes"]


@pytest.fixture
def survives_crashes() -> Callable[..., CrashReport]:
    """A function like `crashes` that fails the test unless every crash came to the same end.

    `once` names nodes that must not run again after a crash at any point.
    """

    def check(graph: Any, given: Any, config: Any = None, *, once: tuple[str, ...] = (), **options: Any) -> CrashReport:
        report = crashes(graph, given, config, **options)
        repeated = [name for name in once if name in report.repeated_nodes]
        if not report.is_safe or repeated:
            what = f"ran again after a crash: {', '.join(repeated)}\n" if repeated else ""
            pytest.fail(f"{what}{report}", pytrace=False)
        return report

    return check
