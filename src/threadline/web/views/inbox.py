"""Everything that waits for a person, over all threads, the oldest first; and the answers."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from ...core.context import Context
from ...core.threads import Asked as Questions
from ...core.threads import Waiting, told
from ...errors import InvalidRequest
from ...show.forms import waiting_json
from ...show.shapes import json_text
from ..asked import Asked, Page
from ..snippets import command_line, python_lines

__all__ = ["answer", "as_json", "page"]

_MOST = 500
_SHOWN = 50
_EVERY_DECISION = ("approve", "edit", "reject", "respond")


async def page(asked: Asked) -> Page:
    """The questions, each with a form for its answer."""
    found: list[tuple[float, Waiting]] = await asked.desk.run(_oldest_first, asked.text("q").strip())
    skip = asked.number("skip", 0, 0, _MOST)
    values = {
        "questions": [_question(since, one) for since, one in found[skip : skip + _SHOWN]],
        "count": len(found),
        "is_cut": len(found) >= _MOST,
        "q": asked.text("q"),
        "older": skip + _SHOWN if len(found) > skip + _SHOWN else None,
    }
    command = command_line(asked.desk.url, "interrupts", prefix=asked.maybe("q"))
    python = python_lines(asked.desk.url, "for question in saver.interrupts():\n    print(question)")
    return Page("inbox.html", "Inbox", values, command, python)


async def as_json(asked: Asked) -> Any:
    """The open questions as JSON, as `threadline interrupts --json` prints them."""
    desk = asked.desk
    found = await desk.half.first(desk.reading, "interrupts", 100_000, prefix=asked.text("q").strip())
    return [waiting_json(one) for one in found]


async def _oldest_first(store: Context, prefix: str) -> list[tuple[float, Waiting]]:
    """What waits, with the times of the checkpoints that it was asked at."""
    asking, found = Questions(prefix=prefix), list[tuple[float, Waiting]]()
    while len(found) < _MOST and (page := await asking.next_threads(store)):
        for row, questions in page:
            for question in questions:
                at = await store.find(row.thread_id, *question.key, with_writes=False)
                found.append((at.row.created if at is not None else row.active, told(row.thread_id, question)))
    return sorted(found, key=lambda pair: pair[0])[:_MOST]


def _question(since: float, one: Waiting) -> dict[str, Any]:
    requests = _requests(one.value)
    return {"since": since, "one": one, "requests": requests}


def _requests(value: Any) -> list[dict[str, Any]] | None:
    """The actions that a question asks to be decided, and which decisions are allowed; None for another question."""
    actions = value.get("action_requests") if isinstance(value, Mapping) else None
    if not isinstance(actions, (list, tuple)) or not actions or not all(isinstance(one, Mapping) for one in actions):
        return None
    reviews = value.get("review_configs")
    allowed: dict[Any, list[str]] = {}
    for review in reviews if isinstance(reviews, (list, tuple)) else ():
        if isinstance(review, Mapping) and isinstance(review.get("allowed_decisions"), (list, tuple)):
            allowed[review.get("action_name")] = [one for one in _EVERY_DECISION if one in review["allowed_decisions"]]
    return [
        {
            "name": str(one.get("name", "?")),
            "args": one.get("args", {}),
            "args_text": json_text(one.get("args", {})),
            "description": one.get("description"),
            "allowed": allowed.get(one.get("name")) or list(_EVERY_DECISION),
        }
        for one in actions
    ]


async def answer(asked: Asked) -> tuple[str, dict[str, Any], str]:
    """Store an answer, so that any worker can go on."""
    thread_id, interrupt_id = asked.text("id"), asked.text("interrupt")
    value = _decisions(asked) if asked.has("actions") else _typed(asked)
    await asked.desk.ask(asked.desk.own_thread(thread_id), "answer", {interrupt_id: value})
    return "inbox", {"q": asked.text("q")}, f"Answered. Any worker goes on with graph.invoke(None, …) on {thread_id}."


def _typed(asked: Asked) -> Any:
    text = asked.text("text")
    if asked.text("as") == "text":
        return text
    return _json(text, "the answer")


def _decisions(asked: Asked) -> dict[str, Any]:
    """The decisions of a form, one for each action."""
    count = asked.number("actions", 0, 0, 1000)
    decisions: list[dict[str, Any]] = []
    for at in range(count):
        kind, message = asked.text(f"decision-{at}"), asked.text(f"message-{at}")
        if kind == "approve":
            decisions.append({"type": "approve"})
        elif kind == "edit":
            args = _json(asked.text(f"args-{at}"), "the edited arguments")
            action = {"name": asked.text(f"name-{at}"), "args": args}
            decisions.append({"type": "edit", "edited_action": action})
        elif kind in ("reject", "respond"):
            decisions.append({"type": kind, **({"message": message} if message or kind == "respond" else {})})
        else:
            raise InvalidRequest("decide every action: approve, edit, reject or respond")
    return {"decisions": decisions}


def _json(text: str, what: str) -> Any:
    try:
        return json.loads(text)
    except ValueError as error:
        sentence = f"{what} is no JSON ({error}); nothing was stored. Go back: what you typed is still there"
        raise InvalidRequest(sentence) from None
