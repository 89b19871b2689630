"""What was observed, as plain values in which ids, times and versions are replaced by their order.

Values of either engine become the same: classes become their name and fields, exceptions their type and the start of
their message, LangChain's messages dicts.
"""

from __future__ import annotations

import dataclasses
import enum
import re
from collections.abc import Callable, Mapping
from datetime import datetime
from typing import Any

_ID = re.compile(r"[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}|(?<![0-9a-f])[0-9a-f]{32}(?![0-9a-f])")
_TIME = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d[.\d]*(\+00:00|Z)?")
_ADDRESS = re.compile(r"0x[0-9a-f]{6,}")
_NULL = "00000000-0000-0000-0000-000000000000"
_ROLES = {"human": "user", "ai": "assistant"}
# What the libraries add to the metadata of runs for their own tracing.
_NOISE = {"ls_integration", "langgraph_version", "langgraph_plan", "langgraph_host", "langgraph_api_url", "run_attempt"}


def plain(value: Any) -> Any:
    """The value without classes of either engine; ids and times are still there."""
    if value is None or isinstance(value, (bool, int, float, bytes)):
        return value.value if isinstance(value, enum.Enum) else value
    if isinstance(value, str):
        return _TIME.sub("TIME", _ADDRESS.sub("ADDRESS", str(value.value if isinstance(value, enum.Enum) else value)))
    if isinstance(value, datetime):
        return "TIME"
    if isinstance(value, BaseException):
        return described(value)
    if isinstance(value, type):
        return f"<class {value.__name__}>"
    if hasattr(value, "_fields"):
        return {"is": type(value).__name__} | {name: plain(getattr(value, name)) for name in value._fields}
    if isinstance(value, Mapping):
        message = _as_message(value)
        return message or {plain_key(key): _item(key, item) for key, item in value.items() if key not in _NOISE}
    if isinstance(value, (set, frozenset)):
        return {"set": sorted(map(plain, value), key=repr)}
    if isinstance(value, (list, tuple)):
        kind = "tuple" if isinstance(value, tuple) else "list"
        return (kind, [plain(item) for item in value])
    if type(value).__name__ == "deque":
        return ("deque", [plain(item) for item in value])
    return _object(value)


def _item(key: Any, item: Any) -> Any:
    if key == "__interrupt__" and isinstance(item, (list, tuple)):
        # Questions of parallel tasks come in the order of asking.
        kind, questions = plain(item)
        return (kind, sorted(questions, key=lambda question: repr(without_ids(question))))
    return plain(item)


def plain_key(key: Any) -> Any:
    return key if isinstance(key, (str, int, float, bool, type(None))) else repr(plain(key))


def described(error: BaseException, length: int = 24) -> dict[str, Any]:
    """An exception by its type and the start of its message."""
    return {"raised": type(error).__name__, "saying": plain(str(error)[:length])}


def as_lists(observed: Any) -> Any:
    """The same with tuples as lists: LangGraph's serializer does not keep them apart."""
    if isinstance(observed, tuple) and observed[:1] == ("tuple",):
        observed = ("list", observed[1])
    if isinstance(observed, dict):
        return {key: as_lists(value) for key, value in observed.items()}
    return type(observed)(map(as_lists, observed)) if isinstance(observed, (list, tuple)) else observed


def by_order(observed: Any) -> Any:
    """The same with every id replaced by its order of appearance."""
    seen: dict[str, str] = {_NULL: "NULL-TASK"}

    def named(match: re.Match[str]) -> str:
        return seen.setdefault(match[0], f"ID{len(seen)}")

    return _mapped(observed, lambda text: _ID.sub(named, text))


def without_ids(observed: Any) -> Any:
    """The same with all ids equal, for sorting what has no order of its own."""
    return _mapped(observed, lambda text: _ID.sub("ID", text))


def version_number(version: Any) -> int:
    """A version by its number, whatever a saver adds to it; branches of one thread use the same numbers."""
    return int(str(version).partition(".")[0])


def _mapped(value: Any, change: Callable[[str], str]) -> Any:
    if isinstance(value, str):
        return change(value)
    if isinstance(value, dict):
        return {(change(key) if isinstance(key, str) else key): _mapped(item, change) for key, item in value.items()}
    if isinstance(value, list):
        return [_mapped(item, change) for item in value]
    if isinstance(value, tuple):
        return tuple(_mapped(item, change) for item in value)
    return value


def _as_message(value: Mapping[Any, Any]) -> dict[str, Any] | None:
    if "role" not in value or "content" not in value:
        return None
    return {"message": value["role"], "content": plain(value["content"]), "id": value.get("id")}


def _object(value: Any) -> Any:
    name = type(value).__name__
    if hasattr(value, "content") and hasattr(value, "type"):
        return {"message": _ROLES.get(value.type, value.type), "content": plain(value.content), "id": value.id}
    if name == "Send":
        return {"is": "Send", "node": value.node, "arg": plain(value.arg), "timeout": plain(value.timeout)}
    if dataclasses.is_dataclass(value):
        return {"is": name} | {f.name: plain(getattr(value, f.name)) for f in dataclasses.fields(value)}
    if hasattr(value, "model_fields_set"):
        return {"is": name} | {key: plain(getattr(value, key)) for key in type(value).model_fields}
    if callable(value):
        return f"<function {getattr(value, '__name__', name)}>"
    return f"<{name}>"
