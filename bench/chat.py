"""The long-chat work: what a real graph of two nodes puts, step by step, for a long time.

A step adds 1.1 messages of about 1.4 KB; every fifth changes one of 20 files of 2 KB, every
tenth the short list of todos. The nodes `agent` and `human` take turns, so that the branch
channels come and go as LangGraph makes them: a node's channel is set (to None) by the step before,
is consumed by its own (a new version without a value), and is then noted in `versions_seen`.
Every eleventh step the state is read back, and what was read is what later steps build upon.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from datetime import datetime, timezone
from time import perf_counter
from typing import Any

from langchain_core.messages import AIMessage, BaseMessage, HumanMessage
from langchain_core.runnables import RunnableConfig
from langgraph.checkpoint.base import ChannelVersions, Checkpoint, CheckpointMetadata
from langgraph.checkpoint.base.id import uuid6
from langgraph.checkpoint.serde.jsonplus import JsonPlusSerializer

from bench.checks import check_equal
from bench.savers import Saver
from bench.text import Writer

CONTENT_LENGTH = 1_200  # about 1.4 KB as LangGraph's serializer writes the message
FILE_COUNT, FILE_LENGTH = 20, 2_000
STEPS_PER_EXTRA_MESSAGE = 10
STEPS_PER_FILE = 5
STEPS_PER_TODO = 10
STEPS_PER_RELOAD = 11
NODES = ("agent", "human")
THREAD_ID = "long-chat"

Values = dict[str, Any]
Version = str | int | float


@dataclass(frozen=True, slots=True)
class Step:
    """What one step writes: only what it changes."""

    node: str
    following: str
    update: Values


@dataclass(frozen=True, slots=True)
class ChatWork:
    """The steps, what must be there after each of them, and the bytes they changed.

    All states share one list of messages: were each to hold its own, the garbage collector would walk
    half a million references in the middle of a measurement.
    """

    steps: list[Step]
    messages: list[BaseMessage]
    message_counts: list[int]
    other_values: list[Values]
    changed_bytes: int

    def expected(self, number: int) -> Values:
        """The channel values after a step."""
        return {**self.other_values[number], "messages": self.messages[: self.message_counts[number]]}

    def beginning(self, step_count: int) -> ChatWork:
        """The same chat, ended early."""
        return replace(self, steps=self.steps[:step_count])


@dataclass(frozen=True, slots=True)
class Played:
    """What playing the work gave: seconds of each `put`, ids, and sizes seen on the way."""

    put_seconds: list[float]
    checkpoint_ids: list[str]
    sizes: list[int]


def make_message(writer: Writer, number: int, length: int = CONTENT_LENGTH) -> BaseMessage:
    """Human and model speak in turns."""
    kind = AIMessage if number % 2 == 0 else HumanMessage
    return kind(content=writer.text(length), id=writer.identifier())


def chat_work(step_count: int) -> ChatWork:
    writer = Writer(seed=2)
    files = {f"src/module_{n:02}.py": writer.text(FILE_LENGTH) for n in range(FILE_COUNT)}
    todos = [{"content": writer.text(40), "status": "pending"} for _ in range(4)]
    steps: list[Step] = []
    values: Values = {}
    message_counts: list[int] = []
    other_values: list[Values] = []
    for number in range(step_count):
        update = _update(writer, number, list(files))
        if number == 0:
            update |= {"files": files, "todos": todos}
        node, following = NODES[number % 2], NODES[(number + 1) % 2]
        steps.append(Step(node, following, update))
        values = merge(values, update)
        message_counts.append(len(values["messages"]))
        others = {channel: value for channel, value in values.items() if channel != "messages"}
        other_values.append({**others, f"branch:to:{following}": None})
    changed_bytes = sum(_encoded_length(part) for step in steps for part in _parts(step.update))
    return ChatWork(steps, values["messages"], message_counts, other_values, changed_bytes)


def merge(values: Mapping[str, Any], update: Mapping[str, Any]) -> Values:
    """The reducers of the graph: messages are appended, files merged, all else replaced."""
    merged = {**values, **update}
    if "messages" in update:
        merged["messages"] = [*values.get("messages", ()), *update["messages"]]
    if "files" in update:
        merged["files"] = {**values.get("files", {}), **update["files"]}
    return merged


def play(saver: Saver, work: ChatWork, size: Callable[[], int] | None = None, *, reloads: bool = True) -> Played:
    """Put every step, timing only the puts; `size` is asked 50 times on the way. Without `reloads`, nothing is read."""
    played = Played([], [], [])
    conversation = Conversation(saver)
    head: RunnableConfig = {"configurable": {"thread_id": THREAD_ID, "checkpoint_ns": ""}}
    config = head
    for number, step in enumerate(work.steps):
        checkpoint, metadata, new_versions = conversation.advance(number, step)
        start = perf_counter()
        config = saver.put(config, checkpoint, metadata, new_versions)
        played.put_seconds.append(perf_counter() - start)
        played.checkpoint_ids.append(checkpoint["id"])
        if reloads and (number + 1) % STEPS_PER_RELOAD == 0:
            found = saver.get_tuple(head)
            assert found is not None, "the head of the thread is gone"
            check_equal(found.checkpoint["channel_values"], work.expected(number), f"step {number}")
            conversation.resume(found.checkpoint)
        if size is not None and (number + 1) % max(len(work.steps) // 50, 1) == 0:
            played.sizes.append(size())
    return played


class Conversation:
    """The thread as a running graph holds it: values, versions, and what each node has seen."""

    def __init__(self, saver: Saver) -> None:
        self._next_version = saver.get_next_version
        self._values: Values = {}
        self._versions: ChannelVersions = {}
        self._seen: dict[str, ChannelVersions] = {"__input__": {}}

    def advance(self, number: int, step: Step) -> tuple[Checkpoint, CheckpointMetadata, ChannelVersions]:
        """Apply a step and give the arguments of its `put`."""
        taken, given = f"branch:to:{step.node}", f"branch:to:{step.following}"
        if taken in self._versions:
            self._seen[step.node] = {taken: self._versions[taken]}
        self._values = merge(self._values, step.update)
        self._values.pop(taken, None)
        self._values[given] = None
        updated = sorted({*step.update, given})
        version: Version = self._next_version(max(self._versions.values(), default=None), None)
        new_versions: ChannelVersions = dict.fromkeys([*updated, taken], version)
        self._versions = {**self._versions, **new_versions}
        checkpoint: Checkpoint = {
            "v": 4,
            "ts": datetime.now(timezone.utc).isoformat(),
            "id": str(uuid6(clock_seq=number)),
            "channel_values": dict(self._values),
            "channel_versions": dict(self._versions),
            "versions_seen": {node: dict(seen) for node, seen in self._seen.items()},
            "updated_channels": updated,
        }
        return checkpoint, {"source": "loop", "step": number, "parents": {}}, new_versions

    def resume(self, checkpoint: Checkpoint) -> None:
        """Go on from what was read back, as a new run of the graph does."""
        self._values = dict(checkpoint["channel_values"])
        self._versions = dict(checkpoint["channel_versions"])
        self._seen = {node: dict(seen) for node, seen in checkpoint["versions_seen"].items()}


def _update(writer: Writer, number: int, names: list[str]) -> Values:
    count = 2 if number % STEPS_PER_EXTRA_MESSAGE == STEPS_PER_EXTRA_MESSAGE - 1 else 1
    update: Values = {"messages": [make_message(writer, number) for _ in range(count)]}
    if number % STEPS_PER_FILE == STEPS_PER_FILE - 1:
        update["files"] = {names[writer.number(len(names))]: writer.text(FILE_LENGTH)}
    if number % STEPS_PER_TODO == STEPS_PER_TODO - 1:
        status = ("pending", "in_progress", "completed")[writer.number(3)]
        update["todos"] = [{"content": writer.text(40), "status": status} for _ in range(4)]
    return update


def _parts(update: Mapping[str, Any]) -> list[Any]:
    """The messages, files and todos of an update, each on its own."""
    files = list(update.get("files", {}).items())
    todos = [update["todos"]] if "todos" in update else []
    return [*update["messages"], *files, *todos]


_peer_serializer = JsonPlusSerializer()


def _encoded_length(value: Any) -> int:
    """The length of a value as LangGraph's own serializer writes it."""
    return len(_peer_serializer.dumps_typed(value)[1])
