"""Rules of this folder:

- `Shelf` (chunks_shelf.py) is a store without rows; what needs rows uses a saver, on memory and on SQLite.
- A value read back is compared with `anatomy` of the codec's tests, never with `==` alone.
"""

import sys
import uuid
from pathlib import Path

import pytest

import threadline
from threadline import Unavailable
from threadline.backends.memory import MemoryBackend
from threadline.backends.sqlite_put import SqliteBackend

# The kinds of values and their anatomy are those of the codec's tests.
sys.path.insert(0, str(Path(__file__).parents[1] / "codec"))


@pytest.fixture(params=["memory", "sqlite"])
def url(request, tmp_path):
    if request.param == "memory":
        return f"memory://{uuid.uuid4()}"
    return f"sqlite:///{tmp_path / 'threads.db'}"


@pytest.fixture
def connect(url):
    """Opens savers on the store of this test, each with nothing remembered."""
    opened = []

    def open_saver(**options):
        if url.startswith("sqlite"):
            options.setdefault("synchronous", "OFF")
        opened.append(threadline.connect(url, **options))
        return opened[-1]

    yield open_saver
    for saver in opened:
        saver.close()


@pytest.fixture
def faults(monkeypatch):
    """What becomes of the next changes: 'before' fails with nothing written, 'after' with everything written."""
    planned: list[str] = []

    def failing(apply):
        async def attempt(self, changes):
            fault = planned.pop(0) if planned else ""
            if fault == "before":
                raise Unavailable("the test took the storage away")
            outcome = await apply(self, changes)
            if fault == "after":
                raise Unavailable("the test took the answer away")
            return outcome

        return attempt

    for backend in (MemoryBackend, SqliteBackend):
        monkeypatch.setattr(backend, "apply", failing(backend.apply))
    return planned
