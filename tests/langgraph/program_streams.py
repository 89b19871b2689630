"""Every stream mode, one by one and all at once, with a subgraph and an interrupt."""

import operator
from typing import Annotated, TypedDict

from langchain_core.messages import HumanMessage
from langgraph.config import get_stream_writer
from langgraph.graph import START, MessagesState, StateGraph
from langgraph.types import Command, interrupt
from scripted import ScriptedModel

MODES = ["values", "updates", "custom", "messages", "checkpoints", "tasks", "debug"]


class State(MessagesState):
    notes: Annotated[list[str], operator.add]


class Inner(TypedDict):
    notes: Annotated[list[str], operator.add]


def ask(state):
    return {"notes": [f"answer {interrupt({'question': 'sure?'})}"]}


def talk(state):
    get_stream_writer()({"talks": len(state["messages"])})
    return {"messages": [ScriptedModel(script=["hello"]).invoke(state["messages"])]}


def build():
    inner = StateGraph(Inner)
    inner.add_node("note", lambda state: {"notes": [f"inner of {len(state['notes'])}"]})
    inner.add_edge(START, "note")
    builder = StateGraph(State)
    builder.add_node("talk", talk)
    builder.add_node("inner", inner.compile())
    builder.add_node("ask", ask)
    builder.add_edge(START, "talk")
    builder.add_edge("talk", "inner")
    builder.add_edge("inner", "ask")
    return builder


async def program(saver, face):
    graph = build().compile(checkpointer=saver)
    streamed = {}
    for mode in [*MODES, MODES]:
        name = mode if isinstance(mode, str) else "all"
        config = {"configurable": {"thread_id": f"stream-{name}"}}
        given = {"messages": [HumanMessage("go", id="h1")], "notes": ["start"]}
        begun = await face.all(graph, "stream", given, config, stream_mode=mode, subgraphs=True, durability="sync")
        ended = await face.all(graph, "stream", Command(resume="yes"), config, stream_mode=mode, durability="sync")
        streamed[name] = [begun, ended]
    return streamed
