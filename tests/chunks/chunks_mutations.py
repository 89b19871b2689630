"""Changes in place that `==` forgives, or that hide from `__dict__`: each makes a value, and a way to change it."""

import collections
import datetime as dt
import decimal
import zoneinfo
from typing import Any

import codec_kinds as kinds
import numpy as np
from langchain_core.documents import Document
from langchain_core.messages import AIMessage, HumanMessage, SystemMessage, ToolMessage

PARIS = zoneinfo.ZoneInfo("Europe/Paris")
SAME_MOMENT = dt.datetime(2024, 7, 1, 12, tzinfo=PARIS)


def ai() -> AIMessage:
    return AIMessage(
        "text",
        id="1",
        tool_calls=[{"name": "f", "args": {"x": 1, "deep": [1, {"y": 1}]}, "id": "c", "type": "tool_call"}],
        additional_kwargs={"k": [1, {"deep": True}]},
        response_metadata={"usage": [1, 2]},
    )


def in_dict(before: Any, after: Any) -> Any:
    """A dict whose one value is exchanged for an equal one."""
    return lambda: {"k": before, "other": 1}, lambda holder: holder.__setitem__("k", after)


def reordered(holder: Any) -> None:
    holder["a"] = holder.pop("a")


def swap_class(message: Any) -> None:
    message.__class__ = SystemMessage


def rekeyed(holder: Any) -> None:
    del holder["k"][1]
    holder["k"][True] = "value"


def refolded(holder: Any) -> None:
    holder["k"] = holder["k"].replace(fold=1)


def private(model: Any) -> None:
    model._count = 6


def private_deep(model: Any) -> None:
    model._log.append("entry")


def bounded(holder: Any) -> None:
    holder["k"] = collections.deque(holder["k"], maxlen=9)


def refactored(holder: Any) -> None:
    holder["k"].default_factory = set


def no_longer_given(model: Any) -> None:
    model.__pydantic_fields_set__.discard("age")


# name -> how the value is made, how it is changed in place
MUTATIONS: dict[str, tuple[Any, Any]] = {
    "1 to True": in_dict(1, True),
    "1 to 1.0": in_dict(1, 1.0),
    "0 to False": in_dict(0, False),
    "0.0 to -0.0": in_dict(0.0, -0.0),
    "1 to 1+0j": in_dict(1, 1 + 0j),
    "int to numpy int": in_dict(1, np.int64(1)),
    "text to StrEnum": in_dict("low", kinds.Text.LOW),
    "text to str and Enum": in_dict("low", kinds.OldText.LOW),
    "int to IntEnum": in_dict(1, kinds.Number.ONE),
    "int to IntFlag": in_dict(3, kinds.Bits.A | kinds.Bits.B),
    "list to tuple": in_dict([1, 2], (1, 2)),
    "tuple to named tuple": in_dict((1, 2), kinds.Pair(1, 2)),
    "bytes to bytearray": in_dict(b"x", bytearray(b"x")),
    "bytearray to bytes": in_dict(bytearray(b"x"), b"x"),
    "set to frozenset": in_dict({1, 2}, frozenset({1, 2})),
    "datetime to an equal one elsewhere": in_dict(SAME_MOMENT, SAME_MOMENT.astimezone(dt.timezone.utc)),
    "zone to an equal offset": in_dict(SAME_MOMENT, SAME_MOMENT.replace(tzinfo=dt.timezone(dt.timedelta(hours=2)))),
    "fold": (lambda: {"k": dt.datetime(2024, 10, 27, 2, 30)}, refolded),
    "decimal 1.0 to 1.00": in_dict(decimal.Decimal("1.0"), decimal.Decimal("1.00")),
    "dict to OrderedDict": in_dict({"x": 1}, collections.OrderedDict(x=1)),
    "dict to defaultdict": in_dict({"x": 1}, collections.defaultdict(list, x=1)),
    "Counter to dict": in_dict(collections.Counter(x=1), {"x": 1}),
    "order of a dict": (lambda: {"a": 1, "b": 2}, reordered),
    "order of an OrderedDict": (lambda: collections.OrderedDict(a=1, b=2), lambda holder: holder.move_to_end("a")),
    "order of a nested dict": (lambda: {"k": {"a": 1, "b": 2}}, lambda holder: reordered(holder["k"])),
    "key 1 to True": (lambda: {"k": {1: "value"}}, rekeyed),
    "maxlen of a deque": (lambda: {"k": collections.deque([1, 2])}, bounded),
    "factory of a defaultdict": (lambda: {"k": collections.defaultdict(list, x=1)}, refactored),
    "a field that is not compared": (lambda: kinds.Order(3), lambda order: setattr(order, "hidden", 9)),
    "a field of a dataclass to an equal value": (lambda: kinds.Point(1, 0), lambda p: setattr(p, "y", False)),
    "a slot to an equal value": (lambda: kinds.SlottedPoint(1, 0), lambda p: setattr(p, "y", 0.0)),
    "a private attribute of a model": (kinds.Secretive, private),
    "inside a private attribute": (kinds.Secretive, private_deep),
    "an extra field of a model": (lambda: kinds.Open(more=1), lambda model: setattr(model, "more", True)),
    "a new extra field of a model": (kinds.Open, lambda model: setattr(model, "new", None)),
    "a field of a model to an equal value": (
        lambda: kinds.Person(name="n", age=1),
        lambda m: m.__dict__.update(age=True),
    ),
    "which fields of a model were given": (lambda: kinds.Person(name="n", age=1), no_longer_given),
    "a numpy cell": (lambda: np.arange(6.0).reshape(2, 3), lambda array: array.__setitem__((1, 1), -4.0)),
    "a numpy cell to minus zero": (lambda: np.zeros(3), lambda array: array.__setitem__(0, -0.0)),
    "a numpy shape": (lambda: {"k": np.arange(6)}, lambda holder: holder.__setitem__("k", holder["k"].reshape(2, 3))),
    "a numpy object cell": (lambda: np.array([1, 2], dtype=object), lambda array: array.__setitem__(0, True)),
    "a bytearray": (lambda: {"k": bytearray(b"ab")}, lambda holder: holder["k"].__setitem__(0, 99)),
    "inside kwargs of a message": (ai, lambda m: m.additional_kwargs["k"].append(2)),
    "deep inside kwargs of a message": (ai, lambda m: m.additional_kwargs["k"][1].update(deep=1)),
    "arguments of a tool call": (ai, lambda m: m.tool_calls[0]["args"].update(x=True)),
    "deep arguments of a tool call": (ai, lambda m: m.tool_calls[0]["args"]["deep"][1].update(y=1.0)),
    "inside response metadata": (ai, lambda m: m.response_metadata["usage"].append(3)),
    "an attribute set on a message": (ai, lambda m: setattr(m, "note", "new")),
    "an attribute of a message changed inside": (
        lambda: HumanMessage("x", id="1", note=[1]),
        lambda m: m.note.append(2),
    ),
    "an attribute of a message to an equal value": (
        lambda: HumanMessage("x", id="1", note=1),
        lambda m: setattr(m, "note", True),
    ),
    "content of a message in parts": (
        lambda: HumanMessage([{"type": "text", "text": "a"}]),
        lambda m: m.content[0].update(text="b"),
    ),
    "artifact of a tool message": (
        lambda: ToolMessage("x", tool_call_id="c", artifact={"n": 1}),
        lambda m: m.artifact.update(n=1.0),
    ),
    "class of a message": (lambda: HumanMessage("x", id="1"), swap_class),
    "metadata of a document": (lambda: Document("x", metadata={"n": 1}), lambda d: d.metadata.update(n=True)),
    "a surrogate": (lambda: {"k": "\ud800"}, lambda holder: holder.__setitem__("k", "\ud801")),
    "a big number": (lambda: {"k": 2**70}, lambda holder: holder.__setitem__("k", float(2**70))),
}
