"""A run that is cancelled while one of its nodes waits, and goes on later."""

import asyncio
import operator
from typing import Annotated, TypedDict

from langgraph.graph import END, START, StateGraph

CONFIG = {"configurable": {"thread_id": "cancelled"}}


class Seen(TypedDict):
    seen: Annotated[list[str], operator.add]


def build(wait):
    async def quick(state):
        return {"seen": ["quick"]}

    builder = StateGraph(Seen)
    builder.add_node("wait", wait)
    builder.add_node("quick", quick)
    builder.add_node("last", lambda state: {"seen": ["last"]})
    builder.add_edge(START, "wait")
    builder.add_edge(START, "quick")
    builder.add_edge(["wait", "quick"], "last")
    builder.add_edge("last", END)
    return builder


async def cancel_a_run(saver):
    """A graph whose run was cancelled, and awaited, after one of its two nodes was stored."""
    waits = asyncio.Event()

    async def wait(state):
        waits.set()
        await asyncio.Event().wait()

    graph = build(wait).compile(checkpointer=saver)
    run = asyncio.create_task(graph.ainvoke({"seen": ["input"]}, CONFIG))
    await waits.wait()
    while ["quick"] not in await _writes(saver, "seen"):
        await asyncio.sleep(0.005)
    run.cancel()
    try:
        await run
    except asyncio.CancelledError:
        return graph
    raise AssertionError("the run was not cancelled")


async def cancelled_run(saver):
    """The channels of the writes that are there at once, and the tasks that have an error."""
    graph = await cancel_a_run(saver)
    latest = await saver.aget_tuple(CONFIG)
    state = await graph.aget_state(CONFIG)
    return [channel for _, channel, _ in latest.pending_writes], [task.name for task in state.tasks if task.error]


async def program(saver, face):
    """The state after the run was cancelled, and after it went on."""
    await cancel_a_run(saver)
    # LangGraph's PostgresSaver may have the error a moment later than the run has ended.
    while not await _writes(saver, "__error__"):
        await asyncio.sleep(0.005)

    async def go_on(state):
        return {"seen": ["went on"]}

    graph = build(go_on).compile(checkpointer=saver)
    cancelled = await graph.aget_state(CONFIG)
    final = await graph.ainvoke(None, CONFIG)
    return [cancelled, final, [each async for each in graph.aget_state_history(CONFIG)]]


async def _writes(saver, channel):
    latest = await saver.aget_tuple(CONFIG)
    return [value for _, name, value in (latest.pending_writes if latest else ()) if name == channel]
