"""Questions: which tasks run again, what is loud, where time travel lands."""

from __future__ import annotations

import asyncio
import operator
from typing import Annotated, Any

import pytest
from graph_making import CONFIG, START, Recorder, State, chain, halves, run
from typing_extensions import TypedDict

import threadline
from threadline import graph as room


@halves
def test_a_partial_answer_does_not_run_the_task_without_one(is_async: bool) -> None:
    ran: list[str] = []

    def asks(name: str) -> Any:
        def act(state: Any) -> Any:
            ran.append(name)
            return {"l": [f"{name}{room.interrupt(name)}"]}

        return act

    builder = room.StateGraph(State).add_node("x", asks("x")).add_node("y", asks("y"))
    graph = builder.add_edge(START, "x").add_edge(START, "y").compile(checkpointer=threadline.connect("memory://"))
    asked = {one.value: one.id for one in run(graph, is_async, {"l": []}, CONFIG)["__interrupt__"]}
    assert sorted(ran) == ["x", "y"]
    ran.clear()
    partly = run(graph, is_async, room.Command(resume={asked["x"]: 1}), CONFIG)
    assert ran == ["x"]
    assert [one.id for one in partly["__interrupt__"]] == [asked["y"]]
    assert partly["l"] == ["x1"]
    ran.clear()
    assert run(graph, is_async, room.Command(resume=2), CONFIG)["l"] == ["x1", "y2"]
    assert ran == ["y"]


def test_a_strict_graph_checks_answers_before_it_writes() -> None:
    saver = Recorder()
    graph = chain(saver, options={"strict": True}, x=lambda state: {"l": [room.interrupt("q")]})
    graph.invoke({"l": []}, CONFIG)
    before = list(saver.log)
    with pytest.raises(room.UnknownInterruptError) as caught:
        graph.invoke(room.Command(resume={"0" * 32: 1}), CONFIG)
    assert caught.value.pending_ids == (graph.get_state(CONFIG).interrupts[0].id,)
    with pytest.raises(room.InvalidUpdateError, match="open question"):
        graph.invoke({"l": ["new"]}, CONFIG)
    assert saver.log == before
    assert graph.invoke(room.Command(resume=1), CONFIG) == {"l": [1]}
    with pytest.raises(room.UnknownInterruptError, match="no question is pending"):
        graph.invoke(room.Command(resume=1), CONFIG)


def test_several_questions_at_once() -> None:
    ran = [0]

    def act(state: Any) -> Any:
        ran[0] += 1
        return {"l": room.interrupt_all(["name?", "age?"])}

    graph = chain(threadline.connect("memory://"), x=act)
    asked = graph.invoke({"l": []}, CONFIG)["__interrupt__"]
    assert [one.value for one in asked] == ["name?", "age?"]
    assert len({one.id for one in asked}) == 2
    still = graph.invoke(room.Command(resume={asked[1].id: 40}), CONFIG)["__interrupt__"]
    assert [one.value for one in still] == ["name?"]
    assert graph.invoke(room.Command(resume={asked[0].id: "Ann"}), CONFIG) == {"l": ["Ann", 40]}


def test_questions_asked_side_by_side_are_collected() -> None:
    async def ask(what: str) -> Any:
        await asyncio.sleep(0)
        return room.interrupt(what)

    async def act(state: Any) -> Any:
        return {"l": list(await asyncio.gather(ask("one?"), ask("two?")))}

    async def main() -> Any:
        graph = chain(threadline.connect("memory://"), x=act)
        asked = (await graph.ainvoke({"l": []}, CONFIG))["__interrupt__"]
        answers = {one.id: one.value.upper() for one in asked}
        assert len(answers) == 2
        return await graph.ainvoke(room.Command(resume=answers), CONFIG)

    assert asyncio.run(main()) == {"l": ["ONE?", "TWO?"]}


@halves
def test_a_swallowed_question_fails_its_task(is_async: bool) -> None:
    def act(state: Any) -> Any:
        try:
            room.interrupt("q")
        except Exception:
            return {"l": ["went on"]}

    graph = chain(threadline.connect("memory://"), x=act)
    with pytest.raises(room.InterruptSwallowed, match="'x'"):
        run(graph, is_async, {"l": []}, CONFIG)


@halves
def test_time_travel_lands_in_the_subgraph_that_is_pointed_at(is_async: bool) -> None:
    ran: list[str] = []

    def step(name: str) -> Any:
        def act(state: Any) -> Any:
            ran.append(name)
            return {"l": [name]}

        return act

    class Inner(TypedDict, total=False):
        l: Annotated[list, operator.add]

    inner = room.StateGraph(Inner)
    for name in ("i", "j", "k"):
        inner.add_node(name, step(name))
    inner.add_edge(START, "i").add_edge("i", "j").add_edge("j", "k")
    sub = inner.compile(interrupt_before=["k"])
    builder = room.StateGraph(State).add_node("x", step("x")).add_node("sub", sub).add_node("z", step("z"))
    builder.add_edge(START, "x").add_edge("x", "sub").add_edge("sub", "z")
    graph = builder.compile(checkpointer=threadline.connect("memory://"))
    run(graph, is_async, {"l": []}, CONFIG)
    inside = graph.get_state(CONFIG, subgraphs=True).tasks[0].state
    assert inside.next == ("k",)
    place = {key: inside.config["configurable"][key] for key in ("thread_id", "checkpoint_ns")}
    after_i = next(one for one in graph.get_state_history({"configurable": place}) if one.next == ("j",))
    ran.clear()
    run(graph, is_async, None, after_i.config)
    assert ran == ["j"]
    ran.clear()
    run(graph, is_async, None, CONFIG)
    assert ran == ["k", "z"]


def test_a_per_thread_subgraph_takes_its_input_after_a_resume() -> None:
    class Own(TypedDict, total=False):
        own: Annotated[list, operator.add]
        a: int

    sub = room.StateGraph(Own).add_node("i", lambda state: {"own": [state["a"]]}).add_edge(START, "i")
    inner = sub.compile(checkpointer=True)

    def act(state: Any) -> Any:
        if state["a"] == 2:
            room.interrupt("q")
        return {"l": [inner.invoke({"a": state["a"]})["own"]]}

    graph = chain(threadline.connect("memory://"), x=act)
    assert graph.invoke({"a": 1}, CONFIG)["l"] == [[1]]
    graph.invoke({"a": 2}, CONFIG)
    assert graph.invoke(room.Command(resume=0), CONFIG)["l"] == [[1], [1, 2]]


def test_a_swallowed_question_of_a_subgraph_is_loud() -> None:
    inner = room.StateGraph(State).add_node("i", lambda state: {"l": [room.interrupt("q")]}).add_edge(START, "i")
    sub = inner.compile()

    def act(state: Any) -> Any:
        try:
            sub.invoke({"l": []})
        except Exception:
            return {"l": ["went on"]}

    with pytest.raises(room.InterruptSwallowed, match="'x'"):
        chain(threadline.connect("memory://"), x=act).invoke({"l": []}, CONFIG)


def test_answers_to_nobody_are_said(caplog: pytest.LogCaptureFixture) -> None:
    graph = chain(threadline.connect("memory://"), x=lambda state: {"l": [room.interrupt("q")]})
    graph.invoke({"l": []}, CONFIG)
    graph.invoke(room.Command(resume={"0" * 32: 1}), CONFIG)
    assert f"no pending question has the id '{'0' * 32}'" in caplog.text
    graph.invoke(room.Command(resume=1), CONFIG)
    graph.invoke(room.Command(resume=1), CONFIG)
    assert "no question is pending on this thread" in caplog.text


def test_a_strict_graph_refuses_a_question_that_no_answer_can_reach() -> None:
    asks = {"one": lambda state: {"l": [room.interrupt("q")]}, "all": lambda state: {"l": room.interrupt_all(["q"])}}
    for name, ask in asks.items():
        assert chain(x=ask).invoke({"l": []})["__interrupt__"]
        with pytest.raises(room.InvalidUpdateError, match=r"Node 'x' asks a question.*checkpointer="):
            chain(options={"strict": True}, x=ask).invoke({"l": []})
        strict = chain(threadline.connect("memory://"), options={"strict": True}, x=ask)
        strict.invoke({"l": []}, CONFIG)
        assert strict.invoke(room.Command(resume=name), CONFIG) == {"l": [name]}


def test_an_error_about_answers_lists_the_questions() -> None:
    builder = room.StateGraph(State)
    for name in "xy":
        builder.add_node(name, lambda state, name=name: {"l": [room.interrupt({"ask": name, "why": "w" * 500})]})
        builder.add_edge(START, name)
    graph = builder.compile(checkpointer=threadline.connect("memory://"), strict=True)
    ids = [one.id for one in graph.invoke({"l": []}, CONFIG)["__interrupt__"]]
    for given, error in (("one", RuntimeError), ({"0" * 32: 1}, room.UnknownInterruptError)):
        with pytest.raises(error) as caught:
            graph.invoke(room.Command(resume=given), CONFIG)
        for key in ids:
            assert key in str(caught.value)
        assert "'ask': 'x'" in str(caught.value)
        assert len(str(caught.value)) < 500
