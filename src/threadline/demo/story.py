"""The story that the demo tells: a thread that talks, dies, comes back, waits and branches.

Each act does one thing to the same thread, on the same SQLite file, and then
checks in that file, or in the journal of the tasks, that it is what happened.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from langchain_core.messages import HumanMessage
from langchain_core.runnables import RunnableConfig
from langgraph.types import Command, StateSnapshot
from langsmith import tracing_context

from ..langgraph import Checkpointer
from ..show.lanes import draw, fold
from . import handbook, runtime
from .agent import Agent, Journal, build_agent
from .child import CONFIG, database_url, start
from .history import file_bytes, snapshot_bytes, steps_of
from .screen import WIDTH, ClaimFailed, Screen, readable_bytes, shorten

__all__ = ["tell"]

PATIENCE_SECONDS = 25.0
TURNS_SHOWN = 3
# Where the second branch leaves: after this many turns of the conversation.
TURNS_KEPT = 20
# How a process ends that was killed: by the signal, or on Windows with status 1.
KILLED = -signal.SIGKILL if sys.platform != "win32" else 1


@dataclass(frozen=True, slots=True, kw_only=True)
class Stage:
    """What every act works with."""

    screen: Screen
    database: Path
    journal: Journal
    saver: Checkpointer
    agent: Agent


def tell() -> int:
    """Tell the whole story; the exit status is 0 only when every claim held."""
    screen = Screen()
    began = time.monotonic()
    try:
        with tempfile.TemporaryDirectory(prefix="threadline-demo-") as folder:
            _play(screen, Path(folder))
    except ClaimFailed as failed:
        screen.say(f"FAILED: {failed}", style="bold red")
        return 1
    seconds = time.monotonic() - began
    screen.say()
    screen.say(f"{screen.claims} claims made and checked in {seconds:.1f} seconds.", style="bold")
    screen.say("To have all this in a graph of your own:")
    screen.code(
        "from threadline.langgraph import Checkpointer",
        'graph = builder.compile(checkpointer=Checkpointer("sqlite:///agents.db"))',
    )
    return 0


def _play(screen: Screen, folder: Path) -> None:
    database = folder / "agents.db"
    journal = Journal(folder / "journal.txt")
    with Checkpointer(database_url(database)) as saver, tracing_context(enabled=False):
        stage = Stage(
            screen=screen,
            database=database,
            journal=journal,
            saver=saver,
            agent=build_agent(saver, journal),
        )
        _converse(stage)
        killed = _die(stage)
        _come_back(stage, killed)
        paused = _wait_for_approval(stage)
        _branch_off(stage, paused)
        _show_tree(stage)
        full, stored = _measure(stage)
    _weigh(stage, full, stored)
    runtime.play(screen, folder)


def _converse(stage: Stage) -> None:
    turns = len(handbook.REQUESTS)
    stage.screen.act(
        "A conversation",
        "A LangGraph agent, without model or network, looks after a handbook of two dozen "
        "pages of 2 KB. Each step it takes is a checkpoint in one SQLite file.",
    )
    for turn, request in enumerate(handbook.REQUESTS):
        asked: dict[str, Any] = {"messages": [HumanMessage(request)]}
        if turn == 0:
            asked["pages"] = handbook.first_edition()
        answer = _ask(stage, asked, CONFIG)["messages"][-1].text
        if turn < TURNS_SHOWN:
            stage.screen.chat("you", request)
            stage.screen.chat("agent", answer)
    stage.screen.chat("", f"... and {turns - TURNS_SHOWN} more turns like these")
    stage.screen.say()
    messages = stage.agent.get_state(CONFIG).values["messages"]
    stage.screen.claim(
        len(messages) == 2 * turns,
        f"The thread remembers all {2 * turns} messages of {turns} turns.",
    )


def _die(stage: Stage) -> int:
    """Have a process killed in the middle of a superstep; its id."""
    stage.screen.act(
        "Killed in the middle of a step",
        "A new process starts the review: two tasks side by side. When one has finished and "
        "the other is still at work, the process is killed with SIGKILL.",
    )
    stage.screen.chat("you", handbook.REVIEW)
    stage.screen.say()
    process = start("review", stage.database, stage.journal.path)
    try:
        _wait_for_half_a_step(stage, process)
    finally:
        process.kill()
        process.communicate()
    did = stage.journal.count()
    stage.screen.claim(
        process.returncode == KILLED,
        f"The process is dead: exit status {process.returncode}, no chance to clean up.",
    )
    stage.screen.claim(
        bool(did[process.pid, "links started"]) and not did[process.pid, "links finished"],
        "The task `links` was at work and never finished.",
    )
    stage.screen.claim(
        _tasks_stored(stage) == {"spelling"},
        "The task `spelling` had finished: its pending write is in the file.",
    )
    return process.pid


def _come_back(stage: Stage, killed: int) -> None:
    stage.screen.act(
        "Resumed, and nothing done twice",
        "A new process calls graph.invoke(None, config). Each task writes to a journal "
        "outside the state, so we can count what really ran.",
    )
    process = start("resume", stage.database, stage.journal.path)
    try:
        _, complaint = process.communicate(timeout=PATIENCE_SECONDS)
    except subprocess.TimeoutExpired as expired:
        raise ClaimFailed("the process that resumes did not come to its end") from expired
    finally:
        process.kill()
    if process.returncode != 0:
        raise ClaimFailed(f"the process that resumes failed:\n{complaint}")
    did = stage.journal.count()
    acts = [f"{task} {what}" for task in ("spelling", "links") for what in ("started", "finished")]
    stage.screen.table(
        ("what", "before the kill", "after the resume"),
        [(act, str(did[killed, act]), str(did[process.pid, act])) for act in acts],
        right=2,
    )
    stage.screen.say()
    ran = {act: did[killed, act] + did[process.pid, act] for act in acts}
    stage.screen.claim(
        ran["spelling started"] == ran["spelling finished"] == 1,
        "`spelling` ran once: its result was taken from the file.",
    )
    stage.screen.claim(
        ran["links started"] == 2 and ran["links finished"] == 1,
        "`links` was started again and finished once.",
    )


def _wait_for_approval(stage: Stage) -> StateSnapshot:
    """Answer the question that the thread waits with; the checkpoint where it waited."""
    stage.screen.act(
        "Paused for approval, then answered",
        "The resumed process went on to interrupt() and ended. The question waits in the "
        "file for as long as it takes; this process answers it.",
    )
    paused = stage.agent.get_state(CONFIG)
    if not paused.interrupts:
        raise ClaimFailed("the thread should wait for an answer and does not")
    before = _times_published(stage)
    stage.screen.chat("agent", paused.values["messages"][-1].text)
    stage.screen.chat("agent", paused.interrupts[0].value)
    stage.screen.chat("you", "yes")
    answer = _ask(stage, Command(resume="yes"), CONFIG)
    stage.screen.chat("agent", answer["messages"][-1].text)
    stage.screen.say()
    stage.screen.claim(
        paused.next == ("approve",) and len(paused.values["findings"]) == 2 and before == 0,
        "The thread waited at `approve` with both findings; nothing was published.",
    )
    stage.screen.claim(
        _times_published(stage) == 1 and not stage.agent.get_state(CONFIG).next,
        "Command(resume=...) let it finish: published once.",
    )
    return paused


def _branch_off(stage: Stage, paused: StateSnapshot) -> None:
    stage.screen.act(
        "Back in time, on other branches",
        "Every checkpoint can be continued from. The first branch answers the question "
        "differently; the second goes back four turns and asks for something else.",
    )
    published = stage.agent.get_state(CONFIG)
    decided = stage.agent.update_state(paused.config, {"verdict": "no"}, as_node="approve")
    stage.screen.chat("you", "no")
    draft = _ask(stage, None, decided)
    unfinished = stage.agent.get_state(CONFIG).next
    stage.screen.chat("agent", draft["messages"][-1].text)
    earlier = _after_turns(stage, TURNS_KEPT)
    stage.screen.chat("you", handbook.SECOND_THOUGHT)
    asked = {"messages": [HumanMessage(handbook.SECOND_THOUGHT)]}
    other = _ask(stage, asked, earlier.config)
    stage.screen.chat("agent", other["messages"][-1].text)
    stage.screen.say()
    stage.screen.claim(
        draft["verdict"] == "no" and _times_published(stage) == 1 and not unfinished,
        "The first branch ends in a draft and published nothing.",
    )
    stage.screen.claim(
        len(other["messages"]) == 2 * TURNS_KEPT + 2
        and _changed_pages(other["pages"], earlier.values["pages"]) == ["Remote work"],
        f"The second knows {TURNS_KEPT} turns and its own; one page differs from then.",
    )
    stage.screen.claim(
        stage.agent.get_state(published.config).values == published.values,
        "What was published is unchanged, and still there under its id.",
    )


def _show_tree(stage: Stage) -> None:
    stage.screen.act(
        "The tree of the thread",
        "Newest first, like `git log --graph`: checkpoint, step, source, what was done.",
    )
    steps = steps_of(list(stage.saver.list(CONFIG)))
    lines = list(draw(list(fold(steps))))
    rail_width = max(len(rails) for rails, _ in lines)
    for rails, step in lines:
        columns: list[tuple[str, str]] = []
        if step is not None and step.folded:
            columns = [(f"{step.folded} more checkpoints", "dim italic")]
        elif step is not None:
            columns = [
                (step.id[-7:], "yellow"),
                (f"{step.number:>3}", "dim"),
                (f"{step.source:<6}", "cyan"),
                (shorten(step.act, WIDTH - rail_width - 20), ""),
            ]
        stage.screen.branch(rails, columns, rail_width)
    stage.screen.say()
    parents = [step.parent for step in steps]
    tips = sum(step.id not in parents for step in steps)
    stage.screen.claim(
        tips == 3 and parents.count(None) == 1,
        f"{len(steps)} checkpoints, one beginning, {tips} ends.",
    )


def _measure(stage: Stage) -> tuple[int, int]:
    """The bytes of full snapshots of the whole thread, and of what was stored instead."""
    history = list(stage.saver.list(CONFIG))
    stats = stage.saver.stats()
    if stats.checkpoints != len(history):
        raise ClaimFailed(f"stats count {stats.checkpoints} checkpoints, a list {len(history)}")
    return snapshot_bytes(history), stats.bytes_stored


def _weigh(stage: Stage, full: int, stored: int) -> None:
    """Compare; after the saver is closed, so that SQLite has put its log into the file."""
    stage.screen.act(
        "The bytes",
        "A usual saver writes the whole state again at every step; Threadline writes the "
        "messages and pages that are new.",
    )
    on_disk = file_bytes(stage.database)
    stage.screen.table(
        ("", "bytes"),
        [
            ("full snapshots, by LangGraph's JsonPlusSerializer", readable_bytes(full)),
            ("Threadline, the whole SQLite file: indexes and writes too", readable_bytes(on_disk)),
            ("  of which in use, stats().bytes_stored", readable_bytes(stored)),
        ],
        right=1,
    )
    stage.screen.say()
    stage.screen.claim(
        0 < stored <= on_disk < full / 5,
        f"The file is {full / on_disk:.0f} times smaller than the snapshots it replaces.",
    )


def _ask(stage: Stage, asked: Any, config: RunnableConfig) -> dict[str, Any]:
    answer: dict[str, Any] = stage.agent.invoke(asked, config)
    return answer


def _wait_for_half_a_step(stage: Stage, process: subprocess.Popen[str]) -> None:
    """Return when the write of one task is stored while the other task is at work."""
    deadline = time.monotonic() + PATIENCE_SECONDS
    while time.monotonic() < deadline:
        is_at_work = stage.journal.count()[process.pid, "links started"] > 0
        if is_at_work and "spelling" in _tasks_stored(stage):
            return
        if process.poll() is not None:
            raise ClaimFailed(f"the process ended before the kill:\n{process.communicate()[1]}")
        time.sleep(0.02)
    raise ClaimFailed("the process to be killed did not come to its half-finished step")


def _tasks_stored(stage: Stage) -> set[str]:
    """The tasks of the next superstep whose result is in the file already."""
    return {task.name for task in stage.agent.get_state(CONFIG).tasks if task.result is not None}


def _times_published(stage: Stage) -> int:
    return stage.journal.count()[os.getpid(), "publish finished"]


def _after_turns(stage: Stage, turns: int) -> StateSnapshot:
    """The checkpoint at the end of this many turns of the conversation."""
    for snapshot in stage.agent.get_state_history(CONFIG):
        if len(snapshot.values.get("messages", ())) == 2 * turns and not snapshot.next:
            return snapshot
    raise ClaimFailed(f"no checkpoint found after {turns} turns")


def _changed_pages(new: dict[str, str], old: dict[str, str]) -> list[str]:
    return [title for title in new if new[title] != old.get(title)]
