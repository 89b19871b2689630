"""`thread.put`, and who looks whether a version stands for one value."""

import dataclasses
import json
import sys
import types

import pytest

import threadline
from threadline.langgraph import Checkpointer
from threadline.testing.making import checkpoint, place

LOOP = {"source": "loop", "step": 0}
KEY = threadline.KeyRing({"k": bytes(32)})


@pytest.fixture
def shop():
    """A module of an application, whose class can be changed."""
    module = types.ModuleType("waits_shop")
    sys.modules[module.__name__] = module

    def define(*fields):
        made = dataclasses.make_dataclass("Order", fields)
        made.__module__, module.Order = module.__name__, made
        return made

    module.define = define
    yield module
    del sys.modules[module.__name__]


def put_twice(saver, first, second):
    """Two checkpoints that give one channel two values under one version."""
    config = saver.put(place("t"), checkpoint({"a": first}), LOOP, {"a": 1})
    return saver.put(config, checkpoint({"a": second}), LOOP, {})


def test_a_checkpointer_leaves_versions_to_the_graph(connect, url):
    with Checkpointer(url) as saver:
        config = put_twice(saver, [1], [1, 2])
        # The version says that nothing changed, so the parent's value counts.
        assert saver.get(config)["channel_values"] == {"a": [1]}


def test_the_error_explains_what_a_version_is(connect, url):
    saver = connect(url)
    with pytest.raises(threadline.InvalidRequest) as refused:
        put_twice(saver, [1], [1, 2])
    for words in ("thread 't'", "channel 'a'", "same version 1", "new_versions", "get_next_version", "thread.put()"):
        assert words in str(refused.value)
    assert saver.thread("t").state() == {"a": [1]}
    assert len(saver.thread("t").log()) == 1


@pytest.mark.parametrize("is_remembered", [True, False])
def test_a_class_that_got_a_field_makes_no_other_value(connect, url, shop, is_remembered):
    order = shop.define(("item", str))
    saver = connect(url)
    config = saver.put(place("t"), checkpoint({"a": [order("bike")]}), LOOP, {"a": 1})
    shop.define(("item", str), ("price", int, dataclasses.field(default=0)))
    reader = saver if is_remembered else connect(url)
    if is_remembered:
        saver.clear_cache()
        saver.thread("t").put({"b": 1})
        config = saver.get_tuple(place("t")).config
    made = threadline.copy_checkpoint(reader.get(config))
    made["id"] = threadline.empty_checkpoint()["id"]
    again = reader.put(config, made, LOOP, {})
    assert reader.get(again)["channel_values"]["a"] == [shop.Order("bike")]


def test_values_of_another_serializer_are_not_compared(connect, url):
    class Counting:
        """Packs nothing to the same bytes twice."""

        calls = 0

        def dumps_typed(self, value):
            self.calls += 1
            return "counted", json.dumps([self.calls, value]).encode()

        def loads_typed(self, typed):
            return json.loads(typed[1])[1]

    saver = connect(url, serde=Counting())
    config = put_twice(saver, [1], [1])
    assert saver.get(config)["channel_values"] == {"a": [1]}


def test_values_are_put_in_an_encrypted_store(connect, url, half):
    thread = connect(url, encryption=KEY).thread("t")
    half.call(thread, "put", {"a": ["x" * 400] * 20, "b": 1})
    other = connect(url, encryption=KEY)
    point = half.call(other.thread("t"), "put", {"a": ["x" * 400] * 20, "b": 2})
    assert other.get(point.config)["channel_versions"] == {"a": 1, "b": 2}
    assert thread.state() == {"a": ["x" * 400] * 20, "b": 2}
    made = threadline.copy_checkpoint(other.get(point.config))
    made["id"], made["channel_values"]["a"] = threadline.empty_checkpoint()["id"], []
    for saver in (other, connect(url, encryption=KEY)):
        with pytest.raises(threadline.InvalidRequest, match="'a' has another value"):
            saver.put(point.config, made, LOOP, {})


def test_a_thread_of_a_graph_goes_on_after_a_put(connect, url):
    from langgraph.graph import START, MessagesState, StateGraph

    with Checkpointer(url) as saver:
        builder = StateGraph(MessagesState)
        builder.add_node("say", lambda state: {"messages": [("ai", f"heard {len(state['messages'])}")]})
        graph = builder.add_edge(START, "say").compile(checkpointer=saver)
        config = {"configurable": {"thread_id": "t"}}
        graph.invoke({"messages": [("user", "hello")]}, config)
        saver.thread("t").put({"note": "seen by a person"})
        assert saver.thread("t").state()["note"] == "seen by a person"
        graph.invoke({"messages": [("user", "again")]}, config)
        said = [message.content for message in graph.get_state(config).values["messages"]]
        assert said == ["hello", "heard 1", "again", "heard 3"]
