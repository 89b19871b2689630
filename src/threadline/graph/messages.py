"""Lists of messages as state. A message is a dict with `role`, `content` and `id`.

    {"role": "user", "content": "hi", "id": "…"}        strings and (role, text) pairs become this

Message objects of other libraries (anything with `id` and `content` or `type`) stay the objects they are. The bridge to
LangChain installs converters, after which every message becomes one of its classes.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from operator import itemgetter
from typing import TYPE_CHECKING, Annotated, Any
from uuid import uuid4

from typing_extensions import TypedDict

from ._base import MissingExtra
from .warnings import LangGraphDeprecatedSinceV10

if TYPE_CHECKING:
    from .building.builder import StateGraph

__all__ = [
    "MessageGraph",
    "MessagesState",
    "REMOVE_ALL_MESSAGES",
    "RemoveMessage",
    "add_messages",
    "is_message",
    "message_id",
    "push_message",
]

REMOVE_ALL_MESSAGES = "__remove_all__"
_REMOVE = "remove"
_id_of = itemgetter("id")
_FORMATS = ("langchain-openai",)


@dataclass(frozen=True, slots=True)
class Conversion:
    """How a library's messages are made: from what users write, and for a provider's format."""

    kind: type
    convert: Callable[[Any], Any]
    format: Callable[[list[Any], str], list[Any]]


_conversion: Conversion | None = None


def install_conversion(conversion: Conversion | None) -> None:
    """Make every new message one of a library's classes; None brings dicts back."""
    global _conversion
    _conversion = conversion


def RemoveMessage(id: str) -> dict[str, Any]:
    """A message that deletes the one with this id, or all of them for REMOVE_ALL_MESSAGES."""
    return {"role": _REMOVE, "content": "", "id": id}


def add_messages(left: Any = None, right: Any = None, **kwargs: Any) -> Any:
    """Append `right` to `left`; a message with a known id replaces the old one in place.

    Each side is a message or a list of them. Without both sides the result is a reducer with these keywords.
    """
    if left is None and right is None:
        return partial(add_messages, **kwargs)
    if left is None or right is None:
        received = "right" if left is None else "left"
        raise ValueError(f"Must specify non-null arguments for both 'left' and 'right'. Only received: '{received}'.")
    merged = _merged(*_known(left), _converted(right))
    if (wanted := kwargs.get("format")) is None:
        return merged
    return _formatted(merged, wanted)


class MessagesState(TypedDict):
    """A state of nothing but messages."""

    messages: Annotated[list[Any], add_messages]


def push_message(message: Any, *, state_key: str | None = "messages") -> Any:
    """Stream a message now (mode "messages") and write it to the state; `state_key=None` only streams. Needs an id."""
    from .runtime import stream_message

    pushed = _convert(message)
    if not message_id(pushed):
        raise ValueError("Message ID is required")
    stream_message(pushed, state_key)
    return pushed


def MessageGraph() -> StateGraph:
    """Deprecated: a graph whose whole state is a list of messages."""
    from .building.builder import StateGraph

    warnings.warn(
        "MessageGraph is deprecated. Please use StateGraph with a `messages` key instead.",
        LangGraphDeprecatedSinceV10,
        stacklevel=2,
    )
    return StateGraph(Annotated[list[Any], add_messages])


def is_message(value: Any) -> bool:
    """Whether a value is a message: a dict with role and content, or an object that has a type, content and an id."""
    if isinstance(value, Mapping):
        return "role" in value and "content" in value
    return not isinstance(value, type) and all(hasattr(value, name) for name in ("content", "id", "type"))


def message_id(message: Any) -> str | None:
    """The id of a message, None before it has one."""
    return message.get("id") if isinstance(message, Mapping) else getattr(message, "id", None)


def _merged(left: list[Any], ids: list[Any], right: list[tuple[Any, bool]]) -> list[Any]:
    for index in range(len(right) - 1, -1, -1):
        message, _ = right[index]
        if _is_removal(message) and message_id(message) == REMOVE_ALL_MESSAGES:
            return _merged([], [], right[index + 1 :])
    if all(is_new for _, is_new in right):
        return [*left, *(message for message, _ in right)]
    places: dict[Any, int] = dict(zip(ids, range(len(left)), strict=True))
    merged, removed = [*left], set[str | None]()
    for message, _ in right:
        key = message_id(message)
        place = places.get(key)
        if _is_removal(message):
            if place is None:
                raise ValueError(f"Attempting to delete a message with an ID that doesn't exist ('{key}')")
            removed.add(key)
            continue
        removed.discard(key)
        if place is None:
            places[key] = len(merged)
            merged.append(message)
        else:
            merged[place] = message
    return [message for message in merged if message_id(message) not in removed] if removed else merged


def _known(left: Any) -> tuple[list[Any], list[Any]]:
    """The messages of the state and their ids. They were converted when they came: only the ids are looked at."""
    ids = _ids_of_converted(left) if isinstance(left, list) else None
    if ids is not None and all(ids):
        return left, ids
    messages = [message for message, _ in _converted(left)]
    return messages, [message_id(message) for message in messages]


def _ids_of_converted(messages: list[Any]) -> list[Any] | None:
    """The ids of messages that are in their final form; None where one of them is not."""
    if _conversion is not None:
        kind = _conversion.kind
        return [one.id for one in messages] if all(isinstance(one, kind) for one in messages) else None
    try:
        return list(map(_id_of, messages))
    except (KeyError, TypeError):
        return None


def _converted(side: Any) -> list[tuple[Any, bool]]:
    """The messages of a side in their final form, each with whether its id is new: no other message can have it."""
    found = []
    for given in side if isinstance(side, list) else [side]:
        message = _convert(given)
        is_new = not message_id(message)
        found.append((_identified(message) if is_new else message, is_new))
    return found


def _convert(message: Any) -> Any:
    if _conversion is not None:
        return _conversion.convert(message)
    if isinstance(message, str):
        return {"role": "user", "content": message}
    if isinstance(message, Mapping):
        return _message_of(message)
    if isinstance(message, Sequence):
        if len(message) == 2 and isinstance(message[0], str):
            return {"role": message[0], "content": message[1]}
        raise TypeError("A message as a sequence is (role, text)")
    if is_message(message):
        return message
    raise TypeError(
        f"Unsupported message type: {type(message).__name__}. Use a dict with role and content, a (role, text) pair or "
        "a string"
    )


def _message_of(message: Mapping[str, Any]) -> Mapping[str, Any]:
    if "role" in message and ("content" in message or message["role"] == _REMOVE):
        return message
    if "type" in message and "content" in message:
        return {"role": message["type"], **{key: value for key, value in message.items() if key != "type"}}
    raise ValueError(f"Message dict must contain 'role' and 'content' keys, got the keys {sorted(map(str, message))}")


def _identified(message: Any) -> Any:
    """The message with an id of its own; dicts of the caller are not changed."""
    if isinstance(message, Mapping):
        return {**message, "id": str(uuid4())}
    message.id = str(uuid4())
    return message


def _is_removal(message: Any) -> bool:
    if isinstance(message, Mapping):
        return message.get("role") == _REMOVE
    return getattr(message, "type", None) == _REMOVE


def _formatted(messages: list[Any], wanted: str) -> list[Any]:
    if wanted not in _FORMATS:
        raise ValueError(f"Unrecognized format={wanted!r}. Expected one of 'langchain-openai', None.")
    if _conversion is None:
        raise MissingExtra(
            f"add_messages(format={wanted!r}) is LangChain's: import threadline.langgraph.bridge before the graph runs"
        )
    return _conversion.format(messages, wanted)
