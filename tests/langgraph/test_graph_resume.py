"""A run that failed, or that waits for a person, goes on where it stopped and repeats nothing."""

import operator
from typing import Annotated, Any, TypedDict

import pytest
from langgraph.graph import END, START, StateGraph
from langgraph.types import Command, Interrupt, interrupt


class Report(TypedDict):
    parts: Annotated[list[str], operator.add]
    total: int


SOURCES = ("weather", "traffic", "prices")


def build_report(ran, before=lambda name: None):
    """Three sources side by side, then a sum; `before` may fail, `ran` counts what succeeded."""

    def source(name):
        def node(state):
            before(name)
            ran.append(name)
            return {"parts": [name]}

        return node

    def total(state):
        before("total")
        ran.append("total")
        return {"total": len(state["parts"])}

    builder = StateGraph(Report)
    builder.add_node("total", total)
    for name in SOURCES:
        builder.add_node(name, source(name))
        builder.add_edge(START, name)
    builder.add_edge(list(SOURCES), "total")
    builder.add_edge("total", END)
    return builder


def test_finished_siblings_of_a_failed_node_are_not_run_again(half, saver, reopen, thread, stored_writes):
    config = thread()
    ran = []

    def traffic_is_down(name):
        if name == "traffic":
            stored_writes(saver, config, "parts", count=2)
            raise ConnectionError("traffic is down")

    with pytest.raises(ConnectionError):
        half.invoke(build_report(ran, traffic_is_down).compile(checkpointer=saver), {}, config)
    assert sorted(ran) == ["prices", "weather"]

    ran.clear()
    final = half.invoke(build_report(ran).compile(checkpointer=reopen()), None, config)
    assert ran == ["traffic", "total"]
    assert final == {"parts": sorted(SOURCES), "total": 3}


def test_the_state_of_a_failed_run_names_the_task_and_its_error(half, saver, reopen, thread):
    config = thread()

    def total_is_broken(name):
        if name == "total":
            raise ZeroDivisionError("no parts to share")

    with pytest.raises(ZeroDivisionError):
        half.invoke(build_report([], total_is_broken).compile(checkpointer=saver), {}, config)

    state = half.get_state(build_report([]).compile(checkpointer=reopen()), config)
    assert state.next == ("total",)
    assert sorted(state.values["parts"]) == sorted(SOURCES)
    (task,) = state.tasks
    assert task.name == "total"
    assert "no parts to share" in str(task.error)


def test_a_node_that_fails_thrice_is_tried_each_time_and_loses_nothing(half, reopen, thread):
    config = thread()
    ran = []
    attempts = []

    def down_three_times(name):
        if name == "total":
            attempts.append(name)
            if len(attempts) <= 3:
                raise TimeoutError(f"attempt {len(attempts)}")

    builder = build_report(ran, down_three_times)
    first_input: Any = {}
    for attempt in range(1, 4):
        with pytest.raises(TimeoutError, match=f"attempt {attempt}"):
            half.invoke(builder.compile(checkpointer=reopen()), first_input, config)
        first_input = None
    final = half.invoke(builder.compile(checkpointer=reopen()), None, config)

    assert len(attempts) == 4
    assert sorted(ran) == sorted([*SOURCES, "total"])
    assert final["total"] == 3


class Order(TypedDict):
    item: str
    answers: dict[str, Any]
    log: Annotated[list[str], operator.add]


def build_order(entered):
    """A node that asks three questions, one after the other, before it goes on."""

    def ask(state):
        entered.append("ask")
        size = interrupt({"question": f"size of the {state['item']}?"})
        colour = interrupt({"question": "colour?", "so far": size})
        sure = interrupt(["sure?", size, colour])
        return {"answers": {"size": size, "colour": colour, "sure": sure}, "log": ["asked"]}

    builder = StateGraph(Order)
    builder.add_node("ask", ask)
    builder.add_node("ship", lambda state: {"log": ["shipped" if state["answers"]["sure"] else "kept"]})
    builder.add_edge(START, "ask")
    builder.add_edge("ask", "ship")
    builder.add_edge("ship", END)
    return builder


def test_several_questions_of_one_node_are_answered_one_by_one(half, reopen, thread):
    config = thread()
    entered = []

    def resume(value):
        return half.invoke(build_order(entered).compile(checkpointer=reopen()), value, config)

    asked = [resume({"item": "hat", "log": []})]
    asked.append(resume(Command(resume="XL")))
    asked.append(resume(Command(resume={"name": "green", "rgb": [0, 128, 0]})))
    final = resume(Command(resume=True))

    assert [question["__interrupt__"][0].value for question in asked] == [
        {"question": "size of the hat?"},
        {"question": "colour?", "so far": "XL"},
        ["sure?", "XL", {"name": "green", "rgb": [0, 128, 0]}],
    ]
    assert final["answers"] == {"size": "XL", "colour": {"name": "green", "rgb": [0, 128, 0]}, "sure": True}
    assert final["log"] == ["asked", "shipped"]
    assert len(entered) == 4


@pytest.mark.parametrize("answer", [0, "", False, [], 0.0], ids=repr)
def test_an_answer_that_looks_empty_is_still_an_answer(half, saver, reopen, thread, answer):
    config = thread()
    half.invoke(build_order([]).compile(checkpointer=saver), {"item": "hat", "log": []}, config)

    asked = half.invoke(build_order([]).compile(checkpointer=reopen()), Command(resume=answer), config)

    so_far = asked["__interrupt__"][0].value["so far"]
    assert so_far == answer
    assert type(so_far) is type(answer)


def test_a_waiting_question_is_in_the_state_of_another_saver(half, saver, reopen, thread):
    config = thread()
    asked = half.invoke(build_order([]).compile(checkpointer=saver), {"item": "hat", "log": []}, config)

    state = half.get_state(build_order([]).compile(checkpointer=reopen()), config)

    assert state.interrupts == tuple(asked["__interrupt__"])
    assert state.tasks[0].interrupts == state.interrupts
    assert isinstance(state.interrupts[0], Interrupt)
    assert state.interrupts[0].value == {"question": "size of the hat?"}
    assert state.next == ("ask",)


def test_two_waiting_siblings_are_answered_by_the_ids_of_their_questions(half, reopen, thread):
    def ask(name):
        return lambda state: {"parts": [f"{name}={interrupt(name)}"]}

    builder = StateGraph(Report)
    for name in ("left", "right"):
        builder.add_node(name, ask(name))
        builder.add_edge(START, name)
    config = thread()
    asked = half.invoke(builder.compile(checkpointer=reopen()), {}, config)
    ids = {question.value: question.id for question in asked["__interrupt__"]}
    assert set(ids) == {"left", "right"}

    half.invoke(builder.compile(checkpointer=reopen()), Command(resume={ids["right"]: "R"}), config)
    waiting = half.get_state(builder.compile(checkpointer=reopen()), config)
    assert [question.value for question in waiting.interrupts] == ["left"]
    final = half.invoke(builder.compile(checkpointer=reopen()), Command(resume={ids["left"]: "L"}), config)

    assert final["parts"] == ["left=L", "right=R"]


def test_a_person_may_answer_update_and_redirect_in_one_command(half, saver, reopen, thread):
    builder = build_order([])
    builder.add_node("cancel", lambda state: {"log": ["cancelled " + state["item"]]})
    config = thread()
    half.invoke(builder.compile(checkpointer=saver), {"item": "hat", "log": []}, config)

    graph = builder.compile(checkpointer=reopen())
    final = half.invoke(graph, Command(update={"item": "scarf"}, goto="cancel"), config)

    assert final["item"] == "scarf"
    assert "cancelled scarf" in final["log"]
    # The question is still open: going elsewhere did not answer it.
    assert half.get_state(graph, config).next == ("ask",)


def test_a_node_may_update_and_choose_the_way_by_a_command(half, saver, reopen, thread):
    ran = []

    def decide(state):
        return Command(update={"log": ["decided"]}, goto="ship" if state["item"] == "hat" else "keep")

    def leaf(name):
        return lambda state: ran.append(name) or {"log": [name]}

    builder = StateGraph(Order)
    builder.add_node("decide", decide, destinations=("ship", "keep"))
    builder.add_node("ship", leaf("ship"))
    builder.add_node("keep", leaf("keep"))
    builder.add_edge(START, "decide")
    config = thread()
    half.invoke(
        builder.compile(checkpointer=saver, interrupt_after=["decide"]),
        {"item": "hat", "log": []},
        config,
    )
    assert ran == []

    final = half.invoke(builder.compile(checkpointer=reopen()), None, config)

    assert ran == ["ship"]
    assert final["log"] == ["decided", "ship"]


def test_static_breakpoints_stop_before_and_after_and_go_on(half, reopen, thread):
    config = thread()
    ran = []
    breakpoints = {"interrupt_before": ["total"], "interrupt_after": ["total"]}

    half.invoke(build_report(ran).compile(checkpointer=reopen(), **breakpoints), {}, config)
    assert sorted(ran) == sorted(SOURCES)
    half.invoke(build_report(ran).compile(checkpointer=reopen(), **breakpoints), None, config)
    assert ran[-1] == "total"
    state = half.get_state(build_report([]).compile(checkpointer=reopen()), config)

    assert state.next == ()
    assert state.values["total"] == 3
