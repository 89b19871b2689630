"""The house rules that a machine can check."""

from __future__ import annotations

import ast
import inspect
import re
from pathlib import Path

import pytest

import threadline
from threadline import errors
from threadline.saver import Saver
from threadline.thread import Thread

ROOT = Path(__file__).parent.parent
SOURCE = ROOT / "src" / "threadline"
MODULES = sorted(SOURCE.rglob("*.py"))

# A room may import rooms further down, never up. Rooms on one line may import each other.
LAYERS = [
    ["cli", "testing", "__main__"],
    ["langgraph", "importing"],
    ["__init__", "connecting", "options"],
    ["saver", "thread", "lease", "sweeper", "underway", "upkeep"],
    ["core"],
    ["backends"],
    ["chunks"],
    ["codec"],
    ["model", "ids", "versions", "namespaces", "errors", "drive", "locks", "printable", "quiet"],
]
HEIGHT = {room: len(LAYERS) - level for level, rooms in enumerate(LAYERS) for room in rooms}
# `backends` decides with the digests of chunks and nothing else of that room; both lie below `core`.
DRIVERS = {"sqlite3", "aiosqlite", "psycopg", "pymysql", "aiomysql", "redis"}


def room_of(path: Path) -> str:
    return path.relative_to(SOURCE).parts[0].removesuffix(".py")


def imports_of(path: Path) -> list[str]:
    """Absolute names of every module that a file imports, wherever in the file."""
    package = ("threadline", *path.relative_to(SOURCE).parts[:-1])
    names: list[str] = []
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            names += [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            base = ".".join(package[: len(package) - node.level + 1]) if node.level else ""
            names.append(".".join(part for part in (base, node.module) if part))
            if node.module is None:
                names += [f"{base}.{alias.name}" for alias in node.names]
    return names


def test_every_room_has_a_place_in_the_layers() -> None:
    assert {room_of(path) for path in MODULES} <= HEIGHT.keys()


@pytest.mark.parametrize("path", MODULES, ids=lambda path: str(path.relative_to(SOURCE)))
def test_imports_go_down_only(path: Path) -> None:
    for name in imports_of(path):
        parts = name.split(".")
        if parts[0] == "threadline" and len(parts) > 1 and parts[1] in HEIGHT:
            assert HEIGHT[parts[1]] <= HEIGHT[room_of(path)], f"{path.name} imports {name} from above"


@pytest.mark.parametrize("path", MODULES, ids=lambda path: str(path.relative_to(SOURCE)))
def test_only_the_adapter_and_the_demo_import_langgraph(path: Path) -> None:
    if room_of(path) == "langgraph" or "demo" in path.parts:
        return
    assert not [name for name in imports_of(path) if re.match(r"(langgraph|langchain_core|langsmith)\b", name)]


def test_core_knows_no_loop_no_thread_and_no_driver() -> None:
    for path in (SOURCE / "core").glob("*.py"):
        assert not {"asyncio", "threading", *DRIVERS} & {name.split(".")[0] for name in imports_of(path)}, path


@pytest.mark.parametrize("path", MODULES, ids=lambda path: str(path.relative_to(SOURCE)))
def test_files_and_functions_stay_short(path: Path) -> None:
    text = path.read_text()
    assert len(text.splitlines()) <= 500
    for node in ast.walk(ast.parse(text)):
        # Statements are a list, however long; a class of them is one constructor.
        if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)) and path.name != "statements.py":
            length = (node.end_lineno or 0) - node.lineno + 1
            assert length <= 50, f"{node.name} has {length} lines"


def test_files_are_short_on_average() -> None:
    assert sum(len(path.read_text().splitlines()) for path in MODULES) / len(MODULES) < 200


@pytest.mark.parametrize("path", MODULES, ids=lambda path: str(path.relative_to(SOURCE)))
def test_public_names_are_listed_in_order(path: Path) -> None:
    for node in ast.parse(path.read_text()).body:
        if isinstance(node, ast.Assign) and getattr(node.targets[0], "id", "") == "__all__":
            names = ast.literal_eval(node.value)
            assert names == sorted(names)


@pytest.mark.parametrize("face", [Saver, Thread])
def test_both_halves_have_the_same_names_and_parameters(face: type) -> None:
    public = {name: member for name, member in inspect.getmembers(face, callable) if not name.startswith("_")}
    # These give a handle or a value at once and wait for nothing.
    immediate = {"thread", "lock", "get_next_version", "with_allowlist", "within", "sweeper"}
    sync = {name for name in public if "a" + name in public} | immediate
    for name in public:
        assert name in sync or name[1:] in sync, f"{name} has no twin"
    for name in sync - immediate:
        twins = [list(inspect.signature(public[half]).parameters.values()) for half in (name, "a" + name)]
        assert [str(p) for p in twins[0]] == [str(p) for p in twins[1]], name


def log_calls(path: Path) -> list[ast.Call]:
    """Every call of a method of the log."""
    levels = {"debug", "info", "warning", "error", "exception", "critical", "log"}
    return [
        node
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, ast.Call)
        and isinstance(node.func, ast.Attribute)
        and node.func.attr in levels
        and ast.unparse(node.func.value) in ("log", "logger", "logging")
    ]


def test_a_log_line_shows_texts_from_outside_only_quoted_or_printable() -> None:
    found = 0
    for path in MODULES:
        for call in log_calls(path):
            where = f"{path.relative_to(ROOT)}:{call.lineno}"
            said, *values = call.args
            assert isinstance(said, ast.Constant), f"{where}: values are arguments of the line, not parts of it"
            assert isinstance(said.value, str), where
            kinds = re.findall(r"%[-+ #0-9.]*([a-zA-Z])", said.value.replace("%%", ""))
            assert len(kinds) == len(values), where
            for kind, value in zip(kinds, values, strict=True):
                is_printable = isinstance(value, ast.Call) and ast.unparse(value.func) == "printable"
                assert kind in "rdf" or is_printable, f"{where}: {ast.unparse(value)} is neither %r nor printable()"
            found += 1
    assert found > 10
    for path in MODULES:
        assert "warnings.warn" not in path.read_text(), f"{path.name}: warnings are lines of the log"


def test_every_error_is_documented_and_public() -> None:
    documented = (ROOT / "docs" / "errors.md").read_text()
    for name in errors.__all__:
        assert f"`{name}`" in documented
        assert getattr(threadline, name) is getattr(errors, name)
        assert issubclass(getattr(errors, name), errors.ThreadlineError)


def test_every_option_is_documented() -> None:
    from threadline.options import OPTIONS

    documented = (ROOT / "docs" / "options.md").read_text()
    for name in OPTIONS:
        assert f"`{name}`" in documented, f"{name} is not in docs/options.md"


def test_every_command_has_a_page_and_every_page_a_command() -> None:
    from threadline.cli.commands import COMMANDS

    assert {page.stem for page in (ROOT / "docs" / "cli").glob("*.md")} == set(COMMANDS)


def test_importing_threadline_loads_no_loop_no_server_driver_and_no_command_line() -> None:
    import subprocess
    import sys

    heavy = ["asyncio", "typer", "rich", "zstandard", "cryptography", "pydantic", "numpy", "langchain_core"]
    script = f"import sys, threadline; print([name for name in {heavy!r} if name in sys.modules])"
    loaded = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True).stdout
    assert loaded.strip() == "[]"
