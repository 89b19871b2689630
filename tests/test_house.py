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

# The import rule: a room may import rooms on lines below its own. Rooms on one line do not import each other, except
# the faces of a store, which hand each other out, and what `threadline` itself offers.
LAYERS = [
    ["cli", "web", "demo", "testing", "__main__"],
    ["graph", "langgraph", "transfer"],
    ["__init__", "connect", "records"],
    ["saver", "maintenance", "moving", "thread", "store", "cache", "background"],
    ["ops"],
    ["show"],
    ["core", "backends"],
    ["packs"],
    ["chunks"],
    ["codec"],
    ["ports"],
    ["base", "errors"],
]
HEIGHT = {room: len(LAYERS) - level for level, rooms in enumerate(LAYERS) for room in rooms}
NEIGHBOURS = [
    {"__init__", "connect", "records"},
    {"saver", "maintenance", "moving", "thread", "store", "cache", "background"},
    {"base", "errors"},
]
# Each exception, with its reason.
EXCEPTIONS = {
    ("core/history/diff.py", "show"): "a Diff shows itself in a notebook; loaded when one is shown",
    ("cli/app.py", "demo"): "`threadline demo` is a command; loaded when it runs",
    ("cli/commands/web.py", "web"): "`threadline web` is a command; loaded when it runs",
    ("demo/runtime.py", "testing"): "the demo shows a crash test",
    ("connect.py", "graph"): "a saver reads Send and Interrupt as the room's classes, once that room is imported",
    ("langgraph/bridge.py", "graph"): "the bridge teaches the runtime LangChain; nothing else of the adapter knows it",
    ("__main__.py", "cli"): "`python -m threadline` is the command line",
}
# A folder of a backend imports what all of them share, never a sibling.
BACKENDS = {"memory", "sqlite", "postgres", "mysql", "redis"}
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


def may_import(path: Path, room: str) -> bool:
    here, file = room_of(path), path.relative_to(SOURCE).as_posix()
    if here == room or HEIGHT[here] > HEIGHT[room] or (file, room) in EXCEPTIONS:
        return True
    return any({here, room} <= pair for pair in NEIGHBOURS)


@pytest.mark.parametrize("path", MODULES, ids=lambda path: str(path.relative_to(SOURCE)))
def test_imports_go_down_only(path: Path) -> None:
    for name in imports_of(path):
        parts = name.split(".")
        if parts[0] == "threadline" and len(parts) > 1 and parts[1] in HEIGHT:
            assert may_import(path, parts[1]), f"{path.name} imports {name}: see LAYERS"


@pytest.mark.parametrize("path", sorted((SOURCE / "backends").rglob("*.py")), ids=lambda path: path.name)
def test_a_backend_imports_no_sibling(path: Path) -> None:
    here = path.relative_to(SOURCE / "backends").parts[0]
    for name in imports_of(path):
        parts = name.split(".")
        if parts[:2] == ["threadline", "backends"] and len(parts) > 2 and parts[2] in BACKENDS:
            assert here == parts[2], f"{path} imports {name}"


@pytest.mark.parametrize("path", MODULES, ids=lambda path: str(path.relative_to(SOURCE)))
def test_only_the_adapter_and_the_demo_import_langgraph(path: Path) -> None:
    if room_of(path) == "langgraph" or "demo" in path.parts:
        return
    assert not [name for name in imports_of(path) if re.match(r"(langgraph|langchain_core|langsmith)\b", name)]


def test_core_knows_no_loop_no_thread_and_no_driver() -> None:
    for path in (SOURCE / "core").rglob("*.py"):
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


@pytest.mark.parametrize("page", ["ARCHITECTURE.md", "CONTRIBUTING.md"])
def test_every_path_that_a_page_names_exists(page: str) -> None:
    text = (ROOT / page).read_text()
    named = set(re.findall(r"`([a-z_/]+(?:\.py|/))`", text))
    assert len(named) > 10
    for path in named:
        assert (SOURCE / path).exists() or (ROOT / path).exists(), f"{page} names {path}"
    questions = re.findall(r"^\| [a-z].*\? \| `.*` \|$", text, re.MULTILINE)
    assert page != "CONTRIBUTING.md" or len(questions) >= 20


def test_every_method_of_the_ports_is_marked() -> None:
    from threadline.ports.checkpoints import Backend, Checkpoints, Upkeep
    from threadline.ports.marks import marks_of
    from threadline.ports.records import Records

    marks = marks_of(Backend)
    for port in (Checkpoints, Upkeep, Records):
        methods = {name for name, member in vars(port).items() if inspect.iscoroutinefunction(member)}
        assert methods, port
        assert methods <= marks.keys(), f"{port.__name__}: {methods - marks.keys()} have no mark"


def test_the_port_of_checkpoints_stays_small() -> None:
    """Every backend implements each method: what another one can tell is not asked for by a method of its own."""
    from threadline.ports.checkpoints import Checkpoints, Upkeep
    from threadline.ports.marks import marks_of

    assert len(marks_of(Checkpoints, Upkeep)) <= 24


def test_folders_are_small_and_have_no_families() -> None:
    for folder in {path.parent for path in MODULES} - {SOURCE}:
        names = [path.stem for path in folder.glob("*.py") if path.stem != "__init__"]
        if folder.parent.name == "testing":
            continue  # the contract is a list of subjects, one file each
        most = 12 if folder.parent.name == "backends" else 24
        assert len(names) <= most, f"{folder.relative_to(SOURCE)} has {len(names)} files"
        heads = [name.partition("_")[0] for name in names if "_" in name]
        for head in set(heads):
            assert heads.count(head) < 3, f"{folder.relative_to(SOURCE)} has a family of files named {head}_*"


@pytest.mark.parametrize("path", MODULES, ids=lambda path: str(path.relative_to(SOURCE)))
def test_no_module_imports_a_private_name_of_another(path: Path) -> None:
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.ImportFrom) and node.level:
            private = [alias.name for alias in node.names if alias.name.startswith("_") and alias.name != "__version__"]
            assert not private, f"{path.name} imports {private} from {node.module}"


def test_files_are_short_on_average() -> None:
    assert sum(len(path.read_text().splitlines()) for path in MODULES) / len(MODULES) < 200


@pytest.mark.parametrize("path", MODULES, ids=lambda path: str(path.relative_to(SOURCE)))
def test_public_names_are_listed_in_order(path: Path) -> None:
    for node in ast.parse(path.read_text()).body:
        if isinstance(node, ast.Assign) and getattr(node.targets[0], "id", "") == "__all__":
            names = ast.literal_eval(node.value)
            assert names == sorted(names)


@pytest.mark.parametrize("face", [Saver, Thread, threadline.Store, threadline.Cache])
def test_both_halves_have_the_same_names_and_parameters(face: type) -> None:
    public = {name: member for name, member in inspect.getmembers(face, callable) if not name.startswith("_")}
    # These give a handle or a value at once and wait for nothing.
    immediate = {
        "thread",
        "store",
        "cache",
        "key",
        "lock",
        "get_next_version",
        "with_allowlist",
        "within",
        "sweeper",
        "monitor",
        "for_run",
        "structural",
        "read_only",
    }
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
        # The runtime warns by the classes that LangGraph's users filter.
        if room_of(path) != "graph":
            assert "warnings.warn" not in path.read_text(), f"{path.name}: warnings are lines of the log"


def test_every_error_is_documented_and_public() -> None:
    documented = (ROOT / "docs" / "errors.md").read_text()
    for name in errors.__all__:
        assert f"`{name}`" in documented
        assert getattr(threadline, name) is getattr(errors, name)
        assert issubclass(getattr(errors, name), errors.ThreadlineError)


def test_every_option_is_documented() -> None:
    from threadline.connect import OPTIONS

    documented = (ROOT / "docs" / "options.md").read_text()
    for name in OPTIONS:
        assert f"`{name}`" in documented, f"{name} is not in docs/options.md"


def test_every_command_has_a_page_and_every_page_a_command() -> None:
    from threadline.cli.app import COMMANDS

    assert {page.stem for page in (ROOT / "docs" / "cli").glob("*.md")} == set(COMMANDS)


def test_importing_threadline_loads_no_loop_no_server_driver_and_no_command_line() -> None:
    import subprocess
    import sys

    heavy = ["asyncio", "typer", "rich", "zstandard", "cryptography", "pydantic", "numpy", "langchain_core"]
    script = f"import sys, threadline; print([name for name in {heavy!r} if name in sys.modules])"
    loaded = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True).stdout
    assert loaded.strip() == "[]"
