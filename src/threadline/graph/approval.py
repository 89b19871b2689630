"""A person decides before a tool runs.

    tools = Approval([search, send_email], interrupt_on={"send_email": True})
    builder.add_node("tools", tools)

The node runs the tool calls of the last message. It asks once for all calls that need a decision:

    {"action_requests": [{"name", "args", "description"}, …],
     "review_configs": [{"action_name", "allowed_decisions", "args_schema"?}, …]}

and takes `Command(resume={"decisions": [...]})`, one for each request and in their order:

    {"type": "approve"}                                               the call runs as it is
    {"type": "edit", "edited_action": {"name": …, "args": {…}}}       another call runs in its place
    {"type": "reject", "message": "why"}                              nothing runs, the model reads the message
    {"type": "respond", "message": "text"}                            nothing runs, the message is the tool's result

An answer of another shape is refused with an error that names the call, and the question stays open.
"""

from __future__ import annotations

import inspect
import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import wraps
from typing import Any, Literal, cast, get_args

from ._base import InvalidRequest
from .errors import mark_invalid_resume
from .interrupts import interrupt

__all__ = ["Approval", "DecisionError", "DecisionType", "Review", "ToolCall", "approved"]

DecisionType = Literal["approve", "edit", "reject", "respond"]
EVERY_DECISION: tuple[DecisionType, ...] = get_args(DecisionType)
DESCRIPTION = "Tool execution requires approval"


class DecisionError(InvalidRequest):
    """An answer that is no list of allowed decisions; the question can be answered again."""


@dataclass(frozen=True, slots=True)
class ToolCall:
    """A model's wish to run a tool."""

    name: str
    args: Mapping[str, Any] = field(default_factory=dict)
    id: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Review:
    """How calls of one tool are decided: by which decisions, and how they are described to the person."""

    allowed_decisions: Sequence[DecisionType] = EVERY_DECISION
    description: str | Callable[[ToolCall], str] | None = None
    args_schema: Mapping[str, Any] | None = None

    @classmethod
    def of(cls, given: bool | Mapping[str, Any] | Review) -> Review | None:
        """The review that a value of `interrupt_on` asks for; None: the tool runs without asking."""
        if isinstance(given, bool):
            return cls() if given else None
        try:
            review = given if isinstance(given, Review) else cls(**given)
        except TypeError:
            fields = ", ".join(cls.__dataclass_fields__)
            raise InvalidRequest(
                f"interrupt_on takes True, False, a Review or a dict of {fields}, not {given!r}"
            ) from None
        unknown = [one for one in review.allowed_decisions if one not in EVERY_DECISION]
        if unknown or not review.allowed_decisions:
            raise InvalidRequest(f"allowed_decisions are some of {', '.join(EVERY_DECISION)}, not {unknown}")
        return review


@dataclass(frozen=True, slots=True)
class Verdict:
    """What becomes of a call: it runs (perhaps changed), or `answer` is its result and nothing runs."""

    call: ToolCall
    answer: str | None = None
    is_rejected: bool = False


class Approval:
    """A node that runs the tool calls of the last message, and asks before those that `interrupt_on` names."""

    def __init__(
        self,
        tools: Iterable[Callable[..., Any]] | Mapping[str, Callable[..., Any]],
        *,
        interrupt_on: Mapping[str, bool | Mapping[str, Any] | Review],
        messages_key: str = "messages",
        description_prefix: str = DESCRIPTION,
    ) -> None:
        self.tools = dict(tools) if isinstance(tools, Mapping) else {_name_of(tool): tool for tool in tools}
        self.messages_key = messages_key
        self.description_prefix = description_prefix
        self.reviews = {name: review for name, given in interrupt_on.items() if (review := Review.of(given))}
        if unknown := [name for name in interrupt_on if name not in self.tools]:
            raise InvalidRequest(f"interrupt_on names {', '.join(unknown)}; the tools are {', '.join(self.tools)}")

    def invoke(self, state: Any, config: Any = None) -> dict[str, Any]:
        """Run the calls of the last message; the update holds one message for each."""
        return {self.messages_key: [self._run(verdict) for verdict in self.review(self._calls(state))]}

    async def ainvoke(self, state: Any, config: Any = None) -> dict[str, Any]:
        """The twin of `invoke`; tools may be async functions."""
        return {self.messages_key: [await self._arun(verdict) for verdict in self.review(self._calls(state))]}

    def review(self, calls: Sequence[ToolCall]) -> list[Verdict]:
        """What becomes of each call; asks one question for all of those that need a decision."""
        for call in calls:
            if call.name not in self.tools:
                raise InvalidRequest(f"no tool is called {call.name!r}; the tools are {', '.join(self.tools)}")
        asked = [call for call in calls if call.name in self.reviews]
        decided = iter(decide([(call, self.reviews[call.name]) for call in asked], self.description_prefix))
        verdicts = [next(decided) if call.name in self.reviews else Verdict(call) for call in calls]
        for call, verdict in zip(calls, verdicts, strict=True):
            self._check_edited(call, verdict.call)
        return verdicts

    def _check_edited(self, asked: ToolCall, given: ToolCall) -> None:
        """Another tool than the one that was asked for must be there, and one whose calls may be edited."""
        if given.name not in self.tools:
            raise _refused(f"the edited action names the tool {given.name!r}, which does not exist")
        review = self.reviews.get(given.name)
        if given.name != asked.name and review is not None and "edit" not in review.allowed_decisions:
            raise _refused(f"{asked.name}: the edited action names {given.name!r}, whose calls cannot be edited")

    def _run(self, verdict: Verdict) -> dict[str, Any]:
        if verdict.answer is not None:
            return _message(verdict, verdict.answer)
        result = _called(self.tools[verdict.call.name], verdict.call.args)
        if inspect.isawaitable(result):
            cast("Any", result).close()
            raise TypeError(f"the tool {verdict.call.name!r} is async: run the graph with ainvoke or astream")
        return _message(verdict, result)

    async def _arun(self, verdict: Verdict) -> dict[str, Any]:
        if verdict.answer is not None:
            return _message(verdict, verdict.answer)
        result = _called(self.tools[verdict.call.name], verdict.call.args)
        return _message(verdict, await result if inspect.isawaitable(result) else result)

    def _calls(self, state: Any) -> list[ToolCall]:
        messages = state[self.messages_key] if isinstance(state, Mapping) else getattr(state, self.messages_key)
        last = messages[-1] if messages else {}
        found = last.get("tool_calls") if isinstance(last, Mapping) else getattr(last, "tool_calls", None)
        return [_tool_call(one) for one in found or []]


def approved(
    tool: Callable[..., Any],
    *,
    allowed_decisions: Sequence[DecisionType] = EVERY_DECISION,
    description: str | Callable[[ToolCall], str] | None = None,
) -> Callable[..., Any]:
    """The tool, asking before every call. A rejected call returns the message of the person."""
    review = Review.of(Review(allowed_decisions=allowed_decisions, description=description))
    assert review is not None
    name, signature = _name_of(tool), inspect.signature(tool)

    def verdict(args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> Verdict:
        bound = signature.bind(*args, **kwargs)
        found = decide([(ToolCall(name, dict(bound.arguments)), review)], DESCRIPTION)[0]
        if found.call.name != name:
            raise _refused(f"the edited action names {found.call.name!r}; only {name!r} can run here")
        return found

    if inspect.iscoroutinefunction(tool):

        @wraps(tool)
        async def asking_async(*args: Any, **kwargs: Any) -> Any:
            found = verdict(args, kwargs)
            return await tool(**found.call.args) if found.answer is None else found.answer

        return asking_async

    @wraps(tool)
    def asking(*args: Any, **kwargs: Any) -> Any:
        found = verdict(args, kwargs)
        return tool(**found.call.args) if found.answer is None else found.answer

    return asking


def decide(asked: Sequence[tuple[ToolCall, Review]], prefix: str) -> list[Verdict]:
    """Ask for all of these calls at once, and read the answer."""
    if not asked:
        return []
    answer = interrupt(
        {
            "action_requests": [
                {"name": call.name, "args": dict(call.args), "description": _described(call, review, prefix)}
                for call, review in asked
            ],
            "review_configs": [
                {"action_name": call.name, "allowed_decisions": list(review.allowed_decisions)}
                | ({"args_schema": dict(review.args_schema)} if review.args_schema else {})
                for call, review in asked
            ],
        }
    )
    decisions = answer.get("decisions") if isinstance(answer, Mapping) else answer
    names = ", ".join(call.name for call, _ in asked)
    if not isinstance(decisions, Sequence) or isinstance(decisions, str):
        raise _refused(f'{names}: the answer is {{"decisions": [...]}}, not {type(answer).__name__}')
    if len(decisions) != len(asked):
        raise _refused(f"{names}: {len(asked)} calls need a decision each, the answer has {len(decisions)}")
    return [_verdict(call, review, given) for (call, review), given in zip(asked, decisions, strict=True)]


def _verdict(call: ToolCall, review: Review, given: Any) -> Verdict:
    kind = given.get("type") if isinstance(given, Mapping) else given
    if kind not in review.allowed_decisions:
        raise _refused(f"{call.name}: the decision {kind!r} is not one of {', '.join(review.allowed_decisions)}")
    decision = given if isinstance(given, Mapping) else {}
    if kind == "approve":
        return Verdict(call)
    if kind == "edit":
        edited = decision.get("edited_action")
        if not isinstance(edited, Mapping) or not isinstance(edited.get("args"), Mapping):
            raise _refused(f'{call.name}: an edit has {{"edited_action": {{"name": ..., "args": {{...}}}}}}')
        return Verdict(ToolCall(edited.get("name", call.name), edited["args"], call.id))
    message = decision.get("message")
    if kind == "respond":
        if not isinstance(message, str):
            raise _refused(f"{call.name}: a response has a message, which becomes the tool's result")
        return Verdict(call, message)
    return Verdict(call, message or f"The user rejected the call of {call.name}.", is_rejected=True)


def _refused(reason: str) -> DecisionError:
    error = DecisionError(reason)
    mark_invalid_resume(error)
    return error


def _described(call: ToolCall, review: Review, prefix: str) -> str:
    if callable(review.description):
        return review.description(call)
    return review.description or f"{prefix}\n\nTool: {call.name}\nArgs: {dict(call.args)}"


def _message(verdict: Verdict, result: Any) -> dict[str, Any]:
    return {
        "role": "tool",
        "content": result if isinstance(result, str) else json.dumps(result, default=str),
        "name": verdict.call.name,
        "tool_call_id": verdict.call.id,
        "status": "error" if verdict.is_rejected else "success",
    }


def _tool_call(given: Any) -> ToolCall:
    """A call as models give it: with name and args, or with a function whose arguments are JSON."""
    if isinstance(given, ToolCall):
        return given
    function = given.get("function")
    if function is not None:
        return ToolCall(function["name"], json.loads(function.get("arguments") or "{}"), given.get("id"))
    return ToolCall(given["name"], given.get("args") or {}, given.get("id"))


def _called(tool: Any, args: Mapping[str, Any]) -> Any:
    return tool(**args) if callable(tool) else tool.invoke(dict(args))


def _name_of(tool: Any) -> str:
    name = getattr(tool, "name", None) or getattr(tool, "__name__", None)
    if not isinstance(name, str):
        raise InvalidRequest(f"a {type(tool).__name__} has no name: give the tools as a mapping of names")
    return name
