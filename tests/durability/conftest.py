"""What the tests of durability share: scripts run in interpreters of their own, and both halves of a saver."""

import asyncio
import sys
from concurrent.futures import ThreadPoolExecutor

import crowd_checks
import pytest

import threadline
from threadline.backends.memory import MemoryBackend
from threadline.backends.sqlite_put import SqliteBackend


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

    def listed(self, owner, *args, **kwargs):
        """Everything that `list` or `alist` yields."""
        if self.name == "sync":
            return list(owner.list(*args, **kwargs))

        async def collected():
            return [each async for each in owner.alist(*args, **kwargs)]

        return asyncio.run(collected())


@pytest.fixture(params=["sync", "async"])
def half(request):
    return Half(request.param)


@pytest.fixture
def database(tmp_path):
    return tmp_path / "threads.db"


@pytest.fixture
def connect():
    """Opens savers that are closed when the test ends."""
    opened = []

    def open_saver(url, **options):
        opened.append(threadline.connect(url, **options))
        return opened[-1]

    yield open_saver
    for saver in opened:
        saver.close()


@pytest.fixture
def run_script():
    return crowd_checks.run_script


@pytest.fixture(params=["memory", "sqlite"])
def url(request, database):
    """A store that several savers of this process can open."""
    return f"memory://{database}" if request.param == "memory" else str(database)


@pytest.fixture
def switch_often():
    """Let OS threads take turns far more often than they do by themselves."""
    usual = sys.getswitchinterval()
    sys.setswitchinterval(1e-5)
    yield
    sys.setswitchinterval(usual)


@pytest.fixture
def in_threads():
    """Runs functions side by side in OS threads; raises the first error of any of them."""

    def run(*works):
        with ThreadPoolExecutor(len(works)) as pool:
            for running in [pool.submit(work) for work in works]:
                running.result(timeout=120)

    return run


@pytest.fixture
def interleave(monkeypatch):
    """Does something once, just before or after some other operation calls a method of its backend.

    That is where another process could come in between; here it always does.
    """

    def arrange(method, action, *, when="before"):
        actions = [action]

        def fire(moment):
            if moment == when and actions:
                actions.pop()()

        def hooked(original):
            async def call(self, *args, **kwargs):
                fire("before")
                result = await original(self, *args, **kwargs)
                fire("after")
                return result

            return call

        for backend in (MemoryBackend, SqliteBackend):
            monkeypatch.setattr(backend, method, hooked(getattr(backend, method)))
        return lambda: not actions

    return arrange
