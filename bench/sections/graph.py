"""A real LangGraph graph of 60 turns: an agent that calls two tools before it answers.

State as agents have it: `messages` with add_messages, 20 `files` of 2 KB of which each turn
writes one, `todos`. A turn is six messages and seven checkpoints. The whole conversation is a
script, so that every saver sees the same messages and the end can be compared with the script.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from time import perf_counter
from typing import Annotated, Any, TypedDict

from langchain_core.messages import AIMessage, AnyMessage, HumanMessage, ToolMessage
from langchain_core.runnables import RunnableConfig
from langgraph.graph import END, START, StateGraph
from langgraph.graph.message import add_messages

from bench.arena import Arena, Entrant, Reading
from bench.chat import CONTENT_LENGTH, FILE_COUNT, FILE_LENGTH
from bench.checks import check, check_equal
from bench.savers import Saver, Side
from bench.text import Writer

try:
    from langgraph.channels import DeltaChannel
except ImportError:  # an older LangGraph
    DeltaChannel = None  # type: ignore[assignment, misc]

MESSAGES_PER_TURN = 6
REPEATS = 3
CONFIG: RunnableConfig = {"configurable": {"thread_id": "graph"}}


def merge_files(left: dict[str, str], right: dict[str, str]) -> dict[str, str]:
    return {**left, **right}


def append(state: list[AnyMessage], writes: Sequence[list[AnyMessage]]) -> list[AnyMessage]:
    """The cheapest reducer that a delta channel can have here."""
    return [*state, *(message for write in writes for message in write)]


class State(TypedDict, total=False):
    messages: Annotated[list[AnyMessage], add_messages]
    files: Annotated[dict[str, str], merge_files]
    todos: list[str]


class DeltaState(TypedDict, total=False):
    """The same state with LangGraph's own remedy for long lists: only the writes are stored."""

    messages: Annotated[list[AnyMessage], DeltaChannel(append)]
    files: Annotated[dict[str, str], merge_files]
    todos: list[str]


@dataclass(frozen=True, slots=True)
class Script:
    """Everything that is said, in order, and the file that each turn writes."""

    messages: list[AnyMessage]
    files: dict[str, str]
    edits: list[dict[str, str]]


@dataclass(frozen=True, slots=True)
class Run:
    seconds_per_turn: float
    bytes_on_disk: int


def turns(arena: Arena) -> Iterator[Reading]:
    """The graph on both sides, and on the peer as LangGraph would have it made smaller."""
    script = _write_script(arena.size.turns)

    def run_delta() -> Run:
        return _run(arena.peer, arena.new_place(Entrant("delta", arena.peer)), script, DeltaState)

    ours, peer = _run_both(arena, script)
    yield Reading("graph.turn", ours.seconds_per_turn, peer.seconds_per_turn)
    yield Reading("graph.bytes", ours.bytes_on_disk, peer.bytes_on_disk)
    if DeltaChannel is not None:
        delta = _median([run_delta() for _ in range(REPEATS)])
        yield Reading("graph.delta_turn", ours.seconds_per_turn, delta.seconds_per_turn)
        yield Reading("graph.delta_bytes", ours.bytes_on_disk, delta.bytes_on_disk)


def plain_turns(arena: Arena) -> Iterator[Reading]:
    """The graph on both sides, and nothing else."""
    ours, peer = _run_both(arena, _write_script(arena.size.turns))
    yield Reading("graph.turn", ours.seconds_per_turn, peer.seconds_per_turn)
    yield Reading("graph.bytes", ours.bytes_on_disk, peer.bytes_on_disk)


def _run_both(arena: Arena, script: Script) -> tuple[Run, Run]:
    def run(entrant: Entrant) -> Run:
        return _run(entrant.side, arena.new_place(entrant), script, State)

    _run(arena.peer, arena.new_place(Entrant("warm", arena.peer)), _write_script(2), State)
    pairs = [arena.both(run) for _ in range(REPEATS)]
    return _median([pair.ours for pair in pairs]), _median([pair.peer for pair in pairs])


def _median(runs: list[Run]) -> Run:
    return sorted(runs, key=lambda run: run.seconds_per_turn)[len(runs) // 2]


def _run(side: Side, place: Path, script: Script, schema: type[Any]) -> Run:
    with side.open(place) as saver:
        graph = _compile(saver, script, schema)
        start = perf_counter()
        for first in range(0, len(script.messages), MESSAGES_PER_TURN):
            opening: State = {"messages": [script.messages[first]]}
            if first == 0:
                opening["files"] = script.files
            graph.invoke(opening, CONFIG)
        seconds = perf_counter() - start
    _check_stored(side, place, script, schema)
    return Run(seconds * MESSAGES_PER_TURN / len(script.messages), side.bytes_of(place))


def _compile(saver: Saver, script: Script, schema: type[Any]) -> Any:
    def agent(state: dict[str, Any]) -> State:
        said = len(state["messages"])
        return {"messages": [script.messages[said]], "todos": [f"step {said}"]}

    def tools(state: dict[str, Any]) -> State:
        said = len(state["messages"])
        update: State = {"messages": [script.messages[said]]}
        if said % MESSAGES_PER_TURN == 2:
            update["files"] = script.edits[said // MESSAGES_PER_TURN]
        return update

    def route(state: dict[str, Any]) -> str:
        last = state["messages"][-1]
        return "tools" if isinstance(last, AIMessage) and last.tool_calls else END

    builder: Any = StateGraph(schema)
    builder.add_node("agent", agent)
    builder.add_node("tools", tools)
    builder.add_edge(START, "agent")
    builder.add_conditional_edges("agent", route, ["tools", END])
    builder.add_edge("tools", "agent")
    return builder.compile(checkpointer=saver)


def _check_stored(side: Side, place: Path, script: Script, schema: type[Any]) -> None:
    files = dict(script.files)
    for edit in script.edits:
        files |= edit
    todos = [f"step {len(script.messages) - 1}"]
    expected = {"messages": script.messages, "files": files, "todos": todos}
    with side.open(place) as saver:
        snapshot = _compile(saver, script, schema).get_state(CONFIG)
    check_equal(snapshot.values, expected, "the state of the graph")
    check(snapshot.next == (), "the graph has not ended")


def _write_script(turn_count: int) -> Script:
    writer = Writer(seed=5)
    files = {f"notes/{n:02}.md": writer.text(FILE_LENGTH) for n in range(FILE_COUNT)}
    names = list(files)
    messages: list[AnyMessage] = []
    for _ in range(turn_count):
        messages.append(HumanMessage(writer.text(CONTENT_LENGTH), id=writer.identifier()))
        for _ in range(2):
            messages.extend(_tool_call(writer))
        messages.append(AIMessage(writer.text(CONTENT_LENGTH), id=writer.identifier()))
    edits = [{names[n % FILE_COUNT]: writer.text(FILE_LENGTH)} for n in range(turn_count)]
    return Script(messages, files, edits)


def _tool_call(writer: Writer) -> tuple[AIMessage, ToolMessage]:
    call_id = writer.identifier()
    call = {"name": "search", "args": {"query": writer.text(60)}, "id": call_id}
    asked = AIMessage(writer.text(CONTENT_LENGTH), id=writer.identifier(), tool_calls=[call])
    found = ToolMessage(writer.text(CONTENT_LENGTH), id=writer.identifier(), tool_call_id=call_id, name="search")
    return asked, found
