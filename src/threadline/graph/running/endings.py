"""What a run says when it ends otherwise than expected: too many steps, a join that waits for ever."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from .._base import printable
from ..channels import NamedBarrierValue
from ..errors import GraphRecursionError

if TYPE_CHECKING:
    from .loop import Run

__all__ = ["check_joins", "recursion_error"]

log = logging.getLogger("threadline.graph")
# So many of the last nodes are named in the error.
SHOWN_NODES = 10


def recursion_error(run: Run) -> GraphRecursionError:
    """The error at the recursion limit: what ran last, and what repeats."""
    limit = run.settings.recursion_limit
    names = [name for step in run.ran for name in step]
    last = names[-SHOWN_NODES:]
    cycle = repeating_end(names)
    text = (
        f"Recursion limit of {limit} reached without hitting a stop condition. "
        "You can increase the limit by setting the `recursion_limit` config key."
    )
    if last:
        text += f" The last nodes were {' -> '.join(last)}."
    if cycle:
        text += f" These repeat: {' -> '.join(cycle)}. An edge that leads out of them is missing or never taken."
    if run.saver is not None:
        text += " The state is saved: invoke(None, config) goes on from here."
    return GraphRecursionError(text, limit=limit, last_nodes=last, cycle=cycle)


def repeating_end(names: list[str]) -> list[str]:
    """The shortest sequence that a list ends with at least twice; empty without one."""
    for length in range(1, len(names) // 2 + 1):
        if names[-length:] == names[-2 * length : -length]:
            return names[-length:]
    return []


def check_joins(run: Run) -> None:
    """Warn of every join that some of its sources reached and the run left waiting."""
    for name, channel in run.state.channels.items():
        if isinstance(channel, NamedBarrierValue) and channel.seen and channel.seen != channel.names:
            waiting = run.plan.trigger_to_nodes.get(name, (name,))[0]
            missing = sorted(str(one) for one in channel.names - channel.seen)
            log.warning(
                "The run ended while node %r waits for %s, which did not run. Add the edges one by one, with "
                "defer=True on %r, if it should run without them.",
                waiting,
                printable(", ".join(missing)),
                waiting,
            )
