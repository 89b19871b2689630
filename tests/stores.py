"""Stores on memory and in a file, savers that are closed when a test ends, and both halves of a saver.

The fixtures serve every folder (tests/conftest.py); a folder says only what differs, by a fixture of the same name.
"""

import asyncio
from contextlib import ExitStack, closing, contextmanager

import pytest

import threadline
from threadline.backends.memory.engine import MemoryEngine
from threadline.backends.server import ServerEngine
from threadline.backends.sqlite.engine import SqliteEngine


@contextmanager
def savers(*where, make=threadline.connect, **usual):
    """Gives a function that opens savers, there and with these options unless told otherwise; closes all in the end."""
    with ExitStack() as opened:
        yield lambda *place, **options: opened.enter_context(closing(make(*(place or where), **{**usual, **options})))


def hook_usual_puts(monkeypatch, hooked):
    """Have `hooked(put)` take the place of an engine's own way for usual puts, on engines that are open as well.

    From an event loop, usual puts go the way of all others meanwhile, by `apply`.
    """

    def get(self):
        put = self.__dict__.get("put_usual")
        return put and hooked(put)

    # A property comes before what an engine has set on itself.
    hook = property(get, lambda self, put: self.__dict__.update(put_usual=put))
    for engine in (MemoryEngine, SqliteEngine, ServerEngine):
        monkeypatch.setattr(engine, "put_usual", hook, raising=False)
        monkeypatch.setattr(engine, "aput_usual", property(lambda self: None, lambda self, put: None), raising=False)


@pytest.fixture
def operations(monkeypatch):
    """Notes what a saver's engine runs as an operation instead."""

    def watched(saver):
        went, run = [], saver._engine.run

        def noted(operation):
            went.append(operation)
            return run(operation)

        monkeypatch.setattr(saver._engine, "run", noted)
        return went

    return watched


class Half:
    """The sync or the async face of a saver, under the sync names."""

    def __init__(self, name):
        self.name = name

    def call(self, owner, verb, *args, **kwargs):
        """What `owner.verb(…)` gives, or its `a` twin on a loop of its own."""
        if self.name == "sync":
            return getattr(owner, verb)(*args, **kwargs)

        async def awaited():
            return await getattr(owner, f"a{verb}")(*args, **kwargs)

        return asyncio.run(awaited())

    def listed(self, owner, *args, verb="list", **kwargs):
        """Everything that an iterating method, or its `a` twin, yields."""
        if self.name == "sync":
            return list(getattr(owner, verb)(*args, **kwargs))

        async def collected():
            return [each async for each in getattr(owner, f"a{verb}")(*args, **kwargs)]

        return asyncio.run(collected())


@pytest.fixture(params=["sync", "async"])
def half(request):
    return Half(request.param)


@pytest.fixture
def database(tmp_path):
    return tmp_path / "threads.db"


@pytest.fixture(params=["memory", "sqlite"])
def url(request, database):
    """A store that several savers of this process can open."""
    return f"memory://{database}" if request.param == "memory" else f"sqlite:///{database}"


@pytest.fixture
def connect():
    """Opens savers that are closed when the test ends."""
    with savers() as opening:
        yield opening
