"""How the page looks: its main views in both colours, on a wide and on a narrow screen.

With THREADLINE_SCREENSHOTS=1 the pictures that the documentation shows are made anew, in docs/images:

    THREADLINE_SCREENSHOTS=1 python -m pytest tests/web/test_web_pictures.py

With a folder instead of 1, all of them are written there, to be looked at.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import Browser, Page, expect
from png import size_of, small

import threadline
from conftest import _browsing
from threadline.web import app

ROOT = Path(__file__).parents[2]
IMAGES = ROOT / "docs" / "images"
WANTED = os.environ.get("THREADLINE_SCREENSHOTS", "")
# Each view that has a picture: its address, and a part that must be seen in it.
VIEWS = {
    "threads": ("/threads", "table"),
    "thread": ("/thread?id=lisbon", "#tree svg"),
    "checkpoint": ("/checkpoint?id=lisbon&at=first-answer", "section.channel"),
    "diff": ("/diff?id=lisbon&a=head~2", "section.diff"),
    "inbox": ("/inbox", "form"),
    "storage": ("/storage", ".bars"),
}
HEIGHTS = {1280: 800, 390: 844}
NAME = re.compile(r"images/((\w+)-(light|dark)-(1280|390)\.png)")
MOST_BYTES = 600_000


def shown_in_docs() -> set[str]:
    """The pictures that pages of the documentation show."""
    pages = [ROOT / "README.md", *(ROOT / "docs").rglob("*.md")]
    return {found[0] for page in pages for found in NAME.findall(page.read_text(encoding="utf-8"))}


@pytest.fixture
def address(saver: threadline.Saver, serve: Callable[[Any], str]) -> str:
    return serve(app(saver, write=True, url="sqlite:///agents.db"))


@pytest.mark.parametrize("width", HEIGHTS)
@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_the_main_views_fit_their_screen_in_both_colours(
    browser: Browser, address: str, scheme: Any, width: int
) -> None:
    context = browser.new_context(viewport={"width": width, "height": HEIGHTS[width]}, color_scheme=scheme)
    try:
        page = context.new_page()
        for view, (path, part) in VIEWS.items():
            page.goto(address + path)
            while page.get_by_text("eing counted").count():  # figures of the store come from the background
                page.reload()
            expect(page.locator(part).first).to_be_visible()
            assert overflow(page) <= 0, f"{view} is wider than its screen of {width} pixels"
            assert is_dark(page) == (scheme == "dark"), view
            keep(page.screenshot(animations="disabled"), f"{view}-{scheme}-{width}.png")
    finally:
        context.close()


@pytest.fixture(params=HEIGHTS)
def screen(request: pytest.FixtureRequest, browser: Browser, address: str) -> Iterator[Callable[[str], Page]]:
    """Gives a function that opens a view on a screen of each width, without JavaScript."""
    context = _browsing.submit(
        browser.new_context,
        viewport={"width": request.param, "height": HEIGHTS[request.param]},
        java_script_enabled=False,
    ).result()

    def show(path: str) -> Page:
        page: Page = context.new_page()
        page.goto(address + path)
        return page

    yield show
    _browsing.submit(context.close).result()


def box(page: Page, selector: str, at: int = 0) -> Any:
    found = page.locator(selector).nth(at).bounding_box()
    assert found is not None, selector
    return {**found, "right": found["x"] + found["width"], "bottom": found["y"] + found["height"]}


def test_buttons_stand_beside_their_fields(browser: Browser, screen: Callable[[str], Page]) -> None:
    page = screen("/plan")
    for at, name in enumerate(("Plan", "Preview")):
        assert page.locator(".grid form button").nth(at).inner_text() == name
        field, button = box(page, ".grid form input[name=id]", at), box(page, ".grid form button", at)
        assert abs(field["bottom"] - button["bottom"]) < 1
        assert 0 < button["x"] - field["right"] < 20


def test_marks_of_a_checkpoint_are_read_in_full(browser: Browser, screen: Callable[[str], Page]) -> None:
    page = screen("/thread?id=lisbon")
    lanes, badges = box(page, ".lanes"), page.locator(".lanes .badge")
    assert badges.count() >= 6
    for at in range(badges.count()):
        shown = box(page, ".lanes .badge", at)
        # As wide as its text, which nothing cuts.
        assert shown["right"] <= lanes["right"]
        badges.nth(at).evaluate("(badge) => { badge.style.overflow = 'visible'; badge.style.flex = 'none' }")
        assert abs(box(page, ".lanes .badge", at)["width"] - shown["width"]) < 1


def test_the_newest_step_is_seen_first(browser: Browser, screen: Callable[[str], Page]) -> None:
    page = screen("/thread?id=lisbon")
    strip = box(page, ".strip")
    newest = box(page, ".strip circle", page.locator(".strip circle").count() - 1)
    assert strip["x"] < newest["x"]
    assert newest["right"] <= strip["right"]
    is_cut = box(page, ".strip circle")["x"] < strip["x"]
    assert page.get_by_text("← earlier").is_visible() == is_cut


def test_values_and_headings_stand_apart(
    browser: Browser, screen: Callable[[str], Page], saver: threadline.Saver
) -> None:
    votes = saver.thread("votes")
    base = votes.put({"n": 1})
    theirs = votes.put({"n": 2}, at=base)
    votes.put({"n": 3}, at=base)
    page = screen(f"/merge?id=votes&other={theirs.id}")
    assert box(page, ".side code")["y"] >= box(page, ".side b")["bottom"]
    page = screen("/writes?id=essay")
    assert box(page, ".card")["y"] - box(page, ".head")["bottom"] >= 10


def overflow(page: Page) -> int:
    """By how many pixels a page is wider than its window."""
    return int(page.evaluate("document.documentElement.scrollWidth - window.innerWidth"))


def is_dark(page: Page) -> bool:
    """Whether the ground of a page is darker than its text."""
    brightness = "(text) => text.match(/[\\d.]+/g).slice(0, 3).reduce((sum, part) => sum + Number(part), 0)"
    style = "getComputedStyle(document.documentElement)"
    return bool(page.evaluate(f"(({brightness}))({style}.backgroundColor) < (({brightness}))({style}.color)"))


def keep(picture: bytes, name: str) -> None:
    if WANTED == "1" and name in shown_in_docs():
        IMAGES.mkdir(exist_ok=True)
        (IMAGES / name).write_bytes(small(picture))
    elif WANTED not in ("", "0", "1"):
        Path(WANTED).mkdir(parents=True, exist_ok=True)
        (Path(WANTED) / name).write_bytes(small(picture))


def test_each_picture_of_the_documentation_exists_and_shows_a_view_that_exists() -> None:
    named = shown_in_docs()
    assert len(named) >= 6, "the documentation shows its main views"
    for name in named:
        view, _, width = name.removesuffix(".png").split("-")
        assert view in VIEWS, f"{name} shows a view that is not drawn any more"
        assert size_of((IMAGES / name).read_bytes()) == (int(width), HEIGHTS[int(width)]), name
    kept = {path.name for path in IMAGES.iterdir()}
    assert kept == named, "no picture lies in docs/images that no page shows"
    assert sum(path.stat().st_size for path in IMAGES.iterdir()) < MOST_BYTES
