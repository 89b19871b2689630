"""Questions and answers, pauses: section 9."""

import operator
from typing import Annotated, Any

from oracle_table import case
from oracle_trial import Trial
from typing_extensions import TypedDict


class Log(TypedDict, total=False):
    l: Annotated[list, operator.add]
    a: str


def names(t: Trial, *wanted: str) -> dict[str, Any]:
    return {name: t.writes(l=[name]) for name in wanted}


def asks(t: Trial, *questions: str) -> Any:
    """A node that asks one question after the other."""
    return t.node(lambda state: {"l": [t.interrupt(question) for question in questions]})


@case("9.1")
def a_question_and_its_answer(t: Trial) -> Any:
    saver = t.saver()
    graph = t.graph(Log, {"x": asks(t, "name?"), **names(t, "y")}, [(t.START, "x"), ("x", "y")], checkpointer=saver)
    config = t.config()
    asked = t.modes(graph, {}, config)
    waiting = t.everything(graph, saver, config)
    answered = t.modes(graph, t.Command(resume="bob"), config)
    return {"asked": asked, "waiting": waiting, "answered": answered, **t.everything(graph, saver, config)}


@case("9.1")
def invoke_returns_the_question(t: Trial) -> Any:
    graph = t.graph(Log, {"x": asks(t, "name?")}, [(t.START, "x")], checkpointer=t.saver())
    return {
        "v1": t.invoke(graph, {"a": "in"}, t.config()),
        "v2": t.invoke(graph, {"a": "in"}, t.config("2"), version="v2"),
        "checkpoints": t.stream(graph, {"a": "in"}, t.config("3"), stream_mode=["checkpoints", "debug"]),
        "updates": t.stream(graph, {"a": "in"}, t.config("4")),
        "values v2": t.stream(graph, {"a": "in"}, t.config("5"), stream_mode="values", version="v2"),
    }


@case("9.4")
def questions_of_one_node_are_answered_in_order(t: Trial) -> Any:
    saver = t.saver()
    graph = t.graph(Log, {"x": asks(t, "one", "two", "three")}, [(t.START, "x")], checkpointer=saver)
    config = t.config()
    outs = [t.invoke(graph, {}, config)]
    for answer in (1, 2, 3):
        outs.append(t.invoke(graph, t.Command(resume=answer), config))
        outs.append(t.everything(graph, saver, config))
    return outs


@case("9.3")
def answers_by_id(t: Trial) -> Any:
    saver = t.saver()
    graph = t.graph(Log, {"x": asks(t, "x?"), "y": asks(t, "y?")}, [(t.START, "x"), (t.START, "y")], checkpointer=saver)
    config = t.config()
    asked = t.invoke(graph, {}, config)
    pending = t.snapshot(graph, config).interrupts
    refused = t.error(lambda: t.invoke(graph, t.Command(resume="one for two"), config), 44)
    answers = {question.id: f"answer to {question.value}" for question in pending}
    answered = t.invoke(graph, t.Command(resume=answers), config)
    return {"asked": asked, "refused": refused, "answered": answered, **t.everything(graph, saver, config)}


@case("9.3")
def resuming_when_nothing_is_pending(t: Trial) -> Any:
    saver = t.saver()
    graph = t.graph(Log, names(t, "x"), [(t.START, "x")], checkpointer=saver)
    done = t.invoke(graph, {}, t.config())
    return {
        "done": done,
        "again": t.invoke(graph, t.Command(resume="late"), t.config()),
        "unknown id": t.invoke(graph, t.Command(resume={"0" * 32: "late"}), t.config()),
        **t.everything(graph, saver, t.config()),
    }


def _only_the_answered_ran(ours: Any, theirs: Any) -> None:
    assert ours["ran"] == ["x", "y", "x"]
    assert sorted(theirs["ran"]) == ["x", "x", "y", "y"]
    for key in ("partly", "pending", "answered", "state"):
        assert ours[key] == theirs[key], key


@case("9.4", differs=_only_the_answered_ran)
def a_partial_answer_runs_only_its_task(t: Trial) -> Any:
    saver = t.saver()
    ran: list[str] = []

    def asking(name: str) -> Any:
        def act(state: Any) -> Any:
            ran.append(name)
            return {"l": [t.interrupt(f"{name}?")]}

        return act

    graph = t.graph(Log, {"x": asking("x"), "y": asking("y")}, [(t.START, "x"), (t.START, "y")], checkpointer=saver)
    config = t.config()
    t.invoke(graph, {}, config)
    first = next(question for question in t.snapshot(graph, config).interrupts if question.value == "x?")
    ran.sort()
    partly = t.stream(
        graph, t.Command(resume={first.id: "X"}), config, stream_mode=["values", "updates"], unordered=True
    )
    second = list(ran)
    pending = t.snapshot(graph, config)
    return {
        "partly": partly,
        "ran": second,
        "pending": [question.value for question in pending.interrupts],
        "answered": t.invoke(graph, t.Command(resume="Y"), config),
        "state": t.state(graph, config),
    }


@case("9.5")
def siblings_of_a_question_finish(t: Trial) -> Any:
    saver = t.saver()
    graph = t.graph(
        Log,
        {"ask": asks(t, "?"), **names(t, "ok", "end")},
        [(t.START, "ask"), (t.START, "ok"), ("ok", "end")],
        checkpointer=saver,
    )
    config = t.config()
    asked = t.stream(graph, {}, config, stream_mode="updates", unordered=True)
    waiting = t.everything(graph, saver, config)
    return {
        "asked": asked,
        "waiting": waiting,
        "answered": t.stream(graph, t.Command(resume="A"), config, stream_mode=["values", "updates"], unordered=True),
        **t.everything(graph, saver, config),
    }


@case("9.6")
def pauses_before_and_after(t: Trial) -> Any:
    outs = []
    for pause in (
        {"interrupt_before": ["y"]},
        {"interrupt_after": ["y"]},
        {"interrupt_before": "*"},
        {"interrupt_after": "*"},
    ):
        saver = t.saver()
        graph = t.graph(
            Log, names(t, "x", "y", "z"), [(t.START, "x"), ("x", "y"), ("y", "z")], checkpointer=saver, **pause
        )
        config = t.config()
        runs = [t.stream(graph, {}, config, stream_mode=["values", "updates", "checkpoints"])]
        for _ in range(4):
            runs.append(t.stream(graph, None, config, stream_mode=["values", "updates", "checkpoints"]))
        outs.append({"runs": runs, "stored": t.stored(saver, config), "out": t.invoke(graph, {}, t.config("2"))})
    return outs


@case("9.6")
def pauses_given_with_the_call(t: Trial) -> Any:
    saver = t.saver()
    graph = t.graph(Log, names(t, "x", "y"), [(t.START, "x"), ("x", "y")], checkpointer=saver)
    config = t.config()
    return {
        "paused": t.invoke(graph, {}, config, interrupt_before=["y"]),
        "still": t.invoke(graph, None, config, interrupt_before=["y"]),
        "on": t.invoke(graph, None, config),
        **t.everything(graph, saver, config),
    }


@case("9.7")
def new_input_over_a_pending_question(t: Trial) -> Any:
    saver = t.saver()
    graph = t.graph(Log, {"x": asks(t, "?")}, [(t.START, "x")], checkpointer=saver)
    config = t.config()
    t.invoke(graph, {"a": "one"}, config)
    return {
        "again": t.invoke(graph, {"a": "two"}, config),
        "answered": t.invoke(graph, t.Command(resume="A"), config),
        **t.everything(graph, saver, config),
    }


@case("9.7")
def a_command_without_answer_over_a_pending_question(t: Trial) -> Any:
    saver = t.saver()
    graph = t.graph(Log, {"x": asks(t, "?"), **names(t, "y")}, [(t.START, "x")], checkpointer=saver)
    config = t.config()
    t.invoke(graph, {"a": "one"}, config)
    return {
        "moved": t.stream(
            graph, t.Command(goto="y", update={"a": "moved"}), config, stream_mode="updates", unordered=True
        ),
        "waiting": t.everything(graph, saver, config),
        "answered": t.invoke(graph, t.Command(resume="A"), config),
        **t.everything(graph, saver, config),
    }


@case("9.7")
def answer_with_update_and_goto(t: Trial) -> Any:
    saver = t.saver()
    graph = t.graph(Log, {"x": asks(t, "?"), **names(t, "y")}, [(t.START, "x")], checkpointer=saver)
    config = t.config()
    t.invoke(graph, {"a": "one"}, config)
    command = t.Command(resume="A", update={"a": "two"}, goto="y")
    return {
        "answered": t.stream(graph, command, config, stream_mode=["values", "updates"], unordered=True),
        **t.everything(graph, saver, config),
    }


@case("9.7")
def nothing_as_input(t: Trial) -> Any:
    saver = t.saver()
    graph = t.graph(Log, {"x": asks(t, "?")}, [(t.START, "x")], checkpointer=saver)
    config = t.config()
    t.invoke(graph, {"a": "one"}, config)
    asked_again = t.invoke(graph, None, config)
    t.invoke(graph, t.Command(resume="A"), config)
    finished = t.invoke(graph, None, config)
    return {"asked again": asked_again, "finished": finished, "stored": t.stored(saver, config)}


@case("9.10")
def interrupting_without_a_saver(t: Trial) -> Any:
    graph = t.graph(Log, {"x": asks(t, "?")}, [(t.START, "x")])
    return {
        "asked": t.invoke(graph, {"a": "in"}),
        "resume": t.error(lambda: t.invoke(graph, t.Command(resume="A")), 12),
    }


@case("9.10")
def the_old_way_to_interrupt(t: Trial) -> Any:
    saver = t.saver()
    ok = [False]

    def act(state: Any) -> Any:
        if not ok[0]:
            raise t.NodeInterrupt("stop")
        return {"l": ["x"]}

    graph = t.graph(Log, {"x": t.node(act)}, [(t.START, "x")], checkpointer=saver)
    stopped = t.invoke(graph, {}, t.config())
    state = t.state(graph, t.config())
    ok[0] = True
    return {"stopped": stopped, "state": state, "on": t.invoke(graph, None, t.config())}


@case("9.9")
def an_answer_of_a_declared_shape(t: Trial) -> Any:
    saver = t.saver()
    graph = t.graph(
        Log,
        {"x": t.node(lambda s: {"l": [t.interrupt("age?", response_schema=int)]})},
        [(t.START, "x")],
        checkpointer=saver,
    )
    config = t.config()
    asked = t.invoke(graph, {}, config)
    refused = t.error(lambda: t.invoke(graph, t.Command(resume="many"), config), 0)
    state = t.state(graph, config)
    return {
        "asked": asked,
        "refused": refused,
        "next": state["next"],
        "answered": t.invoke(graph, t.Command(resume="7"), config),
    }


@case("9.4")
def a_retried_node_gets_its_answers_again(t: Trial) -> Any:
    saver = t.saver()
    fails = [True]

    def act(state: Any) -> Any:
        answer = t.interrupt("?")
        if fails[0]:
            fails[0] = False
            raise ConnectionError("again")
        return {"l": [answer]}

    policy = t.RetryPolicy(initial_interval=0.001, jitter=False)
    graph = t.graph(Log, {"x": (t.node(act), {"retry_policy": policy})}, [(t.START, "x")], checkpointer=saver)
    t.invoke(graph, {}, t.config())
    return {"out": t.invoke(graph, t.Command(resume="A"), t.config()), **t.everything(graph, saver, t.config())}


@case("9.2")
def sends_ask_each_for_itself(t: Trial) -> Any:
    saver = t.saver()
    builder = t.builder(
        Log, {"x": t.writes(), "w": t.node(lambda arg: {"l": [[arg, t.interrupt(arg)]]})}, [(t.START, "x")]
    )
    builder.add_conditional_edges("x", t.node(lambda s: [t.Send("w", name) for name in "ab"]), ["w"])
    graph = builder.compile(checkpointer=saver)
    config = t.config()
    asked = t.invoke(graph, {}, config)
    answers = {question.id: question.value.upper() for question in t.snapshot(graph, config).interrupts}
    waiting = t.everything(graph, saver, config)
    return {
        "asked": asked,
        "waiting": waiting,
        "answered": t.invoke(graph, t.Command(resume=answers), config),
        **t.everything(graph, saver, config),
    }


@case("9.7")
def a_command_leads_to_a_question(t: Trial) -> Any:
    saver = t.saver()
    graph = t.graph(Log, {"x": t.writes(l=["x"]), "ask": asks(t, "?")}, [(t.START, "x")], checkpointer=saver)
    config = t.config()
    t.invoke(graph, {"a": "in"}, config)
    asked = t.stream(graph, t.Command(goto="ask", update={"a": "new"}), config, stream_mode=["values", "updates"])
    waiting = t.everything(graph, saver, config)
    return {
        "asked": asked,
        "waiting": waiting,
        "answered": t.invoke(graph, t.Command(resume="A"), config),
        **t.everything(graph, saver, config),
    }


@case("9.7")
def new_input_discards_what_a_command_led_to(t: Trial) -> Any:
    saver = t.saver()
    graph = t.graph(Log, {"x": t.writes(l=["x"]), "ask": asks(t, "?")}, [(t.START, "x")], checkpointer=saver)
    config = t.config()
    t.invoke(graph, {"a": "in"}, config)
    t.invoke(graph, t.Command(goto="ask"), config)
    return {"out": t.invoke(graph, {"a": "new"}, config), **t.everything(graph, saver, config)}
