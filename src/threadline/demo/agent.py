"""The agent of the demo: an ordinary LangGraph graph that looks after a handbook.

It has no model and needs no network: a request names a page and what to change.

    request --> edit --> reply
    review  --> spelling --+
            --> links    --+--> report --> approve --> publish | shelve

Spelling and links run side by side, in one superstep. They and publish write a
line to a journal outside the graph's state, so that anybody can count how often
each really ran.
"""

from __future__ import annotations

import operator
import os
import time
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

from langchain_core.messages import AIMessage, AnyMessage
from langgraph.graph import END, START, StateGraph
from langgraph.graph.message import add_messages
from langgraph.graph.state import CompiledStateGraph
from langgraph.types import interrupt
from typing_extensions import TypedDict

from ..langgraph import Checkpointer
from . import handbook

__all__ = ["Agent", "Journal", "State", "build_agent"]


def replace_pages(old: dict[str, str], changed: dict[str, str]) -> dict[str, str]:
    """The handbook with some of its pages replaced."""
    return {**old, **changed}


class State(TypedDict, total=False):
    """What the agent remembers; every part of it is in every checkpoint."""

    messages: Annotated[list[AnyMessage], add_messages]
    pages: Annotated[dict[str, str], replace_pages]
    findings: Annotated[list[str], operator.add]
    verdict: str


Agent = CompiledStateGraph[State, None, State, State]


@dataclass(frozen=True, slots=True)
class Journal:
    """A file with a line for everything a task did, and the process that did it."""

    path: Path

    def note(self, act: str) -> None:
        # Appending one short line is atomic, also when tasks and processes do it at once.
        with self.path.open("a", encoding="utf-8") as file:
            file.write(f"{os.getpid()} {act}\n")

    def count(self) -> Counter[tuple[int, str]]:
        """How often each process did each thing."""
        if not self.path.exists():
            return Counter()
        lines = self.path.read_text(encoding="utf-8").splitlines()
        return Counter((int(pid), act) for pid, _, act in (line.partition(" ") for line in lines))


def build_agent(saver: Checkpointer, journal: Journal, seconds_per_page: float = 0.0) -> Agent:
    """The graph on this saver; following the links of a page takes `seconds_per_page`."""

    def spelling(state: State) -> dict[str, Any]:
        journal.note("spelling started")
        found = handbook.doubled_words(state["pages"])
        journal.note("spelling finished")
        return {"findings": [_finding("Spelling", found)]}

    def links(state: State) -> dict[str, Any]:
        journal.note("links started")
        found: list[str] = []
        for title in state["pages"]:
            time.sleep(seconds_per_page)
            found += handbook.broken_links(title, state["pages"])
        journal.note("links finished")
        return {"findings": [_finding("Links", found)]}

    def publish(state: State) -> dict[str, Any]:
        journal.note("publish finished")
        return {"messages": [AIMessage(f"Published: all {len(state['pages'])} pages.")]}

    builder = StateGraph(State)
    for node in (edit, reply, spelling, links, report, approve, publish, shelve):
        builder.add_node(node.__name__, node)
    builder.add_conditional_edges(START, choose_work, ["edit", "spelling", "links"])
    builder.add_edge("edit", "reply")
    builder.add_edge(["spelling", "links"], "report")
    builder.add_edge("report", "approve")
    builder.add_conditional_edges("approve", choose_ending, ["publish", "shelve"])
    for last in ("reply", "publish", "shelve"):
        builder.add_edge(last, END)
    return builder.compile(checkpointer=saver)


def choose_work(state: State) -> Sequence[str]:
    """The tasks that the newest request asks for."""
    return ["spelling", "links"] if state["messages"][-1].text == handbook.REVIEW else ["edit"]


def edit(state: State) -> dict[str, Any]:
    """Change the one page that the newest request names."""
    title, wish = handbook.split_request(state["messages"][-1].text)
    return {"pages": {title: handbook.amend(state["pages"][title], wish)}}


def reply(state: State) -> dict[str, Any]:
    """Say what was changed."""
    title, _ = handbook.split_request(state["messages"][-1].text)
    others = len(state["pages"]) - 1
    return {"messages": [AIMessage(f'Page "{title}" changed, {others} as before.')]}


def report(state: State) -> dict[str, Any]:
    """Say what both tasks found."""
    return {"messages": [AIMessage(" ".join(sorted(state["findings"])))]}


def approve(state: State) -> dict[str, Any]:
    """Stop here until a person has decided."""
    return {"verdict": interrupt("Shall I publish it?")}


def choose_ending(state: State) -> str:
    """What follows from the decision."""
    return "publish" if state["verdict"] == "yes" else "shelve"


def shelve(state: State) -> dict[str, Any]:
    """Leave the handbook as it is."""
    return {"messages": [AIMessage("Kept as a draft: nothing was published.")]}


def _finding(task: str, found: Sequence[str]) -> str:
    return f"{task}: {', '.join(found) or 'all fine'}."
