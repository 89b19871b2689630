"""What cannot be rebuilt here as plain data: the fields of an object as a dict, the value of an enum's member.

`unknown_types="plain"` asks for it. A value is first read as ever; only where that meets a type which this process
may not or cannot rebuild, it is read again by a `PlainCodec`. Nothing of a class is called, and each such type is
warned of once. Arrays and frames are not taken apart: they are read once numpy or pandas is imported.
"""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Callable
from contextlib import suppress
from typing import Any

from ..errors import NotAllowed, ThreadlineError
from ..printable import printable
from .wire import Codec

__all__ = ["PlainCodec", "plain_data", "unknown_in"]

log = logging.getLogger("threadline")
_MOST_WARNINGS = 1_000
_warned: set[str] = set()
# Arrays, numbers and frames.
_SCIENCE = frozenset(
    ("nd", "np", "npdtype", "pandas.DataFrame", "pandas.Series", "pandas.Timedelta", "pandas.Timestamp")
)


class PlainCodec(Codec):
    """A codec that gives the state of what it cannot rebuild. `unknown` counts these by the names of their types."""

    def __init__(self, like: Codec) -> None:
        super().__init__(like.rules, foreign=like.foreign, pickle_fallback=like.pickle_fallback)
        self.unknown: Counter[str] = Counter()

    def _builder_for(self, name: bytes) -> Callable[[Any], Any]:
        stored = name.decode()
        shown = stored.partition("?")[0].partition("@")[0]
        try:
            build = super()._builder_for(name)
        except NotAllowed as why:
            reason = why
            return lambda state: self._unknown(shown, state, reason)

        def built(state: Any) -> Any:
            try:
                return build(state)
            except NotAllowed as why:
                return self._unknown(shown, state, why)

        self._builders.pop(name, None)
        return built

    def _unknown(self, name: str, state: Any, why: NotAllowed) -> Any:
        if name in _SCIENCE:
            raise why
        self.unknown[name] += 1
        if name not in _warned and len(_warned) < _MOST_WARNINGS:
            _warned.add(name)
            log.warning(
                "stored %s comes back as plain data: %s. unknown_types='refuse' raises instead",
                printable(name),
                printable(why),
            )
        return plain_data(state) if ":" in name else state


def unknown_in(codec: Codec, data: bytes) -> Counter[str]:
    """The types in encoded bytes that cannot be rebuilt, and how many objects have each."""
    reader = PlainCodec(codec)
    with suppress(ThreadlineError):  # what else is wrong with them is somebody else's business
        reader.decode(data)
    return reader.unknown


def plain_data(state: Any) -> Any:
    """The state of a data class as its user would have it without the class."""
    if type(state) is dict:
        return state["root"] if state.keys() == {"root"} else state  # the one field that a root model has
    if type(state) is not list or not state:
        return state
    if type(state[0]) is dict:
        # Fields, extra fields, and then what is private or only says which fields were set.
        more = state[1] if len(state) > 2 and type(state[1]) is dict else {}
        return {**state[0], **more}
    if type(state[0]) in (str, type(None)) and len(state) <= 2:
        return state[-1]  # a member of an enum: its value, or its name where that is all there is
    return state
