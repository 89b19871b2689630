"""Checkpoint ids: uuid6, which sort by the time they were made.

Rules: ids made in one process only ever grow, within one clock tick, across OS threads and when the clock
steps back; a forked child draws a new node so that parent and child never collide. Randomness comes from
the operating system, never from `uuid.uuid4`, which tests and users patch.
"""

from __future__ import annotations

import os
import threading
import time
import uuid

__all__ = ["id_after", "id_at", "id_of_now", "new_id", "uuid6"]

# 100-nanosecond ticks between the start of the Gregorian calendar, where uuid time begins, and 1970.
_GREGORIAN_OFFSET = 0x01B21DD213814000


class _Ticks:
    """A clock of 100-nanosecond ticks that never repeats and never goes back."""

    def __init__(self) -> None:
        self.restart()

    def restart(self) -> None:
        self.lock = threading.RLock()  # a signal handler may make an id in the middle of another
        self.last = 0
        self.node = int.from_bytes(os.urandom(6), "big") | 0x010000000000

    def next(self) -> int:
        with self.lock:
            tick = max(time.time_ns() // 100 + _GREGORIAN_OFFSET, self.last + 1)
            self.last = max(self.last, tick)
            return tick


_ticks = _Ticks()
os.register_at_fork(after_in_child=_ticks.restart)


def uuid6(*, clock_seq: int | None = None) -> uuid.UUID:
    """A time-ordered UUID greater than every one made before by this process."""
    if clock_seq is None:
        clock_seq = int.from_bytes(os.urandom(2), "big")
    return uuid.UUID(int=_composed(_ticks.next(), clock_seq, _ticks.node))


def id_of_now() -> str:
    """The least id that anybody's clock gives at this moment; not an id of anything."""
    return _text(_composed(time.time_ns() // 100 + _GREGORIAN_OFFSET, 0, 0))


def id_at(seconds: float) -> str:
    """The least id of a moment, in seconds since 1970; not an id of anything."""
    return _text(_composed(int(seconds * 1e7) + _GREGORIAN_OFFSET, 0, 0))


def _composed(tick: int, clock_seq: int, node: int) -> int:
    bits = (tick >> 12 << 80) | (0x6 << 76) | ((tick & 0xFFF) << 64) | (0x2 << 62)
    return bits | (clock_seq & 0x3FFF) << 48 | node


def _text(number: int) -> str:
    """A UUID as text, without an object for it."""
    digits = f"{number:032x}"
    return f"{digits[:8]}-{digits[8:12]}-{digits[12:16]}-{digits[16:20]}-{digits[20:]}"


def new_id(step: int | None = None) -> str:
    """A new checkpoint id as text; `step` is kept in it as LangGraph does."""
    clock_seq = int.from_bytes(os.urandom(2), "big") if step is None else step
    return _text(_composed(_ticks.next(), clock_seq, _ticks.node))


def id_after(other: str | None) -> str:
    """A new id greater than `other`, whatever the clock says.

    An `other` of the future moves no clock: the ids of other threads must stay among those that LangGraph makes.
    """
    made = new_id()
    if other is None or made > other:
        return made
    try:
        parsed = uuid.UUID(other)
    except ValueError:
        return other + "0"
    tick = ((parsed.int >> 80) << 12) | ((parsed.int >> 64) & 0xFFF)
    if tick + 1 >= 1 << 60:
        return other + "0"
    chance = int.from_bytes(os.urandom(8), "big")
    made = _text(_composed(tick + 1, chance >> 48, chance & 0xFFFFFFFFFFFF))
    return made if made > other else other + "0"
