"""The second half of the demo: the runtime, `threadline.graph`, without LangGraph.

    python -m threadline.demo.runtime DATABASE JOURNAL begin | resume

`begin` books a trip and works so slowly after it has paid that there is time to kill it; `resume` carries on. Each
node writes a line to a journal outside the graph's state, so that anybody can count what really ran.
"""

from __future__ import annotations

import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

from typing_extensions import TypedDict

import threadline

from ..graph import END, START, Command, Runtime, StateGraph, interrupt

if TYPE_CHECKING:
    from .screen import Screen

__all__ = ["play"]

CONFIG = {"configurable": {"thread_id": "trip"}}
MOVED = {"configurable": {"thread_id": "moved"}}
PATIENCE_SECONDS = 25.0


class Trip(TypedDict, total=False):
    """What the agent knows of a trip."""

    city: str
    price: int
    receipt: str
    answer: str


def play(screen: Screen, folder: Path) -> None:
    """Tell the second half on a file of its own."""
    database, journal = folder / "trips.db", folder / "trips.txt"
    _kill_and_resume(screen, database, journal)
    with threadline.connect(_url(database)) as saver:
        _answer(screen, saver, journal)
        _change_engines(screen, database, saver)
    _crash_everywhere(screen)


def _kill_and_resume(screen: Screen, database: Path, journal: Path) -> None:
    screen.act(
        "The same on a runtime of our own",
        "threadline.graph runs graphs under LangGraph's names, without LangGraph. A process pays for a trip through "
        "runtime.once(...) and is killed with SIGKILL in the same node, before its step is stored.",
    )
    killed = _start(database, journal, "begin")
    try:
        _wait_for(screen, journal, "receipt is stored", killed)
    finally:
        killed.kill()
        killed.communicate()
    resumed = _start(database, journal, "resume")
    try:
        loaded, complaint = resumed.communicate(timeout=PATIENCE_SECONDS)
    finally:
        resumed.kill()
    screen.claim(resumed.returncode == 0, f"The process that resumes ends well.{complaint}")
    did = _lines(journal)
    screen.claim(loaded.strip() == "[]", "The process that resumed loaded no module of LangGraph or LangChain.")
    screen.claim(did.count("search") == 1, "`search` ran once: its step was in the file.")
    screen.claim(
        did.count("pay begins") == 2 and did.count("card charged") == 1,
        "`pay` ran twice, and charged the card once: the receipt was in the file.",
    )


def _answer(screen: Screen, saver: Any, journal: Path) -> None:
    screen.act("A question, answered elsewhere", "The resumed process asked and ended. This process answers.")
    graph = trip_graph(saver, journal)
    question = graph.get_state(CONFIG).interrupts[0]
    screen.chat("agent", question.value)
    screen.chat("you", "yes")
    end = graph.invoke(Command(resume="yes"), CONFIG)
    screen.say()
    screen.claim(
        end == {"city": "Oslo", "price": 120, "receipt": "receipt 1", "answer": "yes"}
        and _lines(journal).count("card charged") == 1,
        "The trip is confirmed, with the one receipt.",
    )


def _change_engines(screen: Screen, database: Path, saver: Any) -> None:
    import langgraph.graph
    import langgraph.types

    from ..langgraph import Checkpointer

    screen.act(
        "A thread changes engines",
        "LangGraph begins a thread and asks; threadline.graph answers; LangGraph reads the end. One graph, written "
        "once; both engines read and write the same checkpoints, task ids and questions.",
    )
    with Checkpointer(_url(database)) as theirs_saver:
        theirs = _asking(langgraph.graph, langgraph.types.interrupt, theirs_saver)
        asked = theirs.invoke({"city": "Lima"}, MOVED)["__interrupt__"][0]
        ours = _asking(threadline.graph, interrupt, saver)
        screen.claim(
            ours.get_state(MOVED).interrupts[0].id == asked.id, "The question has the same id on both engines."
        )
        ours.invoke(Command(resume="yes"), MOVED)
        screen.claim(
            theirs.get_state(MOVED).values == {"city": "Lima", "answer": "yes"},
            "Asked on LangGraph, answered here, read there.",
        )


def _crash_everywhere(screen: Screen) -> None:
    from ..testing import crashes

    screen.act(
        "Crashed at every point",
        "threadline.testing.crashes(graph, input) kills any agent, ours or LangGraph's, before and after each of its "
        "storage operations, and resumes it.",
    )
    report = crashes(trip_graph(None, None), {"city": "Oslo"}, answers=lambda question: "yes")
    screen.claim(
        report.is_safe and len(report.runs) == 2 * report.operations > 0,
        f"{len(report.runs)} crashes around {report.operations} operations: the same end every time.",
    )


# -- the graphs


def trip_graph(saver: Any, journal: Path | None, seconds_after_paying: float = 0.0) -> Any:
    """search --> pay --> confirm --> done, unless the answer is no."""

    def note(act: str) -> None:
        if journal is not None:
            with journal.open("a", encoding="utf-8") as file:
                file.write(f"{act}\n")

    def search(state: Trip) -> Trip:
        note("search")
        return {"price": 120}

    def charge() -> str:
        note("card charged")
        return "receipt 1"

    def pay(state: Trip, runtime: Runtime[Any]) -> Trip:
        note("pay begins")
        receipt = runtime.once("charge-card", charge)
        note("receipt is stored")
        time.sleep(seconds_after_paying)
        return {"receipt": receipt}

    def confirm(state: Trip) -> Trip:
        return {"answer": interrupt(f"{state['city']} for {state['price']} EUR, paid: shall I confirm it?")}

    builder = StateGraph(Trip)
    builder.add_sequence([search, pay, confirm])
    builder.add_edge(START, "search").add_edge("confirm", END)
    return builder.compile(checkpointer=saver)


def _asking(room: Any, ask: Callable[[Any], Any], saver: Any) -> Any:
    builder = room.StateGraph(Trip).add_node("confirm", lambda state: {"answer": ask("Shall I confirm it?")})
    return builder.add_edge(room.START, "confirm").compile(checkpointer=saver)


# -- the processes


def _start(database: Path, journal: Path, task: str) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-m", __name__, str(database), str(journal), task],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def _wait_for(screen: Screen, journal: Path, line: str, process: subprocess.Popen[str]) -> None:
    deadline = time.monotonic() + PATIENCE_SECONDS
    while line not in _lines(journal):
        is_waiting = process.poll() is None and time.monotonic() < deadline
        if not is_waiting:
            screen.claim(False, f"the process to be killed comes to the line {line!r}")
        time.sleep(0.02)


def _lines(journal: Path) -> list[str]:
    return journal.read_text(encoding="utf-8").splitlines() if journal.exists() else []


def _url(database: Path) -> str:
    return f"sqlite:///{database.absolute().as_posix()}"


def main(arguments: list[str]) -> None:
    """What a process of its own does; it prints the modules of LangChain and LangGraph that it loaded."""
    database, journal, task = arguments
    with threadline.connect(_url(Path(database))) as saver:
        graph = trip_graph(saver, Path(journal), 60.0 if task == "begin" else 0.0)
        graph.invoke({"city": "Oslo"} if task == "begin" else None, CONFIG, durability="sync")
    print([name for name in sys.modules if name.partition(".")[0] in ("langgraph", "langchain_core", "langsmith")])


if __name__ == "__main__":
    main(sys.argv[1:])
