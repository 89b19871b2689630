"""Threads in which LangGraph kept only the changes of a channel: their values, put together when they are loaded.

LangGraph's DeltaChannel stores its value every so many steps, and writes in between. This room stores the whole value
(see channels). A thread of LangGraph is read through the saver's `get_delta_channel_history`.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from ..channels import DeltaChannel
from ..constants import MISSING

if TYPE_CHECKING:
    from ..running.loop import Run

__all__ = ["complete_deltas"]


async def complete_deltas(run: Run, saver: Any, config: Mapping[str, Any], *, is_async: bool) -> None:
    """Give the delta channels of a loaded run the values that their history says."""
    names = [name for name in run.plan.deltas if name in run.state.versions and _is_incomplete(run, name)]
    method = getattr(saver, "aget_delta_channel_history" if is_async else "get_delta_channel_history", None)
    if not names or method is None:
        return
    found = method(config=dict(config), channels=names)
    histories = await found if is_async else found
    for name in names:
        history = histories.get(name) or {}
        spec = run.plan.channels[name]
        channel = spec.from_checkpoint(_value(history.get("seed", MISSING)))
        assert isinstance(channel, DeltaChannel)
        channel.replay_writes([value for _, _, value in history.get("writes", ())])
        run.state.channels[name] = channel
        # The stored version has no whole value: what is saved next must not claim to be the same.
        run.state.moved(name, run.next_version(run.state.top, None))


def _is_incomplete(run: Run, name: str) -> bool:
    channel = run.state.channels[name]
    return not channel.is_available() or _value(channel.checkpoint()) is not channel.checkpoint()


def _value(stored: Any) -> Any:
    """What a snapshot holds; a plain value is itself."""
    if type(stored).__name__ in ("_DeltaSnapshot", "Structure") and hasattr(stored, "value"):
        return stored.value
    return stored
