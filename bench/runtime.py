"""`python -m bench.runtime`: what a step of a graph costs here and on LangGraph, the same graphs, side by side.

Each row is measured in rounds, the two engines by turns, and the best round of each counts. Figures are wall clock,
`--cpu` takes the time of the processor instead, which a busy machine disturbs less. A row's target is the share of
LangGraph's cost that ours may have.
"""

from __future__ import annotations

import argparse
import asyncio
import operator
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

from typing_extensions import TypedDict

from bench.checks import check

STEPS = 200
FAN = 100
CONFIG: dict[str, Any] = {"recursion_limit": 10_000, "configurable": {"thread_id": "1"}}


class Count(TypedDict):
    n: int


class Log(TypedDict):
    l: Annotated[list, operator.add]  # noqa: E741


@dataclass(frozen=True, slots=True)
class Engine:
    """One contestant: its names, and how it opens savers."""

    name: str
    room: Any
    memory: Callable[[], Any]
    sqlite: Callable[[Path], Any]
    messages: Any


def engines() -> tuple[Engine, Engine]:
    """Ours and LangGraph's."""
    import langgraph.graph
    import langgraph.types
    from langgraph.checkpoint.memory import InMemorySaver

    import threadline
    import threadline.graph

    class Theirs:
        StateGraph, START, END = langgraph.graph.StateGraph, langgraph.graph.START, langgraph.graph.END
        Send = langgraph.types.Send

    ours = Engine(
        "threadline",
        threadline.graph,
        lambda: threadline.connect("memory://"),
        lambda path: _closing(threadline.connect(f"sqlite:///{path}")),
        threadline.graph.MessagesState,
    )
    theirs = Engine("langgraph", Theirs, InMemorySaver, _their_sqlite, langgraph.graph.MessagesState)
    return ours, theirs


@contextmanager
def _closing(saver: Any) -> Iterator[Any]:
    try:
        yield saver
    finally:
        saver.close()


@contextmanager
def _their_sqlite(path: Path) -> Iterator[Any]:
    from langgraph.checkpoint.sqlite import SqliteSaver

    with SqliteSaver.from_conn_string(str(path)) as saver:
        saver.conn.execute("PRAGMA synchronous=FULL")
        yield saver


# -- graphs


def loop(room: Any, saver: Any, *, is_async: bool = False) -> Any:
    """One node that runs STEPS times."""

    async def awaited(state: Count) -> dict[str, int]:
        return {"n": state["n"] + 1}

    builder = room.StateGraph(Count)
    builder.add_node("x", awaited if is_async else lambda state: {"n": state["n"] + 1})
    builder.add_edge(room.START, "x")
    builder.add_conditional_edges("x", lambda state: "x" if state["n"] < STEPS else "__end__", ["x", "__end__"])
    return builder.compile(checkpointer=saver)


def fan(room: Any, saver: Any) -> Any:
    """FAN tasks side by side, and a join."""
    builder = room.StateGraph(Log)
    builder.add_node("x", lambda state: {"l": [1]}).add_node("join", lambda state: {"l": [0]})
    builder.add_conditional_edges(room.START, lambda state: [room.Send("x", {}) for _ in range(FAN)], ["x"])
    return builder.add_edge("x", "join").compile(checkpointer=saver)


def many_nodes(room: Any) -> Any:
    """A chain of 50 nodes."""
    builder = room.StateGraph(Log)
    names = [f"n{number}" for number in range(50)]
    for name in names:
        builder.add_node(name, lambda state: {"l": [1]})
    for source, target in zip([room.START, *names], names, strict=False):
        builder.add_edge(source, target)
    return builder.compile()


# -- rows: engine -> seconds per unit of work


def run_loop(engine: Engine, saver: Any, clock: Callable[[], float], **options: Any) -> float:
    graph = loop(engine.room, saver)
    begun = clock()
    output = graph.invoke({"n": 0}, CONFIG, **options)
    took = clock() - begun
    check(output == {"n": STEPS}, f"{engine.name} counted wrong")
    return took / STEPS


def run_loop_async(engine: Engine, saver: Any, clock: Callable[[], float]) -> float:
    graph = loop(engine.room, saver, is_async=True)

    async def main() -> float:
        begun = clock()
        output = await graph.ainvoke({"n": 0}, CONFIG)
        took = clock() - begun
        check(output == {"n": STEPS}, f"{engine.name} counted wrong")
        return took

    return asyncio.run(main()) / STEPS


def run_fan(engine: Engine, saver: Any, clock: Callable[[], float]) -> float:
    graph = fan(engine.room, saver)
    begun = clock()
    output = graph.invoke({"l": []}, CONFIG)
    took = clock() - begun
    check(output == {"l": [1] * FAN + [0]}, f"{engine.name} lost a task")
    return took / FAN


def run_compile(engine: Engine, _: Any, clock: Callable[[], float]) -> float:
    begun = clock()
    many_nodes(engine.room)
    return clock() - begun


def run_chat(engine: Engine, saver: Any, clock: Callable[[], float], turns: int) -> float:
    """So many turns of a chat on one thread."""
    return sum(chat_turns(engine, saver, clock, turns))


def chat_turns(engine: Engine, saver: Any, clock: Callable[[], float], turns: int) -> list[float]:
    """The seconds of each turn of a chat."""
    builder = engine.room.StateGraph(engine.messages)
    builder.add_node("answer", lambda state: {"messages": [("ai", f"answer {len(state['messages'])} " + "x" * 200)]})
    graph = builder.add_edge(engine.room.START, "answer").compile(checkpointer=saver)
    seconds: list[float] = []
    for turn in range(turns):
        begun = clock()
        output = graph.invoke({"messages": [("user", f"question {turn} " + "y" * 200)]}, CONFIG)
        seconds.append(clock() - begun)
        check(len(output["messages"]) == 2 * turn + 2, f"{engine.name} lost a message")
    return seconds


@dataclass(frozen=True, slots=True)
class Row:
    """What is measured, with which saver, and the share of LangGraph's cost that it may have."""

    title: str
    share: float
    saver: str
    run: Callable[[Engine, Any, Callable[[], float]], float]


def rows(turns: int) -> list[Row]:
    """The table."""

    def durable(durability: str) -> Callable[[Engine, Any, Callable[[], float]], float]:
        return lambda engine, saver, clock: run_loop(engine, saver, clock, durability=durability)

    return [
        Row("a step, no saver", 1 / 5, "none", run_loop),
        Row("a step, saver in memory", 1 / 3, "memory", run_loop),
        Row("a step, SQLite, durability async", 1 / 2, "sqlite", durable("async")),
        Row("a step, SQLite, durability sync", 1 / 2, "sqlite", durable("sync")),
        Row("a step under asyncio, no saver", 1 / 4, "none", run_loop_async),
        Row("a step under asyncio, saver in memory", 1 / 3, "memory", run_loop_async),
        Row(f"a task of {FAN} side by side, no saver", 1 / 3, "none", run_fan),
        Row(f"a task of {FAN} side by side, saver in memory", 1 / 3, "memory", run_fan),
        Row(f"a task of {FAN} side by side, SQLite", 1 / 2, "sqlite", run_fan),
        Row("compile of 50 nodes", 1 / 3, "none", run_compile),
        Row(
            f"a chat of {turns} turns, SQLite",
            1 / 3,
            "sqlite",
            lambda engine, saver, clock: run_chat(engine, saver, clock, turns),
        ),
    ]


def measured(row: Row, engine: Engine, clock: Callable[[], float]) -> float:
    """One round of a row."""
    if row.saver == "none":
        return row.run(engine, None, clock)
    if row.saver == "memory":
        return row.run(engine, engine.memory(), clock)
    with tempfile.TemporaryDirectory(prefix="threadline-bench-") as made, engine.sqlite(Path(made) / "b.db") as saver:
        return row.run(engine, saver, clock)


_OPENINGS = {
    "threadline": "import threadline; from threadline.graph import StateGraph; threadline.connect('memory://')",
    "langgraph": "from langgraph.graph import StateGraph; from langgraph.checkpoint.memory import InMemorySaver",
}


def opened(name: str) -> tuple[float, float]:
    """Seconds and resident bytes of a new process that imports an engine and a saver."""
    program = (
        f"import time; begun = time.perf_counter(); {_OPENINGS[name]}; took = time.perf_counter() - begun;"
        "print(took, int(open('/proc/self/statm').read().split()[1]) * 4096)"
    )
    out = subprocess.run([sys.executable, "-c", program], check=True, capture_output=True, text=True).stdout.split()
    return float(out[0]), float(out[1])


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m bench.runtime", description=__doc__)
    parser.add_argument("--quick", action="store_true", help="one round, a short chat")
    parser.add_argument("--cpu", action="store_true", help="count time of the processor, not of the clock")
    parser.add_argument("--only", default="", help="rows whose title has this text")
    options = parser.parse_args()
    clock = time.process_time if options.cpu else time.perf_counter
    ours, theirs = engines()
    missed = 0
    for row in rows(50 if options.quick else 300):
        if options.only not in row.title:
            continue
        best = {ours.name: float("inf"), theirs.name: float("inf")}
        for _ in range(1 if options.quick else 3):
            for engine in (ours, theirs):
                best[engine.name] = min(best[engine.name], measured(row, engine, clock))
        missed += _shown(row.title, best[ours.name], best[theirs.name], row.share)
    if not options.only:
        took, resident = opened(ours.name)
        theirs_took, theirs_resident = opened(theirs.name)
        missed += _shown("import of graph and saver", took, theirs_took, max(0.150 / theirs_took, 1 / 6))
        print(f"{'resident after it':<46}{resident / 1e6:>10.0f} MB{theirs_resident / 1e6:>10.0f} MB")
    return 1 if missed else 0


def _shown(title: str, ours: float, theirs: float, share: float) -> bool:
    is_missed = ours > theirs * share
    verdict = "missed" if is_missed else "reached"
    print(f"{title:<46}{ours * 1e6:>10.0f} us{theirs * 1e6:>10.0f} us   {ours / theirs:>5.2f} of {share:.2f} {verdict}")
    return is_missed


if __name__ == "__main__":
    raise SystemExit(main())
