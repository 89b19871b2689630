"""The entries for `langgraph.json`: threads and items are where THREADLINE_URL says, and nowhere else."""

import pytest

import threadline

# As the server does it: resolve "module:name", enter what it makes, hand the saver to the graphs.
SERVER = """
import asyncio, importlib, json, operator, sys
from typing import Annotated, TypedDict
from langgraph.checkpoint.base import BaseCheckpointSaver
from langgraph.graph import START, StateGraph

class State(TypedDict):
    seen: Annotated[list, operator.add]

builder = StateGraph(State)
builder.add_node("length", lambda state: {"seen": [len(state["seen"])]})
builder.add_edge(START, "length")

async def serve():
    module, name = json.load(open("langgraph.json"))["checkpointer"]["path"].split(":")
    factory = getattr(importlib.import_module(module), name)
    async with factory() as saver:
        assert isinstance(saver, BaseCheckpointSaver)
        graph = builder.compile(checkpointer=saver)
        configs = [{"configurable": {"thread_id": f"t{n}"}} for n in range(3)]
        finals = await asyncio.gather(*(graph.ainvoke({"seen": [7]}, c) for c in configs))
        return [final["seen"] for final in finals]

print(json.dumps(asyncio.run(serve())))
"""

# The same for the store: its nodes get it, and count how often each user has come.
STORE_SERVER = """
import asyncio, importlib, json
from typing import TypedDict
from langgraph.graph import START, StateGraph
from langgraph.store.base import BaseStore

class State(TypedDict):
    user: str
    visits: int

async def visit(state, *, store: BaseStore):
    known = await store.aget(("users", state["user"]), "visits")
    visits = (known.value["n"] if known else 0) + 1
    await store.aput(("users", state["user"]), "visits", {"n": visits})
    return {"visits": visits}

async def serve():
    module, name = json.load(open("langgraph.json"))["store"]["path"].split(":")
    factory = getattr(importlib.import_module(module), name)
    async with factory() as store:
        assert isinstance(store, BaseStore)
        graph = StateGraph(State).add_node(visit).add_edge(START, "visit").compile(store=store)
        finals = await asyncio.gather(*(graph.ainvoke({"user": f"u{n}"}) for n in range(3)))
        names = await store.alist_namespaces(prefix=("users",))
        return [[final["visits"] for final in finals], names]

print(json.dumps(asyncio.run(serve())))
"""
BOTH = pytest.mark.parametrize("server", [SERVER, STORE_SERVER], ids=["checkpointer", "store"])


@pytest.fixture
def langgraph_json(tmp_path):
    (tmp_path / "langgraph.json").write_text(
        '{"graphs": {}, "checkpointer": {"path": "threadline.langgraph.server:checkpointer"}, '
        '"store": {"path": "threadline.langgraph.server:store"}}'
    )


def test_a_server_keeps_its_threads_where_the_variable_says(langgraph_json, run_script, sqlite_url, tmp_path):
    first = run_script(SERVER, THREADLINE_URL=sqlite_url)
    second = run_script(SERVER, THREADLINE_URL=sqlite_url)

    assert first == [[7, 1]] * 3
    assert second == [[7, 1, 7, 3]] * 3
    assert (tmp_path / "threads.db").stat().st_size > 0


def test_a_server_keeps_its_items_where_the_variable_says(langgraph_json, run_script, sqlite_url):
    names = [["users", "u0"], ["users", "u1"], ["users", "u2"]]

    assert run_script(STORE_SERVER, THREADLINE_URL=sqlite_url) == [[1, 1, 1], names]
    assert run_script(STORE_SERVER, THREADLINE_URL=sqlite_url) == [[2, 2, 2], names]
    with threadline.Store(sqlite_url) as store:
        assert store.get(("users", "u0"), "visits").value == {"n": 2}


def test_the_key_of_the_environment_seals_the_items_of_a_server(langgraph_json, run_script, sqlite_url):
    key = "0123456789abcdef0123456789abcdef"

    assert run_script(STORE_SERVER, THREADLINE_URL=sqlite_url, LANGGRAPH_AES_KEY=key)[0] == [1, 1, 1]
    assert run_script(STORE_SERVER, THREADLINE_URL=sqlite_url, LANGGRAPH_AES_KEY=key)[0] == [2, 2, 2]
    said = run_script(STORE_SERVER, must_fail=True, THREADLINE_URL=sqlite_url)
    assert "InvalidRequest: this store is encrypted" in said


@BOTH
@pytest.mark.parametrize("value", [None, "", "  "], ids=["unset", "empty", "blank"])
def test_a_server_without_the_variable_says_so_and_never_uses_memory(langgraph_json, run_script, server, value):
    said = run_script(server, must_fail=True, THREADLINE_URL=value)

    assert "THREADLINE_URL" in said.splitlines()[-1]


@BOTH
def test_a_server_with_an_unknown_kind_of_url_names_it(langgraph_json, run_script, server):
    said = run_script(server, must_fail=True, THREADLINE_URL="carrier-pigeon://coop")

    assert "carrier-pigeon" in said.splitlines()[-1]
