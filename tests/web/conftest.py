"""The page of a store, for one test: through a client without a network, or served to a browser."""

from __future__ import annotations

import os
import shutil
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest
import uvicorn
from playwright.sync_api import Browser, Page, expect, sync_playwright
from starlette.testclient import TestClient
from web_store import fill

import threadline
from tests.servers.binaries import find
from tests.servers.plugin import require_programs
from threadline.web import app

SAME_ORIGIN = {"Sec-Fetch-Site": "same-origin"}
FLAGS = ["--headless", "--no-sandbox", "--disable-gpu", "--disable-background-networking"]
FLAGS += ["--disable-component-update", "--disable-sync", "--no-first-run"]


@pytest.fixture(scope="session")
def filled(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The database of web_store, made once."""
    path = tmp_path_factory.mktemp("web") / "agents.db"
    fill(f"sqlite:///{path}")
    return path


@pytest.fixture
def database(filled: Path, tmp_path: Path) -> Path:
    """A copy of it, for one test."""
    return Path(shutil.copy(filled, tmp_path / "agents.db"))


@pytest.fixture
def saver(database: Path) -> Iterator[threadline.Saver]:
    with threadline.connect(database) as opened:
        yield opened


@pytest.fixture
def open_page(saver: threadline.Saver) -> Iterator[Callable[..., TestClient]]:
    """Gives a function that opens the page of the store, or of another saver, with options of `app`."""
    with ExitStack() as opened:

        def open_one(of: threadline.Saver | None = None, **options: Any) -> TestClient:
            return opened.enter_context(TestClient(app(of or saver, **options), headers=SAME_ORIGIN))

        yield open_one


@pytest.fixture
def page(open_page: Callable[..., TestClient]) -> TestClient:
    """The page of the store; it may change it."""
    return open_page(write=True)


class Served:
    """An application, served by a thread of this process."""

    def __init__(self, site: Any) -> None:
        self._site = site
        config = uvicorn.Config(site, port=0, log_level="warning", lifespan="off", timeout_graceful_shutdown=5)
        self._server = uvicorn.Server(config)
        self._thread = threading.Thread(target=self._server.run, daemon=True)

    def __enter__(self) -> str:
        self._thread.start()
        while not self._server.started:
            assert self._thread.is_alive(), "the page is not served"
            self._thread.join(0.01)
        return f"http://127.0.0.1:{self._server.servers[0].sockets[0].getsockname()[1]}"

    def __exit__(self, *_: object) -> None:
        getattr(self._site, "let_go", bool)()
        self._server.should_exit = True
        self._thread.join()


@pytest.fixture
def serve() -> Iterator[Callable[[Any], str]]:
    """Gives a function that serves an application, and tells its address."""
    with ExitStack() as served:
        yield lambda site: served.enter_context(Served(site))


# Playwright keeps an event loop running on its thread, and tests of other folders run loops of their own: a browser has
# a thread of its own, and tests that use it run there.
_browsing = ThreadPoolExecutor(1, thread_name_prefix="browser")


@pytest.hookimpl(tryfirst=True)
def pytest_pyfunc_call(pyfuncitem: pytest.Function) -> bool | None:
    if "browser" not in pyfuncitem.fixturenames:
        return None
    taken = {name: pyfuncitem.funcargs[name] for name in pyfuncitem._fixtureinfo.argnames}
    _browsing.submit(pyfuncitem.obj, **taken).result()
    return True


@pytest.fixture(scope="session")
def browser() -> Iterator[Browser]:
    """The system's Chromium, one for all tests of a worker."""
    path = os.environ.get("THREADLINE_TEST_CHROMIUM") or find("chromium")
    if path is None:
        require_programs("chromium")
    playwright = _browsing.submit(lambda: sync_playwright().start()).result()
    opened = _browsing.submit(playwright.chromium.launch, executable_path=path, args=FLAGS).result()
    # A loaded machine may be slow: what is awaited comes, or the test fails after this time.
    expect.set_options(timeout=30_000)
    yield opened
    _browsing.submit(opened.close).result()
    _browsing.submit(playwright.stop).result()


class Tab:
    """A page in the browser. What went wrong in it fails the test at its end."""

    def __init__(self, page: Page) -> None:
        self.page = page
        self.troubles: list[str] = []
        page.on("pageerror", lambda error: self.troubles.append(f"error: {error}"))
        page.on("dialog", lambda dialog: (self.troubles.append(f"dialog: {dialog.message}"), dialog.dismiss()))
        page.on("console", lambda said: self.troubles.append(said.text) if said.type == "error" else None)


@pytest.fixture
def tab(browser: Browser, serve: Callable[[Any], str]) -> Iterator[Tab]:
    """A new tab, with no cookies; closed before what it looks at is not served any more."""
    context = _browsing.submit(browser.new_context, viewport={"width": 1280, "height": 800}).result()
    opened = _browsing.submit(lambda: Tab(context.new_page())).result()
    yield opened
    _browsing.submit(context.close).result()
    assert opened.troubles == []
