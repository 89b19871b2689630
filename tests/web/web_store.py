"""A store as agents leave it: branches, tags, subgraphs, forks, questions, a failure, items; and their graphs."""

from __future__ import annotations

import operator
from contextlib import suppress
from typing import Annotated, Any, TypedDict

from langchain_core.messages import AIMessage, HumanMessage, ToolMessage
from langgraph.graph import START, MessagesState, StateGraph
from langgraph.types import interrupt

from threadline.langgraph import Checkpointer

ACTION = {
    "action_requests": [{"name": "send_email", "args": {"to": "ann@example.org"}, "description": "Send the forecast"}],
    "review_configs": [{"action_name": "send_email", "allowed_decisions": ["approve", "edit", "reject"]}],
}


class Notes(TypedDict):
    notes: Annotated[list[str], operator.add]


class Chat(MessagesState):
    plan: str
    notes: Annotated[list[str], operator.add]
    profile: dict[str, Any]


def think(state: Chat) -> dict[str, Any]:
    call = {"name": "search", "args": {"query": "weather", "days": 3}, "id": "call_1"}
    return {"messages": [AIMessage("Let me look.", id="m2", tool_calls=[call])], "plan": "look", "notes": ["asked"]}


def tools(state: Chat) -> dict[str, Any]:
    result = ToolMessage("Sunny, 24 degrees.", id="m3", tool_call_id="call_1", name="search")
    return {"messages": [result], "profile": {"city": "Lisbon", "units": "metric"}}


def answer(state: Chat) -> dict[str, Any]:
    return {"messages": [AIMessage("It will be sunny.", id="m4")]}


def decide(state: Chat) -> dict[str, Any]:
    return {"notes": [f"decided {interrupt(ACTION)}"]}


def ask(state: Notes) -> dict[str, Any]:
    return {"notes": [f"said {interrupt('Shall it be published?')}"]}


def fail(state: Notes) -> dict[str, Any]:
    raise RuntimeError("the printer is on fire")


def chat_graph(saver: Checkpointer) -> Any:
    review = StateGraph(Notes).add_node("check", lambda state: {"notes": ["checked"]}).add_edge(START, "check")
    builder = StateGraph(Chat).add_node(think).add_node(tools).add_node(answer).add_node(decide)
    builder.add_node("review", review.compile(checkpointer=True)).add_edge(START, "think").add_edge("think", "tools")
    builder.add_edge("tools", "answer").add_edge("answer", "review").add_edge("review", "decide")
    return builder.compile(checkpointer=saver)


def notes_graph(saver: Checkpointer, node: Any = ask) -> Any:
    return StateGraph(Notes).add_node(node).add_edge(START, node.__name__).compile(checkpointer=saver)


def of_thread(name: str) -> dict[str, Any]:
    return {"configurable": {"thread_id": name}}


def fill(url: str, **options: Any) -> None:
    """Everything that the page has a view for."""
    saver = Checkpointer(url, **options)
    graph = chat_graph(saver)
    for name in ("lisbon", "porto"):
        graph.invoke({"messages": [HumanMessage("What about the weather?", id="m1")]}, of_thread(name))
    lisbon = saver.thread("lisbon").create(metadata={"user": "ann", "tier": "gold"})
    lisbon.tag("first-answer", "head~2")
    lisbon.pin("head~3")
    base = lisbon.at("head~2")
    # Two branches that changed the same key of a dict, and the same text, in different ways.
    lisbon.put({"profile": {"city": "Porto", "units": "metric"}, "plan": "north"}, at=base)
    lisbon.put({"profile": {"city": "Faro", "units": "metric"}, "plan": "south"}, at=base)
    lisbon.fork("first-answer", to="lisbon-copy")
    notes_graph(saver).invoke({"notes": ["a draft"]}, of_thread("essay"))
    with suppress(RuntimeError):
        notes_graph(saver, fail).invoke({"notes": ["a draft"]}, of_thread("broken"))
    counter = saver.thread("counter")
    for step in range(12):
        counter.put({"n": step, "log": [f"line {line}" for line in range(5 * step)]}, step=step)
    items = saver.store(keep_versions=True)
    items.put(("users", "ann"), "likes", {"drink": "tea"})
    items.put(("users", "ann"), "likes", {"drink": "coffee"})
    saver.cache().set({(("nodes", "search"), "key"): ({"answer": 42}, 3600)})
    saver.close()
