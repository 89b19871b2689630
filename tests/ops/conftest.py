"""The same store on every backend, as a URL and the options that keep tests apart."""

from __future__ import annotations

from pathlib import Path

import pytest
from ops_stores import Place, place_on

BACKENDS = ["memory", "sqlite", "postgres", "mysql", "redis"]


@pytest.fixture(params=BACKENDS)
def place(request: pytest.FixtureRequest, tmp_path: Path) -> Place:
    """An empty place on each backend."""
    return place_on(request, request.param, tmp_path)
