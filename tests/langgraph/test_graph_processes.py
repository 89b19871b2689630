"""A saver object that crosses `os.fork`, and a process that dies: what was stored goes on."""

import pytest

# The parent uses both halves before it forks, so that whatever a saver keeps open (connections,
# a worker thread, what it knows is stored) is there to be inherited.
FORKING = """
import asyncio, json, operator, os, sys, traceback
from typing import Annotated, TypedDict
from langgraph.graph import START, StateGraph
from threadline.langgraph import Checkpointer

class State(TypedDict):
    seen: Annotated[list, operator.add]

builder = StateGraph(State)
builder.add_node("node", lambda state: {"seen": ["x" * 300]})
builder.add_edge(START, "node")
graph = builder.compile(checkpointer=Checkpointer(sys.argv[1]))

def config(name):
    return {"configurable": {"thread_id": name}}

def use(name, times):
    for number in range(times):
        graph.invoke({"seen": [f"{name} sync {number}"]}, config(name))
        asyncio.run(graph.ainvoke({"seen": [f"{name} async {number}"]}, config(name)))

def said(name):
    return [word for word in graph.get_state(config(name)).values.get("seen", []) if word[0] != "x"]

use("shared", 2)
before = said("shared")
children = []
for number in range(3):
    child = os.fork()
    if child == 0:
        status = 1
        try:
            assert said("shared") == before, said("shared")
            use(f"child-{number}", 3)
            assert len(said(f"child-{number}")) == 6
            status = 0
        except BaseException:
            traceback.print_exc()
        finally:
            sys.stderr.flush()
            os._exit(status)
    children.append(child)
    use("parent", 1)
statuses = [os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) for child in children]
use("shared", 1)
names = ["shared", "parent", "child-0", "child-1", "child-2"]
print(json.dumps({"statuses": statuses, "said": {name: said(name) for name in names}}))
"""


def words(name, times):
    return [f"{name} {half} {n}" for n in range(times) for half in ("sync", "async")]


def test_parent_and_children_of_a_fork_write_one_file(run_script, sqlite_url):
    result = run_script(FORKING, sqlite_url)

    assert result["statuses"] == [0, 0, 0]
    assert result["said"]["shared"] == words("shared", 2) + words("shared", 1)
    assert result["said"]["parent"] == 3 * words("parent", 1)
    for number in range(3):
        assert result["said"][f"child-{number}"] == words(f"child-{number}", 3)


def test_a_forked_memory_is_the_childs_own(run_script):
    result = run_script(FORKING, "memory://")

    assert result["statuses"] == [0, 0, 0]
    assert result["said"]["shared"] == words("shared", 2) + words("shared", 1)
    assert result["said"]["parent"] == 3 * words("parent", 1)
    assert [result["said"][f"child-{number}"] for number in range(3)] == [[], [], []]


RESUMED = """
import json, operator, os, sys
from typing import Annotated, TypedDict
from langgraph.graph import START, StateGraph
from threadline.langgraph import Checkpointer

class State(TypedDict):
    seen: Annotated[list, operator.add]

def note(state):
    with open(sys.argv[2], "a") as ran:
        ran.write("note ")
    return {"seen": ["noted"]}

def crash(state):
    if os.environ.get("CRASH"):
        os._exit(9)
    return {"seen": ["survived"]}

builder = StateGraph(State)
builder.add_node("note", note)
builder.add_node("crash", crash)
builder.add_edge(START, "note")
builder.add_edge("note", "crash")
graph = builder.compile(checkpointer=Checkpointer(sys.argv[1]))
given = {"seen": []} if os.environ.get("CRASH") else None
final = graph.invoke(given, {"configurable": {"thread_id": "t"}}, durability="sync")
print(json.dumps(final["seen"]))
"""


@pytest.mark.parametrize("crashes", [1, 2])
def test_a_process_that_dies_mid_step_is_resumed_without_repeating(run_script, sqlite_url, tmp_path, crashes):
    ran = tmp_path / "ran.txt"
    run_script(RESUMED, sqlite_url, ran, must_fail=True, CRASH="1")
    finished = ["note"]
    if crashes == 2:
        # A second input while the first run is unfinished starts the graph again, as it should.
        run_script(RESUMED, sqlite_url, ran, must_fail=True, CRASH="1")
        finished.append("note")

    final = run_script(RESUMED, sqlite_url, ran)

    assert ran.read_text().split() == finished
    assert final[-1] == "survived"
    assert final.count("noted") == len(finished)
