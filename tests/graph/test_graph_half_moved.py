"""A graph that moved by some of its import lines only: what is LangGraph's still is refused by name, never lost."""

from __future__ import annotations

import sys
from typing import Any

import pytest
from graph_making import CONFIG, START, State, chain, writes

import threadline
from threadline import graph as room

theirs = pytest.importorskip("langgraph.types", reason="LangGraph's own types are the subject")
GraphInterrupt = pytest.importorskip("langgraph.errors").GraphInterrupt


@pytest.mark.parametrize("many", [False, True], ids=["one", "list"])
def test_a_command_of_langgraph_is_refused(many: bool) -> None:
    command = theirs.Command(update={"l": ["lost"]}, goto="y")
    graph = chain(x=lambda state: [command] if many else command, y=writes("y"))
    with pytest.raises(
        room.InvalidUpdateError, match=r"'x' returned a Command of langgraph\.types: import Command from"
    ):
        graph.invoke({"l": []})


def test_a_send_of_langgraph_is_refused() -> None:
    builder = room.StateGraph(State).add_node("x", writes("x"))
    graph = builder.add_conditional_edges(START, lambda state: [theirs.Send("x", {})], ["x"]).compile()
    with pytest.raises(room.InvalidUpdateError, match=r"import Send from threadline\.graph"):
        graph.invoke({"l": []})


def test_an_answer_in_a_command_of_langgraph_leaves_the_question_open() -> None:
    graph = chain(threadline.connect("memory://"), x=lambda state: {"l": [room.interrupt("who?")]})
    graph.invoke({"l": []}, CONFIG)
    with pytest.raises(room.InvalidUpdateError, match=r"The input is a Command of langgraph\.types"):
        graph.invoke(theirs.Command(resume="Ada"), CONFIG)
    assert [one.value for one in graph.get_state(CONFIG).interrupts] == ["who?"]
    assert graph.invoke(room.Command(resume="Ada"), CONFIG) == {"l": ["Ada"]}


@pytest.mark.skipif(sys.version_info < (3, 11), reason="exceptions carry notes since Python 3.11")
def test_a_question_of_langgraph_names_the_import() -> None:
    def ask(state: Any) -> Any:
        return {"l": [theirs.interrupt("who?")]}

    # Without the bridge there is no config of LangChain's; with it, the question leaves the graph as an error.
    with pytest.raises((RuntimeError, GraphInterrupt)) as caught:
        chain(threadline.connect("memory://"), x=ask).invoke({"l": []}, CONFIG)
    assert "import it from threadline.graph" in caught.value.__notes__[-1]
