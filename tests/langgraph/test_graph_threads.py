"""The life of a thread: deleted, copied, pruned, or freed of a run; graphs go on after it."""

import operator
from typing import Annotated, TypedDict

from langgraph.graph import END, START, StateGraph
from langgraph.types import Command, interrupt


class Notes(TypedDict):
    notes: Annotated[list[str], operator.add]


def build(ask=False, thought=None):
    """Note the input twice; a subgraph thinks in between and, with `ask`, asks a question."""

    def last(state):
        return state["notes"][-1]

    def think(state):
        if thought is not None:
            thought.append(last(state))
        return {"notes": [f"thought of {last(state)}"]}

    inner = StateGraph(Notes)
    inner.add_node("think", think)
    inner.add_node("ask", lambda state: {"notes": [interrupt("and?") if ask else "and"]})
    inner.add_edge(START, "think")
    inner.add_edge("think", "ask")

    builder = StateGraph(Notes)
    builder.add_node("first", lambda state: {"notes": [f"first {last(state)}"]})
    builder.add_node("inner", lambda state: {"notes": inner_graph.invoke({"notes": [last(state)]})["notes"][1:]})
    builder.add_node("second", lambda state: {"notes": [f"second {last(state)}"]})
    inner_graph = inner.compile()
    builder.add_edge(START, "first")
    builder.add_edge("first", "inner")
    builder.add_edge("inner", "second")
    builder.add_edge("second", END)
    return builder


def note(text):
    return {"notes": [text]}


def expected(*texts, answer="and"):
    return [
        line
        for text in texts
        for line in (text, f"first {text}", f"thought of first {text}", answer, f"second {answer}")
    ]


def test_a_deleted_thread_is_gone_in_every_namespace(half, saver, reopen, thread):
    half.invoke(build(ask=True).compile(checkpointer=saver), note("x"), thread("gone"))
    half.invoke(build().compile(checkpointer=saver), note("y"), thread("kept"))

    half.call(saver, "delete_thread", "gone")

    for each in (saver, reopen()):
        graph = build().compile(checkpointer=each)
        assert half.collect(each, "list", thread("gone")) == []
        assert half.get_state(graph, thread("gone")).values == {}
        assert half.get_state(graph, thread("kept")).values["notes"] == expected("y")
        named = {found.config["configurable"]["thread_id"] for found in half.collect(each, "list", None)}
        assert named == {"kept"}


def test_the_id_of_a_deleted_thread_is_used_again_at_once(half, saver, reopen, thread):
    graph = build().compile(checkpointer=saver)
    for number in range(3):
        half.invoke(graph, note(f"a{number}"), thread())
        final = half.invoke(graph, note(f"b{number}"), thread())
        assert final["notes"] == expected(f"a{number}", f"b{number}")
        other = build().compile(checkpointer=reopen())
        assert half.get_state(other, thread()).values == final
        half.call(saver, "delete_thread", "thread-1")

    assert half.get_state(graph, thread()).values == {}


def test_a_second_saver_starts_anew_after_the_first_deleted(half, saver, reopen, thread):
    ours, theirs = saver, reopen()
    half.invoke(build().compile(checkpointer=ours), note("old"), thread())
    half.invoke(build().compile(checkpointer=theirs), note("older"), thread())

    half.call(ours, "delete_thread", "thread-1")

    final = half.invoke(build().compile(checkpointer=theirs), note("old"), thread())
    assert final["notes"] == expected("old")
    assert half.get_state(build().compile(checkpointer=ours), thread()).values == final


def test_deleting_a_waiting_thread_forgets_its_question(half, saver, thread):
    graph = build(ask=True).compile(checkpointer=saver)
    half.invoke(graph, note("x"), thread())
    half.call(saver, "delete_thread", "thread-1")

    asked = half.invoke(graph, note("y"), thread())
    assert [each.value for each in asked["__interrupt__"]] == ["and?"]
    final = half.invoke(graph, Command(resume="so"), thread())

    assert final["notes"] == expected("y", answer="so")


def test_deleting_an_unknown_thread_is_not_an_error(half, saver, thread):
    half.call(saver, "delete_thread", "never seen")

    assert half.collect(saver, "list", thread("never seen")) == []


def test_a_copy_and_its_origin_go_on_apart(half, saver, reopen, thread):
    half.invoke(build().compile(checkpointer=saver), note("shared"), thread("origin"))
    half.call(saver, "copy_thread", "origin", "copy")

    graph = build().compile(checkpointer=reopen())
    copy = half.invoke(graph, note("mine"), thread("copy"))
    origin = half.invoke(graph, note("yours"), thread("origin"))

    assert copy["notes"] == expected("shared", "mine")
    assert origin["notes"] == expected("shared", "yours")


def test_a_copy_has_the_whole_history_of_its_origin(half, saver, reopen, thread):
    graph = build().compile(checkpointer=saver)
    for text in ("one", "two"):
        half.invoke(graph, note(text), thread("origin"))
    half.call(saver, "copy_thread", "origin", "copy")

    other = build().compile(checkpointer=reopen())
    origin = half.get_state_history(other, thread("origin"))
    copy = half.get_state_history(other, thread("copy"))

    assert [each.values for each in copy] == [each.values for each in origin]
    assert [each.metadata for each in copy] == [each.metadata for each in origin]
    past = [each for each in copy if each.next == ("second",)][-1]
    assert half.invoke(other, None, past.config)["notes"] == expected("one")


def test_a_copy_of_a_waiting_thread_can_be_answered_differently(half, saver, reopen, thread):
    half.invoke(build(ask=True).compile(checkpointer=saver), note("x"), thread("origin"))
    half.call(saver, "copy_thread", "origin", "copy")

    graph = build(ask=True).compile(checkpointer=reopen())
    assert [each.value for each in half.get_state(graph, thread("copy")).interrupts] == ["and?"]
    answers = {
        name: half.invoke(graph, Command(resume=f"said {name}"), thread(name))["notes"] for name in ("copy", "origin")
    }

    assert answers["copy"] == expected("x", answer="said copy")
    assert answers["origin"] == expected("x", answer="said origin")


def test_a_copy_outlives_its_origin(half, saver, reopen, thread):
    half.invoke(build(ask=True).compile(checkpointer=saver), note("x"), thread("origin"))
    half.call(saver, "copy_thread", "origin", "copy")
    half.call(saver, "delete_thread", "origin")

    graph = build(ask=True).compile(checkpointer=reopen())
    final = half.invoke(graph, Command(resume="so"), thread("copy"))

    assert final["notes"] == expected("x", answer="so")
    assert half.get_state(graph, thread("origin")).values == {}


def test_pruning_keeps_the_newest_checkpoint_and_the_thread_goes_on(half, saver, reopen, thread):
    graph = build().compile(checkpointer=saver)
    for name in ("a", "b", "untouched"):
        half.invoke(graph, note(name), thread(name))
        half.invoke(graph, note(f"{name} again"), thread(name))
    whole = len(half.get_state_history(graph, thread("untouched")))

    half.call(saver, "prune", ["a", "b"], strategy="keep_latest")

    other = build().compile(checkpointer=reopen())
    assert len(half.get_state_history(other, thread("untouched"))) == whole == 10
    for name in ("a", "b"):
        (kept,) = half.get_state_history(other, thread(name))
        assert kept.values["notes"] == expected(name, f"{name} again")
        final = half.invoke(other, note("more"), thread(name))
        assert final["notes"] == expected(name, f"{name} again", "more")


def test_pruning_keeps_a_question_that_waits_in_a_subgraph(half, saver, reopen, thread):
    thought = []
    graph = build(ask=True, thought=thought).compile(checkpointer=saver)
    half.invoke(graph, note("x"), thread())
    half.call(saver, "prune", ["thread-1"])

    other = build(ask=True, thought=thought).compile(checkpointer=reopen())
    assert [each.value for each in half.get_state(other, thread()).interrupts] == ["and?"]
    final = half.invoke(other, Command(resume="so"), thread())

    assert final["notes"] == expected("x", answer="so")
    assert thought == ["first x"], "the subgraph went on from its own checkpoint"


def test_pruning_keeps_the_memory_of_a_subgraph(half, saver, reopen, thread):
    def build_with_memory():
        inner = StateGraph(Notes)
        inner.add_node("count", lambda state: {"notes": [str(len(state["notes"]))]})
        inner.add_edge(START, "count")
        builder = StateGraph(Notes)
        builder.add_node("memory", inner.compile(checkpointer=True))
        builder.add_edge(START, "memory")
        return builder

    def remembered(graph):
        return half.get_state(graph, thread(checkpoint_ns="memory")).values["notes"]

    graph = build_with_memory().compile(checkpointer=saver)
    for text in ("a", "b"):
        half.invoke(graph, note(text), thread())
    before = remembered(graph)
    half.call(saver, "prune", ["thread-1"])

    other = build_with_memory().compile(checkpointer=reopen())
    assert remembered(other) == before
    half.invoke(other, note("c"), thread())
    assert remembered(other)[: len(before)] == before
    assert len(remembered(other)) > len(before)


def test_pruning_a_copied_thread_leaves_the_copy_whole(half, saver, reopen, thread):
    graph = build().compile(checkpointer=saver)
    half.invoke(graph, note("x"), thread("origin"))
    half.call(saver, "copy_thread", "origin", "copy")
    before = [each.values for each in half.get_state_history(graph, thread("copy"))]

    half.call(saver, "prune", ["origin"])

    other = build().compile(checkpointer=reopen())
    assert [each.values for each in half.get_state_history(other, thread("copy"))] == before
    assert len(before) == 5


def test_pruning_with_delete_empties_only_the_threads_it_names(half, saver, reopen, thread):
    graph = build().compile(checkpointer=saver)
    for name in ("a", "b"):
        half.invoke(graph, note(name), thread(name))

    half.call(saver, "prune", ["a"], strategy="delete")

    other = build().compile(checkpointer=reopen())
    assert half.get_state(other, thread("a")).values == {}
    assert half.get_state(other, thread("b")).values["notes"] == expected("b")
    assert half.invoke(other, note("anew"), thread("a"))["notes"] == expected("anew")


def test_deleting_the_last_run_returns_a_thread_to_the_run_before(half, saver, reopen, thread):
    graph = build().compile(checkpointer=saver)
    for run in ("r1", "r2", "r3"):
        half.invoke(graph, note(run), {**thread(), "metadata": {"run_id": run}})

    half.call(saver, "delete_for_runs", ["r3"])

    other = build().compile(checkpointer=reopen())
    assert half.get_state(other, thread()).values["notes"] == expected("r1", "r2")
    assert half.invoke(other, note("r4"), thread())["notes"] == expected("r1", "r2", "r4")


def test_deleting_an_old_run_leaves_the_newer_ones_whole(half, saver, reopen, thread):
    graph = build().compile(checkpointer=saver)
    for run in ("r1", "r2"):
        half.invoke(graph, note(run), {**thread(), "metadata": {"run_id": run}})

    half.call(saver, "delete_for_runs", ["r1", "never seen"])

    history = half.get_state_history(build().compile(checkpointer=reopen()), thread())
    assert {each.metadata["run_id"] for each in history} == {"r2"}
    assert history[0].values["notes"] == expected("r1", "r2")
    assert len(history) == 5
