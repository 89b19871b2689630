"""Rolling back takes along what subgraphs remember from run to run: each is where it was at that checkpoint."""

import operator
from typing import Annotated, TypedDict

import pytest
from langgraph.graph import START, StateGraph
from langgraph.types import Command, interrupt


class Mind(TypedDict):
    said: str
    memory: Annotated[list[str], operator.add]
    heard: list[str]


class Person(TypedDict):
    said: str
    heard: list[str]


def mind(inner=None):
    """A graph that remembers what it was told, and may have another inside that does the same."""
    builder = StateGraph(Mind)
    builder.add_node("remember", lambda state: {"memory": [state["said"]]})
    builder.add_node("tell", lambda state: {"heard": state["memory"]})
    builder.add_edge(START, "remember")
    builder.add_edge("remember", "tell")
    if inner is not None:
        builder.add_node("inner", inner)
        builder.add_edge("tell", "inner")
    return builder


def person(*, nested=False, asks=False, after=1):
    """A graph whose subgraph keeps its state from run to run; only the `after`th run on reaches it."""
    builder = StateGraph(Person)
    inner = mind(mind().compile(checkpointer=True) if nested else None).compile(checkpointer=True)
    builder.add_node("hear", lambda state: {"said": interrupt("what?")} if asks else {})
    builder.add_node("mind", inner)
    builder.add_edge(START, "hear")
    builder.add_conditional_edges("hear", lambda state: "mind" if state["said"] >= f"word {after}" else "__end__")
    return builder


def words(*numbers):
    return [f"word {number}" for number in numbers]


def talk(half, graph, config, turns):
    """Where the thread is after each turn."""
    ends = []
    for turn in turns:
        half.invoke(graph, {"said": f"word {turn}", "heard": []}, config)
        ends.append(half.get_state(graph, config).config)
    return ends


@pytest.mark.parametrize("nested", [False, True])
@pytest.mark.parametrize("verb", ["rollback", "fork"])
def test_a_subgraph_remembers_what_it_knew_where_the_thread_was_rolled_back_to(
    half, saver, reopen, thread, verb, nested
):
    ends = talk(half, person(nested=nested).compile(checkpointer=saver), thread(), range(1, 6))
    half.call(reopen().thread("thread-1"), verb, ends[1])
    graph = person(nested=nested).compile(checkpointer=reopen())
    talk(half, graph, thread("twin"), [1, 2, 9])
    talk(half, graph, thread(), [9])
    assert half.get_state(graph, thread()).values == half.get_state(graph, thread("twin")).values
    # What came after is a branch of its own, and rolling forward finds what was known there.
    half.call(reopen().thread("thread-1"), verb, ends[4])
    talk(half, graph, thread("other twin"), [1, 2, 3, 4, 5, 9])
    talk(half, graph, thread(), [9])
    assert half.get_state(graph, thread()).values == half.get_state(graph, thread("other twin")).values


def test_a_subgraph_that_had_not_run_yet_begins_anew(half, saver, reopen, thread):
    ends = talk(half, person(after=3).compile(checkpointer=saver), thread(), range(1, 6))
    half.call(reopen().thread("thread-1"), "rollback", ends[1])
    graph = person(after=3).compile(checkpointer=reopen())
    assert half.invoke(graph, {"said": "word 7", "heard": []}, thread())["heard"] == words(7)
    assert half.invoke(graph, {"said": "word 8", "heard": []}, thread())["heard"] == words(7, 8)


def test_a_step_of_a_subgraph_goes_on_as_it_does_in_a_thread_forked_there(half, saver, reopen, thread):
    graph = person().compile(checkpointer=saver)
    talk(half, graph, thread(), range(1, 4))
    [before] = [
        one.config for one in half.get_state_history(graph, thread())
        if one.next == ("mind",) and one.values["said"] == "word 2"
    ]  # fmt: skip
    half.call(reopen().thread("thread-1"), "fork", before, to="thread-2")
    half.call(reopen().thread("thread-1"), "rollback", before)
    graph = person().compile(checkpointer=reopen())
    here, there = (half.invoke(graph, None, thread(name)) for name in ("thread-1", "thread-2"))
    assert here == there
    here, there = (
        half.invoke(graph, {"said": "word 9", "heard": []}, thread(name)) for name in ("thread-1", "thread-2")
    )
    assert here == there
    assert "word 3" not in here["heard"]


def test_a_rolled_back_thread_is_pruned_and_rolled_back_again(half, saver, reopen, thread):
    graph = person().compile(checkpointer=saver)
    ends = talk(half, graph, thread(), range(1, 5))
    one = half.call(reopen().thread("thread-1"), "rollback", ends[1])
    [after] = talk(half, graph, thread(), [8])
    half.call(reopen().thread("thread-1"), "tag", "here", after)
    talk(half, graph, thread(), [9])
    half.call(reopen().thread("thread-1"), "prune", keep_last=1)
    half.call(reopen().thread("thread-1"), "rollback", "here")
    graph = person().compile(checkpointer=reopen())
    assert half.invoke(graph, {"said": "word 99", "heard": []}, thread())["heard"] == words(1, 2, 8, 99)
    assert one.id > ends[-1]["configurable"]["checkpoint_id"]
    assert reopen().fsck().ok


def test_a_question_before_a_subgraph_is_asked_again_and_finds_what_was_known(half, saver, reopen, thread):
    graph = person(asks=True).compile(checkpointer=saver)
    for turn in (1, 2, 3):
        half.invoke(graph, {"said": "", "heard": []}, thread())
        half.invoke(graph, Command(resume=f"word {turn}"), thread())
        if turn == 2:
            end = half.get_state(graph, thread()).config
    half.call(reopen().thread("thread-1"), "rollback", end)
    graph = person(asks=True).compile(checkpointer=reopen())
    half.invoke(graph, {"said": "", "heard": []}, thread())
    assert half.invoke(graph, Command(resume="word 7"), thread())["heard"] == words(1, 2, 7)
