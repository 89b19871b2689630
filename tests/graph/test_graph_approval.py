"""Tools that a person decides about."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

import threadline
from threadline.errors import InvalidRequest
from threadline.graph import START, Command, MessagesState, StateGraph
from threadline.graph.approval import Approval, DecisionError, Review, approved

CONFIG = {"configurable": {"thread_id": "1"}}
EMAIL = {"name": "send", "args": {"to": "bob"}, "id": "c1"}
SEARCH = {"name": "search", "args": {"query": "x"}, "id": "c2"}


@pytest.fixture
def sent() -> list[str]:
    return []


@pytest.fixture
def tools(sent: list[str]) -> list[Any]:
    def send(to: str) -> str:
        sent.append(to)
        return f"sent to {to}"

    def search(query: str) -> list[str]:
        return [query]

    return [send, search]


def graph_of(tools: list[Any], *calls: dict[str, Any], **options: Any) -> Any:
    approval = Approval(tools, interrupt_on=options.pop("interrupt_on", {"send": True}), **options)
    builder = StateGraph(MessagesState)
    builder.add_node(
        "model", lambda state: {"messages": [{"role": "assistant", "content": "", "tool_calls": [*calls]}]}
    )
    builder.add_node("tools", approval)
    builder.add_edge(START, "model")
    builder.add_edge("model", "tools")
    return builder.compile(checkpointer=threadline.connect("memory://"))


def results(output: dict[str, Any]) -> list[tuple[str, str]]:
    return [(m["content"], m["status"]) for m in output["messages"] if m["role"] == "tool"]


def test_the_question_lists_the_calls_that_need_a_decision(tools: list[Any], sent: list[str]) -> None:
    output = graph_of(tools, EMAIL, SEARCH).invoke({"messages": ["hi"]}, CONFIG)
    (question,) = output["__interrupt__"]
    (request,) = question.value["action_requests"]
    assert (request["name"], request["args"]) == ("send", {"to": "bob"})
    assert "send" in request["description"]
    assert question.value["review_configs"] == [
        {"action_name": "send", "allowed_decisions": ["approve", "edit", "reject", "respond"]}
    ]
    assert sent == []


@pytest.mark.parametrize(
    ("decision", "expected", "ran"),
    [
        ({"type": "approve"}, ("sent to bob", "success"), ["bob"]),
        (
            {"type": "edit", "edited_action": {"name": "send", "args": {"to": "eve"}}},
            ("sent to eve", "success"),
            ["eve"],
        ),
        ({"type": "reject", "message": "not now"}, ("not now", "error"), []),
        ({"type": "respond", "message": "done by hand"}, ("done by hand", "success"), []),
    ],
)
def test_each_decision(tools: list[Any], sent: list[str], decision: Any, expected: Any, ran: list[str]) -> None:
    graph = graph_of(tools, EMAIL, SEARCH)
    graph.invoke({"messages": ["hi"]}, CONFIG)
    output = graph.invoke(Command(resume={"decisions": [decision]}), CONFIG)
    assert results(output) == [expected, ('["x"]', "success")]
    assert [m.get("tool_call_id") for m in output["messages"]][-2:] == ["c1", "c2"]
    assert sent == ran


def test_decisions_are_taken_in_order(tools: list[Any], sent: list[str]) -> None:
    second = {"name": "send", "args": {"to": "eve"}, "id": "c3"}
    graph = graph_of(tools, EMAIL, second)
    graph.invoke({"messages": ["hi"]}, CONFIG)
    output = graph.invoke(Command(resume={"decisions": [{"type": "reject"}, {"type": "approve"}]}), CONFIG)
    assert [status for _, status in results(output)] == ["error", "success"]
    assert sent == ["eve"]


@pytest.mark.parametrize(
    ("answer", "words"),
    [
        ({"decisions": []}, "send: 1 calls need a decision each, the answer has 0"),
        ({"decisions": [{"type": "edit"}]}, "send: the decision 'edit' is not one of approve, reject"),
        ("yes", "send: the answer is"),
    ],
)
def test_a_wrong_answer_names_the_call_and_can_be_given_again(
    tools: list[Any], sent: list[str], answer: Any, words: str
) -> None:
    graph = graph_of(tools, EMAIL, interrupt_on={"send": {"allowed_decisions": ["approve", "reject"]}})
    graph.invoke({"messages": ["hi"]}, CONFIG)
    with pytest.raises(DecisionError, match="send") as caught:
        graph.invoke(Command(resume=answer), CONFIG)
    assert str(caught.value).startswith(words)
    assert [question.value["action_requests"][0]["name"] for question in graph.get_state(CONFIG).interrupts] == ["send"]
    output = graph.invoke(Command(resume={"decisions": [{"type": "approve"}]}), CONFIG)
    assert results(output) == [("sent to bob", "success")]
    assert sent == ["bob"]


def test_an_edit_without_arguments_or_with_an_unknown_tool_is_refused(tools: list[Any]) -> None:
    for edited in ({"name": "send"}, {"name": "nothing", "args": {}}):
        graph = graph_of(tools, EMAIL)
        graph.invoke({"messages": ["hi"]}, CONFIG)
        with pytest.raises(DecisionError):
            graph.invoke(Command(resume={"decisions": [{"type": "edit", "edited_action": edited}]}), CONFIG)


def test_an_edit_does_not_lead_to_a_tool_whose_calls_cannot_be_edited(tools: list[Any], sent: list[str]) -> None:
    only = {"allowed_decisions": ["approve", "reject"]}
    graph = graph_of(tools, SEARCH, interrupt_on={"search": True, "send": only})
    graph.invoke({"messages": ["hi"]}, CONFIG)
    edit = {"type": "edit", "edited_action": {"name": "send", "args": {"to": "mallory"}}}
    with pytest.raises(DecisionError, match="search: the edited action names 'send', whose calls cannot be edited"):
        graph.invoke(Command(resume={"decisions": [edit]}), CONFIG)
    assert sent == []
    assert (
        graph.invoke(Command(resume={"decisions": [{"type": "approve"}]}), CONFIG)["messages"][-1]["name"] == "search"
    )


def test_calls_of_a_function_with_json_arguments(tools: list[Any]) -> None:
    call = {"id": "c1", "type": "function", "function": {"name": "search", "arguments": '{"query": "y"}'}}
    assert results(graph_of(tools, call).invoke({"messages": ["hi"]}, CONFIG)) == [('["y"]', "success")]


def test_async_tools(sent: list[str]) -> None:
    async def send(to: str) -> str:
        await asyncio.sleep(0)
        sent.append(to)
        return "ok"

    graph = graph_of([send], EMAIL)

    async def run() -> Any:
        await graph.ainvoke({"messages": ["hi"]}, CONFIG)
        return await graph.ainvoke(Command(resume={"decisions": [{"type": "approve"}]}), CONFIG)

    assert results(asyncio.run(run())) == [("ok", "success")]
    assert sent == ["bob"]


def test_descriptions_and_schemas_of_a_review(tools: list[Any]) -> None:
    review = Review(
        allowed_decisions=["approve"], description=lambda call: f"to {call.args['to']}?", args_schema={"a": 1}
    )
    output = graph_of(tools, EMAIL, interrupt_on={"send": review, "search": False}).invoke({"messages": ["hi"]}, CONFIG)
    asked = output["__interrupt__"][0].value
    assert asked["action_requests"][0]["description"] == "to bob?"
    assert asked["review_configs"] == [
        {"action_name": "send", "allowed_decisions": ["approve"], "args_schema": {"a": 1}}
    ]


def test_wrong_declarations_are_refused(tools: list[Any]) -> None:
    with pytest.raises(InvalidRequest, match="nowhere"):
        Approval(tools, interrupt_on={"nowhere": True})
    with pytest.raises(InvalidRequest, match="perhaps"):
        Approval(tools, interrupt_on={"send": {"allowed_decisions": ["perhaps"]}})


@pytest.mark.parametrize("wrong", ["yes", {"allow": ["approve"]}, None])
def test_what_is_no_review_is_told_with_what_one_has(tools: list[Any], wrong: Any) -> None:
    with pytest.raises(InvalidRequest, match="a dict of allowed_decisions, description, args_schema"):
        Approval(tools, interrupt_on={"send": wrong})


def test_a_wrapped_tool_asks_before_it_runs(tools: list[Any], sent: list[str]) -> None:
    send = approved(tools[0], allowed_decisions=["approve", "edit", "reject"])

    def node(state: Any) -> Any:
        return {"messages": [("assistant", send("bob"))]}

    builder = StateGraph(MessagesState)
    builder.add_node("node", node)
    builder.add_edge(START, "node")
    graph = builder.compile(checkpointer=threadline.connect("memory://"))
    asked = graph.invoke({"messages": ["hi"]}, CONFIG)
    assert asked["__interrupt__"][0].value["action_requests"][0]["args"] == {"to": "bob"}
    edit = {"type": "edit", "edited_action": {"name": "send", "args": {"to": "eve"}}}
    output = graph.invoke(Command(resume={"decisions": [edit]}), CONFIG)
    assert output["messages"][-1]["content"] == "sent to eve"
    assert sent == ["eve"]
