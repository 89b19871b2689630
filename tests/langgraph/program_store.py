"""A store beside the saver: nodes of different threads share what they remember of a user."""

import operator
from typing import Annotated, TypedDict

from langgraph.graph import START, StateGraph
from langgraph.store.base import BaseStore
from langgraph.store.memory import InMemoryStore


class State(TypedDict):
    fact: str
    known: Annotated[list, operator.add]


def remember(state, *, store: BaseStore):
    store.put(("users", "ann"), state["fact"], {"fact": state["fact"], "length": len(state["fact"])})
    return {"known": [sorted(item.key for item in store.search(("users", "ann")))]}


def keep_items(state, *, store: BaseStore):
    found = store.get(("users", "ann"), state["fact"])
    return {"known": [{"namespace": list(found.namespace), "key": found.key, "value": found.value}]}


async def program(saver, face):
    builder = StateGraph(State)
    builder.add_node("remember", remember)
    builder.add_node("keep_items", keep_items)
    builder.add_edge(START, "remember")
    builder.add_edge("remember", "keep_items")
    store = InMemoryStore()
    graph = builder.compile(checkpointer=saver, store=store)
    results = []
    for thread, fact in (("one", "likes tea"), ("two", "lives in Bonn"), ("one", "has a cat")):
        config = {"configurable": {"thread_id": thread}}
        results.append(await face.invoke(graph, {"fact": fact, "known": []}, config))
        results.append(await face.get_state(graph, config))
    return [results, sorted(item.key for item in store.search(("users", "ann")))]
