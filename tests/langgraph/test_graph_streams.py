"""What a stream says about checkpoints is what the saver holds."""

import operator
from typing import Annotated, TypedDict

import pytest
from langgraph.graph import END, START, StateGraph
from langgraph.types import Command, interrupt


class Steps(TypedDict):
    done: Annotated[list[str], operator.add]


def build(ask=False):
    def second(state):
        return {"done": [interrupt("second?") if ask else "second"]}

    builder = StateGraph(Steps)
    builder.add_node("first", lambda state: {"done": ["first"]})
    builder.add_node("second", second)
    builder.add_edge(START, "first")
    builder.add_edge("first", "second")
    builder.add_edge("second", END)
    return builder


def test_values_are_the_states_of_history_in_order(half, saver, thread):
    graph = build().compile(checkpointer=saver)
    streamed = half.stream(graph, {"done": []}, thread(), stream_mode="values")

    history = half.get_state_history(graph, thread())

    assert streamed == [{"done": []}, {"done": ["first"]}, {"done": ["first", "second"]}]
    assert streamed == [each.values for each in reversed(history)][1:]


def test_updates_are_what_each_node_wrote(half, saver, thread):
    graph = build().compile(checkpointer=saver)

    streamed = half.stream(graph, {"done": []}, thread(), stream_mode="updates")

    assert streamed == [{"first": {"done": ["first"]}}, {"second": {"done": ["second"]}}]


def test_streamed_checkpoints_are_the_stored_ones(half, saver, thread):
    graph = build().compile(checkpointer=saver)
    streamed = half.stream(graph, {"done": []}, thread(), stream_mode="checkpoints")

    history = half.get_state_history(graph, thread())[::-1]

    def told(config):
        return config and config["configurable"]["checkpoint_id"]

    assert [told(each["config"]) for each in streamed] == [told(each.config) for each in history]
    assert [told(each["parent_config"]) for each in streamed] == [told(each.parent_config) for each in history]
    assert [each["values"] for each in streamed] == [each.values for each in history]
    assert [tuple(each["next"]) for each in streamed] == [each.next for each in history]
    assert [each["metadata"]["step"] for each in streamed] == [-1, 0, 1, 2]


def test_a_streamed_checkpoint_can_be_gone_back_to(half, saver, reopen, thread):
    graph = build().compile(checkpointer=saver)
    streamed = half.stream(graph, {"done": []}, thread(), stream_mode="checkpoints")
    (paused,) = [each for each in streamed if each["next"] == ["second"]]

    other = build().compile(checkpointer=reopen())
    again = half.stream(other, None, paused["config"], stream_mode="updates")

    assert again == [{"second": {"done": ["second"]}}]


def test_an_interrupt_is_streamed_and_the_stream_goes_on_after_it(half, saver, reopen, thread):
    graph = build(ask=True).compile(checkpointer=saver)
    first, asked = half.stream(graph, {"done": []}, thread(), stream_mode="updates")
    assert first == {"first": {"done": ["first"]}}
    assert [each.value for each in asked["__interrupt__"]] == ["second?"]

    other = build(ask=True).compile(checkpointer=reopen())
    rest = half.stream(other, Command(resume="yes"), thread(), stream_mode="updates")

    assert rest == [{"second": {"done": ["yes"]}}]


def test_several_modes_in_one_stream_agree(half, saver, thread):
    graph = build().compile(checkpointer=saver)

    streamed = half.stream(graph, {"done": []}, thread(), stream_mode=["values", "updates", "checkpoints"])

    values = [chunk for mode, chunk in streamed if mode == "values"]
    updates = [chunk for mode, chunk in streamed if mode == "updates"]
    checkpoints = [chunk for mode, chunk in streamed if mode == "checkpoints"]
    assert values == [each["values"] for each in checkpoints][1:]
    assert [list(update) for update in updates] == [["first"], ["second"]]


@pytest.mark.parametrize("subgraphs", [False, True])
def test_a_stream_of_subgraphs_names_the_stored_namespaces(half, saver, thread, subgraphs):
    outer = StateGraph(Steps)
    outer.add_node("inner", build().compile())
    outer.add_edge(START, "inner")
    graph = outer.compile(checkpointer=saver)

    streamed = half.stream(graph, {"done": []}, thread(), stream_mode="checkpoints", subgraphs=subgraphs)

    stored = half.collect(saver, "list", thread())
    if not subgraphs:
        assert all(each["config"]["configurable"]["checkpoint_ns"] == "" for each in streamed)
        assert len(streamed) == sum(each.config["configurable"]["checkpoint_ns"] == "" for each in stored)
        return
    told = {
        (
            each["config"]["configurable"]["checkpoint_ns"],
            each["config"]["configurable"]["checkpoint_id"],
        )
        for _, each in streamed
    }
    held = {
        (each.config["configurable"]["checkpoint_ns"], each.config["configurable"]["checkpoint_id"]) for each in stored
    }
    assert told == held
    assert {namespace.split(":")[0] for namespace, _ in held} == {"", "inner"}


def test_a_stream_left_early_keeps_what_was_streamed(saver, reopen, thread):
    graph = build().compile(checkpointer=saver)
    for update in graph.stream({"done": []}, thread(), stream_mode="updates", durability="sync"):
        assert update == {"first": {"done": ["first"]}}
        break

    other = build().compile(checkpointer=reopen())
    assert other.invoke(None, thread()) == {"done": ["first", "second"]}
