"""Serializers of LangGraph, or of one's own, passed as `serde=`."""

import codecs
import json
from types import SimpleNamespace
from typing import Any, TypedDict

import pytest
from langchain_core.messages import AIMessage, HumanMessage
from langgraph.checkpoint.serde.encrypted import EncryptedSerializer
from langgraph.checkpoint.serde.jsonplus import JsonPlusSerializer
from langgraph.graph import START, MessagesState, StateGraph
from langgraph.types import Command, interrupt

from threadline.langgraph import Checkpointer

SECRET = "the vault opens at a quarter past nine"
KEY = b"0123456789abcdef0123456789abcdef"


class Talk(MessagesState):
    facts: dict[str, Any]


def build():
    """A graph that has the secret in a channel, a pending write, a question and an answer."""

    def reply(state):
        answer = interrupt({"question": f"{SECRET}?"})
        return {"messages": [AIMessage(f"{SECRET}, {answer}", id="a1")]}

    builder = StateGraph(Talk)
    builder.add_node("note", lambda state: {"facts": {"secret": SECRET}})
    builder.add_node("reply", reply)
    builder.add_edge(START, "note")
    builder.add_edge("note", "reply")
    return builder


def given():
    return {"messages": [HumanMessage(SECRET, id="h1")], "facts": {"one": 1}}


def bytes_on_disk(folder):
    """All bytes of the database and of the files beside it."""
    return b"".join(path.read_bytes() for path in sorted(folder.glob("threads.db*")))


def aes(key=KEY):
    return EncryptedSerializer.from_pycryptodome_aes(key=key)


def test_an_encrypted_thread_is_readable_again_and_not_in_the_file(half, reopen, url, tmp_path, thread):
    half.invoke(build().compile(checkpointer=reopen(serde=aes())), given(), thread())
    waiting = build().compile(checkpointer=reopen(serde=aes()))
    assert half.get_state(waiting, thread()).interrupts[0].value == {"question": f"{SECRET}?"}
    written_while_waiting = bytes_on_disk(tmp_path)

    answering = build().compile(checkpointer=reopen(serde=aes()))
    final = half.invoke(answering, Command(resume=f"yes, {SECRET}"), thread())

    assert [message.content for message in final["messages"]] == [SECRET, f"{SECRET}, yes, {SECRET}"]
    stored = half.get_state(build().compile(checkpointer=reopen(serde=aes())), thread())
    assert stored.values == final
    assert final["facts"] == {"secret": SECRET}
    for on_disk in (written_while_waiting, bytes_on_disk(tmp_path)):
        assert bool(on_disk) == url.startswith("sqlite")
        assert b"quarter past nine" not in on_disk


def test_without_encryption_the_same_thread_is_in_the_file(half, sqlite_url, tmp_path, thread):
    """The control of the test above: it would see the secret if it were there."""
    with Checkpointer(sqlite_url) as saver:
        half.invoke(build().compile(checkpointer=saver), given(), thread())
        assert b"quarter past nine" in bytes_on_disk(tmp_path)


def test_a_wrong_key_is_an_error_and_never_a_value(half, sqlite_url, thread):
    with Checkpointer(sqlite_url, serde=aes()) as saver:
        half.invoke(build().compile(checkpointer=saver), given(), thread())

    # Which error it is, and whether opening or reading gives it, depends on the cipher; that it says
    # something, and no secret, does not.
    with pytest.raises(Exception, match=r".") as refused, Checkpointer(sqlite_url, serde=aes(KEY[::-1])) as other:
        half.get_state(build().compile(checkpointer=other), thread())
    assert "quarter past nine" not in str(refused.value)


def test_equal_values_of_one_encrypted_thread_still_share_their_place(half, tmp_path, thread):
    """Encryption that differs each time must not undo what makes long threads small."""
    sizes = {}
    for name, serde in (("plain", None), ("sealed", aes())):
        folder = tmp_path / name
        folder.mkdir()
        with Checkpointer(f"sqlite:///{folder / 'threads.db'}", serde=serde) as saver:
            builder = StateGraph(Talk)
            builder.add_node("reply", lambda state: {"messages": [AIMessage("ok " * 200)]})
            builder.add_edge(START, "reply")
            graph = builder.compile(checkpointer=saver)
            for turn in range(25):
                half.invoke(graph, {"messages": [HumanMessage(f"{turn} " * 200)]}, thread())
        sizes[name] = len(bytes_on_disk(folder))

    assert sizes["sealed"] < 3 * sizes["plain"]


def test_the_json_plus_serializer_keeps_messages_and_questions(half, reopen, thread):
    def saver():
        return reopen(serde=JsonPlusSerializer())

    half.invoke(build().compile(checkpointer=saver()), given(), thread())
    final = half.invoke(build().compile(checkpointer=saver()), Command(resume="yes"), thread())

    assert half.get_state(build().compile(checkpointer=saver()), thread()).values == final
    assert [type(message) for message in final["messages"]] == [HumanMessage, AIMessage]
    assert final["messages"][-1].content == f"{SECRET}, yes"


class Anything(TypedDict):
    value: Any


def build_keeper():
    builder = StateGraph(Anything)
    builder.add_node("keep", lambda state: {})
    builder.add_edge(START, "keep")
    return builder


def test_pickle_is_used_only_when_its_serializer_is_asked_for_it(half, reopen, thread):
    value = {"space": SimpleNamespace(a=1, b=[2])}
    asked = JsonPlusSerializer(pickle_fallback=True)
    half.invoke(build_keeper().compile(checkpointer=reopen(serde=asked)), {"value": value}, thread())

    stored = half.get_state(build_keeper().compile(checkpointer=reopen(serde=asked)), thread())
    assert stored.values["value"] == value

    with pytest.raises(TypeError):
        half.invoke(
            build_keeper().compile(checkpointer=reopen(serde=JsonPlusSerializer())),
            {"value": value},
            thread("not asked"),
        )


class Rot13Json:
    """A serializer such as a team may have of its own: plain JSON, lightly veiled."""

    def dumps_typed(self, value):
        return "rot13", codecs.encode(json.dumps(value), "rot13").encode()

    def loads_typed(self, typed):
        tag, stored = typed
        assert tag == "rot13"
        return json.loads(codecs.decode(stored.decode(), "rot13"))


def test_a_serializer_of_ones_own_writes_and_reads_every_value(half, sqlite_url, tmp_path, thread):
    value = {"list": [1, 2.5, None, True], "text": SECRET}
    with Checkpointer(sqlite_url, serde=Rot13Json()) as saver:
        half.invoke(build_keeper().compile(checkpointer=saver), {"value": value}, thread())

    with Checkpointer(sqlite_url, serde=Rot13Json()) as saver:
        stored = half.get_state(build_keeper().compile(checkpointer=saver), thread())
        assert stored.values == {"value": value}
        on_disk = bytes_on_disk(tmp_path)
    assert codecs.encode(SECRET, "rot13").encode() in on_disk
    assert SECRET.encode() not in on_disk


@pytest.mark.parametrize("options", [{}, {"trust_identity": True}, {"share_decoded": True}], ids=str)
def test_every_option_gives_the_same_states(half, reopen, thread, options):
    for turn in range(5):
        builder = StateGraph(Talk)
        builder.add_node(
            "reply",
            lambda state: {"messages": [AIMessage("ok")], "facts": {"n": len(state["messages"])}},
        )
        builder.add_edge(START, "reply")
        graph = builder.compile(checkpointer=reopen(**options))
        final = half.invoke(graph, {"messages": [HumanMessage(f"turn {turn}")]}, thread())

    plain = builder.compile(checkpointer=reopen())
    history = half.get_state_history(plain, thread())
    assert history[0].values == final
    assert [len(each.values["messages"]) for each in history if each.next == ()] == [10, 8, 6, 4, 2]
    assert final["facts"] == {"n": 9}
