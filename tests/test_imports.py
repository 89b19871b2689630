"""What an import loads, and what waits until it is used: by names of modules in new processes, never by time."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
# Modules that take long to load, and what they are for.
FOR_STORES_AND_CACHES = ["threadline.records", "threadline.store", "threadline.core.records.batch"]
FOR_RETENTION = ["threadline.core.retention.sweep", "threadline.core.integrity.verify", "threadline.core.history.state"]
FOR_A_BACKEND = ["sqlite3", "psycopg", "pymysql", "redis", "threadline.backends.sql", "threadline.backends.memory"]
FOR_GRAPHS = ["langgraph.types", "langgraph.graph", "langsmith", "langchain_core.tracers.base", "threadline.graph"]
FOR_SHOWING = ["html", "rich", "typer", "asyncio", "threadline.show"]
HEAVY = [*FOR_STORES_AND_CACHES, *FOR_RETENTION, *FOR_A_BACKEND, *FOR_GRAPHS, *FOR_SHOWING]


def in_a_new_process(script: str) -> str:
    environment = {**os.environ, "PYTHONPATH": str(ROOT / "src")}
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, env=environment, timeout=120)
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


def loaded_by(statement: str, beside: str = "") -> set[str]:
    """The modules that a statement loads in a process that has imported what is `beside` it."""
    script = f"import sys\n{beside}\nbefore = set(sys.modules)\n{statement}\nprint(*set(sys.modules) - before)"
    return set(in_a_new_process(script).split())


@pytest.mark.parametrize(
    ("statement", "used"),
    [
        ("import threadline", []),
        ("import threadline; threadline.connect('memory://')", ["threadline.backends.memory"]),
        ("from threadline.langgraph import Checkpointer", []),
        ("from threadline.langgraph import SqliteSaver, PostgresSaver, InMemorySaver", ["sqlite3"]),
        ("from threadline.langgraph import Store", FOR_STORES_AND_CACHES[1:]),
    ],
)
def test_an_import_loads_only_what_its_names_need(statement: str, used: list[str]) -> None:
    """LangGraph's own imports do not count where the adapter is imported."""
    beside = "import langgraph.checkpoint.base" if "langgraph" in statement else ""
    assert loaded_by(statement, beside).intersection(HEAVY) == set(used)


def test_the_adapter_imports_nothing_of_langchain_that_a_saver_of_langgraph_does_not() -> None:
    loaded = loaded_by("import threadline.langgraph", "import langgraph.checkpoint.base, langgraph.checkpoint.memory")
    assert not {name for name in loaded if name.split("_")[0].split(".")[0] in ("langchain", "langgraph", "langsmith")}


def test_a_graph_with_a_saver_loads_no_store_no_database_and_no_drawing() -> None:
    loaded = loaded_by("import threadline; from threadline.graph import StateGraph; threadline.connect('memory://')")
    unused = {*FOR_STORES_AND_CACHES, *FOR_RETENTION, *FOR_SHOWING, "sqlite3", "pydantic"}
    assert not loaded & {*unused, "threadline.graph.showing.draw"}


WRITE = """
from langchain_core.documents import Document
from langgraph.types import Command, Interrupt, Send
from threadline.codec import Serializer
import threadline.langgraph
values = [Send("node", {"a": 1}), Interrupt(value="?", id="1"), Command(goto="x"), Document(page_content="p")]
for value in values:
    print(Serializer().dumps_typed(value)[1].hex())
"""
READ = """
import sys
import threadline.langgraph
from threadline.codec import Serializer
module = {module!r}
assert module not in sys.modules
value = Serializer().loads_typed(("msgpack", bytes.fromhex({packed!r})))
print(type(value).__module__, type(value).__name__)
assert Serializer().dumps_typed(value)[1].hex() == {packed!r}
"""


def test_a_stored_value_is_rebuilt_where_its_module_was_not_imported() -> None:
    packed = in_a_new_process(WRITE).split()
    kinds = ["langgraph.types Send", "langgraph.types Interrupt", "langgraph.types Command"]
    kinds.append("langchain_core.documents.base Document")
    for data, kind in zip(packed, kinds, strict=True):
        module = kind.split()[0]
        assert in_a_new_process(READ.format(module=module, packed=data)) == kind


def test_every_public_name_can_be_had() -> None:
    in_a_new_process(
        "import threadline, threadline.graph, threadline.langgraph\n"
        "for room in (threadline, threadline.graph, threadline.langgraph):\n"
        "    assert set(room.__all__) <= set(dir(room))\n"
        "    assert all(getattr(room, name) is not None for name in room.__all__)\n"
        "    assert not hasattr(room, 'no_such_name')\n"
    )
