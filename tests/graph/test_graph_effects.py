"""What happens once, what survives a retry, and threads of other versions and engines."""

from __future__ import annotations

import asyncio
from typing import Annotated, Any

import pytest
from graph_making import CONFIG, START, Recorder, State, chain, halves, run, writes
from typing_extensions import TypedDict

import threadline
from threadline import graph as room
from threadline.errors import InvalidRequest


@halves
def test_calls_never_starve_under_a_small_bound(is_async: bool) -> None:
    @room.task
    def inner(number: int) -> int:
        return number

    @room.task
    def middle(number: int) -> int:
        return inner(number).result() + 1

    if is_async:

        @room.entrypoint()
        async def main(count: int) -> int:
            return sum(await asyncio.gather(*[middle(number) for number in range(count)]))

    else:

        @room.entrypoint()
        def main(count: int) -> int:
            return sum(one.result() for one in [middle(number) for number in range(count)])

    assert run(main, is_async, 10, {"max_concurrency": 1}) == 55


def test_an_effect_happens_once_over_retries_and_resumes() -> None:
    effects: list[str] = []
    keys: list[str] = []
    attempts = [0]

    def pay(what: str) -> str:
        effects.append(what)
        return f"receipt {what}"

    def act(state: Any, runtime: room.Runtime) -> Any:
        attempts[0] += 1
        keys.append(runtime.idempotency_key("charge"))
        receipt = runtime.once("charge", pay, "card")
        if attempts[0] == 1:
            raise ConnectionError("lost")
        return {"l": [receipt, room.interrupt("sure?")]}

    policy = room.RetryPolicy(initial_interval=0.0, jitter=False)
    graph = chain(threadline.connect("memory://"), x=(act, {"retry_policy": policy}))
    graph.invoke({"l": []}, CONFIG)
    assert graph.invoke(room.Command(resume="yes"), CONFIG) == {"l": ["receipt card", "yes"]}
    assert effects == ["card"]
    assert attempts == [3]
    assert len(set(keys)) == 1


def test_an_effect_is_durable_before_it_is_returned() -> None:
    saver = Recorder()

    def act(state: Any, runtime: room.Runtime) -> Any:
        before = len(saver.log)
        runtime.once("charge", lambda: 7)
        assert saver.log[before:] or saver.log[-1][0] == "writes"
        raise ValueError("crash after the effect")

    graph = chain(saver, x=act)
    with pytest.raises(ValueError, match="crash"):
        graph.invoke({"l": []}, CONFIG)
    found = saver.inner.get_tuple(CONFIG)
    assert ("__return__", 7) in [(channel, value) for _, channel, value in found.pending_writes]


def test_an_effect_that_is_awaited_happens_once() -> None:
    effects: list[int] = []

    async def pay() -> int:
        effects.append(1)
        return 5

    async def act(state: Any, runtime: room.Runtime) -> Any:
        paid = await runtime.aonce("charge", pay)
        return {"l": [paid, room.interrupt("sure?")]}

    async def main() -> Any:
        graph = chain(threadline.connect("memory://"), x=act)
        await graph.ainvoke({"l": []}, CONFIG)
        return await graph.ainvoke(room.Command(resume="yes"), CONFIG)

    assert asyncio.run(main()) == {"l": [5, "yes"]}
    assert effects == [1]


@halves
def test_a_retried_caller_gets_the_results_of_its_calls_again(is_async: bool) -> None:
    ran: list[str] = []

    @room.task
    def work(name: str) -> str:
        ran.append(name)
        return name.upper()

    fails = [True]
    policy = room.RetryPolicy(initial_interval=0.0, jitter=False)

    if is_async:

        @room.entrypoint(checkpointer=threadline.connect("memory://"), retry_policy=policy)
        async def main(given: str) -> list[str]:
            found = [await work("a"), await work("b")]
            if fails.pop() if fails else False:
                raise ConnectionError("lost")
            return found

    else:

        @room.entrypoint(checkpointer=threadline.connect("memory://"), retry_policy=policy)
        def main(given: str) -> list[str]:
            found = [work("a").result(), work("b").result()]
            if fails.pop() if fails else False:
                raise ConnectionError("lost")
            return found

    assert run(main, is_async, "go", CONFIG) == ["A", "B"]
    assert ran == ["a", "b"]


def test_a_renamed_node_is_found_and_a_lost_one_is_named() -> None:
    saver = threadline.connect("memory://")
    chain(saver, options={"interrupt_before": ["old"], "version": "1"}, x=writes("x"), old=writes("old")).invoke(
        {"l": []}, CONFIG
    )
    assert saver.get_tuple(CONFIG).metadata["graph_version"] == "1"
    with pytest.raises(InvalidRequest, match="goes on at node 'old'"):
        chain(saver, x=writes("x"), new=writes("new")).invoke(None, CONFIG)
    graph = chain(
        saver,
        options={
            "version": "2",
            "renamed": {"old": "new"},
            "migrate": lambda values: {**values, "l": [one.upper() for one in values["l"]]},
        },
        x=writes("x"),
        new=writes("new"),
    )
    assert graph.get_state(CONFIG).next == ("new",)
    assert graph.invoke(None, CONFIG) == {"l": ["X", "new"]}
    assert saver.get_tuple(CONFIG).metadata["graph_version"] == "2"


def test_updates_are_validated_when_asked() -> None:
    builder = room.StateGraph(State).add_node("x", lambda state: {"a": "5"}).add_edge(START, "x")
    assert builder.compile(validate="updates").invoke({"l": []}) == {"l": [], "a": 5}
    bad = room.StateGraph(State).add_node("x", lambda state: {"a": "five"}).add_edge(START, "x")
    with pytest.raises(room.InvalidUpdateError, match="'a'"):
        bad.compile(validate="updates").invoke({"l": []})
    assert bad.compile().invoke({"l": []}) == {"l": [], "a": "five"}


@halves
def test_a_retried_node_goes_on_with_the_subgraph_it_calls(is_async: bool) -> None:
    ran: list[str] = []

    def step(name: str) -> Any:
        def act(state: Any) -> Any:
            ran.append(name)
            return {"l": [name]}

        return act

    fails = [True]

    def flaky(state: Any) -> Any:
        ran.append("flaky")
        if fails.pop() if fails else False:
            raise ConnectionError("lost")
        return {"l": ["flaky"]}

    inner = room.StateGraph(State).add_node("i", step("i")).add_node("flaky", flaky)
    sub = inner.add_edge(START, "i").add_edge("i", "flaky").compile()
    policy = room.RetryPolicy(initial_interval=0.0, jitter=False)
    builder = room.StateGraph(State).add_node("sub", sub, retry_policy=policy).add_edge(START, "sub")
    graph = builder.compile(checkpointer=threadline.connect("memory://"))
    assert run(graph, is_async, {"l": []}, CONFIG) == {"l": ["i", "flaky"]}
    assert ran == ["i", "flaky", "flaky"]


def test_a_retried_caller_goes_on_with_the_subgraph_of_its_call() -> None:
    ran: list[str] = []
    fails = [True]

    def flaky(state: Any) -> Any:
        ran.append("flaky")
        if fails.pop() if fails else False:
            raise ConnectionError("lost")
        return {"l": ["flaky"]}

    inner = room.StateGraph(State).add_node("i", lambda state: ran.append("i") or {"l": ["i"]})
    sub = inner.add_node("flaky", flaky).add_edge(START, "i").add_edge("i", "flaky").compile()

    @room.task
    def work() -> Any:
        return sub.invoke({"l": []})["l"]

    policy = room.RetryPolicy(initial_interval=0.0, jitter=False)

    @room.entrypoint(checkpointer=threadline.connect("memory://"), retry_policy=policy)
    def main(given: str) -> Any:
        return work().result()

    assert main.invoke("go", CONFIG) == ["i", "flaky"]
    assert ran == ["i", "flaky", "flaky"]


def test_changes_that_langgraph_stored_become_the_whole_value() -> None:
    from langgraph.channels import DeltaChannel
    from langgraph.graph import StateGraph

    from threadline.langgraph import Checkpointer

    def added(state: Any, writes: Any) -> list[Any]:
        return [*(state or []), *(one for write in writes for one in write)]

    def build(builder: Any) -> Any:
        builder.add_node("x", writes("x")).add_node("y", writes("y"))
        return builder.add_edge(START, "x").add_edge("x", "y")

    for frequency in (2, 100):
        delta = DeltaChannel(added, list, snapshot_frequency=frequency)
        # Made by calls: annotations in a function could not be resolved.
        theirs = TypedDict("theirs", {"l": Annotated[list, delta]}, total=False)  # noqa: UP013
        ours = TypedDict("ours", {"l": Annotated[list, room.DeltaChannel(added, list)]}, total=False)  # noqa: UP013
        saver = Checkpointer("memory://")
        build(StateGraph(theirs)).compile(checkpointer=saver, interrupt_before=["y"]).invoke({"l": ["i"]}, CONFIG)
        graph = build(room.StateGraph(ours)).compile(checkpointer=saver)
        assert graph.get_state(CONFIG).values == {"l": ["i", "x"]}
        assert graph.invoke(None, CONFIG) == {"l": ["i", "x", "y"]}
        assert graph.get_state(CONFIG).values == {"l": ["i", "x", "y"]}
