"""Rules of this folder: memory and SQLite; damage is made in a real file, behind the saver's back."""

import asyncio
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


@pytest.fixture(params=["sync", "async"])
def call(request):
    """Calls a method of a saver, or its `a` twin on a loop of its own."""

    def calling(saver, verb, *args, **options):
        if request.param == "sync":
            return getattr(saver, verb)(*args, **options)

        async def awaited():
            return await getattr(saver, f"a{verb}")(*args, **options)

        return asyncio.run(awaited())

    return calling
