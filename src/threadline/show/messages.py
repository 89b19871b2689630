"""Messages of a chat, told from stored values without their classes: who says what, calls of tools, their results."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from ..codec.structural import Structure

__all__ = ["Call", "Message", "are_messages", "message_of", "results_of"]

_ROLES = {"human": "user", "ai": "assistant", "AIMessageChunk": "assistant", "HumanMessageChunk": "user"}
_KNOWN = frozenset(("user", "assistant", "system", "tool", "developer", "function"))


@dataclass(frozen=True, slots=True)
class Call:
    """A call of a tool that a message asks for."""

    name: str
    args: Any
    id: str | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Message:
    """One message."""

    role: str
    text: str
    # Parts of its content that are no text, such as images.
    others: tuple[Any, ...] = ()
    id: str | None = None
    name: str | None = None
    calls: tuple[Call, ...] = ()
    # The call that this is the result of.
    answers: str | None = None
    is_error: bool = False


def are_messages(values: Iterable[Any]) -> bool:
    """Whether all of these are messages, and there are some."""
    found = [message_of(value) is not None for value in values]
    return bool(found) and all(found)


def message_of(value: Any) -> Message | None:
    """The message that a value is; None where it is none."""
    fields = value.fields if isinstance(value, Structure) else value if isinstance(value, Mapping) else None
    if fields is None or "content" not in fields:
        return None
    said = fields.get("role") or fields.get("type")
    role = _ROLES.get(said, said) if isinstance(said, str) else None
    if role not in _KNOWN:
        return None
    text, others = _content(fields["content"])
    return Message(
        role=role,
        text=text,
        others=others,
        id=_text(fields.get("id")),
        name=_text(fields.get("name")),
        calls=tuple(_calls(fields)),
        answers=_text(fields.get("tool_call_id")),
        is_error=fields.get("status") == "error",
    )


def results_of(messages: Iterable[Message | None]) -> dict[str, Message]:
    """The results of calls, by the calls' ids."""
    return {one.answers: one for one in messages if one is not None and one.answers is not None}


def _content(content: Any) -> tuple[str, tuple[Any, ...]]:
    if isinstance(content, str):
        return content, ()
    if not isinstance(content, (list, tuple)):
        return "", () if content is None else (content,)
    texts: list[str] = []
    others: list[Any] = []
    for part in content:
        said = part if isinstance(part, str) else part.get("text") if isinstance(part, Mapping) else None
        if isinstance(said, str):
            texts.append(said)
        else:
            others.append(part)
    return "\n".join(texts), tuple(others)


def _calls(fields: Mapping[str, Any]) -> Iterable[Call]:
    calls = fields.get("tool_calls")
    for one in calls if isinstance(calls, (list, tuple)) else ():
        held = one.fields if isinstance(one, Structure) else one
        if not isinstance(held, Mapping):
            continue
        function = held.get("function")  # as providers have it
        named = function if isinstance(function, Mapping) else held
        name = named.get("name")
        yield Call(
            name if isinstance(name, str) else "?", named.get("args", named.get("arguments")), _text(held.get("id"))
        )


def _text(value: Any) -> str | None:
    return value if isinstance(value, str) and value else None
