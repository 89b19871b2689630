"""`threadline.testing.crashes`: graphs of both libraries, killed around every storage operation."""

from __future__ import annotations

import operator
from typing import Annotated, Any

import langgraph.graph
import langgraph.types
import pytest
from langgraph.checkpoint.memory import InMemorySaver
from typing_extensions import TypedDict

import threadline.graph
from threadline.errors import InvalidRequest
from threadline.langgraph import Checkpointer
from threadline.testing import CrashReport, crashes

pytest_plugins = ["pytester"]

LIBRARIES = pytest.mark.parametrize("library", ["ours", "langgraph"])


class State(TypedDict):
    done: Annotated[list[str], operator.add]


def names_of(library: str) -> tuple[Any, Any]:
    if library == "ours":
        return threadline.graph, threadline.graph.interrupt
    return langgraph.graph, langgraph.types.interrupt


def chain(library: str, *names: str, effects: list[str] | None = None) -> Any:
    """Nodes one after the other; each notes that it ran."""
    graph, _ = names_of(library)

    def node(name: str) -> Any:
        def run(state: State) -> Any:
            if effects is not None:
                effects.append(name)
            return {"done": [name]}

        return run

    builder = graph.StateGraph(State)
    builder.add_sequence([(name, node(name)) for name in names]).add_edge(graph.START, names[0])
    return builder.compile()


@LIBRARIES
def test_a_chain_comes_to_the_same_end_wherever_it_crashes(library: str) -> None:
    report = crashes(chain(library, "a", "b", "c"), {"done": ["start"]})

    assert report.operations > 0
    assert len(report.runs) == 2 * report.operations
    assert {run.when for run in report.runs} == {"before", "after"}
    assert report.is_safe, str(report)
    assert "crashes around" in str(report)


@LIBRARIES
def test_a_state_that_depends_on_the_number_of_runs_is_found(library: str) -> None:
    graph, _ = names_of(library)
    calls: list[int] = []

    def count(state: State) -> Any:
        calls.append(1)
        return {"done": [str(len(calls))]}

    builder = graph.StateGraph(State).add_node(count)
    builder.add_edge(graph.START, "count")
    report = crashes(builder.compile(), {"done": []})

    assert not report.is_safe
    assert "the end is another one" in str(report)


@LIBRARIES
def test_nodes_that_ran_again_are_named(library: str) -> None:
    effects: list[str] = []
    report = crashes(chain(library, "a", "b", effects=effects), {"done": []})

    # Killed before its writes were stored, a node runs again; nothing can help that but `once`.
    assert set(report.repeated_nodes) >= {"a", "b"}
    assert len(effects) == 2 * (1 + len(report.runs)) + sum(report.repeated_nodes.values())


@LIBRARIES
@pytest.mark.parametrize("is_async", [False, True])
def test_questions_are_answered_again_after_a_crash(library: str, is_async: bool) -> None:
    graph, interrupt = names_of(library)

    def ask(state: State) -> Any:
        return {"done": [interrupt("name?"), interrupt("age?")]}

    builder = graph.StateGraph(State).add_node(ask)
    builder.add_edge(graph.START, "ask")
    report = crashes(builder.compile(), {"done": []}, answers={"name?": "Ada", "age?": "36"}, is_async=is_async)

    assert report.is_safe, str(report)


@LIBRARIES
def test_async_nodes(library: str) -> None:
    graph, _ = names_of(library)

    async def work(state: State) -> Any:
        return {"done": ["work"]}

    builder = graph.StateGraph(State).add_node(work)
    builder.add_edge(graph.START, "work")
    report = crashes(builder.compile(), {"done": []}, is_async=True)

    assert report.operations > 0
    assert report.is_safe, str(report)


@pytest.mark.parametrize("make_saver", [InMemorySaver, lambda: Checkpointer("memory://")], ids=["theirs", "ours"])
def test_any_saver_of_langgraph(make_saver: Any) -> None:
    report = crashes(chain("langgraph", "a", "b"), {"done": []}, make_saver=make_saver)
    assert report.is_safe, str(report)


@pytest.mark.parametrize("durability", ["sync", "async", "exit"])
def test_every_durability_comes_to_the_same_end(durability: str) -> None:
    report = crashes(chain("ours", "a", "b"), {"done": []}, durability=durability)
    assert report.is_safe, str(report)


def test_what_was_stored_under_once_is_never_done_again() -> None:
    charged: list[str] = []

    def pay(state: State, runtime: threadline.graph.Runtime[Any]) -> Any:
        receipt = runtime.once("charge", lambda: charged.append("charge") or f"receipt {len(state['done'])}")
        return {"done": [receipt]}

    builder = threadline.graph.StateGraph(State).add_node(pay)
    builder.add_edge(threadline.graph.START, "pay")
    report = crashes(builder.compile(), {"done": []})

    assert report.is_safe, str(report)
    # Once in each run, and twice in the one that was killed between the effect and its acknowledgement.
    assert len(charged) == 1 + len(report.runs) + 1


def test_answers_in_an_order_are_refused() -> None:
    with pytest.raises(InvalidRequest, match="ask again"):
        crashes(chain("ours", "a"), {"done": []}, answers=["yes"])  # type: ignore[arg-type]


def test_the_fixture_fails_a_test_whose_agent_does_not_survive(pytester: pytest.Pytester) -> None:
    pytester.makeconftest('pytest_plugins = ["threadline.testing.fixtures"]')
    pytester.makepyfile(
        """
        import itertools
        from typing import TypedDict
        from threadline.graph import START, StateGraph

        class State(TypedDict):
            value: int

        counter = itertools.count()

        def graph_of(node):
            return StateGraph(State).add_node("node", node).add_edge(START, "node").compile()

        def test_safe(survives_crashes):
            assert survives_crashes(graph_of(lambda state: {"value": 1}), {"value": 0}).operations

        def test_unsafe(survives_crashes):
            survives_crashes(graph_of(lambda state: {"value": next(counter)}), {"value": 0})

        def test_runs_twice(survives_crashes):
            survives_crashes(graph_of(lambda state: {"value": 1}), {"value": 0}, once=("node",))
        """
    )
    result = pytester.runpytest_inprocess("-q", "-p", "no:cacheprovider")
    result.assert_outcomes(passed=1, failed=2)
    result.stdout.fnmatch_lines(["*crashes around*", "*ran again after a crash: node*"])


@LIBRARIES
def test_writes_that_were_stored_are_not_stored_again(library: str) -> None:
    report = crashes(chain(library, "a", "b"), {"done": []})
    assert isinstance(report, CrashReport)
    assert report.repeated_writes == {}


@LIBRARIES
def test_writes_that_are_stored_again_are_named(library: str) -> None:
    """A task that asked has its question stored; when it asks again after a crash, so is the question."""
    graph, interrupt = names_of(library)
    builder = graph.StateGraph(State).add_node("ask", lambda state: {"done": [interrupt("name?")]})
    builder.add_edge(graph.START, "ask")
    report = crashes(builder.compile(), {"done": []}, answers={"name?": "Ada"})

    assert report.is_safe, str(report)
    assert ("ask", "__interrupt__") in report.repeated_writes
