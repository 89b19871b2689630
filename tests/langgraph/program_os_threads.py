"""24 threads of a saver, worked on by 8 OS threads; through the async half by 8 tasks."""

import asyncio
import operator
from concurrent.futures import ThreadPoolExecutor
from typing import Annotated, TypedDict

from langgraph.graph import START, StateGraph

THREADS, WORKERS, TURNS = 24, 8, 3


class Tally(TypedDict):
    seen: Annotated[list[int], operator.add]


def build():
    builder = StateGraph(Tally)
    builder.add_node("length", lambda state: {"seen": [len(state["seen"])]})
    builder.add_node("double", lambda state: {"seen": [2 * state["seen"][-1]]})
    builder.add_edge(START, "length")
    builder.add_edge("length", "double")
    return builder


async def program(saver, face):
    graph = build().compile(checkpointer=saver)
    configs = [{"configurable": {"thread_id": f"thread-{at}"}} for at in range(THREADS)]

    def work(at):
        return [graph.invoke({"seen": [turn]}, configs[at]) for turn in range(TURNS)]

    async def work_as_task(at, turns):
        async with turns:
            return [await graph.ainvoke({"seen": [turn]}, configs[at]) for turn in range(TURNS)]

    if face.is_async:
        turns = asyncio.Semaphore(WORKERS)
        done = await asyncio.gather(*(work_as_task(at, turns) for at in range(THREADS)))
    else:
        with ThreadPoolExecutor(WORKERS) as workers:
            done = await asyncio.to_thread(lambda: list(workers.map(work, range(THREADS))))
    states = [await face.get_state(graph, config) for config in configs]
    histories = [await face.all(graph, "get_state_history", config) for config in configs]
    return [done, states, [[one.values for one in history] for history in histories]]
