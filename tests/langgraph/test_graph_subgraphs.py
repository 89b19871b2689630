"""Graphs inside graphs: each has its own namespace, and an interrupt in any of them resumes."""

import operator
from typing import Annotated, TypedDict

import pytest
from langgraph.graph import END, START, StateGraph
from langgraph.types import Command, interrupt


class Trail(TypedDict):
    trail: Annotated[list[str], operator.add]


class Draft(TypedDict):
    trail: Annotated[list[str], operator.add]
    secret: str


def chain(schema, *nodes):
    """A graph that runs the named nodes one after the other."""
    builder = StateGraph(schema)
    previous = START
    for name, node in nodes:
        builder.add_node(name, node)
        builder.add_edge(previous, name)
        previous = name
    builder.add_edge(previous, END)
    return builder


def step(name, ran):
    def node(state):
        ran.append(name)
        return {"trail": [name]}

    return node


def ask(name, ran):
    def node(state):
        ran.append(name)
        return {"trail": [f"{name}:{interrupt(f'{name}?')}"]}

    return node


def build_two_levels(ran):
    inner = chain(
        Draft,
        (
            "write",
            lambda state: ran.append("write") or {"trail": ["write"], "secret": "inner only"},
        ),
        ("approve", ask("approve", ran)),
    )
    return chain(
        Trail,
        ("before", step("before", ran)),
        ("inner", inner.compile()),
        ("after", step("after", ran)),
    )


def test_a_subgraph_asks_and_goes_on_without_repeating_its_steps(half, saver, reopen, thread):
    config = thread()
    ran = []
    asked = half.invoke(build_two_levels(ran).compile(checkpointer=saver), {"trail": []}, config)
    assert [question.value for question in asked["__interrupt__"]] == ["approve?"]
    assert ran == ["before", "write", "approve"]

    ran.clear()
    resumed = build_two_levels(ran).compile(checkpointer=reopen())
    final = half.invoke(resumed, Command(resume="yes"), config)

    assert ran == ["approve", "after"]
    # The trail of the subgraph starts with what it was given, and its parent adds all of it.
    assert final["trail"] == ["before", "before", "write", "approve:yes", "after"]


def test_the_state_of_a_waiting_subgraph_can_be_read_and_updated(half, saver, reopen, thread):
    config = thread()
    half.invoke(build_two_levels([]).compile(checkpointer=saver), {"trail": []}, config)

    graph = build_two_levels([]).compile(checkpointer=reopen())
    (task,) = half.get_state(graph, config, subgraphs=True).tasks
    inner = task.state
    assert inner.values == {"trail": ["before", "write"], "secret": "inner only"}
    assert inner.next == ("approve",)
    assert inner.config["configurable"]["checkpoint_ns"].startswith("inner:")

    half.update_state(graph, inner.config, {"secret": "seen", "trail": ["edited"]})
    (task,) = half.get_state(graph, config, subgraphs=True).tasks
    assert task.state.values["secret"] == "seen"
    final = half.invoke(graph, Command(resume="yes"), config)
    assert final["trail"][-3:] == ["edited", "approve:yes", "after"]


def test_a_subgraph_has_a_history_of_its_own(half, saver, thread):
    config = thread()
    graph = build_two_levels([]).compile(checkpointer=saver)
    half.invoke(graph, {"trail": []}, config)
    (task,) = half.get_state(graph, config, subgraphs=True).tasks
    namespace = task.state.config["configurable"]["checkpoint_ns"]

    inner = half.get_state_history(graph, thread(checkpoint_ns=namespace))
    outer = half.get_state_history(graph, config)

    assert [snapshot.metadata["step"] for snapshot in inner] == [1, 0, -1]
    assert [snapshot.metadata["step"] for snapshot in outer] == [1, 0, -1]
    outer_ids = {snapshot.config["configurable"]["checkpoint_id"] for snapshot in outer}
    inner_ids = {snapshot.config["configurable"]["checkpoint_id"] for snapshot in inner}
    assert not outer_ids & inner_ids
    assert inner[0].metadata["parents"] == {"": outer[0].config["configurable"]["checkpoint_id"]}


def build_three_levels(ran):
    innermost = chain(Trail, ("c1", step("c1", ran)), ("c2", ask("c2", ran)), ("c3", ask("c3", ran)))
    middle = chain(Trail, ("b1", step("b1", ran)), ("deep", innermost.compile()), ("b2", ask("b2", ran)))
    return chain(Trail, ("a1", step("a1", ran)), ("mid", middle.compile()), ("a2", step("a2", ran)))


def test_questions_two_graphs_deep_resume_level_by_level(half, reopen, thread):
    config = thread()
    ran = []

    def resume(value):
        ran.clear()
        graph = build_three_levels(ran).compile(checkpointer=reopen())
        return half.invoke(graph, value, config), list(ran)

    asked, first = resume({"trail": []})
    assert (asked["__interrupt__"][0].value, first) == ("c2?", ["a1", "b1", "c1", "c2"])
    asked, second = resume(Command(resume="one"))
    assert (asked["__interrupt__"][0].value, second) == ("c3?", ["c2", "c3"])
    asked, third = resume(Command(resume="two"))
    assert (asked["__interrupt__"][0].value, third) == ("b2?", ["c3", "b2"])
    final, fourth = resume(Command(resume="three"))
    assert fourth == ["b2", "a2"]

    said = [word for word in final["trail"] if ":" in word]
    assert list(dict.fromkeys(said)) == ["c2:one", "c3:two", "b2:three"]
    assert final["trail"][-1] == "a2"


def test_nested_namespaces_are_seen_from_the_root(half, saver, reopen, thread):
    config = thread()
    half.invoke(build_three_levels([]).compile(checkpointer=saver), {"trail": []}, config)

    state = half.get_state(build_three_levels([]).compile(checkpointer=reopen()), config, subgraphs=True)
    middle = state.tasks[0].state
    innermost = middle.tasks[0].state

    assert [s.next for s in (state, middle, innermost)] == [("mid",), ("deep",), ("c2",)]
    namespace = innermost.config["configurable"]["checkpoint_ns"]
    assert [part.split(":")[0] for part in namespace.split("|")] == ["mid", "deep"]
    assert innermost.values["trail"][-1] == "c1"
    assert innermost.tasks[0].interrupts[0].value == "c2?"


class Counter(TypedDict):
    word: str
    heard: Annotated[list[str], operator.add]


class Outer(TypedDict):
    word: str


def build_listener(ran):
    """A subgraph with a memory of its own (`checkpointer=True`) inside a graph without one."""

    def listen(state):
        ran.append(state["word"])
        return {"heard": [state["word"]]}

    def confirm(state):
        if state["word"] == "stop":
            return {"heard": [interrupt("really stop?")]}
        return {}

    memory = chain(Counter, ("listen", listen), ("confirm", confirm)).compile(checkpointer=True)
    return chain(Outer, ("memory", memory), ("done", lambda state: {"word": state["word"].upper()}))


def test_a_subgraph_with_its_own_memory_remembers_between_runs(half, reopen, thread):
    config = thread()
    for word in ("one", "two", "three"):
        final = half.invoke(build_listener([]).compile(checkpointer=reopen()), {"word": word}, config)
        assert final == {"word": word.upper()}

    graph = build_listener([]).compile(checkpointer=reopen())
    memory = half.get_state(graph, thread(checkpoint_ns="memory"))
    assert memory.values == {"word": "three", "heard": ["one", "two", "three"]}


def test_a_subgraph_with_its_own_memory_resumes_its_question(half, reopen, thread):
    config = thread()
    ran = []
    half.invoke(build_listener(ran).compile(checkpointer=reopen()), {"word": "go"}, config)
    asked = half.invoke(build_listener(ran).compile(checkpointer=reopen()), {"word": "stop"}, config)
    assert asked["__interrupt__"][0].value == "really stop?"

    graph = build_listener(ran).compile(checkpointer=reopen())
    final = half.invoke(graph, Command(resume="yes, really"), config)

    assert final == {"word": "STOP"}
    assert ran == ["go", "stop"]
    memory = half.get_state(graph, thread(checkpoint_ns="memory"))
    assert memory.values["heard"] == ["go", "stop", "yes, really"]


def test_a_memory_belongs_to_its_thread(half, saver, thread):
    graph = build_listener([]).compile(checkpointer=saver)
    half.invoke(graph, {"word": "mine"}, thread("a"))
    half.invoke(graph, {"word": "yours"}, thread("b"))

    memories = {
        name: half.get_state(graph, thread(name, checkpoint_ns="memory")).values["heard"] for name in ("a", "b")
    }
    assert memories == {"a": ["mine"], "b": ["yours"]}


def test_a_graph_called_inside_a_node_finds_its_namespace_again(half, saver, reopen, thread):
    ran = []
    inner = chain(Trail, ("c1", step("c1", ran)), ("c2", ask("c2", ran))).compile()

    def call_inner(state):
        ran.append("call")
        return {"trail": inner.invoke({"trail": []})["trail"]}

    builder = chain(Trail, ("call", call_inner), ("after", step("after", ran)))
    config = thread()
    half.invoke(builder.compile(checkpointer=saver), {"trail": []}, config)
    assert ran == ["call", "c1", "c2"]

    ran.clear()
    final = half.invoke(builder.compile(checkpointer=reopen()), Command(resume="yes"), config)

    # The node starts again, as LangGraph says it does; the finished step inside it does not.
    assert ran == ["call", "c2", "after"]
    assert final["trail"] == ["c1", "c2:yes", "after"]


@pytest.mark.parametrize("copies", [1, 3])
def test_subgraphs_side_by_side_each_have_a_question(half, reopen, thread, copies):
    config = thread()
    ran = []

    def build():
        builder = StateGraph(Trail)
        for number in range(copies):
            inner = chain(Trail, ("ask", ask(f"q{number}", ran)))
            builder.add_node(f"inner{number}", inner.compile())
            builder.add_edge(START, f"inner{number}")
        return builder

    asked = half.invoke(build().compile(checkpointer=reopen()), {"trail": []}, config)
    answers = {question.id: question.value.upper() for question in asked["__interrupt__"]}
    assert len(answers) == copies

    final = half.invoke(build().compile(checkpointer=reopen()), Command(resume=answers), config)

    assert final["trail"] == [f"q{number}:Q{number}?" for number in range(copies)]
