"""Threads of older versions of a graph: nodes that were renamed, state that changed, nodes that are gone.

`compile(version=, renamed={"old": "new"}, migrate=fn)`: the version is kept in the metadata of every checkpoint. A
checkpoint of another version is read with its nodes renamed and its values passed through `migrate`. A run that would
go on at a node which does not exist any more is refused, instead of ending without a word.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from .._base import InvalidRequest
from ..types import Send

if TYPE_CHECKING:
    from ..compiled import Pregel
    from ..running.loop import Run

__all__ = ["adapted", "refuse_lost_nodes"]

_TRIGGER = "branch:to:"
_JOIN = "join:"


def adapted(graph: Pregel, checkpoint: Mapping[str, Any], metadata: Mapping[str, Any]) -> Mapping[str, Any]:
    """A stored checkpoint as this version of the graph understands it; the one given is not changed."""
    if not graph.renamed and graph.migrate is None:
        return checkpoint
    made = dict(checkpoint)
    if graph.renamed:
        made = _renamed(made, graph.renamed)
    if graph.migrate is not None and metadata.get("graph_version") != graph.version:
        values = graph.migrate(dict(made["channel_values"]))
        made["channel_values"] = values
        versions = dict(made["channel_versions"])
        top = max(versions.values(), default=None)
        for name in values:
            if name not in versions and top is not None:
                versions[name] = top
        made["channel_versions"] = versions
    return made


def _renamed(checkpoint: dict[str, Any], names: Mapping[str, str]) -> dict[str, Any]:
    for part in ("channel_values", "channel_versions"):
        checkpoint[part] = {_channel(name, names): value for name, value in checkpoint[part].items()}
    checkpoint["versions_seen"] = {
        names.get(node, node): {_channel(name, names): version for name, version in seen.items()}
        for node, seen in checkpoint["versions_seen"].items()
    }
    if checkpoint.get("updated_channels"):
        checkpoint["updated_channels"] = [_channel(name, names) for name in checkpoint["updated_channels"]]
    sends = checkpoint["channel_values"].get("__pregel_tasks")
    if sends:
        checkpoint["channel_values"]["__pregel_tasks"] = [_send(one, names) for one in sends]
    return checkpoint


def _send(send: Any, names: Mapping[str, str]) -> Any:
    if isinstance(send, Send) and send.node in names:
        return Send(names[send.node], send.arg, timeout=send.timeout)
    return send


def _channel(name: str, names: Mapping[str, str]) -> str:
    if name.startswith(_TRIGGER):
        target = name[len(_TRIGGER) :]
        return _TRIGGER + names.get(target, target)
    if name.startswith(_JOIN):
        sources, _, target = name[len(_JOIN) :].partition(":")
        renamed = "+".join(names.get(one, one) for one in sources.split("+"))
        return f"{_JOIN}{renamed}:{names.get(target, target)}"
    return name


def refuse_lost_nodes(run: Run, checkpoint: Mapping[str, Any]) -> None:
    """Refuse to go on at a node that the graph does not have any more."""
    seen = checkpoint["versions_seen"]
    for name in checkpoint["channel_values"]:
        if not name.startswith(_TRIGGER) or name in run.plan.channels:
            continue
        node = name[len(_TRIGGER) :]
        version = checkpoint["channel_versions"].get(name)
        known = seen.get(node, {}).get(name)
        if version is not None and (known is None or version > known):
            raise InvalidRequest(
                f"thread {run.thread_id!r} goes on at node {node!r}, which this graph does not have. If it was "
                f"renamed, compile(renamed={{{node!r}: 'new name'}}); otherwise move the thread with "
                "update_state(config, values, as_node=...)"
            )
