"""Nodes whose results are cached beside the saver: the second thread does not run them again."""

import operator
from typing import Annotated, TypedDict

from langgraph.cache.memory import InMemoryCache
from langgraph.graph import START, StateGraph
from langgraph.types import CachePolicy


class State(TypedDict):
    question: str
    answers: Annotated[list[str], operator.add]


async def program(saver, face):
    ran = []

    def slow(state):
        ran.append(state["question"])
        return {"answers": [f"answer to {state['question']}"]}

    builder = StateGraph(State)
    builder.add_node("slow", slow, cache_policy=CachePolicy(key_func=lambda state: state["question"].encode()))
    builder.add_node("after", lambda state: {"answers": [f"after {len(state['answers'])}"]})
    builder.add_edge(START, "slow")
    builder.add_edge("slow", "after")
    graph = builder.compile(checkpointer=saver, cache=InMemoryCache())
    results = []
    for thread in ("one", "two", "one"):
        config = {"configurable": {"thread_id": thread}}
        results.append(
            await face.all(graph, "stream", {"question": "why", "answers": []}, config, stream_mode="updates")
        )
        results.append(await face.get_state(graph, config))
    return [results, ran]
