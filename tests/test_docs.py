"""The pages for people: examples run as written, links lead somewhere, tables name what exists.

A Python example below the line `<!-- run -->` is run. The examples of one page are one script, run in a new
interpreter in a folder of its own, as a reader would who copied them one after the other. What stands behind
`# ->` is what that line prints.
"""

from __future__ import annotations

import inspect
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

import threadline
from threadline.backends.sql.schema import FORMAT, migrations
from threadline.backends.sqlite import COLUMN_TYPES
from threadline.codec.builtin import BUILTINS
from threadline.codec.wire import FOREIGN, OBJECT, TEXT
from threadline.connecting import make_engine, make_tools

ROOT = Path(__file__).parent.parent
DOCS = ROOT / "docs"
PAGES = sorted([*ROOT.glob("*.md"), *DOCS.rglob("*.md")])
# `make bench` writes this page and its plot.
MEASURED = {DOCS / "benchmarks.md", DOCS / "benchmarks.svg"}
EXAMPLE = re.compile(r"^<!-- run -->\n```python\n(.*?)^```$", re.MULTILINE | re.DOTALL)
FENCE = re.compile(r"^```.*?^```$", re.MULTILINE | re.DOTALL)
LINK = re.compile(r"\[[^\]]*\]\(([^)\s]+)\)")


def name_of(page: Path) -> str:
    return page.relative_to(ROOT).as_posix()


def examples_of(page: Path) -> str:
    return "\n".join(EXAMPLE.findall(page.read_text(encoding="utf-8")))


def anchors_of(page: Path) -> set[str]:
    """The names under which a page's headings can be linked to."""
    text = FENCE.sub("", page.read_text(encoding="utf-8"))
    headings = re.findall(r"^#+ (.+)$", text, re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}


@pytest.mark.parametrize("page", [page for page in PAGES if examples_of(page)], ids=name_of)
def test_the_examples_of_a_page_run_and_print_what_they_say(page: Path, tmp_path: Path) -> None:
    script = tmp_path / "page.py"
    script.write_text(examples_of(page), encoding="utf-8")
    source = str(Path(threadline.__file__).resolve().parents[1])
    variables = {name: value for name, value in os.environ.items() if not name.startswith(("LANG", "THREADLINE"))}
    variables |= {"PYTHONPATH": source, "PYTHONUTF8": "1"}

    done = subprocess.run(
        [sys.executable, "page.py"], cwd=tmp_path, env=variables, capture_output=True, text=True, timeout=120
    )

    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines() == re.findall(r"# -> (.*)$", script.read_text(encoding="utf-8"), re.MULTILINE)


@pytest.mark.parametrize("page", PAGES, ids=name_of)
def test_links_lead_somewhere(page: Path) -> None:
    for link in LINK.findall(FENCE.sub("", page.read_text(encoding="utf-8"))):
        if re.match(r"[a-z]+:", link):
            continue
        path, _, anchor = link.partition("#")
        target = (page.parent / path).resolve() if path else page
        assert target.exists() or target in MEASURED, f"{link} leads nowhere"
        if anchor:
            assert anchor in anchors_of(target), f"{link} names no heading"


def test_the_index_leads_to_every_page() -> None:
    linked = {(DOCS / link).resolve() for link in LINK.findall((DOCS / "index.md").read_text(encoding="utf-8"))}
    assert {page for page in PAGES if page.is_relative_to(DOCS)} - {DOCS / "index.md"} <= linked


def test_the_format_page_has_the_columns_of_the_tables() -> None:
    page = re.sub(r"\s*--.*", "", (DOCS / "format.md").read_text(encoding="utf-8"))
    assert (DOCS / "format.md").read_text(encoding="utf-8").startswith(f"# Storage format {FORMAT}\n")
    for migration in migrations("threadline_", COLUMN_TYPES):
        for statement in migration.statements:
            if statement.startswith("CREATE TABLE"):
                plain = " ".join(statement.replace(" IF NOT EXISTS", "").split())
                assert plain in " ".join(re.sub(r"\(\s+", "(", page).split()), plain


def test_the_format_page_names_every_built_in_type() -> None:
    page = (DOCS / "format.md").read_text(encoding="utf-8")
    names = {row.name for row in BUILTINS} | {"i", "m", "s", "fs", "nd", "np", "npdtype", "pickle"}
    assert not {name for name in names if f"`{name}`" not in page}
    assert not {code for code in (OBJECT, FOREIGN, TEXT) if f"**Extension {code}, " not in page}


@pytest.mark.parametrize("function", [make_engine, make_tools])
def test_the_options_page_has_every_option_with_its_default(function: object) -> None:
    page = (DOCS / "options.md").read_text(encoding="utf-8")
    for name, parameter in inspect.signature(function).parameters.items():  # type: ignore[arg-type]
        if parameter.kind is not inspect.Parameter.KEYWORD_ONLY:
            continue
        row = re.search(rf"^\| `{name}` \| `([^`]*)` \|", page, re.MULTILINE)
        assert row, f"{name} has no row"
        assert eval(row[1], {}) == parameter.default, name


def test_the_architecture_page_names_only_files_that_exist() -> None:
    text = (ROOT / "ARCHITECTURE.md").read_text(encoding="utf-8")
    for path in set(re.findall(r"`([\w/]+\.py)`", text)):
        assert (ROOT / path).exists() or (ROOT / "src" / "threadline" / path).exists(), path
