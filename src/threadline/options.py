"""Which values the options of `connect` may have; each refusal names its option."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import Any

from .errors import InvalidRequest

__all__ = ["OPTIONS", "check_options"]


def check_options(options: Mapping[str, Any]) -> None:
    """Refuse an option that is unknown or cannot have its value."""
    for name, value in options.items():
        rule = _RULES.get(name)
        if rule is None:
            raise InvalidRequest(f"unknown option: {name} (docs/options.md lists them)")
        accepts, wanted = rule
        if not accepts(value):
            raise InvalidRequest(f"{name} is {wanted}, not {_shown(value)}")


def _one_of(*values: Any) -> Callable[[Any], bool]:
    # By type too: 1 is not True, and 0 is not False.
    return lambda value: any(value == one and type(value) is type(one) for one in values)


def _is_seconds(value: Any) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool) and value >= 0 and math.isfinite(value)


def _is_text_list(value: Any) -> bool:
    return isinstance(value, (list, tuple, set, frozenset)) and all(isinstance(key, str) for key in value)


def _is_retry(value: Any) -> bool:
    if isinstance(value, bool):
        return value is False
    if isinstance(value, tuple):
        return len(value) == 2 and type(value[0]) is int and value[0] >= 1 and _is_seconds(value[1])
    return value is None or (type(value) is int and value >= 1)


def _is_whole(value: Any) -> bool:
    return type(value) is int and value >= 1


def _is_text(value: Any) -> bool:
    return isinstance(value, str) and bool(value)


def _is_types(value: Any) -> bool:
    if isinstance(value, str):
        return value in ("imported", "strict")
    if not isinstance(value, (list, tuple, set, frozenset, type(None))):
        return False
    return all(isinstance(entry, type) or (isinstance(entry, tuple) and len(entry) >= 2) for entry in value or ())


def _is_serializer(value: Any) -> bool:
    if value is None:
        return True
    typed = hasattr(value, "dumps_typed") and hasattr(value, "loads_typed")
    return not isinstance(value, type) and (typed or (hasattr(value, "dumps") and hasattr(value, "loads")))


def _shown(value: Any) -> str:
    """A value in an error; never one that may be a key."""
    return repr(value) if isinstance(value, (str, int, float, type(None))) else type(value).__name__


_FLAG = (_one_of(True, False), "True or False")
_LEVELS = ("OFF", "NORMAL", "FULL", "EXTRA")
_RULES: dict[str, tuple[Callable[[Any], bool], str]] = {
    "allowed_types": (_is_types, "'imported', 'strict' or a list of types"),
    "cache_bytes": (lambda value: type(value) is int and value >= 0, "a number of bytes, 0 or more"),
    "compression": (_one_of("zstd", None), "'zstd' or None"),
    "connection": (lambda value: value is None or not isinstance(value, (str, int)), "a connection of the driver"),
    "encryption": (lambda value: value is None or hasattr(value, "seal"), "a KeyRing({'2026': key of 32 bytes})"),
    "fencing": _FLAG,
    "index_metadata": (_is_text_list, "a list of metadata keys"),
    "key_prefix": (_is_text, "text"),
    "partitions": (lambda value: value is None or _is_whole(value), "a number of partitions, 1 or more"),
    "pool": (lambda value: value is None or not isinstance(value, (str, int)), "a connection pool of the driver"),
    "pool_size": (_is_whole, "a number of connections, 1 or more"),
    "prepare_threshold": (
        lambda value: value is None or (type(value) is int and value >= 0),
        "after how many uses a statement is prepared, or None for never",
    ),
    "read_only": _FLAG,
    "retention": (lambda value: value is None or hasattr(value, "keep_last"), "a Policy(keep_last=…, …)"),
    "retry": (_is_retry, "a number of tries, Retry(tries=…, seconds=…), or None"),
    "schema": (lambda value: value is None or _is_text(value), "the name of a schema"),
    "serde": (_is_serializer, "an object with dumps_typed and loads_typed, or dumps and loads"),
    "setup": (_one_of("create", "migrate", False), "'create', 'migrate' or False"),
    "share_decoded": _FLAG,
    "synchronous": (lambda value: isinstance(value, str) and value.upper() in _LEVELS, "one of " + ", ".join(_LEVELS)),
    "table_prefix": (lambda value: isinstance(value, str), "text"),
    "tenant": (lambda value: value is None or _is_text(value), "the name of a tenant"),
    "ttl": (lambda value: value is None or (_is_seconds(value) and value > 0), "a number of seconds above 0"),
    "timeout": (_is_seconds, "a number of seconds, 0 or more"),
    "trust_identity": _FLAG,
    "unknown_types": (_one_of("plain", "refuse", None), "'plain' or 'refuse'"),
}

# The names of all options.
OPTIONS = tuple(sorted(_RULES))
