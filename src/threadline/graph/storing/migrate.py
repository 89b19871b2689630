"""Checkpoints of older formats, read as if they were of today's.

v < 4: sends of the step before are in `pending_sends`; today they are the channel `__pregel_tasks`.
v < 3: nodes were triggered by `start:N`, `branch:S:C:N` and by the names of other nodes; today by `branch:to:N`.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ..building.plan import Plan
from ..constants import START, TASKS

__all__ = ["migrate"]


def migrate(plan: Plan, checkpoint: Mapping[str, Any]) -> Mapping[str, Any]:
    """The checkpoint in today's format; the one given is not changed."""
    version = checkpoint.get("v", 4)
    if version >= 4:
        return checkpoint
    migrated = dict(checkpoint)
    migrated["channel_values"] = dict(checkpoint["channel_values"])
    migrated["channel_versions"] = dict(checkpoint["channel_versions"])
    migrated["versions_seen"] = {name: dict(seen) for name, seen in checkpoint["versions_seen"].items()}
    sends = migrated.pop("pending_sends", None)
    if sends and TASKS in plan.channels:
        migrated["channel_values"][TASKS] = list(sends)
        top = max(migrated["channel_versions"].values(), default=1)
        migrated["channel_versions"][TASKS] = top
    if version < 3:
        _rename_triggers(plan, migrated)
    return migrated


def _rename_triggers(plan: Plan, checkpoint: dict[str, Any]) -> None:
    values, versions, seen = (checkpoint[key] for key in ("channel_values", "channel_versions", "versions_seen"))
    for old in list(versions):
        new = _renamed(plan, old)
        if new is None:
            continue
        version = versions.pop(old)
        versions[new] = max(versions[new], version) if new in versions else version
        if old in values:
            values.setdefault(new, values.pop(old))
        for by_node in seen.values():
            if old in by_node:
                known = by_node.pop(old)
                by_node[new] = max(by_node[new], known) if new in by_node else known


def _renamed(plan: Plan, channel: str) -> str | None:
    """The trigger that replaced an old one; None for channels that kept their names."""
    if channel in plan.channels:
        return None
    if channel.startswith("start:") or channel.startswith("branch:"):
        target = channel.rsplit(":", 1)[-1]
        return f"branch:to:{target}" if target in plan.nodes else None
    if channel in plan.nodes and channel != START:
        # The channel that a node wrote when it ended: it triggered the node at the other end of its only edge.
        targets = plan.edges_from(channel)
        return f"branch:to:{targets[0]}" if len(targets) == 1 else None
    return None
