"""An application as people write them: its own classes in the state, a subgraph, Send, an interrupt.

The import runs where this module cannot be found; the processes before and after it have it.
"""

from __future__ import annotations

import datetime as dt
import enum
import operator
import os
import uuid
from dataclasses import dataclass, field
from decimal import Decimal
from pathlib import Path
from typing import Annotated, Any, NamedTuple, TypedDict

from langchain_core.documents import Document
from langchain_core.messages import AIMessage, AnyMessage, HumanMessage, ToolMessage
from langgraph.graph import END, START, StateGraph, add_messages
from langgraph.types import Command, Send, interrupt
from pydantic import BaseModel

TURNS = 30
# Where a task notes that it ran; the path is in the environment, because it is no part of the state.
JOURNAL = "TRAVEL_JOURNAL"


class Class(enum.Enum):
    FIRST = "first"
    SECOND = "second"


class Stop(NamedTuple):
    name: str
    minutes: int


@dataclass
class Traveller:
    name: str
    born: dt.date
    cards: set[str] = field(default_factory=set)


@dataclass(frozen=True)
class Offer:
    carrier: str
    price: Decimal


class Leg(BaseModel):
    start: Stop
    end: Stop
    seat: Class = Class.SECOND


class Trip(BaseModel):
    id: uuid.UUID
    legs: list[Leg]
    leaves: dt.datetime


# -- a chat


class Chat(TypedDict):
    messages: Annotated[list[AnyMessage], add_messages]
    sources: list[Document]
    turn: int


def look_up(state: Chat) -> dict[str, Any]:
    turn = state.get("turn", 0)
    call = {"name": "timetable", "args": {"turn": turn, "via": ["Lyon", None]}, "id": f"call-{turn}"}
    asked = AIMessage("Let me see. " * 20, id=f"ask-{turn}", tool_calls=[call])
    found = ToolMessage("09:12, 10:47, 13:05. " * 15, tool_call_id=f"call-{turn}", id=f"tool-{turn}")
    page = Document(page_content=f"page {turn} " * 40, metadata={"turn": turn, "score": 0.5})
    return {"messages": [asked, found], "sources": [*state.get("sources", []), page][-5:], "turn": turn + 1}


def answer(state: Chat) -> dict[str, Any]:
    usage = {"input_tokens": 12, "output_tokens": 5, "total_tokens": 17}
    text = f"Answer {state['turn']}. " * 25
    return {"messages": [AIMessage(text, id=f"answer-{state['turn']}", usage_metadata=usage)]}


def build_chat() -> Any:
    builder = StateGraph(Chat)
    builder.add_node("look_up", look_up)
    builder.add_node("answer", answer)
    builder.add_edge(START, "look_up")
    builder.add_edge("look_up", "answer")
    return builder


def ask(graph: Any, config: Any, turn: int) -> Any:
    question = HumanMessage(f"Question {turn}: which train? " * 10, id=f"question-{turn}")
    return graph.invoke({"messages": [question]}, config)


# -- a booking


class Booking(TypedDict, total=False):
    trip: Trip
    traveller: Traveller
    offers: Annotated[list[Offer], operator.add]
    confirmed: str
    visited: set[str]


def spread(state: Booking) -> list[Send]:
    return [Send("quote", {"carrier": carrier, "trip": state["trip"]}) for carrier in ("SNCF", "DB", "SBB")]


def quote(asked: dict[str, Any]) -> dict[str, Any]:
    note(asked["carrier"])
    if asked["carrier"] == "SBB" and os.environ.get("TRAVEL_FAILS"):
        wait_for_two_quotes()
        raise RuntimeError("no connection to SBB")
    return {"offers": [Offer(asked["carrier"], Decimal("10.50") * len(asked["trip"].legs))]}


def confirm(state: Booking) -> dict[str, Any]:
    best = min(state["offers"], key=lambda offer: (offer.price, offer.carrier))
    said = interrupt({"offer": best, "seat": Class.FIRST, "at": Stop("Basel", 4)})
    return {"confirmed": f"{state['traveller'].name} takes {best.carrier}: {said}"}


def ticket(state: Booking) -> dict[str, Any]:
    return {"visited": {leg.end.name for leg in state["trip"].legs}}


def build_booking() -> Any:
    desk = StateGraph(Booking)
    desk.add_node("prepare", lambda state: {"visited": set()})
    desk.add_node("confirm", confirm)
    desk.add_edge(START, "prepare")
    desk.add_edge("prepare", "confirm")
    builder = StateGraph(Booking)
    builder.add_node("quote", quote)
    builder.add_node("desk", desk.compile())
    builder.add_node("ticket", ticket)
    builder.add_conditional_edges(START, spread, ["quote"])
    builder.add_edge("quote", "desk")
    builder.add_edge("desk", "ticket")
    builder.add_edge("ticket", END)
    return builder


def start_of_booking() -> Booking:
    legs = [Leg(start=Stop("Paris", 0), end=Stop("Lyon", 120)), Leg(start=Stop("Lyon", 0), end=Stop("Basel", 95))]
    leaves = dt.datetime(2025, 5, 1, 9, 12, tzinfo=dt.timezone.utc)
    trip = Trip(id=uuid.UUID(int=7), legs=legs, leaves=leaves)
    return {"trip": trip, "traveller": Traveller("Ann", dt.date(1990, 2, 3), {"half-fare"}), "offers": []}


def config_of(thread_id: str) -> Any:
    return {"configurable": {"thread_id": thread_id}, "metadata": {"user": "ann"}}


def note(word: str) -> None:
    with Path(os.environ[JOURNAL]).open("a") as journal:
        journal.write(word + "\n")


def wait_for_two_quotes() -> None:
    """Fail only when the other tasks have ended, so that what is pending is always the same."""
    import time

    deadline = time.monotonic() + 20
    while time.monotonic() < deadline:
        if len(Path(os.environ[JOURNAL]).read_text().split()) >= 3:
            time.sleep(0.1)
            return
        time.sleep(0.005)


def play_all(saver: Any) -> None:
    """The threads that the tests import: a chat, a booking that waits for an answer, one that failed."""
    chat = build_chat().compile(checkpointer=saver)
    for turn in range(TURNS):
        ask(chat, config_of("chat"), turn)
    booking = build_booking().compile(checkpointer=saver)
    booking.invoke(start_of_booking(), config_of("waits"))
    booking.invoke(start_of_booking(), config_of("done"))
    booking.invoke(Command(resume="yes"), config_of("done"))
    os.environ["TRAVEL_FAILS"] = "1"
    Path(os.environ[JOURNAL]).write_text("")
    try:
        booking.invoke(start_of_booking(), config_of("failed"))
    except RuntimeError:
        pass
    finally:
        del os.environ["TRAVEL_FAILS"]
