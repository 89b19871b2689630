"""Rules of this folder:

- `Shelf` (chunks_shelf.py) is a store without rows; what needs rows uses a saver, on memory and on SQLite.
- A value read back is compared with `anatomy` of the codec's tests, never with `==` alone.
"""

import sys
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.stores import hook_usual_puts, savers
from threadline import Unavailable
from threadline.backends.memory.backend import MemoryBackend
from threadline.backends.sqlite.put import SqliteBackend

# The kinds of values and their anatomy are those of the codec's tests.
sys.path.insert(0, str(Path(__file__).parents[1] / "codec"))


@pytest.fixture
def connect(url):
    """Opens savers on the store of this test, each with nothing remembered."""
    with savers(url, synchronous="OFF") as opening:
        yield opening


@pytest.fixture
def faults(monkeypatch):
    """What becomes of the next changes: 'before' fails with nothing written, 'after' with everything written."""
    planned: list[str] = []

    @contextmanager
    def fault():
        planned_here = planned.pop(0) if planned else ""
        if planned_here == "before":
            raise Unavailable("the test took the storage away")
        yield
        if planned_here == "after":
            raise Unavailable("the test took the answer away")

    def failing(apply):
        async def attempt(self, changes):
            with fault():
                return await apply(self, changes)

        return attempt

    def failing_usual(put):
        def attempt(change):
            with fault():
                return put(change)

        return attempt

    hook_usual_puts(monkeypatch, failing_usual)
    for backend in (MemoryBackend, SqliteBackend):
        monkeypatch.setattr(backend, "apply", failing(backend.apply))
    return planned
