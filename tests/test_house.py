"""The house rules that a machine can check."""

from __future__ import annotations

import ast
import inspect
import itertools
import re
from pathlib import Path
from typing import TypeGuard

import pytest

import threadline
from threadline import errors, langgraph
from threadline.graph import Pregel
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
# Shared folders that not every backend may import, and who may.
SHARED_BY = {
    "sql": {"sqlite", "postgres", "mysql"},
    # An archive is a memory backend whose chunks are in a file; everywhere else connect adds objects as a layer.
    "objects": {"memory/archive.py"},
}
DRIVERS = {"sqlite3", "aiosqlite", "psycopg", "pymysql", "aiomysql", "redis"}


def room_of(path: Path) -> str:
    return path.relative_to(SOURCE).parts[0].removesuffix(".py")


def imports_of(path: Path) -> list[str]:
    """Absolute names of every module that a file imports, wherever in the file; a module loaded by its name, too."""
    names: list[str] = []
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            names += [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            module = module_of(path, node)
            # A name may be a module; of the package itself it is a room, or something that `__init__` offers.
            names += [] if module == "threadline" else [module]
            names += [f"{module}.{alias.name}" for alias in node.names]
        elif is_loading(node):
            names.append(loaded_name(path, node))
    return ["threadline.__init__" if name == "threadline" else name for name in names]


def module_of(path: Path, node: ast.ImportFrom) -> str:
    """The absolute name of the module that a `from … import` names."""
    return absolute(path, "." * node.level + (node.module or ""))


def absolute(path: Path, name: str) -> str:
    package = ("threadline", *path.relative_to(SOURCE).parts[:-1])
    level = len(name) - len(name.lstrip("."))
    base = package[: len(package) - level + 1] if level else ()
    return ".".join([*base, *filter(None, [name.lstrip(".")])])


def is_loading(node: ast.AST) -> TypeGuard[ast.Call]:
    """Whether this is a call of importlib.import_module or __import__."""
    return isinstance(node, ast.Call) and ast.unparse(node.func).rpartition(".")[2] in ("import_module", "__import__")


def loaded_name(path: Path, call: ast.Call) -> str:
    """The module that a call loads, as far as it is written there; "" where the name is computed."""
    first = call.args[0]
    if isinstance(first, ast.JoinedStr):
        first = first.values[0]
    return absolute(path, first.value) if isinstance(first, ast.Constant) and isinstance(first.value, str) else ""


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
        if parts[0] == "threadline":
            parts = parts if parts[1] in HEIGHT else ["threadline", "__init__"]
            assert may_import(path, parts[1]), f"{path.name} imports {name}: see LAYERS"


@pytest.mark.parametrize("path", sorted((SOURCE / "backends").rglob("*.py")), ids=lambda path: path.name)
def test_a_backend_imports_no_sibling(path: Path) -> None:
    here = path.relative_to(SOURCE / "backends").parts[0]
    for name in imports_of(path):
        parts = name.split(".")
        if parts[:2] != ["threadline", "backends"] or len(parts) < 3 or here == parts[2]:
            continue
        assert parts[2] not in BACKENDS, f"{path} imports {name}"
        if parts[2] in SHARED_BY:
            assert {here, path.relative_to(SOURCE / "backends").as_posix()} & SHARED_BY[parts[2]], f"{path}: {name}"


@pytest.mark.parametrize("path", MODULES, ids=lambda path: str(path.relative_to(SOURCE)))
def test_only_the_adapter_and_the_demo_import_langgraph(path: Path) -> None:
    # Tests of graphs take LangGraph's own classes where the graph to test is LangGraph's: it is loaded then.
    tests_graphs = {"graph/testing/answering.py", "graph/testing/crashing.py"}
    if room_of(path) in ("langgraph", "demo") or path.relative_to(SOURCE).as_posix() in tests_graphs:
        return
    assert not [name for name in imports_of(path) if re.match(r"(langgraph|langchain\w*|langsmith)\b", name)]


@pytest.mark.parametrize("path", sorted((SOURCE / "graph").rglob("*.py")), ids=lambda path: path.name)
def test_the_runtime_imports_the_rest_of_the_package_in_one_file(path: Path) -> None:
    if path.name != "_base.py" and path.parent.name != "testing":
        outside = [name for name in imports_of(path) if name.startswith("threadline.")]
        assert all(name.startswith("threadline.graph") for name in outside), f"{path}: import it in graph/_base.py"


def test_core_knows_no_loop_no_thread_no_socket_and_no_driver() -> None:
    outside = {"asyncio", "concurrent", "multiprocessing", "queue", "selectors", "socket", "subprocess", "threading"}
    for path in (SOURCE / "core").rglob("*.py"):
        assert not (outside | DRIVERS) & {name.split(".")[0] for name in imports_of(path)}, path
        for node in ast.walk(ast.parse(path.read_text())):
            if is_loading(node):
                assert loaded_name(path, node).startswith("threadline.core"), f"{path} loads {ast.unparse(node)}"


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
    named = set(re.findall(r"`([\w./-]+(?:\.(?:c|lua|md|py|pyi|toml|txt)|/))`", text))
    assert len(named) > 10
    for path in named - {"docs/design/NNNN-title.md"}:  # the form of a name
        assert (SOURCE / path).exists() or (ROOT / path).exists(), f"{page} names {path}"
    questions = re.findall(r"^\| [a-z].*\? \| `.*` \|$", text, re.MULTILINE)
    assert page != "CONTRIBUTING.md" or len(questions) >= 20


def block_after(words: str) -> list[str]:
    """The lines of the first indented block of ARCHITECTURE.md behind a sentence that has these words."""
    lines = (ROOT / "ARCHITECTURE.md").read_text().partition(words)[2].splitlines()[2:]
    return list(itertools.takewhile(lambda line: line.startswith("    "), lines))


def test_the_tree_in_the_architecture_names_every_room_and_nothing_else() -> None:
    outer: list[Path] = []
    named: set[Path] = set()
    for line in block_after("Below `src/threadline/`:"):
        first = line.strip().partition("   ")[0]
        paths = re.findall(r"[\w.]+(?:\.py|/)", first)
        is_inner = line.startswith("        ")
        places = [base / path for path in paths for base in (outer if is_inner else [SOURCE])]
        for path in paths:
            assert any(place.exists() for place in places if place.name == path.strip("/")), f"the tree names {path}"
        for inner in re.findall(r"\b\w+(?:\.py|/)(?![\w`])", line.strip().partition("   ")[2]):
            assert any((place / inner).exists() for place in places), f"the tree names {inner} in {first}"
        outer = outer if is_inner else places
        named.update(places)
    rooms = {path for path in SOURCE.iterdir() if path.suffix == ".py" or (path / "__init__.py").exists()}
    assert {path.name for path in rooms - named} <= {"__init__.py", "__main__.py", "py.typed"}


def test_the_import_rule_in_the_architecture_is_the_one_that_is_checked() -> None:
    said = [line.strip().partition("   ")[0].replace("|", " ").split() for line in block_after("The import rule:")]
    checked = [[room for room in rooms if not room.startswith("__")] for rooms in LAYERS]
    assert [sorted(line) for line in said] == [sorted(line) for line in checked]


def test_every_method_of_the_ports_is_marked() -> None:
    from threadline.ports.checkpoints import Backend
    from threadline.ports.marks import marks_of

    marks = marks_of(Backend)
    ports = [one for one in Backend.__mro__ if one.__module__.startswith("threadline.ports") and one is not Backend]
    assert {port.__name__ for port in ports} == {"Checkpoints", "Upkeep", "Wholes", "Records", "Storage"}
    for port in ports:
        methods = {name for name, member in vars(port).items() if inspect.isfunction(member) and name[0] != "_"}
        assert methods, port
        assert methods <= marks.keys(), f"{port.__name__}: {methods - marks.keys()} have no mark"


def test_the_ports_stay_small() -> None:
    """Every backend implements each method: what another one can tell is not asked for by a method of its own."""
    from threadline.ports.checkpoints import Backend, Checkpoints, Upkeep
    from threadline.ports.marks import marks_of
    from threadline.ports.whole import Wholes

    assert len(marks_of(Checkpoints, Upkeep)) <= 24
    # Those of Wholes have an answer for backends that cannot: WithoutWholes, WithoutOutlines.
    assert len(marks_of(Wholes)) <= 3
    assert len(marks_of(Backend)) <= 45


def test_folders_are_small_and_have_no_families() -> None:
    for folder in {path.parent for path in MODULES} - {SOURCE}:
        names = [path.stem for path in folder.glob("*.py") if path.stem != "__init__"]
        if folder.parent.name == "testing":
            continue  # the contract is a list of subjects, one file each
        most = 12 if folder.parent.name == "backends" else 24
        assert len(names) <= most, f"{folder.relative_to(SOURCE)} has {len(names)} files"
        heads = [name.partition("_")[0] for name in names]
        for head in set(heads):
            assert heads.count(head) < 3, f"{folder.relative_to(SOURCE)} has a family of files named {head}_*"


@pytest.mark.parametrize("path", MODULES, ids=lambda path: str(path.relative_to(SOURCE)))
def test_no_module_imports_a_private_name_of_another(path: Path) -> None:
    tree = ast.parse(path.read_text())
    modules: set[str] = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            modules |= {alias.asname or alias.name for alias in node.names if alias.name.startswith("threadline")}
        elif isinstance(node, ast.ImportFrom) and module_of(path, node).startswith("threadline"):
            private = [alias.name for alias in node.names if alias.name.startswith("_") and alias.name != "__version__"]
            assert not private, f"{path.name} imports {private} from {node.module}"
            modules |= {alias.asname or alias.name for alias in node.names if is_module(module_of(path, node), alias)}
    for node in ast.walk(tree):
        if isinstance(node, ast.Attribute) and ast.unparse(node.value) in modules:
            assert not re.match("_[^_]", node.attr), f"{path.name}:{node.lineno} uses {ast.unparse(node)}"


def is_module(package: str, alias: ast.alias) -> bool:
    place = SOURCE.joinpath(*package.split(".")[1:], alias.name)
    return place.is_dir() or place.with_suffix(".py").exists()


def test_files_are_short_on_average() -> None:
    assert sum(len(path.read_text().splitlines()) for path in MODULES) / len(MODULES) < 200


@pytest.mark.parametrize("path", MODULES, ids=lambda path: str(path.relative_to(SOURCE)))
def test_public_names_are_listed_in_order(path: Path) -> None:
    for node in ast.parse(path.read_text()).body:
        if isinstance(node, ast.Assign) and getattr(node.targets[0], "id", "") == "__all__":
            names = ast.literal_eval(node.value)
            assert names == sorted(names)


# These give a handle or a value at once and wait for nothing.
IMMEDIATE = {
    Saver: "thread store cache lock get_next_version with_allowlist within sweeper monitor for_run structural"
    " read_only",
    Thread: "",
    threadline.Store: "",
    threadline.Cache: "key",
    # LangGraph's stores have one name for both: a method of PostgresStore, a coroutine of AsyncPostgresStore.
    langgraph.Store: "setup sweep_ttl start_ttl_sweeper stop_ttl_sweeper",
    langgraph.Cache: "",
    Pregel: "copy get_name note_discarded refuse_or_warn subgraphs_of validate version_note with_config"
    " get_context_jsonschema get_input_jsonschema get_output_jsonschema",
}


@pytest.mark.parametrize("face", IMMEDIATE, ids=lambda face: f"{face.__module__}.{face.__name__}")
def test_both_halves_have_the_same_names_and_parameters(face: type) -> None:
    public = {name: member for name, member in inspect.getmembers(face, callable) if not name.startswith("_")}
    immediate = set(IMMEDIATE[face].split())
    assert immediate <= public.keys(), f"{immediate - public.keys()} are not there"
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
