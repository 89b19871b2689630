"""What may be put: namespaces, keys, JSON-like values and times to live; InvalidRequest says what is wrong."""

from __future__ import annotations

import math
from collections.abc import Mapping
from datetime import datetime
from typing import Any

from ...errors import InvalidRequest
from ..retention.policy import seconds_of

__all__ = [
    "check_key",
    "check_namespace",
    "check_span",
    "checked_value",
    "kept_versions",
    "moment_asked",
    "ttl_seconds",
]

# The last year that a datetime has is 9999.
_MOST_SECONDS = 1000 * 365.25 * 86_400
_PLAIN = frozenset((str, int, float, bool, type(None)))
_TEXT = frozenset((str,))


def check_namespace(namespace: Any, *, may_be_empty: bool = False) -> tuple[str, ...]:
    """A namespace: a tuple of texts, none of them empty."""
    if type(namespace) is tuple and namespace and _TEXT.issuperset(map(type, namespace)) and "" not in namespace:
        return namespace
    if not isinstance(namespace, (tuple, list)) or not all(isinstance(label, str) for label in namespace):
        raise InvalidRequest(f"a namespace is a tuple of texts such as ('users', '7'), not {namespace!r}")
    if not namespace and not may_be_empty:
        raise InvalidRequest("the namespace is empty: give at least one label, such as ('memories',)")
    if "" in namespace:
        raise InvalidRequest(f"a label of the namespace {tuple(namespace)!r} is empty")
    return tuple(namespace)


def check_key(key: Any) -> str:
    """A key: a text that is not empty."""
    if not isinstance(key, str) or not key:
        raise InvalidRequest(f"a key is a text that is not empty, not {key!r}")
    return key


def checked_value(value: Any) -> dict[str, Any]:
    """A copy of a value that is a JSON-like dict; InvalidRequest names the key that is not."""
    if not isinstance(value, Mapping):
        raise InvalidRequest(f"a value is a dict, not {type(value).__name__}")
    try:
        plain: dict[str, Any] = _plain(value, "value")
    except RecursionError:
        raise InvalidRequest("a value is nested too deeply, or it contains itself") from None
    return plain


def _plain(value: Any, path: str) -> Any:
    kind = type(value)
    if kind in _PLAIN:
        return value
    if kind is dict or isinstance(value, Mapping):
        plain = {}
        for key, part in value.items():
            if not isinstance(key, str):
                raise InvalidRequest(f"{path} has the key {key!r}, and keys are texts")
            plain[key if type(key) is str else str(key)] = (
                part if type(part) in _PLAIN else _plain(part, f"{path}[{key!r}]")
            )
        return plain
    if isinstance(value, (list, tuple)):
        return [
            part if type(part) in _PLAIN else _plain(part, f"{path}[{position}]") for position, part in enumerate(value)
        ]
    for simple in (bool, int, float, str):
        if isinstance(value, simple):
            return simple(value)
    raise InvalidRequest(
        f"{path} is a {kind.__name__}, which JSON has no form for: store text, numbers, lists and dicts of these"
    )


def ttl_seconds(ttl: Any) -> float | None:
    """A time to live in seconds: from minutes, a timedelta, or text such as `30d`."""
    if ttl is None:
        return None
    try:
        seconds = ttl * 60.0 if isinstance(ttl, (int, float)) and not isinstance(ttl, bool) else seconds_of(ttl, "ttl")
    except OverflowError:
        seconds = math.inf
    if seconds is None or not seconds > 0:
        raise InvalidRequest(f"ttl is a number of minutes above 0, a timedelta, or text such as 30d, not {ttl!r}")
    return check_span(seconds)


def check_span(seconds: float) -> float:
    """A time to live that ends within the calendar."""
    if not seconds <= _MOST_SECONDS:
        raise InvalidRequest("ttl is at most 1,000 years; give None for no end")
    return seconds


def kept_versions(keep_versions: Any) -> tuple[int, float | None]:
    """How many versions are kept, or for how many seconds."""
    if keep_versions is None or keep_versions is False:
        return 0, None
    if keep_versions is True:
        return 2**62, None
    if type(keep_versions) is int:
        if keep_versions < 1:
            raise InvalidRequest(f"keep_versions is a number of versions above 0, not {keep_versions}")
        return keep_versions, None
    return 0, seconds_of(keep_versions, "keep_versions")


def moment_asked(as_of: Any) -> float | None:
    """A time that was asked for, in seconds since 1970: of a datetime, an ISO text or seconds."""
    if as_of is None:
        return None
    moment = math.nan
    try:
        if isinstance(as_of, (int, float)) and not isinstance(as_of, bool):
            moment = float(as_of)
        elif isinstance(as_of, datetime):
            moment = as_of.timestamp()
        elif isinstance(as_of, str):
            moment = datetime.fromisoformat(as_of.replace("Z", "+00:00")).timestamp()
    except (ValueError, OverflowError, OSError):  # no time, or one beyond all calendars
        pass
    if math.isfinite(moment):
        return moment
    raise InvalidRequest(f"as_of is a datetime, an ISO time or seconds since 1970, not {_shown(as_of)}")


def _shown(value: Any) -> str:
    """A value in an error; Python shows no number of more than 4,300 digits."""
    return repr(value) if type(value) is not int or value.bit_length() < 1000 else "a number of so many digits"
