"""Agents and fan-outs: the two shapes of graph that most users of a checkpointer have."""

import operator
from itertools import pairwise
from typing import Annotated, TypedDict

import pytest
from langchain_core.messages import AIMessage, HumanMessage, RemoveMessage, ToolMessage
from langgraph.graph import END, START, MessagesState, StateGraph
from langgraph.types import Send

# What the model says next depends only on what it has seen: no network, no chance.
TOOLS = {"add": lambda a, b: a + b, "multiply": lambda a, b: a * b}
PLAN = [
    {"name": "add", "args": {"a": 2, "b": 3}, "id": "call-add"},
    {"name": "multiply", "args": {"a": 5, "b": 7}, "id": "call-multiply"},
]


def model(state):
    """Ask for the tools of the plan one by one, then sum up the results since the question."""
    messages = state["messages"]
    asked_at = max(at for at, message in enumerate(messages) if message.type == "human")
    results = [message.content for message in messages[asked_at:] if message.type == "tool"]
    turn = sum(message.type == "human" for message in messages)
    if len(results) < len(PLAN):
        call = {**PLAN[len(results)], "id": f"{PLAN[len(results)]['id']}-{turn}"}
        reply = AIMessage("", tool_calls=[call], id=f"ai-{turn}-{len(results)}")
    else:
        reply = AIMessage("results: " + ", ".join(results), id=f"ai-{turn}-end")
    return {"messages": [reply]}


def tools(state):
    return {
        "messages": [
            ToolMessage(
                str(TOOLS[call["name"]](**call["args"])),
                tool_call_id=call["id"],
                name=call["name"],
                id=f"tool-{call['id']}",
            )
            for call in state["messages"][-1].tool_calls
        ]
    }


def after_model(state):
    return "tools" if state["messages"][-1].tool_calls else END


def build_agent():
    builder = StateGraph(MessagesState)
    builder.add_node("model", model)
    builder.add_node("tools", tools)
    builder.add_edge(START, "model")
    builder.add_conditional_edges("model", after_model, ["tools", END])
    builder.add_edge("tools", "model")
    return builder


def question(text, id):
    return {"messages": [HumanMessage(text, id=id)]}


def test_an_agent_loop_keeps_every_message_and_tool_call(half, saver, reopen, thread):
    config = thread()
    final = half.invoke(build_agent().compile(checkpointer=saver), question("go", "h1"), config)

    stored = half.get_state(build_agent().compile(checkpointer=reopen()), config)

    assert stored.values["messages"] == final["messages"]
    assert [message.type for message in final["messages"]] == ["human", "ai", "tool", "ai", "tool", "ai"]
    assert stored.values["messages"][1].tool_calls == [
        {"name": "add", "args": {"a": 2, "b": 3}, "id": "call-add-1", "type": "tool_call"}
    ]
    assert stored.values["messages"][-1].content == "results: 5, 35"
    assert stored.next == ()


def test_a_conversation_goes_on_in_another_saver(half, reopen, thread):
    config = thread()
    for turn in range(1, 4):
        graph = build_agent().compile(checkpointer=reopen())
        final = half.invoke(graph, question(f"turn {turn}", f"h{turn}"), config)

    asked = [message.content for message in final["messages"] if message.type == "human"]
    assert asked == ["turn 1", "turn 2", "turn 3"]
    assert len(final["messages"]) == 3 * 6
    assert len({message.id for message in final["messages"]}) == 3 * 6


def test_every_step_of_an_agent_has_the_messages_of_its_moment(half, saver, thread):
    config = thread()
    graph = build_agent().compile(checkpointer=saver)
    half.invoke(graph, question("go", "h1"), config)

    history = half.get_state_history(graph, config)

    assert [len(snapshot.values["messages"]) for snapshot in history] == [6, 5, 4, 3, 2, 1, 0]
    assert [snapshot.metadata["step"] for snapshot in history] == [5, 4, 3, 2, 1, 0, -1]
    assert [snapshot.next for snapshot in history] == [
        (),
        ("model",),
        ("tools",),
        ("model",),
        ("tools",),
        ("model",),
        ("__start__",),
    ]
    for newer, older in pairwise(history):
        assert newer.parent_config["configurable"] == older.config["configurable"]


def test_removed_and_replaced_messages_are_so_after_reopening(half, saver, reopen, thread):
    config = thread()
    graph = build_agent().compile(checkpointer=saver)
    half.invoke(graph, question("go", "h1"), config)

    changes = [RemoveMessage(id="ai-1-0"), HumanMessage("gone over again", id="h1")]
    half.update_state(graph, config, {"messages": changes})

    stored = half.get_state(build_agent().compile(checkpointer=reopen()), config)
    assert "ai-1-0" not in [message.id for message in stored.values["messages"]]
    assert stored.values["messages"][0].content == "gone over again"
    assert len(stored.values["messages"]) == 5


def test_threads_of_one_saver_do_not_mix(half, saver, thread):
    graph = build_agent().compile(checkpointer=saver)
    for name in ("ann", "bob", "ann/bob", "ann:bob", "ANN"):
        half.invoke(graph, question(f"I am {name}", "h1"), thread(name))

    for name in ("ann", "bob", "ann/bob", "ann:bob", "ANN"):
        messages = half.get_state(graph, thread(name)).values["messages"]
        assert [m.content for m in messages if m.type == "human"] == [f"I am {name}"]


class FanOut(TypedDict):
    subjects: list[str]
    jokes: Annotated[list[str], operator.add]
    best: str


def build_fan_out(ran, before=lambda subject: None):
    """Write a joke on each subject side by side, then choose; `ran` counts what really ran."""

    def write(state):
        before(state["subject"])
        ran.append(state["subject"])
        return {"jokes": [f"a joke on {state['subject']}"]}

    builder = StateGraph(FanOut)
    builder.add_node("plan", lambda state: {"subjects": state["subjects"]})
    builder.add_node("write", write)
    builder.add_node("choose", lambda state: {"best": max(state["jokes"], key=len)})
    builder.add_edge(START, "plan")
    builder.add_conditional_edges(
        "plan", lambda state: [Send("write", {"subject": s}) for s in state["subjects"]], ["write"]
    )
    builder.add_edge("write", "choose")
    builder.add_edge("choose", END)
    return builder


SUBJECTS = ["cats", "databases", "Monday", "event loops", "tea"]


def test_a_fan_out_joins_in_the_order_of_its_sends(half, saver, reopen, thread):
    config = thread()
    ran = []
    graph = build_fan_out(ran).compile(checkpointer=saver)
    final = half.invoke(graph, {"subjects": SUBJECTS, "jokes": []}, config)

    stored = half.get_state(build_fan_out([]).compile(checkpointer=reopen()), config)
    assert final["jokes"] == [f"a joke on {subject}" for subject in SUBJECTS]
    assert stored.values == final
    assert final["best"] == "a joke on event loops"
    assert sorted(ran) == sorted(SUBJECTS)


def test_sends_wait_in_the_checkpoint_between_plan_and_fan_out(half, saver, reopen, thread):
    config = thread()
    ran = []
    graph = build_fan_out(ran).compile(checkpointer=saver, interrupt_after=["plan"])
    half.invoke(graph, {"subjects": SUBJECTS, "jokes": []}, config)

    paused = half.get_state(build_fan_out([]).compile(checkpointer=reopen()), config)
    assert paused.next == ("write",) * len(SUBJECTS)
    assert ran == []

    final = half.invoke(build_fan_out(ran).compile(checkpointer=reopen()), None, config)
    assert final["jokes"] == [f"a joke on {subject}" for subject in SUBJECTS]


@pytest.mark.parametrize("victim", [SUBJECTS[0], SUBJECTS[2]])
def test_only_the_failed_send_runs_again(half, saver, reopen, thread, stored_writes, victim):
    config = thread()
    ran = []

    def fail_when_the_others_are_stored(subject):
        if subject == victim:
            stored_writes(saver, config, "jokes", count=len(SUBJECTS) - 1)
            raise RuntimeError("the writer has a cold")

    failing = build_fan_out(ran, before=fail_when_the_others_are_stored)
    with pytest.raises(RuntimeError, match="cold"):
        half.invoke(failing.compile(checkpointer=saver), {"subjects": SUBJECTS, "jokes": []}, config)
    assert sorted(ran) == sorted(set(SUBJECTS) - {victim})

    again = []
    final = half.invoke(build_fan_out(again).compile(checkpointer=reopen()), None, config)

    assert again == [victim]
    assert final["jokes"] == [f"a joke on {subject}" for subject in SUBJECTS]
