"""What a saver tells about a thread: its steps, for the tree, and what it takes to store them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from langgraph.checkpoint.base import CheckpointTuple
from langgraph.checkpoint.serde.jsonplus import JsonPlusSerializer

from ..show.lanes import Step

__all__ = ["file_bytes", "snapshot_bytes", "steps_of"]


def steps_of(history: Sequence[CheckpointTuple]) -> list[Step]:
    """The checkpoints of a thread, in the order given, each with what it changed."""
    by_id = {saved.checkpoint["id"]: saved for saved in history}
    steps: list[Step] = []
    for saved in history:
        parent_id = _parent_id(saved)
        parent = by_id.get(parent_id) if parent_id else None
        steps.append(
            Step(
                id=saved.checkpoint["id"],
                parent=parent_id,
                number=saved.metadata.get("step", 0),
                source=saved.metadata.get("source", ""),
                act=_describe(saved, parent),
            )
        )
    return steps


def snapshot_bytes(history: Iterable[CheckpointTuple]) -> int:
    """What the checkpoints take when each is written whole, by LangGraph's own serializer.

    Metadata, pending writes, rows and indexes would come on top of that.
    """
    serializer = JsonPlusSerializer()
    total = 0
    for saved in history:
        whole = {**saved.checkpoint, "channel_values": {**saved.checkpoint["channel_values"]}}
        total += len(serializer.dumps_typed(whole)[1])
    return total


def file_bytes(database: Path) -> int:
    """The size of a SQLite file, its write-ahead log included."""
    return sum(part.stat().st_size for part in database.parent.glob(f"{database.name}*"))


def _parent_id(saved: CheckpointTuple) -> str | None:
    if saved.parent_config is None:
        return None
    found: str | None = saved.parent_config["configurable"].get("checkpoint_id")
    return found


def _describe(saved: CheckpointTuple, parent: CheckpointTuple | None) -> str:
    """Which nodes ran, and what that did to the state."""
    source = saved.metadata.get("source")
    if source == "input":
        return "a message arrives"
    before: Mapping[str, Any] = parent.checkpoint["channel_values"] if parent else {}
    after: Mapping[str, Any] = saved.checkpoint["channel_values"]
    nodes = " + ".join(_nodes_run(saved, parent))
    return f"{nodes}: {_difference(before, after)}" if nodes else _difference(before, after)


def _nodes_run(saved: CheckpointTuple, parent: CheckpointTuple | None) -> list[str]:
    """The nodes that have seen something which they had not seen in the parent."""
    before: Mapping[str, Any] = parent.checkpoint["versions_seen"] if parent else {}
    after = saved.checkpoint["versions_seen"]
    return sorted(node for node, seen in after.items() if node[:2] != "__" and seen != before.get(node))


def _difference(before: Mapping[str, Any], after: Mapping[str, Any]) -> str:
    """The most telling of the changes between two states."""
    if (verdict := after.get("verdict")) != before.get("verdict"):
        return f"the answer is {verdict}"
    if found := len(after.get("findings", ())) - len(before.get("findings", ())):
        return f"{found} findings"
    if len(after.get("messages", ())) > len(before.get("messages", ())):
        newest = after["messages"][-1]
        return f"you: {newest.text}" if newest.type == "human" else str(newest.text)
    old, new = before.get("pages", {}), after.get("pages", {})
    changed = [title for title, text in new.items() if old.get(title) != text]
    return f"page {changed[0]}" if changed else "nothing"
