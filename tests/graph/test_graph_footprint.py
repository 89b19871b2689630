"""What the room costs a process: imports, memory, many runs at once."""

from __future__ import annotations

import asyncio
import gc
import operator
import os
import subprocess
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Annotated, Any

import pytest
from typing_extensions import TypedDict

import threadline
from threadline.graph import END, START, Command, StateGraph, interrupt

ROOT = Path(__file__).parents[2]

SCRIPT = """
import sys
from threadline.graph import START, StateGraph, MessagesState, add_messages, entrypoint, interrupt, task, Command
import threadline
from typing_extensions import TypedDict
class State(TypedDict, total=False):
    a: str
builder = StateGraph(State)
builder.add_node("x", lambda state: {"a": state["a"] + interrupt("?")})
builder.add_edge(START, "x")
graph = builder.compile(checkpointer=threadline.connect("memory://"))
config = {"configurable": {"thread_id": "1"}}
graph.invoke({"a": "1"}, config)
assert graph.invoke(Command(resume="2"), config) == {"a": "12"}
graph.get_graph().draw_mermaid()
foreign = ("langchain", "langgraph", "langsmith", "httpx", "requests", "pydantic", "anyio", "networkx")
found = sorted(name for name in sys.modules if name.split(".")[0].split("_")[0] in foreign)
assert not found, found
"""


class Count(TypedDict):
    n: Annotated[int, operator.add]


def counting(saver: Any, upto: int) -> Any:
    builder = StateGraph(Count)
    builder.add_node("x", lambda state: {"n": 1})
    builder.add_edge(START, "x")
    builder.add_conditional_edges("x", lambda state: END if state["n"] >= upto else "x", ["x", END])
    return builder.compile(checkpointer=saver)


def in_a_new_process(script: str) -> str:
    environment = {**os.environ, "PYTHONPATH": str(ROOT / "src")}
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, env=environment, timeout=120)
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_nothing_of_langchain_or_langgraph_is_imported() -> None:
    in_a_new_process(SCRIPT)


def test_values_alone_load_no_engine() -> None:
    in_a_new_process(
        "import sys\n"
        "from threadline.graph import Command, Send, Interrupt, RetryPolicy\n"
        "assert 'threadline.graph.running.loop' not in sys.modules\n"
    )


class Forgetful:
    """A slow saver that keeps nothing: what grows is the run's own."""

    def __init__(self, seconds: float) -> None:
        self._seconds = seconds

    def put(self, config: Any, checkpoint: Any, metadata: Any, new_versions: Any) -> Any:
        time.sleep(self._seconds)
        return {"configurable": {**config["configurable"], "checkpoint_id": checkpoint["id"]}}

    def put_writes(self, config: Any, writes: Any, task_id: str, task_path: str = "") -> None: ...

    def get_tuple(self, config: Any) -> Any:
        return None

    def get_next_version(self, current: Any, channel: Any) -> int:
        return (current or 0) + 1


@pytest.mark.parametrize("steps", [600, pytest.param(5000, marks=pytest.mark.soak)])
def test_a_slow_saver_costs_time_and_no_memory(steps: int) -> None:
    class Bulky(TypedDict, total=False):
        n: Annotated[int, operator.add]
        blob: bytes

    builder = StateGraph(Bulky)
    builder.add_node("x", lambda state: {"n": 1, "blob": os.urandom(100_000)})
    builder.add_edge(START, "x")
    builder.add_conditional_edges("x", lambda state: END if state["n"] >= steps else "x", ["x", END])
    graph = builder.compile(checkpointer=Forgetful(0.002 if steps < 5000 else 0.02))
    sizes: list[int] = []
    config = {"configurable": {"thread_id": "1"}, "recursion_limit": steps + 10}
    for number, _ in enumerate(graph.stream({"n": 0}, config, stream_mode="updates")):
        if number % (steps // 10) == 0:
            gc.collect()
            sizes.append(resident_bytes())
    # A step is 100 kB: were the steps of the second half kept, this would grow by more than 30 MB.
    assert sizes[-1] - sizes[len(sizes) // 2] < 8_000_000, sizes


def resident_bytes() -> int:
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE")


def test_a_run_leaves_nothing_behind() -> None:
    graph = counting(threadline.connect("memory://"), 3)
    before = threading.active_count()
    for thread in range(20):
        graph.invoke({"n": 0}, {"configurable": {"thread_id": str(thread)}})
    gc.collect()
    from threadline.graph.running.loop import Run

    assert not [one for one in gc.get_objects() if isinstance(one, Run)]
    assert threading.active_count() <= before + 2


@pytest.mark.parametrize("place", ["memory", "sqlite"])
def test_200_runs_on_one_event_loop(place: str, tmp_path: Path) -> None:
    saver = threadline.connect("memory://" if place == "memory" else f"sqlite:///{tmp_path / 'agents.db'}")
    builder = StateGraph(Count)

    async def ask(state: Any) -> Any:
        await asyncio.sleep(0)
        return {"n": interrupt("how many?")}

    builder.add_node("x", lambda state: {"n": 1})
    builder.add_node("ask", ask)
    builder.add_edge(START, "x")
    builder.add_edge("x", "ask")
    graph = builder.compile(checkpointer=saver)

    async def run(number: int) -> int:
        config = {"configurable": {"thread_id": str(number)}}
        await graph.ainvoke({"n": 0}, config)
        return (await graph.ainvoke(Command(resume=number), config))["n"]

    async def all_of_them() -> list[int]:
        try:
            return await asyncio.gather(*(run(number) for number in range(1, 201)))
        finally:
            await saver.aclose()

    assert asyncio.run(all_of_them()) == list(range(2, 202))


def test_32_runs_on_os_threads(tmp_path: Path) -> None:
    saver = threadline.connect(f"sqlite:///{tmp_path / 'agents.db'}")
    graph = counting(saver, 5)

    def run(number: int) -> Any:
        return graph.invoke({"n": 0}, {"configurable": {"thread_id": str(number)}})["n"]

    with ThreadPoolExecutor(32) as pool:
        assert list(pool.map(run, range(32))) == [5] * 32
    for number in range(32):
        config = {"configurable": {"thread_id": str(number)}}
        assert [snapshot.metadata["step"] for snapshot in graph.get_state_history(config)] == [5, 4, 3, 2, 1, 0, -1]
    saver.close()
