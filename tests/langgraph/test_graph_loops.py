"""One saver object under every kind of concurrency a program may have."""

import asyncio
import operator
import threading
from concurrent.futures import ThreadPoolExecutor
from typing import Annotated, TypedDict

import pytest
from langgraph.graph import END, START, StateGraph
from langgraph.types import Command, interrupt

from threadline.langgraph import Checkpointer


class Tally(TypedDict):
    seen: Annotated[list[int], operator.add]


def build():
    """Each run notes its input, then the length of what is noted: any mix-up shows."""
    builder = StateGraph(Tally)
    builder.add_node("length", lambda state: {"seen": [len(state["seen"])]})
    builder.add_edge(START, "length")
    builder.add_edge("length", END)
    return builder


def tally(*numbers):
    return [each for at, number in enumerate(numbers) for each in (number, 2 * at + 1)]


@pytest.fixture
def graph(saver):
    return build().compile(checkpointer=saver)


def test_one_object_serves_invoke_and_ainvoke_in_turn(graph, thread):
    for number in range(8):
        if number % 2:
            final = asyncio.run(graph.ainvoke({"seen": [number]}, thread()))
        else:
            final = graph.invoke({"seen": [number]}, thread())
        assert final["seen"] == tally(*range(number + 1))

    assert asyncio.run(graph.aget_state(thread())).values == graph.get_state(thread()).values


def test_one_object_serves_one_event_loop_after_another(graph, thread):
    async def run(number):
        names = ("a", "b", "c")
        await asyncio.gather(*(graph.ainvoke({"seen": [number]}, thread(name)) for name in names))

    for number in range(5):
        asyncio.run(run(number))

    for name in ("a", "b", "c"):
        assert graph.get_state(thread(name)).values["seen"] == tally(*range(5))


def test_one_object_serves_two_event_loops_at_the_same_time(graph, thread):
    both_run = threading.Barrier(2, timeout=20)

    async def run(name):
        both_run.wait()
        for number in range(10):
            await asyncio.gather(*(graph.ainvoke({"seen": [number]}, thread(f"{name}-{part}")) for part in range(3)))

    with ThreadPoolExecutor(2) as pool:
        for done in [pool.submit(asyncio.run, run(name)) for name in ("left", "right")]:
            done.result()

    for name in ("left", "right"):
        for part in range(3):
            seen = graph.get_state(thread(f"{name}-{part}")).values["seen"]
            assert seen == tally(*range(10))


def test_a_loop_may_close_while_another_goes_on(graph, thread):
    short_is_over = threading.Event()

    def short():
        asyncio.run(graph.ainvoke({"seen": [0]}, thread("short")))
        short_is_over.set()

    async def long():
        await graph.ainvoke({"seen": [0]}, thread("long"))
        other = threading.Thread(target=short)
        other.start()
        while not short_is_over.is_set():
            await asyncio.sleep(0.001)
        other.join()
        for number in range(1, 4):
            await graph.ainvoke({"seen": [number]}, thread("long"))

    asyncio.run(long())

    assert graph.get_state(thread("long")).values["seen"] == tally(0, 1, 2, 3)
    assert graph.get_state(thread("short")).values["seen"] == tally(0)


def test_sync_calls_work_inside_a_running_loop_as_in_a_notebook(graph, saver, thread):
    async def cell():
        first = graph.invoke({"seen": [0]}, thread())
        second = await graph.ainvoke({"seen": [1]}, thread())
        third = graph.invoke({"seen": [2]}, thread())
        assert graph.get_state(thread()).values == third
        assert (await aget_length(thread())) == 6
        saver.delete_thread("thread-1")
        assert graph.get_state(thread()).values == {}
        return first, second, third

    async def aget_length(config):
        return len((await graph.aget_state(config)).values["seen"])

    first, second, third = asyncio.run(cell())

    assert [len(each["seen"]) for each in (first, second, third)] == [2, 4, 6]
    assert third["seen"] == tally(0, 1, 2)


def test_a_node_may_use_the_saver_it_runs_on(half, saver, thread):
    found = []

    def look(state):
        found.append(len(list(saver.list(thread("other")))))
        return {"seen": [found[-1]]}

    builder = StateGraph(Tally)
    builder.add_node("look", look)
    builder.add_edge(START, "look")
    graph = builder.compile(checkpointer=saver)
    half.invoke(build().compile(checkpointer=saver), {"seen": [0]}, thread("other"))

    half.invoke(graph, {"seen": []}, thread())

    assert found == [3]


def test_many_os_threads_invoke_on_one_object(graph, thread):
    workers, turns = 12, 6

    def work(name):
        for number in range(turns):
            graph.invoke({"seen": [number]}, thread(f"user-{name}"))
        return graph.get_state(thread(f"user-{name}")).values["seen"]

    with ThreadPoolExecutor(workers) as pool:
        results = list(pool.map(work, range(workers)))

    assert results == [tally(*range(turns))] * workers


def test_many_tasks_of_one_loop_invoke_on_one_object(graph, thread):
    async def work(name):
        for number in range(4):
            await graph.ainvoke({"seen": [number]}, thread(f"user-{name}"))
        return (await graph.aget_state(thread(f"user-{name}"))).values["seen"]

    async def run():
        return await asyncio.gather(*(work(name) for name in range(40)))

    assert asyncio.run(run()) == [tally(*range(4))] * 40


def test_os_threads_and_loops_work_side_by_side(graph, thread):
    def sync_work(name):
        for number in range(5):
            graph.invoke({"seen": [number]}, thread(name))

    async def async_work(name):
        for number in range(5):
            await graph.ainvoke({"seen": [number]}, thread(name))

    async def run():
        loop = asyncio.get_running_loop()
        with ThreadPoolExecutor(4) as pool:
            await asyncio.gather(
                *(loop.run_in_executor(pool, sync_work, f"sync-{n}") for n in range(4)),
                *(async_work(f"async-{n}") for n in range(4)),
            )

    asyncio.run(run())

    for name in [f"{kind}-{n}" for kind in ("sync", "async") for n in range(4)]:
        assert graph.get_state(thread(name)).values["seen"] == tally(*range(5))


def test_a_cancelled_run_resumes_from_its_last_finished_step(saver, reopen, thread):
    reached = []

    async def hang(state):
        reached.append("hang")
        if len(reached) == 1:
            await asyncio.sleep(60)
        return {"seen": [99]}

    builder = build()
    builder.add_node("hang", hang)
    builder.add_edge("length", "hang")

    async def cancel_midway():
        run = asyncio.create_task(
            builder.compile(checkpointer=saver).ainvoke({"seen": [0]}, thread(), durability="sync")
        )
        while not reached:
            await asyncio.sleep(0.001)
        run.cancel()
        with pytest.raises(asyncio.CancelledError):
            await run

    asyncio.run(cancel_midway())
    final = asyncio.run(builder.compile(checkpointer=reopen()).ainvoke(None, thread()))

    assert final["seen"] == [*tally(0), 99]
    assert reached == ["hang", "hang"]


def test_questions_of_many_threads_are_answered_concurrently(saver, thread):
    builder = StateGraph(Tally)
    builder.add_node("ask", lambda state: {"seen": [interrupt(state["seen"][0])]})
    builder.add_edge(START, "ask")
    graph = builder.compile(checkpointer=saver)

    async def converse(number):
        config = thread(f"user-{number}")
        asked = await graph.ainvoke({"seen": [number]}, config)
        answer = asked["__interrupt__"][0].value * 10
        return (await graph.ainvoke(Command(resume=answer), config))["seen"]

    async def run():
        return await asyncio.gather(*(converse(number) for number in range(25)))

    assert asyncio.run(run()) == [[number, number * 10] for number in range(25)]


def test_a_saver_that_is_never_closed_lets_the_program_end(run_script, sqlite_url):
    program = """
    import asyncio, json, operator, sys
    from typing import Annotated, TypedDict
    from langgraph.graph import START, StateGraph
    from threadline.langgraph import Checkpointer

    class State(TypedDict):
        seen: Annotated[list, operator.add]

    builder = StateGraph(State)
    builder.add_node("node", lambda state: {"seen": [1]})
    builder.add_edge(START, "node")
    graph = builder.compile(checkpointer=Checkpointer(sys.argv[1]))
    config = {"configurable": {"thread_id": "t"}}
    graph.invoke({"seen": []}, config)
    print(json.dumps(asyncio.run(graph.ainvoke({"seen": []}, config))))
    """
    # A worker thread left waiting would keep the interpreter alive, and the script would time out.
    assert run_script(program, sqlite_url) == {"seen": [1, 1]}


@pytest.mark.parametrize("halves", ["sync", "async"])
def test_two_savers_on_one_file_see_each_other_at_once(sqlite_url, thread, halves):
    def run(graph, number):
        if halves == "sync":
            return graph.invoke({"seen": [number]}, thread())
        return asyncio.run(graph.ainvoke({"seen": [number]}, thread()))

    with Checkpointer(sqlite_url) as left, Checkpointer(sqlite_url) as right:
        graphs = [build().compile(checkpointer=saver) for saver in (left, right)]
        for number in range(6):
            final = run(graphs[number % 2], number)

    assert final["seen"] == tally(*range(6))
