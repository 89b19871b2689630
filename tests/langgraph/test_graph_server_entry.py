"""The entry for `langgraph.json`: the store comes from THREADLINE_URL, and from nowhere else."""

import pytest

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


@pytest.fixture
def langgraph_json(tmp_path):
    (tmp_path / "langgraph.json").write_text(
        '{"graphs": {}, "checkpointer": {"path": "threadline.langgraph.server:checkpointer"}}'
    )


def test_a_server_keeps_its_threads_where_the_variable_says(langgraph_json, run_script, sqlite_url, tmp_path):
    first = run_script(SERVER, THREADLINE_URL=sqlite_url)
    second = run_script(SERVER, THREADLINE_URL=sqlite_url)

    assert first == [[7, 1]] * 3
    assert second == [[7, 1, 7, 3]] * 3
    assert (tmp_path / "threads.db").stat().st_size > 0


@pytest.mark.parametrize("value", [None, "", "  "], ids=["unset", "empty", "blank"])
def test_a_server_without_the_variable_says_so_and_never_uses_memory(langgraph_json, run_script, value):
    said = run_script(SERVER, must_fail=True, THREADLINE_URL=value)

    assert "THREADLINE_URL" in said.splitlines()[-1]


def test_a_server_with_an_unknown_kind_of_url_names_it(langgraph_json, run_script):
    said = run_script(SERVER, must_fail=True, THREADLINE_URL="carrier-pigeon://coop")

    assert "carrier-pigeon" in said.splitlines()[-1]
