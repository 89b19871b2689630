"""The documentation as a site: it builds strictly, and a reader's browser loads nothing from elsewhere."""

from __future__ import annotations

import importlib
import inspect
import re
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import Browser, expect
from starlette.applications import Starlette
from starlette.routing import Mount
from starlette.staticfiles import StaticFiles

import threadline
from pages.building import ROOT, Unsound, build, build_staged, loads_from_elsewhere
from pages.reference import ROOMS, MissingRoom, reference
from pages.staging import BrokenLink, stage

pytestmark = pytest.mark.skipif(sys.version_info < (3, 11), reason="Zensical needs Python 3.11")
TABS = ["Start", "How to", "Explanations", "Reference"]


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The site of this repository, built strictly."""
    into = tmp_path_factory.mktemp("docs") / "site"
    build(into)
    return into


def test_the_site_of_this_repository_builds_strictly_with_every_page(site: Path) -> None:
    pages = {page.relative_to(ROOT / "docs").with_suffix(".html") for page in (ROOT / "docs").rglob("*.md")}
    assert len(pages) > 80
    assert {page for page in pages if not (site / page).is_file()} == set()
    assert (site / "project" / "architecture.html").is_file()
    assert {path.name for path in (site / "images").iterdir()} == {
        path.name for path in (ROOT / "docs/images").iterdir()
    }


def test_a_browser_loads_nothing_from_another_host(site: Path, browser: Browser, serve: Callable[[Any], str]) -> None:
    address = serve(Starlette(routes=[Mount("/", StaticFiles(directory=site, html=True))]))
    context = browser.new_context(viewport={"width": 1280, "height": 800})
    try:
        page = context.new_page()
        asked: list[str] = []
        page.on("request", lambda request: asked.append(request.url))
        failed: list[str] = []
        page.on("response", lambda answer: failed.append(answer.url) if answer.status >= 400 else None)
        for name in ("index.html", "web.html", "cli/doctor.html", "api/saver.html", "project/architecture.html"):
            page.goto(f"{address}/{name}")
            expect(page.locator("h1").first).to_be_visible()
        # The first page again: its tabs, its example as code, its picture.
        page.goto(f"{address}/index.html")
        tabs = page.locator("nav.md-tabs a")
        assert [text.strip() for text in tabs.all_inner_texts()] == TABS
        expect(page.locator("code", has_text="threadline.connect").first).to_be_visible()
        assert page.evaluate("[...document.images].every((one) => one.complete && one.naturalWidth > 300)")
        page.wait_for_load_state("networkidle")
        assert failed == []
        assert len(asked) > 10
        assert {url for url in asked if not url.startswith((address, "data:", "blob:"))} == set()
    finally:
        context.close()


CONFIG = """
[project]
site_name = "Small"
use_directory_urls = false
nav = [{ "Start" = "index.md" }]
[project.theme]
font = false
"""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A site of one page."""
    (tmp_path / "docs").mkdir()
    (tmp_path / "docs" / "index.md").write_text("# Start\n\nHello.\n\n## End\n")
    (tmp_path / "zensical.toml").write_text(CONFIG)
    return tmp_path


def test_links_to_no_page_and_to_no_heading_fail_the_build(folder: Path) -> None:
    with (folder / "docs" / "index.md").open("a") as page:
        page.write("\n[End](#end), [a page](gone.md) and\n\n[a heading](#missing)\n")
    with pytest.raises(Unsound) as refused:
        build_staged(folder)
    assert "2 issues" in str(refused.value)
    assert "gone.md" in str(refused.value)
    assert "#missing" in str(refused.value)


def test_a_page_outside_the_navigation_and_an_entry_without_a_page_fail_the_build(folder: Path) -> None:
    (folder / "docs" / "lost.md").write_text("# Lost\n")
    with pytest.raises(Unsound, match=r"lost\.md is not in the navigation"):
        build_staged(folder)
    (folder / "docs" / "lost.md").rename(folder / "docs" / "index.md")
    (folder / "zensical.toml").write_text(CONFIG.replace('"index.md" }', '"index.md" }, { "More" = "more.md" }'))
    with pytest.raises(Unsound, match=r"names more\.md, which is no page"):
        build_staged(folder)


@pytest.mark.parametrize(
    "part",
    [
        '<script src="https://cdn.example/a.js"></script>',
        "<script src=//cdn.example/a.js></script>",
        '<link rel="stylesheet" href="https://fonts.example/css?family=Inter">',
        '<link href="https://fonts.example" rel="preconnect" crossorigin>',
        '<img alt="" src="http://cdn.example/a.png">',
        '<iframe src="https://videos.example/1"></iframe>',
        "<style>@import 'https://fonts.example/a.css';</style>",
        "<p style='background: url(https://cdn.example/a.png)'>",
    ],
)
def test_what_a_page_loads_from_another_host_is_found(tmp_path: Path, part: str) -> None:
    sound = (
        '<a href="https://htmx.org">htmx</a><script src="a.js"></script><link rel="canonical" href="https://a.example">'
    )
    (tmp_path / "page.html").write_text(sound)
    assert loads_from_elsewhere(tmp_path) == []
    (tmp_path / "page.html").write_text(sound + part)
    [fault] = loads_from_elsewhere(tmp_path)
    assert fault.startswith("page.html loads from another host")


def test_pages_beside_the_folder_are_part_of_the_site_and_links_hold_there(tmp_path: Path) -> None:
    root, into = tmp_path / "root", tmp_path / "into"
    (root / "docs" / "cli").mkdir(parents=True)
    (root / "ARCHITECTURE.md").write_text("[words](docs/words.md#a) and `[no](link)`\n")
    (root / "docs" / "words.md").write_text("[how](../ARCHITECTURE.md), [web](https://a.example), [log](cli/log.md)\n")
    (root / "docs" / "cli" / "log.md").write_text("```\n[code](stays)\n```\n[how](../../ARCHITECTURE.md#b)\n")
    stage(root, into)
    assert (into / "project" / "architecture.md").read_text() == "[words](../words.md#a) and `[no](link)`\n"
    assert (
        into / "words.md"
    ).read_text() == "[how](project/architecture.md), [web](https://a.example), [log](cli/log.md)\n"
    assert (into / "cli" / "log.md").read_text() == "```\n[code](stays)\n```\n[how](../project/architecture.md#b)\n"
    for gone in ("[source](../src/words.py)", "![picture](images/gone.png)"):
        (root / "docs" / "words.md").write_text(gone)
        with pytest.raises(BrokenLink, match="is no page of the site"):
            stage(root, tmp_path / "again")


def test_names_that_differ_in_case_alone_have_entries_of_their_own(site: Path) -> None:
    text = (site / "api" / "graph.html").read_text(encoding="utf-8")
    for name in ("Interrupt", "interrupt"):
        assert text.count(f'id="{name}"') == 1
        assert f'href="#{name}"' in text


def test_a_module_that_the_page_of_public_names_leaves_out_fails_the_build(tmp_path: Path) -> None:
    (tmp_path / "api.md").write_text("| `threadline` | savers |\n")
    with pytest.raises(MissingRoom, match=r"no row for threadline\.langgraph"):
        reference(tmp_path)


def test_the_reference_has_every_public_name_and_every_method_with_its_twin() -> None:
    pages = reference(ROOT / "docs")
    for room, place in ROOMS.items():
        module = importlib.import_module(room)
        text = pages[f"api/{place}"]
        for name in module.__all__:
            assert f"| [`{name}`](" in text, f"{room}.{name}"
            assert f"\n## {name} {{ #{name} }}\n" in text or f"# {name}\n" in pages[f"api/{name.lower()}.md"], name
    for face in (threadline.Saver, threadline.Thread, threadline.Store, threadline.Cache):
        text = pages[f"api/{face.__name__.lower()}.md"]
        for name, member in inspect.getmembers(face, inspect.isfunction):
            if not name.startswith("_"):
                assert re.search(rf"^(## {name}|Async: `{name}`\.)$", text, re.MULTILINE), name
                words = (inspect.getdoc(member) or "").splitlines()[:1]
                assert not words or words[0] in text, name
    everything = "\n".join(pages.values())
    assert not re.search(r" at 0x[0-9a-f]{6}|<function|<class '", everything), "an address is of no use to a reader"
    assert "(engine: Engine" not in everything, "nobody makes these"
