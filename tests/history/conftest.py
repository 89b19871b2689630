"""Rules of this folder: what looks along a thread is asked through a saver's engine, on memory and on SQLite."""

import uuid

import pytest

import threadline


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
