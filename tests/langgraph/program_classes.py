"""Classes of the program as values: of a module, and one that is defined in a function."""

import operator
from dataclasses import dataclass
from typing import Annotated, TypedDict

from langgraph.graph import START, StateGraph
from pydantic import BaseModel


@dataclass
class Thing:
    number: int


class Parent(BaseModel):
    name: str


class Child(Parent):
    toys: list[str] = []


class State(TypedDict):
    held: Annotated[list, operator.add]


async def run_with(saver, face, values, thread):
    builder = StateGraph(State)
    builder.add_node("hold", lambda state: {"held": [state["held"][-1]]})
    builder.add_edge(START, "hold")
    graph = builder.compile(checkpointer=saver)
    config = {"configurable": {"thread_id": thread}}
    final = await face.invoke(graph, {"held": values}, config)
    return [final, await face.get_state(graph, config), await face.invoke(graph, {"held": []}, config)]


async def program(saver, face):
    return await run_with(saver, face, [Thing(1), Child(name="ann", toys=["bear"]), Parent(name="bob")], "classes")


async def program_with_a_local_class(saver, face):
    """The fields of its instances, whatever they come back as."""

    @dataclass
    class Local:
        number: int

    first, _, last = await run_with(saver, face, [Local(1), Local(2)], "local")
    return [[one["number"] if isinstance(one, dict) else one.number for one in done["held"]] for done in (first, last)]
