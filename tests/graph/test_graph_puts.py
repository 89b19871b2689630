"""What is put, when and in which order; how a run ends without losing it."""

from __future__ import annotations

import asyncio
import itertools
from typing import Any

import pytest
from graph_making import CONFIG, END, START, Recorder, State, chain, halves, run, writes

import threadline
from threadline import graph as room
from threadline.graph.storing.writer import SHARED_PUTS


@halves
@pytest.mark.parametrize("durability", ["sync", "async"])
def test_writes_are_put_before_the_checkpoint_they_lead_to(is_async: bool, durability: str) -> None:
    saver = Recorder(0.002)
    graph = chain(saver, x=writes("x"), y=writes("y"), z=writes("z"))
    run(graph, is_async, {"l": []}, CONFIG, durability=durability)
    puts = [checkpoint_id for what, checkpoint_id in saver.log if what == "put"]
    assert len(puts) == 5
    for before, after in itertools.pairwise(puts):
        # The writes of a step are stored under the checkpoint it starts from, between the two puts.
        assert saver.log.index(("put", before)) < saver.log.index(("writes", before)) < saver.log.index(("put", after))
    assert saver.most == 1


@halves
def test_a_slow_saver_never_has_more_than_two_items_waiting(is_async: bool) -> None:
    saver = Recorder(0.003)
    behind: list[int] = []
    steps = [0]

    def act(state: Any) -> Any:
        steps[0] += 1
        behind.append(2 * steps[0] - len(saver.log))
        return {"l": [1]}

    builder = room.StateGraph(State).add_node("x", act).add_edge(START, "x")
    builder.add_conditional_edges("x", lambda state: "x" if len(state["l"]) < 30 else END, ["x", END])
    run(builder.compile(checkpointer=saver), is_async, {"l": []}, CONFIG)
    assert steps[0] == 30
    assert max(behind) <= 4


class Batching(Recorder):
    """A saver that notes what it is given in one transaction."""

    def __init__(self, seconds: float = 0.0) -> None:
        super().__init__(seconds)
        self.batches: list[list[str]] = []

    def put_batch(self, items: Any) -> None:
        self.batches.append([one[0] for one in items])
        for method, *args in items:
            getattr(self, method)(*args)

    async def aput_batch(self, items: Any) -> None:
        self.batches.append([one[0] for one in items])
        for method, *args in items:
            await getattr(self, "a" + method)(*args)


@halves
@pytest.mark.parametrize("durability", ["sync", "async"])
def test_the_last_writes_of_a_step_share_the_commit_of_its_checkpoint(is_async: bool, durability: str) -> None:
    saver = Batching()
    graph = chain(saver, x=writes("x"), y=writes("y"))
    run(graph, is_async, {"l": []}, CONFIG, durability=durability)
    if durability == "sync":
        assert saver.batches == [["put_writes", "put"]] * 3
    else:  # what is stored while the next item arrives depends on time; the order does not
        assert saver.batches
    assert [what for what, _ in saver.log] == ["put", *["writes", "put"] * 3]
    assert graph.get_state(CONFIG).values == {"l": ["x", "y"]}


def fan_out(saver: Any, action: Any) -> Any:
    builder = room.StateGraph(State).add_node("x", action)
    return builder.add_conditional_edges(START, lambda state: [room.Send("x", n) for n in range(20)], ["x"]).compile(
        saver
    )


@pytest.mark.parametrize("durability", ["sync", "async"])
def test_tasks_that_only_compute_share_one_commit(durability: str) -> None:
    saver = Batching()
    graph = fan_out(saver, lambda n: {"l": [n]})
    assert graph.invoke({"l": []}, CONFIG, durability=durability) == {"l": list(range(20))}
    if durability == "sync":
        assert saver.batches == [["put_writes", "put"], ["put_writes"] * 20 + ["put"]]
    else:  # quick steps share a commit, too
        assert saver.batches[-1][-21:] == ["put_writes"] * 20 + ["put"]
        assert len(saver.batches) <= 2


@pytest.mark.parametrize("durability", ["sync", "async"])
def test_a_task_that_fails_among_those_that_only_compute_loses_no_other(durability: str) -> None:
    saver = Batching()
    graph = fan_out(saver, lambda n: {"l": [12 // (n - 7)]})
    with pytest.raises(ZeroDivisionError):
        graph.invoke({"l": []}, CONFIG, durability=durability)
    done = [task for task in graph.get_state(CONFIG).tasks if task.result is not None]
    assert len(done) == 19


def test_steps_share_a_commit_where_commits_are_slow() -> None:
    saver = Batching(0.003)
    builder = room.StateGraph(State).add_node("x", writes("x")).add_edge(START, "x")
    builder.add_conditional_edges("x", lambda state: "x" if len(state["l"]) < 40 else END, ["x", END])
    assert len(builder.compile(saver).invoke({"l": []}, CONFIG)["l"]) == 40
    assert saver.most == 1
    assert 2 <= max(batch.count("put") for batch in saver.batches) <= SHARED_PUTS
    # Every checkpoint comes after the writes that lead to it, in whichever transaction.
    assert [what for what, _ in saver.log] == ["put", *["writes", "put"] * 41]


@halves
def test_a_failed_put_surfaces(is_async: bool) -> None:
    for durability in ("sync", "async", "exit"):
        graph = chain(Recorder(fails_at=1 if durability == "exit" else 4), x=writes("x"), y=writes("y"))
        with pytest.raises(OSError, match="the disk is gone"):
            run(graph, is_async, {"l": []}, CONFIG, durability=durability)


@halves
def test_durability_without_a_saver_warns_and_runs(is_async: bool) -> None:
    with pytest.warns(UserWarning, match="no effect"):
        assert run(chain(x=writes("x")), is_async, {"l": []}, durability="sync") == {"l": ["x"]}


def test_cancelling_keeps_what_was_finished() -> None:
    saver = threadline.connect("memory://")
    begun = asyncio.Event

    async def main() -> None:
        waiting = begun()

        async def slow(state: Any) -> Any:
            waiting.set()
            await asyncio.sleep(60)

        builder = room.StateGraph(State).add_node("x", writes("x")).add_node("fast", writes("fast"))
        builder.add_node("slow", slow).add_edge(START, "x").add_edge("x", "fast").add_edge("x", "slow")
        graph = builder.compile(checkpointer=saver)
        for durability in ("async", "exit"):
            config = {"configurable": {"thread_id": durability}}
            waiting.clear()
            task = asyncio.create_task(graph.ainvoke({"l": []}, config, durability=durability))
            await waiting.wait()
            await asyncio.sleep(0.05)
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task
            state = await graph.aget_state(config)
            assert state.values["l"] == ["x", "fast"], durability
            assert state.next == ("slow",), durability

    asyncio.run(main())


@halves
def test_closing_a_stream_early_keeps_the_step(is_async: bool) -> None:
    saver = threadline.connect("memory://")
    graph = chain(saver, x=writes("x"), y=writes("y"), z=writes("z"))

    async def take_one() -> None:
        stream = graph.astream({"l": []}, CONFIG, stream_mode="updates")
        async for _ in stream:
            break
        await stream.aclose()

    if is_async:
        asyncio.run(take_one())
    else:
        stream = graph.stream({"l": []}, CONFIG, stream_mode="updates")
        assert next(stream) == {"x": {"l": ["x"]}}
        stream.close()
    state = graph.get_state(CONFIG)
    assert state.values["l"] == ["x"]
    assert graph.invoke(None, CONFIG) == {"l": ["x", "y", "z"]}


@halves
def test_a_crash_in_one_of_several_tasks_ends_the_run(is_async: bool) -> None:
    class Crash(BaseException):
        pass

    def crash(state: Any) -> Any:
        raise Crash

    builder = room.StateGraph(State).add_node("x", writes("x")).add_node("y", crash)
    graph = builder.add_edge(START, "x").add_edge(START, "y").compile()
    with pytest.raises(Crash):
        run(graph, is_async, {"l": []})
