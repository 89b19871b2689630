"""Everything LangGraph's serializer writes, or once wrote, is read: as it reads it or better, under our rules."""

import datetime as dt
import decimal
import json
import pickle
import sys
import uuid
import warnings
from contextlib import suppress

import codec_kinds as kinds
import numpy as np
import pytest
from codec_anatomy import anatomy
from codec_values import MAKERS
from langchain_core.documents import Document
from langchain_core.load import dumpd
from langchain_core.messages import AIMessage, AIMessageChunk, HumanMessage, ToolMessage
from langgraph.checkpoint.serde.jsonplus import JsonPlusSerializer
from langgraph.checkpoint.serde.types import _DeltaSnapshot
from langgraph.store.base import Item
from langgraph.types import Command, Interrupt, Overwrite, Send

import threadline.langgraph
from threadline import Corrupt, NotAllowed, Serializer, register
from threadline.codec import Codec

pytestmark = pytest.mark.filterwarnings("ignore:Pydantic serializer warnings")
THEIRS = JsonPlusSerializer()
# What LangGraph cannot write is no part of what it wrote. Nor can it name a class inside a class.
WRITTEN = {}
with warnings.catch_warnings(action="ignore") if sys.version_info > (3, 11) else warnings.catch_warnings():
    for _name, _make in MAKERS.items():
        with suppress(TypeError):
            WRITTEN[_name] = (_make, THEIRS.dumps_typed(_make()))
assert {"list", "tuple", "dict", "dataclass", "model", "set", "datetime"} <= WRITTEN.keys()
NAMELESS = ("nested class", "nested enum")
# LangGraph loses these and we do not: sets that hold tuples, fields that its constructors refuse, enums of tuples.
BETTER = ("set", "dataclass with fields of all kinds", "enum of a tuple")


@pytest.fixture(autouse=True)
def _types_of_langgraph():
    threadline.langgraph.InMemorySaver()


@pytest.mark.parametrize("name", [name for name in WRITTEN if name not in NAMELESS])
def test_what_langgraph_wrote_is_read_as_langgraph_reads_it_or_better(name):
    make, written = WRITTEN[name]
    found = Serializer().loads_typed(written)
    assert anatomy(found) == anatomy(make() if name in BETTER else THEIRS.loads_typed(written))


# Inside another value LangGraph packs a bytearray as bytes.
@pytest.mark.parametrize("name", [name for name in WRITTEN if name not in (*NAMELESS, "bytearray", "no bytearray")])
def test_what_langgraph_wrote_deep_inside_is_read_the_same(name):
    make, _ = WRITTEN[name]
    deep = {"a": [make(), {"b": make()}]}
    found = Serializer().loads_typed(THEIRS.dumps_typed(deep))
    alone = Serializer().loads_typed(WRITTEN[name][1])
    assert anatomy(found) == anatomy({"a": [alone, {"b": alone}]})


@pytest.mark.parametrize("name", NAMELESS)
def test_a_class_that_langgraph_named_wrongly_is_refused_until_its_name_is_given(name):
    make, written = WRITTEN[name]
    with pytest.raises(NotAllowed, match=r"codec_kinds:(Inner|Level)"):
        Serializer().loads_typed(written)
    register(type(make()), aliases=[f"codec_kinds:{type(make()).__name__}"])
    assert type(Serializer().loads_typed(written)) is type(make())


@pytest.mark.parametrize(
    "make",
    [
        lambda: HumanMessage("x", id="1"),
        lambda: AIMessage("x", tool_calls=[{"name": "f", "args": {"a": 1}, "id": "c"}], response_metadata={"k": [1]}),
        lambda: AIMessageChunk("x", id="1"),
        lambda: ToolMessage("x", tool_call_id="c", artifact={"a": 1}),
        lambda: Document("text", metadata={"page": 1}),
        lambda: Interrupt(value=[1], id="i"),
        lambda: Overwrite([1]),
        lambda: _DeltaSnapshot([HumanMessage("x", id="1")]),
        lambda: kinds.Person(name="n", address=kinds.Address(street="s"), friends=[kinds.Person(name="m")]),
        lambda: kinds.OldPerson(name="n", address=kinds.OldAddress(street="s")),
        lambda: kinds.Open(a=1, more=[2]),
        lambda: np.arange(6).reshape(2, 3),
        lambda: np.asfortranarray(np.arange(6.0).reshape(2, 3)),
        lambda: np.array(5),
        lambda: {"k": [Interrupt(value=HumanMessage("deep", id="d"), id="i")]},
    ],
)
def test_types_of_langchain_and_langgraph_are_read_as_they_were(make):
    found = Serializer().loads_typed(THEIRS.dumps_typed(make()))
    theirs = THEIRS.loads_typed(THEIRS.dumps_typed(make()))
    assert anatomy(found) == anatomy(theirs)


def test_sends_commands_and_items_are_read_as_they_were():
    send = Serializer().loads_typed(THEIRS.dumps_typed(Send("node", {"m": HumanMessage("x", id="1")})))
    assert send == Send("node", {"m": HumanMessage("x", id="1")})
    command = Command(update={"a": 1}, goto=[Send("n", 1), "m"], resume="yes")
    assert Serializer().loads_typed(THEIRS.dumps_typed(command)) == command
    item = Item(
        value={"a": 1},
        key="k",
        namespace=("n",),
        created_at=dt.datetime(2024, 1, 1),
        updated_at=dt.datetime(2024, 1, 2),
    )
    found = Serializer().loads_typed(THEIRS.dumps_typed(item))
    assert (found.key, found.value, tuple(found.namespace)) == ("k", {"a": 1}, ("n",))
    assert found.created_at == dt.datetime(2024, 1, 1)


def test_an_exception_is_read_as_the_text_langgraph_made_of_it():
    assert Serializer().loads_typed(THEIRS.dumps_typed({"error": ValueError("x")})) == {"error": "ValueError('x')"}


def test_values_that_were_set_without_validation_are_read_as_they_are():
    person = kinds.Person(name="n")
    person.age = "not a number"
    found = Serializer().loads_typed(THEIRS.dumps_typed(person))
    assert type(found) is kinds.Person
    assert found.age == "not a number"
    message = AIMessage("x", tool_calls=[{"name": "f", "args": {}, "id": "c"}])
    message.tool_calls[0]["args"] = "edited"
    assert Serializer().loads_typed(THEIRS.dumps_typed(message)).tool_calls[0]["args"] == "edited"


# -- the other tags


def test_the_simple_tags_are_read():
    assert Serializer().loads_typed(THEIRS.dumps_typed(None)) is None
    assert anatomy(Serializer().loads_typed(THEIRS.dumps_typed(b"b"))) == anatomy(b"b")
    assert anatomy(Serializer().loads_typed(THEIRS.dumps_typed(bytearray(b"b")))) == anatomy(bytearray(b"b"))


def test_langgraphs_own_serializer_reads_what_both_call_by_the_same_tag():
    for value in (None, b"b", bytearray(b"b"), {"a": [1, 2.5, "x"]}):
        assert anatomy(THEIRS.loads_typed(Serializer().dumps_typed(value))) == anatomy(value)


def constructor(module, name, *args, **fields):
    document = {"lc": 2, "type": "constructor", "id": [*module.split("."), name]}
    return {**document, **({"args": args} if args else {}), **({"kwargs": fields} if fields else {})}


@pytest.mark.parametrize(
    ("document", "value"),
    [
        ({"a": [1, 2.5, None, "x"]}, {"a": [1, 2.5, None, "x"]}),
        (constructor("uuid", "UUID", "0" * 31 + "5"), uuid.UUID(int=5)),
        (constructor("decimal", "Decimal", "1.10"), decimal.Decimal("1.10")),
        (constructor("builtins", "set", [1, 2]), {1, 2}),
        (constructor("builtins", "frozenset", [1]), frozenset({1})),
        (constructor("datetime", "date", 2024, 1, 2), dt.date(2024, 1, 2)),
        (constructor("datetime", "timedelta", 1, 2, 3), dt.timedelta(1, 2, 3)),
        (constructor("datetime", "time", 1, 2, 3, 4, None, fold=1), dt.time(1, 2, 3, 4, fold=1)),
        (constructor("datetime", "datetime", "2024-01-02T03:04:05"), dt.datetime(2024, 1, 2, 3, 4, 5)),
        (
            constructor("datetime", "timezone", constructor("datetime", "timedelta", 0, 3600)),
            dt.timezone(dt.timedelta(hours=1)),
        ),
        (constructor("codec_kinds", "Plain", 1), kinds.Plain.RED),
        (constructor("codec_kinds", "Point", x=1, y=[2]), kinds.Point(1, [2])),
        (constructor("codec_kinds", "Pair", left=1, right=2), kinds.Pair(1, 2)),
        (constructor("codec_kinds", "Address", street="s"), kinds.Address(street="s")),
        (constructor("langgraph.types", "Send", node="n", arg={"a": 1}), Send("n", {"a": 1})),
    ],
    ids=lambda value: json.dumps(value)[:60] if isinstance(value, dict) and "lc" in value else None,
)
def test_the_json_that_langgraph_once_wrote_is_read(document, value):
    packed = json.dumps({"deep": [document]}).encode()
    found = Serializer().loads_typed(("json", packed))
    assert found == {"deep": [value]}
    assert type(found["deep"][0]) is type(value)


@pytest.mark.parametrize(
    "make",
    [
        lambda: HumanMessage("x", id="1"),
        lambda: AIMessage("x", tool_calls=[{"name": "f", "args": {"a": 1}, "id": "c"}]),
        lambda: ToolMessage("x", tool_call_id="c"),
        lambda: Document("text", metadata={"page": 1}),
    ],
)
def test_the_json_of_langchain_is_read(make):
    assert dumpd(make())["lc"] == 1
    packed = json.dumps({"messages": [dumpd(make())]}).encode()
    found = Serializer().loads_typed(("json", packed))["messages"][0]
    assert found == make()
    assert type(found) is type(make())
    assert found == THEIRS.loads_typed(("json", packed))["messages"][0]


def test_a_class_that_shares_its_name_with_a_message_is_not_taken_for_one():
    packed = json.dumps(constructor("codec_kinds", "HumanMessage", text="x")).encode()
    kinds.HumanMessage = type("HumanMessage", (kinds.Point,), {"__module__": "codec_kinds"})
    try:
        found = Serializer().loads_typed(("json", packed.replace(b'"text": "x"', b'"x": 1, "y": 2')))
    finally:
        del kinds.HumanMessage
    assert (found.x, found.y) == (1, 2)


def test_a_pickle_is_read_only_where_it_was_asked_for():
    written = JsonPlusSerializer(pickle_fallback=True).dumps_typed(kinds.Opaque(5))
    assert written[0] == "pickle"
    with pytest.raises(NotAllowed, match="pickle_fallback"):
        Serializer().loads_typed(written)
    assert Serializer(pickle_fallback=True).loads_typed(written).value == 5
    assert Serializer(pickle_fallback=True).loads_typed(("pickle", pickle.dumps({1: 2}))) == {1: 2}


def test_an_unknown_tag_is_refused_by_name():
    with pytest.raises(NotAllowed, match="'msgpack\\+aes'"):
        Serializer().loads_typed(("msgpack+aes", b"x"))


# -- under our rules


def test_a_class_of_a_module_that_is_not_imported_is_refused_and_not_imported(tmp_path, monkeypatch, run_script):
    (tmp_path / "their_app.py").write_text("import dataclasses\n@dataclasses.dataclass\nclass Note:\n    text: str\n")
    write = """
        import their_app
        from langgraph.checkpoint.serde.jsonplus import JsonPlusSerializer
        print(JsonPlusSerializer().dumps_typed([their_app.Note("x")])[1].hex())
    """
    packed = bytes.fromhex(run_script(write))
    monkeypatch.syspath_prepend(tmp_path)
    with pytest.raises(NotAllowed, match="their_app:Note"):
        Serializer().loads_typed(("msgpack", packed))
    assert "their_app" not in sys.modules
    import their_app

    assert Serializer().loads_typed(("msgpack", packed)) == [their_app.Note("x")]
    del sys.modules["their_app"]


@pytest.mark.parametrize(
    "value", [kinds.Point(1), kinds.Person(name="n"), kinds.Pair(1), kinds.Plain.RED, kinds.OldAddress(street="s")]
)
def test_strict_rules_hold_for_langgraphs_bytes_too(value):
    for written in (THEIRS.dumps_typed(value), THEIRS.dumps_typed({"deep": [Interrupt(value=value, id="i")]})):
        with pytest.raises(NotAllowed, match=type(value).__name__):
            Serializer(allowed_types="strict").loads_typed(written)
        Serializer(allowed_types=[type(value)]).loads_typed(written)
    packed = json.dumps(constructor("codec_kinds", type(value).__name__, x=1)).encode()
    with pytest.raises(NotAllowed):
        Serializer(allowed_types="strict").loads_typed(("json", packed))


def test_a_registered_class_is_read_from_langgraphs_bytes_through_its_upgrade_or_as_it_is():
    written = THEIRS.dumps_typed(kinds.Point(1, 2))
    register(kinds.Point, name="point")
    assert Serializer().loads_typed(written) == kinds.Point(1, 2)


def test_langgraphs_bytes_that_were_cut_or_altered_give_an_error_of_ours_or_a_value():
    for name in ("datetime", "set", "model", "dataclass", "enum", "posix path", "pattern", "ip 4"):
        tag, packed = WRITTEN[name][1]
        for length in range(len(packed)):
            with pytest.raises((Corrupt, NotAllowed)):
                Serializer().loads_typed((tag, packed[:length]))
        for position in range(len(packed)):
            try:
                Serializer().loads_typed((tag, packed[:position] + b"\x93" + packed[position + 1 :]))
            except (Corrupt, NotAllowed):
                continue


def test_a_codec_reads_what_a_foreign_serializer_wrote_into_its_store():
    mine = Codec(foreign=THEIRS)
    packed = mine.encode({"a": (1, kinds.Point(2))})
    assert Codec().decode(packed) == {"a": [1, kinds.Point(2)]}
