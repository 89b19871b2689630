"""What waits is seen, and answered, by a process that has neither LangGraph nor the application's classes."""

import json

import pytest

# The application: its classes are in the state, in the question, and in an answer that a task was given before.
SHOP = """
from dataclasses import dataclass
from typing import Any, TypedDict
from langgraph.graph import START, StateGraph
from langgraph.types import Command, Send, interrupt
from threadline.langgraph import Checkpointer

@dataclass
class Order:
    item: str
    price: float

class State(TypedDict, total=False):
    order: Any
    sent: Any
    answers: list

def ask(state):
    first = interrupt({"approve": state["order"], "why": "it is dear"})
    second = interrupt({"sure": [state["order"]]})
    return {"answers": [first, second]}

def inner(state):
    return {"answers": [interrupt({"deep": state["order"]})]}

below = StateGraph(State).add_node(inner).add_edge(START, "inner").compile()

def build(saver):
    plain = StateGraph(State).add_node(ask).add_edge(START, "ask").compile(checkpointer=saver)
    nested = StateGraph(State).add_node("below", below).add_edge(START, "below").compile(checkpointer=saver)
    return plain, nested

def config(name):
    return {"configurable": {"thread_id": name}}
"""

WRITING = """
import json, sys
import shop
from shop import Checkpointer, Command, Order, Send, config

def write(url, options):
    saver = Checkpointer(url, **options)
    plain, nested = shop.build(saver)
    state = {"order": Order("bike", 900.0), "sent": Send("ask", Order("bell", 9.0))}
    plain.invoke(state, config("plain"))
    plain.invoke(state, config("twice"))
    plain.invoke(Command(resume=Order("lamp", 20.0)), config("twice"))
    nested.invoke(state, config("nested"))
    plain.invoke(state, config("done"))
    plain.invoke(Command(resume="yes"), config("done"))
    plain.invoke(Command(resume="yes"), config("done"))
    return [one.thread_id for one in saver.interrupts()]

print(json.dumps({name: write(*store) for name, store in json.loads(sys.argv[1]).items()}))
"""

# Nothing of LangGraph can be imported, and the application is not there.
LOOKING = """
import asyncio, json, logging, sys

class Blocker:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in ("langgraph", "langchain_core", "shop"):
            raise ImportError(f"{name} is not installed here")

sys.meta_path.insert(0, Blocker())
import threadline

complaints = []
class Listener(logging.Handler):
    def emit(self, record):
        complaints.append(record.getMessage())
logging.getLogger("threadline").addHandler(Listener())

async def seen(saver):
    lists = saver.ainterrupts(), saver.athreads(status="suspended")
    return [[one.thread_id async for one in listed] for listed in lists]

def look(url, options):
    complaints.clear()
    saver = threadline.connect(url, **options)
    waiting = list(saver.interrupts())
    found = {
        "questions": [[one.thread_id, repr(one.value)] for one in waiting],
        "suspended": [info.thread_id for info in saver.threads(status="suspended")],
        "active": [info.thread_id for info in saver.threads(status="active")],
        "status": [saver.thread(name).info().status for name in ("plain", "twice", "nested", "done")],
        "async": asyncio.run(seen(saver)),
    }
    for one in waiting:
        assert one.value is not None
        saver.thread(one.thread_id).answer({one.interrupt_id: f"answer to {one.thread_id}"})
    found["left"] = [one.thread_id for one in saver.interrupts()]
    found["complaints"] = complaints[:]
    return found

found = {name: look(*store) for name, store in json.loads(sys.argv[1]).items()}
assert not [name for name in sys.modules if name.startswith(("langgraph", "langchain_core"))]
print(json.dumps(found))
"""

RESUMING = """
import json, sys
import shop

def resume(url, options):
    saver = shop.Checkpointer(url, **options)
    plain, nested = shop.build(saver)
    graphs = {"plain": plain, "twice": plain, "nested": nested}
    ended = {name: graph.invoke(None, shop.config(name)).get("answers") for name, graph in graphs.items()}
    return {"ended": ended, "left": [one.thread_id for one in saver.interrupts()]}

print(json.dumps({name: resume(*store) for name, store in json.loads(sys.argv[1]).items()}, default=repr))
"""


@pytest.fixture
def stores(postgres, mysql, redis_server, tmp_path):
    """URLs and options of stores that several processes can open."""
    return {
        "sqlite": (f"sqlite:///{tmp_path / 'threads.db'}", {}),
        "postgres": (postgres.url, {}),
        "mysql": (mysql.url, {"table_prefix": mysql.table_prefix}),
        "redis": (redis_server.url, {"key_prefix": redis_server.key_prefix}),
    }


def test_what_waits_is_seen_and_answered_without_the_classes(stores, tmp_path, run_script):
    # Three processes for all stores: most of what one takes is importing LangGraph.
    shop, named = tmp_path / "shop.py", json.dumps(stores)
    shop.write_text(SHOP)
    assert run_script(WRITING, named) == {name: ["nested", "plain", "twice"] for name in stores}

    shop.rename(tmp_path / "elsewhere.txt")
    found = run_script(LOOKING, named)
    assert found.keys() == stores.keys()
    order = "Order(item='bike', price=900.0)"
    for name in stores:
        assert found[name] == {
            "questions": [
                ["nested", f"{{'deep': {order}}}"],
                ["plain", f"{{'approve': {order}, 'why': 'it is dear'}}"],
                ["twice", f"{{'sure': [{order}]}}"],
            ],
            "suspended": ["nested", "plain", "twice"],
            "active": ["done"],
            "status": ["suspended", "suspended", "suspended", "active"],
            "async": [["nested", "plain", "twice"]] * 2,
            "left": [],
            "complaints": [],
        }, name

    (tmp_path / "elsewhere.txt").rename(shop)
    resumed = run_script(RESUMING, named)
    for name in stores:
        ended = resumed[name]["ended"]
        assert ended["nested"] == ["answer to nested"]
        # What the task was told before came through the process that had no class for it.
        assert ended["twice"] == ["Order(item='lamp', price=20.0)", "answer to twice"]
        # The task went on with the answer, and asks its next question.
        assert (ended["plain"], resumed[name]["left"]) == (None, ["plain"])
