"""How the page looks: its main views in both colours, on a wide and on a narrow screen.

With THREADLINE_SCREENSHOTS=1 the pictures that the documentation shows are made anew, in docs/images:

    THREADLINE_SCREENSHOTS=1 python -m pytest tests/web/test_web_pictures.py

With a folder instead of 1, all of them are written there, to be looked at.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import Browser, Page, expect
from png import size_of, small

import threadline
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
