"""Where state lives between steps. A channel takes the writes of one step at once and says whether it changed.

    update(values)      the writes of the step, possibly none; True when the channel changed (its version moves)
    get()               the value, or EmptyChannelError
    is_available()      whether get() has a value: only then does the channel trigger nodes
    consume()           a task that this channel triggered was applied
    finish()            the run would end now: what waits for the end becomes available
    checkpoint()        the value to store, or MISSING
    from_checkpoint(v)  a new channel with a stored value

Equality ignores the value: two schemas may declare the same key when their channels are equal.
"""

from __future__ import annotations

from .base import BaseChannel
from .reducers import BinaryOperatorAggregate, DeltaChannel
from .topic import Topic
from .values import AnyValue, EphemeralValue, LastValue, UntrackedValue
from .waiting import LastValueAfterFinish, NamedBarrierValue, NamedBarrierValueAfterFinish

__all__ = [
    "AnyValue",
    "BaseChannel",
    "BinaryOperatorAggregate",
    "DeltaChannel",
    "EphemeralValue",
    "LastValue",
    "LastValueAfterFinish",
    "NamedBarrierValue",
    "NamedBarrierValueAfterFinish",
    "Topic",
    "UntrackedValue",
]
