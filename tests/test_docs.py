"""The pages for people: examples run as written, links lead somewhere, tables name what exists.

A Python example below the line `<!-- run -->` is run. The examples of one page are one script, run in a new
interpreter in a folder of its own, as a reader would who copied them one after the other. What stands behind
`# ->` is what that line prints.

Below `<!-- run on postgresql -->`, `mysql` or `redis` an example runs against a throwaway server: the URLs of its
page (`postgresql://app:secret@db.example/agents` and the like) are replaced by that server's. SQL is run there as
the administrator would.
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
from threadline.backends.mysql.engine import MysqlEngine
from threadline.backends.postgres.engine import PostgresEngine
from threadline.backends.redis.engine import RedisEngine
from threadline.backends.sql.setup import migrations
from threadline.backends.sqlite.dialect import COLUMN_TYPES
from threadline.backends.sqlite.engine import SqliteEngine
from threadline.codec.builtin import BUILTINS
from threadline.codec.builtin_rare import RARE
from threadline.codec.codec import FOREIGN, OBJECT, TEXT
from threadline.connect import make_tools
from threadline.core.context import ToolOptions
from threadline.ports.rules import FORMAT

ROOT = Path(__file__).parent.parent
DOCS = ROOT / "docs"
PAGES = sorted([*ROOT.glob("*.md"), *DOCS.rglob("*.md")])
# `make bench` writes this page and its plot.
MEASURED = {DOCS / "benchmarks.md", DOCS / "benchmarks.svg"}
EXAMPLE = re.compile(r"^<!-- run(?: on (\w+))? -->\n```(python|sql)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
SERVERS = {"postgresql": "private_postgres", "mysql": "private_mysql", "redis": "private_redis"}
AS_ADMIN = "import psycopg\npsycopg.connect({url!r}, autocommit=True).execute({sql!r})\n"
FENCE = re.compile(r"^```.*?^```$", re.MULTILINE | re.DOTALL)
LINK = re.compile(r"\[[^\]]*\]\(([^)\s]+)\)")


def name_of(page: Path) -> str:
    return page.relative_to(ROOT).as_posix()


def examples_of(page: Path, url: str = "") -> str:
    """All examples of a page as one script; `url` is that of the server they run on."""
    parts = [
        AS_ADMIN.format(url=url, sql=text) if language == "sql" else _with_server(text, url)
        for _, language, text in EXAMPLE.findall(page.read_text(encoding="utf-8"))
    ]
    return "\n".join(parts)


def server_of(page: Path) -> str | None:
    """The server that the examples of a page run on."""
    return next((server for server, _, _ in EXAMPLE.findall(page.read_text(encoding="utf-8")) if server), None)


def _with_server(text: str, url: str) -> str:
    def replaced(found: re.Match[str]) -> str:
        scheme, user = found[1], found[2]
        return re.sub(r"//[^@/]*@", "//app@", url) if scheme == "postgresql" and user == "app" else url

    return re.sub(r"(\w+)://(?:(\w+):secret@)?db\.example/\w+", replaced, text) if url else text


def anchors_of(page: Path) -> set[str]:
    """The names under which a page's headings can be linked to."""
    text = FENCE.sub("", page.read_text(encoding="utf-8"))
    headings = re.findall(r"^#+ (.+)$", text, re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}


@pytest.mark.parametrize("page", [page for page in PAGES if examples_of(page)], ids=name_of)
def test_the_examples_of_a_page_run_and_print_what_they_say(
    page: Path, tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    server = server_of(page)
    url = request.getfixturevalue(SERVERS[server]).url if server else ""
    script = tmp_path / "page.py"
    script.write_text(examples_of(page, url), encoding="utf-8")
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


def links_of(page: Path) -> set[Path]:
    """The files that a page links to."""
    return {(page.parent / link).resolve() for link in LINK.findall(page.read_text(encoding="utf-8"))}


def test_the_index_leads_to_every_page_and_the_page_of_commands_to_every_command() -> None:
    index, cli = DOCS / "index.md", DOCS / "cli.md"
    commands = set((DOCS / "cli").glob("*.md"))
    assert len(commands) > 30
    assert commands <= links_of(cli)
    assert {page for page in PAGES if page.is_relative_to(DOCS)} - commands - {index} <= links_of(index)


@pytest.mark.parametrize("page", [ROOT / "README.md", DOCS / "index.md"], ids=name_of)
def test_figures_that_a_page_boasts_of_are_those_of_the_benchmarks(page: Path) -> None:
    measured = (DOCS / "benchmarks.md").read_text(encoding="utf-8")
    text = page.read_text(encoding="utf-8")
    ratios, amounts = re.findall(r"\*\*[\d.,]+ x\*\*", text), re.findall(r"\b[\d.]+ (?:MB|ms)\b", text)
    assert ratios
    assert amounts
    for figure in [*ratios, *amounts]:
        assert figure in measured, f"{figure} is not in docs/benchmarks.md: it was measured anew"


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
    names = {row.name for row in (*BUILTINS, *RARE)} | {"i", "m", "s", "fs", "nd", "np", "npdtype", "pickle"}
    assert not {name for name in names if f"`{name}`" not in page}
    assert not {code for code in (OBJECT, FOREIGN, TEXT) if f"**Extension {code}, " not in page}


@pytest.mark.parametrize("function", [make_tools, ToolOptions, SqliteEngine, PostgresEngine, MysqlEngine, RedisEngine])
def test_the_options_page_has_every_option_with_its_default(function: type) -> None:
    page = (DOCS / "options.md").read_text(encoding="utf-8")
    # Where a backend has another default than the others, the row says so.
    others = {(RedisEngine, "pool_size"): "16 on Redis", (RedisEngine, "retry"): "Retry()"}
    for name, parameter in inspect.signature(function).parameters.items():
        if parameter.kind is not inspect.Parameter.KEYWORD_ONLY:
            continue
        row = re.search(rf"^\| `{name}` \| `([^`]*)` \|.*", page, re.MULTILINE)
        assert row, f"{name} has no row"
        if (function, name) in others:
            assert others[function, name] in row[0]
        else:
            assert eval(row[1], {"Retry": threadline.Retry}) == parameter.default, name


def test_the_options_page_says_which_backend_takes_which() -> None:
    page = (DOCS / "options.md").read_text(encoding="utf-8")
    table = page.partition("## Which backend takes which\n")[2].partition("\n## ")[0]
    said = {
        row[0].strip("`"): row[1:]
        for row in (
            [cell.strip() for cell in line.strip("|").split("|")]
            for line in table.splitlines()
            if line.startswith("| `")
        )
    }
    for column, engine in enumerate([SqliteEngine, PostgresEngine, MysqlEngine, RedisEngine]):
        taken = {name for name, one in inspect.signature(engine).parameters.items() if one.kind is one.KEYWORD_ONLY}
        taken.discard("index_metadata")  # any store takes it; some have an index for it
        # Where the server does not let threads expire by itself, a sweep does.
        assert {name for name, cells in said.items() if cells[column] == "yes"} == taken | {"ttl"}, engine.__name__


def test_the_architecture_page_leads_to_every_room() -> None:
    """Each module at the top of the package, and each folder with modules, is in the tree of the page."""
    text = (ROOT / "ARCHITECTURE.md").read_text(encoding="utf-8")
    source = ROOT / "src" / "threadline"
    modules = {path.name for path in source.glob("*.py")} - {"__init__.py", "__main__.py"}
    folders = {f"{path.parent.relative_to(source).name}/" for path in source.rglob("*.py") if path.parent != source}
    for name in modules | (folders - {"commands/", "contract/", "lua/", "stores/"}):
        assert name in text, name


def test_the_architecture_page_names_only_files_that_exist() -> None:
    text = (ROOT / "ARCHITECTURE.md").read_text(encoding="utf-8")
    for path in set(re.findall(r"`([\w/]+\.py)`", text)):
        assert (ROOT / path).exists() or (ROOT / "src" / "threadline" / path).exists(), path
