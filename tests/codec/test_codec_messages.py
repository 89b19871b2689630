"""LangChain's messages and documents, and LangGraph's own types, exactly as they were."""

import copy
import sys

import pytest
from codec_anatomy import anatomy
from codec_stores import put, values_at
from langchain_core.documents import Document
from langchain_core.messages import (
    AIMessage,
    AIMessageChunk,
    ChatMessage,
    FunctionMessage,
    HumanMessage,
    HumanMessageChunk,
    RemoveMessage,
    SystemMessage,
    ToolMessage,
    ToolMessageChunk,
)
from langgraph.checkpoint.serde.types import _DeltaSnapshot
from langgraph.store.base import GetOp, Item
from langgraph.types import Command, Interrupt, Overwrite, PregelTask, Send, StateSnapshot

import threadline
import threadline.langgraph
from threadline import NotAllowed
from threadline.codec import Codec, TypeRules

CALL = {"name": "search", "args": {"q": "x", "n": [1]}, "id": "call-1", "type": "tool_call"}


def edited_calls():
    message = AIMessage("", tool_calls=[copy.deepcopy(CALL)])
    message.tool_calls[0]["args"]["q"] = "edited"
    message.tool_calls.append({"name": 5, "args": "not a dict", "id": None, "extra": (1,)})
    return message


def with_attributes():
    message = HumanMessage("hi", id="1")
    message.note = {"seen": True}
    message.score = 0.5
    return message


def never_validated():
    message = HumanMessage("hi")
    message.content = ("a", 5)
    message.id = 7
    message.additional_kwargs = {1: bytearray(b"x")}
    return message


MESSAGES = {
    "human": lambda: HumanMessage("hi", id="1", name="me"),
    "human in parts": lambda: HumanMessage(
        [{"type": "text", "text": "a"}, {"type": "image_url", "image_url": {"url": "u"}}]
    ),
    "surrogates": lambda: HumanMessage("\ud800", additional_kwargs={"\udc00": "\ud800"}),
    "ai": lambda: AIMessage("yes", response_metadata={"tokens": [1, {"a": 2.0}]}, additional_kwargs={"k": (1, {2})}),
    "ai with calls": lambda: AIMessage("", tool_calls=[copy.deepcopy(CALL)], id="m"),
    "ai with usage": lambda: AIMessage(
        "x",
        usage_metadata={"input_tokens": 1, "output_tokens": 2, "total_tokens": 3, "input_token_details": {"audio": 1}},
    ),
    "ai with calls edited in place": edited_calls,
    "ai with bad calls": lambda: AIMessage(
        "", invalid_tool_calls=[{"name": "f", "args": "{", "id": "1", "error": "bad", "type": "invalid_tool_call"}]
    ),
    "ai chunk": lambda: AIMessageChunk("ye", tool_call_chunks=[{"name": "f", "args": "{", "id": "1", "index": 0}]),
    "ai chunks joined": lambda: AIMessageChunk("a", id="1") + AIMessageChunk("b", id="1"),
    "last ai chunk": lambda: AIMessageChunk("", chunk_position="last"),
    "human chunk": lambda: HumanMessageChunk("h"),
    "system": lambda: SystemMessage("be brief"),
    "chat": lambda: ChatMessage("x", role="critic"),
    "tool": lambda: ToolMessage("r", tool_call_id="call-1", artifact={"frame": (1, 2)}, status="error"),
    "tool chunk": lambda: ToolMessageChunk("r", tool_call_id="call-1"),
    "function": lambda: FunctionMessage("r", name="f"),
    "remove": lambda: RemoveMessage(id="gone"),
    "attributes": with_attributes,
    "never validated": never_validated,
    "document": lambda: Document("text", metadata={"page": 1, "where": (1, 2)}, id="d"),
}

LANGGRAPH = {
    "send": lambda: Send("node", {"deep": [HumanMessage("x", id="1"), (1,)]}),
    "command": lambda: Command(
        update={"a": [1, (2,)]}, goto=[Send("n", 1), "m"], resume={"i": 1}, graph=Command.PARENT
    ),
    "empty command": Command,
    "interrupt": lambda: Interrupt(value={"ask": ("you",)}, id="i1"),
    "overwrite": lambda: Overwrite([1, {2}]),
    "snapshot": lambda: _DeltaSnapshot([HumanMessage("x"), {1: 2}]),
    "item": lambda: Item(
        value={"a": 1},
        key="k",
        namespace=("n", "m"),
        created_at="2024-01-01T00:00:00",
        updated_at="2024-01-02T00:00:00",
    ),
    "operation": lambda: GetOp(("n",), "k"),
    "task": lambda: PregelTask("id", "name", ("path", 1), None, (Interrupt(value=1, id="i"),), None, {"r": 1}),
    "state": lambda: StateSnapshot({"a": 1}, ("n",), {"configurable": {}}, {"step": 1}, "now", None, (), ()),
}

every_message = pytest.mark.parametrize("make", MESSAGES.values(), ids=MESSAGES.keys())
every_type = pytest.mark.parametrize("make", LANGGRAPH.values(), ids=LANGGRAPH.keys())


def described(value):
    """LangGraph's own classes that are no data classes, by what they hold."""
    if isinstance(value, Send):
        return ("Send", value.node, anatomy(value.arg))
    if isinstance(value, Item):
        return ("Item", anatomy(value.dict()))
    if isinstance(value, Command):
        return ("Command", anatomy(value.update), [described(one) for one in value.goto], value.resume, value.graph)
    return anatomy(value)


@pytest.fixture(autouse=True)
def _types_of_langgraph():
    threadline.langgraph.InMemorySaver()  # registers them; the folder's fixture takes registrations back


@every_message
def test_a_message_comes_back_as_it_was(make, codec):
    packed = codec.encode(make())
    found = codec.decode(packed)
    assert anatomy(found) == anatomy(make())
    assert codec.encode(found) == packed
    assert anatomy(codec.decode(codec.encode({"deep": (make(),)}))["deep"][0]) == anatomy(make())


@every_type
def test_a_type_of_langgraph_comes_back_as_it_was(make, codec):
    packed = codec.encode(make())
    assert described(codec.decode(packed)) == described(make())
    assert codec.encode(codec.decode(packed)) == packed


@pytest.mark.parametrize("make", [*MESSAGES.values(), *LANGGRAPH.values()], ids=[*MESSAGES, *LANGGRAPH])
def test_strict_rules_allow_the_types_of_langchain_and_langgraph(make):
    strict = Codec(TypeRules("strict"))
    found = strict.decode(strict.encode(make()))
    assert described(found) == described(make())


def test_a_store_gives_messages_and_types_back(connect, monkeypatch):
    # A program that uses `threadline.graph` gets that room's classes; this one uses LangGraph alone.
    monkeypatch.delitem(sys.modules, "threadline.graph", raising=False)
    saver = connect()
    makers = {**MESSAGES, **LANGGRAPH}
    config = put(
        saver, {"list": [make() for make in makers.values()], **{name: make() for name, make in makers.items()}}
    )
    saver.put_writes(config, [(name, make()) for name, make in makers.items()], "task")
    for reader in (saver, connect(), connect(share_decoded=True)):
        found = reader.get_tuple(config)
        values = found.checkpoint["channel_values"]
        written = {channel: value for _, channel, value in found.pending_writes}
        for at, (name, make) in enumerate(makers.items()):
            for value in (values["list"][at], values[name], written[name]):
                assert described(value) == described(make()), name


def test_a_message_that_came_back_works_like_any_other(codec):
    found = codec.decode(codec.encode(AIMessage("a", tool_calls=[copy.deepcopy(CALL)], id="1")))
    assert found == AIMessage("a", tool_calls=[copy.deepcopy(CALL)], id="1")
    assert found.pretty_repr() == AIMessage("a", tool_calls=[copy.deepcopy(CALL)]).pretty_repr()
    assert found.model_copy(update={"content": "b"}).content == "b"
    assert copy.deepcopy(found) == found
    found.extra_note = 1
    assert found.model_extra == {"extra_note": 1}
    chunk = codec.decode(codec.encode(AIMessageChunk("a", id="1")))
    assert (chunk + AIMessageChunk("b", id="1")).content == "ab"


def test_a_message_subclass_of_a_program_comes_back_as_its_class(codec):
    assert type(codec.decode(codec.encode(RatedMessage("x", stars=4)))) is RatedMessage
    assert codec.decode(codec.encode(RatedMessage("x", stars=4))).stars == 4


class RatedMessage(HumanMessage):
    stars: int = 0


def test_a_process_that_only_imports_the_adapter_reads_them(run_script, tmp_path):
    saver = threadline.langgraph.Checkpointer(tmp_path / "threads.db")
    config = put(saver, {name: make() for name, make in {**MESSAGES, **LANGGRAPH}.items()})
    script = f"""
        import threadline, threadline.langgraph
        found = threadline.connect({str(tmp_path / "threads.db")!r}).get_tuple({config!r})
        values = found.checkpoint["channel_values"]
        print(len(values), type(values["send"]).__name__, type(values["ai"]).__name__, type(values["command"]).__name__)
    """
    assert run_script(script) == f"{len(MESSAGES) + len(LANGGRAPH)} Send AIMessage Command"


def test_a_process_without_langchain_says_what_it_lacks(run_script):
    packed = Codec().encode(HumanMessage("x")).hex()
    script = f"""
        import sys, threadline
        try:
            threadline.Serializer().loads(bytes.fromhex("{packed}"))
        except threadline.NotAllowed as error:
            print("langchain_core.messages.human:HumanMessage" in str(error), "langchain_core" in sys.modules)
    """
    assert run_script(script) == "True False"


def test_a_message_whose_class_has_other_fields_now_is_built_from_what_it_has(codec):
    packed = codec.encode(HumanMessage("x", id="1"))
    older = packed.replace(b"\xa4name\xc0", b"\xa4nome\xc0")
    assert older != packed
    found = codec.decode(older)
    assert (found.content, found.id, found.name) == ("x", "1", None)
    with pytest.raises(NotAllowed):
        codec.decode(packed.replace(b"\xa7content", b"\xa7contant"))


def test_messages_in_a_saver_stay_apart(connect):
    saver = connect()
    config = put(saver, {"messages": [AIMessage("a", additional_kwargs={"k": [1]})] * 3})
    one, two = values_at(saver, config)["messages"], values_at(saver, config)["messages"]
    one[0].additional_kwargs["k"].append(2)
    assert one[1].additional_kwargs == {"k": [1]}
    assert two[0].additional_kwargs == {"k": [1]}
