"""Figures, times and addresses as people read them; the command line and the page say them alike."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable
from datetime import datetime, timezone
from typing import Any

from ..core.moments import moment_of
from ..errors import InvalidRequest

__all__ = [
    "counted",
    "iso_time",
    "moment_of",
    "pairs_of",
    "readable_bytes",
    "readable_latency",
    "readable_span",
    "readable_time",
    "without_password",
]


def readable_bytes(count: float) -> str:
    """A number of bytes as people say it: `6.4 MB`."""
    if count < 1000:
        return f"{count:,.0f} {'byte' if count == 1 else 'bytes'}"
    units = ["KB", "MB", "GB", "TB"]
    power = next((power for power in range(len(units)) if count < 1000 ** (power + 2)), len(units) - 1)
    return f"{count / 1000 ** (power + 1):,.1f} {units[power]}"


def counted(count: int, noun: str) -> str:
    """A number of things: `1 checkpoint`, `2,000 checkpoints`."""
    return f"{count:,} {noun}{'' if count == 1 else 's'}"


def readable_span(seconds: float) -> str:
    """A span of time as people say it: `3.5 h`."""
    for unit, length in (("days", 86_400), ("h", 3600), ("min", 60)):
        if seconds >= length:
            return f"{seconds / length:,.1f} {unit}"
    return f"{seconds:.0f} s"


def readable_latency(seconds: float) -> str:
    """How long a call took: `3.1 ms`, and below a millisecond `42 µs`."""
    return f"{seconds * 1000:,.1f} ms" if seconds >= 0.001 else f"{seconds * 1_000_000:.0f} µs"


def readable_time(seconds: float) -> str:
    """A moment, in UTC and to the second."""
    return datetime.fromtimestamp(seconds, timezone.utc).strftime("%Y-%m-%d %H:%M:%SZ")


def pairs_of(filters: Iterable[str], option: str) -> dict[str, Any]:
    """Metadata that was typed, KEY=VALUE each: JSON where it is some, or else the text itself."""
    found: dict[str, Any] = {}
    for one in filters:
        key, equals, value = one.partition("=")
        if not equals or not key:
            raise InvalidRequest(f"{option} is KEY=VALUE, such as user=ann, not {one!r}")
        try:
            found[key] = json.loads(value)
        except ValueError:
            found[key] = value
    return found


def iso_time(seconds: float | None) -> str | None:
    """A moment for programs, as ISO 8601 has it."""
    return None if seconds is None else datetime.fromtimestamp(seconds, timezone.utc).isoformat()


def without_password(text: str) -> str:
    """A text in which the passwords of URLs are stars, wherever a URL has them."""
    text = re.sub(r"(\w://[^\s:/@]*:)[^\s@]+@", r"\1***@", text)
    return re.sub(r"(?i)([?&](?:ssl)?password=)[^\s&]+", r"\1***", text)
