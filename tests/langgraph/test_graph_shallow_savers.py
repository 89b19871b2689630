"""The shallow savers keep the newest checkpoint of each namespace: ours beside LangGraph's, and all of our names."""

import asyncio
import operator
import warnings
from contextlib import asynccontextmanager
from typing import Annotated, TypedDict

import pytest
from graph_pairs import Face, comparable
from langgraph.checkpoint.postgres.shallow import AsyncShallowPostgresSaver as OriginalAsyncShallowPostgresSaver
from langgraph.checkpoint.postgres.shallow import ShallowPostgresSaver as OriginalShallowPostgresSaver
from langgraph.graph import START, StateGraph
from langgraph.types import Command, interrupt

from threadline import langgraph as ours
from threadline.langgraph import AsyncShallowPostgresSaver, ShallowPostgresSaver

CONFIG = {"configurable": {"thread_id": "shallow"}}
ORIGINALS = {"sync": OriginalShallowPostgresSaver, "async": OriginalAsyncShallowPostgresSaver}
OURS = {"sync": ShallowPostgresSaver, "async": AsyncShallowPostgresSaver}
# Each name with the fixture of its server and its half.
NAMES = {
    "ShallowPostgresSaver": ("postgres", "sync"),
    "AsyncShallowPostgresSaver": ("postgres", "async"),
    "ShallowPyMySQLSaver": ("mysql", "sync"),
    "ShallowAIOMySQLSaver": ("mysql", "async"),
    "ShallowAsyncMySaver": ("mysql", "async"),
    "ShallowRedisSaver": ("redis_server", "sync"),
    "AsyncShallowRedisSaver": ("redis_server", "async"),
}


class State(TypedDict):
    lines: Annotated[list[str], operator.add]


def build():
    inner = StateGraph(State)
    inner.add_node("note", lambda state: {"lines": ["inner"]})
    inner.add_edge(START, "note")
    builder = StateGraph(State)
    builder.add_node("first", lambda state: {"lines": [f"first {len(state['lines'])}"]})
    builder.add_node("inner", inner.compile())
    builder.add_node("ask", lambda state: {"lines": [f"said {interrupt('well?')}"]})
    builder.add_edge(START, "first")
    builder.add_edge("first", "inner")
    builder.add_edge("inner", "ask")
    return builder


async def program(saver, face):
    """Two turns with a question each; what the saver has of the root graph after each step."""
    graph = build().compile(checkpointer=saver)
    results = []
    for turn in range(2):
        for given in ({"lines": [f"turn {turn}"]}, Command(resume="yes")):
            results.append(await face.invoke(graph, given, CONFIG))
            results.append(await face.get_state(graph, CONFIG))
            results.append(len(await face.all(graph, "get_state_history", CONFIG)))
    return results


def options_of(place):
    """What keeps a test's place on its server apart."""
    names = ("table_prefix", "key_prefix")
    return {name: getattr(place, name) for name in names if getattr(place, name, None)}


@asynccontextmanager
async def opened(made, half, place, **options):
    if half == "sync":
        with made.from_conn_string(place.url, **options) as saver:
            saver.setup()
            yield saver
    else:
        async with made.from_conn_string(place.url, **options) as saver:
            await saver.setup()
            yield saver


def run_on(made, half, place, body, **options):
    async def on_saver():
        async with opened(made, half, place, **options) as saver:
            return await body(saver, Face(half))

    return asyncio.run(on_saver())


@pytest.mark.parametrize("half", ["sync", "async"])
def test_a_shallow_saver_does_what_the_original_does(half, postgres):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)
        original = run_on(ORIGINALS[half], half, postgres, program)
    mine = run_on(OURS[half], half, postgres, program)
    assert comparable(mine) == comparable(original)


@pytest.mark.parametrize("name", NAMES)
def test_every_shallow_saver_keeps_the_newest_checkpoint_of_a_namespace(name, request):
    fixture, half = NAMES[name]
    place = request.getfixturevalue(fixture)

    async def body(saver, face):
        results = await program(saver, face)
        newest = await face.get_tuple(saver, CONFIG)
        old = {"configurable": {"thread_id": "shallow", "checkpoint_ns": "", "checkpoint_id": "0"}}
        return results, newest, await face.all(saver, "list", CONFIG), await face.get_tuple(saver, old)

    results, newest, listed, of_an_old_one = run_on(getattr(ours, name), half, place, body, **options_of(place))
    assert results[-3]["lines"].count("said yes") > 1
    namespaces = [found.config["configurable"]["checkpoint_ns"] for found in listed]
    assert len(namespaces) == len(set(namespaces))
    assert "" in namespaces
    assert newest.parent_config is None
    assert of_an_old_one.checkpoint["id"] == newest.checkpoint["id"]


@pytest.mark.parametrize("name", NAMES)
def test_writes_that_come_late_are_not_kept_for_ever(name, request):
    fixture, half = NAMES[name]
    place = request.getfixturevalue(fixture)

    async def body(saver, face):
        graph = build().compile(checkpointer=saver)
        await face.invoke(graph, {"lines": ["turn"]}, CONFIG)
        asked = (await face.get_tuple(saver, CONFIG)).config
        await face.invoke(graph, Command(resume="yes"), CONFIG)
        await face.put_writes(saver, asked, [("lines", ["too late"])], "late")
        await face.put_writes(saver, coming, [("lines", ["early"])], "early")
        await face.invoke(graph, {"lines": ["another"]}, CONFIG)
        return {write.task_id for write in await face.run(saver._engine, lambda store: store.thread_writes("shallow"))}

    coming = {"configurable": {**CONFIG["configurable"], "checkpoint_ns": "", "checkpoint_id": "f" * 36}}
    left = run_on(getattr(ours, name), half, place, body, **options_of(place))
    assert "late" not in left
    assert "early" in left


def test_every_shallow_name_is_there():
    assert {name for name in ours.__all__ if "Shallow" in name} == set(NAMES)
