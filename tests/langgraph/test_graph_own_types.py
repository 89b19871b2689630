"""State made of the user's own classes comes back in a new process, with nothing registered."""

from dataclasses import dataclass
from typing import Any, NamedTuple, TypedDict

import pytest
from langgraph.graph import START, StateGraph

# The module both processes import; it holds the classes and the graph, as an application would.
SHOP = """
import asyncio
from dataclasses import dataclass, field
from datetime import date
from decimal import Decimal
from enum import Enum, IntEnum
from typing import Any, NamedTuple, Optional, TypedDict
from uuid import UUID

from langgraph.graph import START, StateGraph
from langgraph.types import interrupt
from pydantic import BaseModel, Field

from threadline.langgraph import Checkpointer


class Colour(str, Enum):
    RED = "red"
    GREEN = "green"


class Size(IntEnum):
    SMALL = 1
    LARGE = 3


class Point(NamedTuple):
    x: float
    y: float


@dataclass
class Address:
    street: str
    at: Point
    tags: set[str] = field(default_factory=set)


@dataclass(frozen=True)
class Money:
    amount: Decimal
    currency: str = "EUR"


class Line(BaseModel):
    sku: str
    colour: Colour
    size: Size
    price: Money
    options: dict[str, Any] = Field(default_factory=dict)


class Customer(BaseModel):
    id: UUID
    name: str
    born: Optional[date] = None
    address: Optional[Address] = None


class Order(BaseModel):
    customer: Customer
    lines: list[Line]
    status: Colour = Colour.RED


class TypedState(TypedDict):
    order: Order
    money: Money
    colours: list[Colour]
    approved: bool


class PydanticState(BaseModel):
    order: Order
    money: Money
    colours: list[Colour] = []
    approved: bool = False


@dataclass
class DataclassState:
    order: Order
    money: Money
    colours: list[Colour] = field(default_factory=list)
    approved: bool = False


SCHEMAS = {schema.__name__: schema for schema in (TypedState, PydanticState, DataclassState)}


def config(thread_id):
    return {"configurable": {"thread_id": thread_id}}


def make_order():
    customer = Customer(
        id=UUID(int=7),
        name="Ann",
        born=date(1990, 2, 3),
        address=Address("Long Road 1", Point(1.5, -2.0), {"home", "work"}),
    )
    line = Line(
        sku="hat",
        colour=Colour.GREEN,
        size=Size.LARGE,
        price=Money(Decimal("12.50")),
        options={"gift": True, "size": Size.SMALL},
    )
    return Order(customer=customer, lines=[line, line.model_copy(update={"sku": "scarf"})])


def make_state():
    return {
        "order": make_order(),
        "money": Money(Decimal(0)),
        "colours": [Colour.RED],
        "approved": False,
    }


def approve(state):
    answer = interrupt({"order": make_order(), "colour": Colour.RED})
    return {"approved": answer is Colour.GREEN, "colours": [Colour.RED, answer]}


def build(schema_name):
    builder = StateGraph(SCHEMAS[schema_name])
    builder.add_node("price", lambda state: {"money": Money(Decimal("25.00"))})
    builder.add_node("approve", approve)
    builder.add_edge(START, "price")
    builder.add_edge("price", "approve")
    return builder


def call(half, owner, verb, *args):
    if half == "sync":
        return getattr(owner, verb)(*args)

    async def awaited():
        return await getattr(owner, "a" + verb)(*args)

    return asyncio.run(awaited())
"""

# One process stores a thread for each way of declaring a state, and stops at a question.
START_AND_WAIT = """
import json, sys
import shop_types as shop

url, half = sys.argv[1:]
saver = shop.Checkpointer(url)
for schema in shop.SCHEMAS:
    graph = shop.build(schema).compile(checkpointer=saver)
    asked = shop.call(half, graph, "invoke", shop.make_state(), shop.config(schema))
    assert "__interrupt__" in asked, schema
print(json.dumps("waiting"))
"""

# Another looks at every type it finds, answers, and prints what became of each thread.
ANSWER = """
import json, sys
import shop_types as shop
from langgraph.types import Command

def check(waiting):
    order = waiting.values["order"]
    assert order == shop.make_order(), order
    assert type(order) is shop.Order
    assert type(order.lines[1]) is shop.Line
    assert order.lines[0].colour is shop.Colour.GREEN
    assert order.lines[0].size is shop.Size.LARGE
    assert order.lines[0].options["size"] is shop.Size.SMALL
    assert type(order.customer.address) is shop.Address
    assert type(order.customer.address.at) is shop.Point
    assert order.customer.address.tags == {"home", "work"}
    assert waiting.values["money"] == shop.Money(shop.Decimal("25.00"))
    assert type(waiting.values["money"]) is shop.Money
    assert waiting.values["colours"][0] is shop.Colour.RED
    question = waiting.interrupts[0].value
    assert question == {"order": shop.make_order(), "colour": shop.Colour.RED}
    assert question["colour"] is shop.Colour.RED

url, half = sys.argv[1:]
saver = shop.Checkpointer(url)
finals = {}
for schema in shop.SCHEMAS:
    graph = shop.build(schema).compile(checkpointer=saver)
    check(shop.call(half, graph, "get_state", shop.config(schema)))
    answer = Command(resume=shop.Colour.GREEN)
    final = shop.call(half, graph, "invoke", answer, shop.config(schema))
    assert final["order"] == shop.make_order(), schema
    finals[schema] = [final["approved"], [colour.value for colour in final["colours"]]]
print(json.dumps(finals))
"""

ANSWERED = {schema: [True, ["red", "green"]] for schema in ("TypedState", "PydanticState", "DataclassState")}


@pytest.fixture
def shop(tmp_path):
    (tmp_path / "shop_types.py").write_text(SHOP)


def test_own_classes_come_back_in_a_new_process(half, shop, sqlite_url, run_script):
    assert run_script(START_AND_WAIT, sqlite_url, half.name) == "waiting"

    assert run_script(ANSWER, sqlite_url, half.name) == ANSWERED


def test_a_strict_process_rebuilds_what_the_schema_names(shop, sqlite_url, run_script):
    strict = {"LANGGRAPH_STRICT_MSGPACK": "true"}
    assert run_script(START_AND_WAIT, sqlite_url, "sync", **strict) == "waiting"

    assert run_script(ANSWER, sqlite_url, "async", **strict) == ANSWERED


UNDECLARED = """
import json, sys
from typing import Any, TypedDict
import shop_types as shop
from langgraph.graph import START, StateGraph

class Loose(TypedDict):
    value: Any

builder = StateGraph(Loose)
builder.add_node("keep", lambda state: {})
builder.add_edge(START, "keep")
saver = shop.Checkpointer(sys.argv[1], unknown_types=sys.argv[3])
graph = builder.compile(checkpointer=saver)
if sys.argv[2] == "write":
    graph.invoke({"value": {"deep": [shop.Money(shop.Decimal(3))]}}, shop.config("loose"))
stored = graph.get_state(shop.config("loose")).values["value"]["deep"][0]
assert stored in (shop.Money(shop.Decimal(3)), vars(shop.Money(shop.Decimal(3)))), stored
print(json.dumps(type(stored).__name__))
"""


def message(said):
    """What an error said, without the indented lines of its traceback."""
    return "\n".join(line for line in said.splitlines() if not line.startswith(" "))


STRICT = {"LANGGRAPH_STRICT_MSGPACK": "true"}


def test_a_strict_process_stores_what_it_may_not_rebuild_and_reads_it_as_plain_data(shop, sqlite_url, run_script):
    assert run_script(UNDECLARED, sqlite_url, "write", "plain", **STRICT) == "dict"
    assert run_script(UNDECLARED, sqlite_url, "read", "plain") == "Money"
    assert run_script(UNDECLARED, sqlite_url, "read", "plain", **STRICT) == "dict"


def test_a_strict_process_that_refuses_stores_nothing_that_it_could_not_load(shop, sqlite_url, run_script):
    said = run_script(UNDECLARED, sqlite_url, "write", "refuse", must_fail=True, **STRICT)

    assert "Money" in message(said)
    assert "deep" in message(said), "the path of the value is part of the message"


def test_a_strict_process_refuses_to_load_what_nobody_named(shop, sqlite_url, run_script):
    assert run_script(UNDECLARED, sqlite_url, "write", "refuse") == "Money"
    assert run_script(UNDECLARED, sqlite_url, "read", "refuse") == "Money"

    said = run_script(UNDECLARED, sqlite_url, "read", "refuse", must_fail=True, **STRICT)

    assert "Money" in message(said)
    assert "AssertionError" not in said, "the process got past the refused value"


CLONE = """
import json
import shop_types as shop

saver = shop.Checkpointer("memory://")
graph = shop.build("TypedState").compile(checkpointer=saver)
assert graph.checkpointer is not saver, "compiling under strict types narrows a clone"
graph.invoke(shop.make_state(), shop.config("loose"))
assert graph.get_state(shop.config("loose")).values["order"] == shop.make_order()
second = shop.build("TypedState").compile(checkpointer=saver)
assert second.get_state(shop.config("loose")).values["order"] == shop.make_order()
saver.delete_thread("loose")
history = list(graph.get_state_history(shop.config("loose")))
print(json.dumps([len(history), graph.get_state(shop.config("loose")).values]))
"""


def test_a_narrowed_clone_and_its_original_are_one_store(shop, run_script):
    assert run_script(CLONE, LANGGRAPH_STRICT_MSGPACK="true") == [0, {}]


class Pair(NamedTuple):
    left: Any
    right: Any


@dataclass
class Box:
    content: Any


class Loose(TypedDict):
    value: Any


@pytest.mark.parametrize(
    "value",
    [
        (1, (2, [3, (4,)])),
        Pair(1, Pair("a", (b"b",))),
        Box(Box(Pair((), frozenset({(1, 2)})))),
        {"keys": {(1, 2): Pair(None, True)}},
    ],
    ids=["tuple", "named tuple", "dataclass", "tuple as key"],
)
def test_a_value_of_no_declared_type_keeps_the_type_it_has(half, saver, reopen, thread, value):
    builder = StateGraph(Loose)
    builder.add_node("keep", lambda state: {})
    builder.add_edge(START, "keep")
    half.invoke(builder.compile(checkpointer=saver), {"value": value}, thread())

    stored = half.get_state(builder.compile(checkpointer=reopen()), thread()).values["value"]

    assert stored == value
    assert repr(stored) == repr(value), "equal is not enough: a named tuple equals a tuple"


def test_strict_types_refuse_a_class_that_nobody_named(half, reopen, thread):
    builder = StateGraph(Loose)
    builder.add_node("keep", lambda state: {})
    builder.add_edge(START, "keep")
    refusing = builder.compile(checkpointer=reopen(allowed_types="strict", unknown_types="refuse"))
    with pytest.raises(TypeError, match="Box"):
        half.invoke(refusing, {"value": [1, Box(2)]}, thread())

    graph = builder.compile(checkpointer=reopen(allowed_types="strict"))
    half.invoke(graph, {"value": [1, Box(2)]}, thread())
    assert half.get_state(graph, thread()).values == {"value": [1, {"content": 2}]}

    final = half.invoke(graph, {"value": [1, 2]}, thread("plain"))
    assert half.get_state(graph, thread("plain")).values == final == {"value": [1, 2]}
