"""Channel versions: integers of ours, and whatever another saver left behind.

Rules: a version continues in the type it was given, because LangGraph takes `max()` over a checkpoint's
versions and mixed types do not compare. Three foreign forms are understood: floats, the string form
`"%032d.%016f"` of LangGraph's SQLite and PostgreSQL savers, and uuid strings.
"""

from __future__ import annotations

import os
import uuid
from typing import TypeAlias, TypeVar

from ..errors import InvalidRequest
from .ids import id_after

__all__ = ["Version", "is_newer", "next_version", "sort_key"]

Version: TypeAlias = int | float | str
V = TypeVar("V", int, float, str)


def next_version(current: V | None) -> V:
    """The version that follows `current`, in its own type; 1 where there is none."""
    if current is None:
        return 1  # type: ignore[return-value]
    if isinstance(current, (int, float)):
        return current + 1
    if not isinstance(current, str):
        raise InvalidRequest(f"a channel version is a number or text, not {type(current).__name__}")
    counter, dot, _ = current.partition(".")
    if counter.isdecimal():
        # The fraction tells apart versions that two branches gave the same number.
        fraction = int.from_bytes(os.urandom(4), "big") / 2**32
        return f"{int(counter) + 1:032d}.{fraction:016f}" if dot else f"{int(counter) + 1:0{len(counter)}d}"
    if _is_uuid(current):
        return id_after(current)
    raise InvalidRequest(f"cannot continue the channel version {current!r}: not a number, counter or uuid")


def sort_key(version: Version) -> tuple[float, str]:
    """A key under which versions of any mix of types compare."""
    if isinstance(version, (int, float)):
        return (version, "")
    counter, _, fraction = version.partition(".")
    return (int(counter), fraction) if counter.isdecimal() else (float("inf"), version)


def is_newer(version: Version, than: Version | None) -> bool:
    """Whether `version` comes after `than`; every version comes after none."""
    return than is None or sort_key(version) > sort_key(than)


def _is_uuid(text: str) -> bool:
    try:
        uuid.UUID(text)
    except ValueError:
        return False
    return True
