"""What the tests of durability share: scripts run in interpreters of their own, and others who come in between."""

import sys
from concurrent.futures import ThreadPoolExecutor

import crowd_checks
import pytest

from tests.stores import hook_usual_puts
from threadline.backends.memory.backend import MemoryBackend
from threadline.backends.sqlite.put import SqliteBackend


@pytest.fixture
def run_script():
    return crowd_checks.run_script


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

        def hooked_usual(put):
            def call(change):
                fire("before")
                stamp = put(change)
                fire("after")
                return stamp

            return call

        for backend in (MemoryBackend, SqliteBackend):
            monkeypatch.setattr(backend, method, hooked(getattr(backend, method)))
        if method == "apply":
            hook_usual_puts(monkeypatch, hooked_usual)
        return lambda: not actions

    return arrange
