"""States as a pydantic model, a data class and a TypedDict, with nested values of many types."""

import datetime as dt
import decimal
import enum
import operator
import pathlib
import uuid
from dataclasses import dataclass, field
from typing import Annotated, TypedDict

from langgraph.graph import START, StateGraph
from pydantic import BaseModel, Field


class Colour(enum.Enum):
    RED = "red"
    BLUE = "blue"


class Address(BaseModel):
    city: str
    codes: dict[str, int] = Field(default_factory=dict)


@dataclass
class Order:
    number: int
    colour: Colour
    made: dt.datetime
    price: decimal.Decimal = decimal.Decimal("1.50")
    notes: list[str] = field(default_factory=list)


@dataclass(frozen=True)
class Key:
    name: str


class AsModel(BaseModel):
    orders: Annotated[list[Order], operator.add] = Field(default_factory=list)
    address: Address | None = None
    colour: Colour = Colour.BLUE


@dataclass
class AsData:
    orders: Annotated[list[Order], operator.add] = field(default_factory=list)
    address: Address | None = None
    colour: Colour = Colour.BLUE


class AsDict(TypedDict, total=False):
    orders: Annotated[list[Order], operator.add]
    address: Address
    colour: Colour
    extra: dict


MADE = dt.datetime(2024, 2, 29, 12, 30, tzinfo=dt.timezone.utc)
EXTRA = {
    "date": dt.date(2024, 2, 29),
    "span": dt.timedelta(days=2, seconds=5),
    "bytes": b"\x00\xff",
    "set": {1, 2, 3},
    "uuid": uuid.UUID(int=7),
    "path": pathlib.Path("/a/b"),
    "decimal": decimal.Decimal("0.10"),
    "key": Key("k"),
    "big": 2**62,
    "none": None,
    "text": "Köln \U0001f600",
    "nested": [{"deep": [[1, 2], {"er": Address(city="Bonn")}]}],
}


def value(state, name, default=None):
    return state.get(name, default) if isinstance(state, dict) else getattr(state, name)


def order(state):
    number = len(value(state, "orders", []))
    return {"orders": [Order(number, Colour.RED, MADE, notes=[f"n{number}"])]}


def move(state):
    return {"address": Address(city=f"city {len(value(state, 'orders'))}", codes={"a": 1}), "colour": Colour.RED}


def build(schema):
    builder = StateGraph(schema)
    builder.add_node("order", order)
    builder.add_node("move", move)
    builder.add_edge(START, "order")
    builder.add_edge("order", "move")
    return builder


async def program(saver, face):
    results = []
    for schema in (AsModel, AsData, AsDict):
        graph = build(schema).compile(checkpointer=saver)
        config = {"configurable": {"thread_id": schema.__name__}}
        given = {"orders": [Order(-1, Colour.BLUE, MADE)]}
        if schema is AsDict:
            given["extra"] = EXTRA
        for turn in range(2):
            results.append(await face.invoke(graph, given if turn == 0 else {"orders": []}, config))
        results.append(await face.get_state(graph, config))
        results.append(await face.all(graph, "get_state_history", config))
    return results
