"""Moments that callers and people name: a time, a span that ends now, or a checkpoint's id."""

from __future__ import annotations

import math
import re
import time
from datetime import datetime
from typing import Any

from ..errors import InvalidRequest
from .retention.policy import seconds_of

__all__ = ["moment_of", "until_of"]

_ID = re.compile(r"[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}", re.IGNORECASE)
_AN_ID = "the id of a checkpoint"


def until_of(value: Any, name: str) -> tuple[str | None, float | None]:
    """The id of the last checkpoint that is wanted, or its time in seconds since 1970; neither for None."""
    if isinstance(value, str) and _ID.fullmatch(value):
        return value.lower(), None
    return None, moment_of(value, name, _AN_ID)


def moment_of(value: Any, name: str, also: str = "") -> float | None:
    """A moment in seconds since 1970, of such a number, a datetime, or text: a span that ends now, such as 7d, or a
    time such as 2026-01-31T12:00, of this machine's zone unless it names one. None for None.

    InvalidRequest names what else is taken.
    """
    if value is None:
        return None
    try:
        seconds = _seconds(value, name)
        if math.isfinite(seconds):
            return seconds
    except (TypeError, ValueError, OverflowError):
        pass
    kinds = ["a span such as 7d", "a time such as 2026-01-31T12:00", *([also] if also else [])]
    raise InvalidRequest(f"{name} is {', '.join(kinds[:-1])} or {kinds[-1]}, not {value!r}") from None


def _seconds(value: Any, name: str) -> float:
    if isinstance(value, datetime):
        return value.timestamp()
    if not isinstance(value, str):
        return float(value)
    try:
        return datetime.fromisoformat(value.replace("Z", "+00:00")).timestamp()
    except ValueError:
        span = seconds_of(value, name)  # InvalidRequest is a ValueError
    assert span is not None
    return time.time() - span
