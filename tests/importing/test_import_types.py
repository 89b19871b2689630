"""What LangGraph's stored forms become, without their classes, and what is read from them with the classes."""

from __future__ import annotations

import base64
import collections
import datetime as dt
import decimal
import ipaddress
import json
import pathlib
import re
import uuid
import zoneinfo
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy
import pandas
import pytest
import travel_app
from langchain_core import documents, messages
from langchain_core.messages import AIMessage, ChatMessage, HumanMessage, RemoveMessage, SystemMessage, ToolMessage
from langgraph.checkpoint.serde.jsonplus import JsonPlusSerializer
from langgraph.checkpoint.serde.types import _DeltaSnapshot
from langgraph.types import Command, Interrupt, Send
from pydantic import BaseModel, RootModel, SecretBytes, SecretStr, field_validator

from threadline.codec.codec import Codec
from threadline.codec.serializer import load_typed
from threadline.codec.structural import StructuralCodec, unknown_in
from threadline.errors import Corrupt, NotAllowed
from threadline.langgraph.types import register_langgraph_types
from threadline.show.values import plain
from threadline.transfer.transcode import LANGCHAIN_FIELDS, Foreign, TransferCodec

register_langgraph_types()
LANGGRAPH = JsonPlusSerializer()
TRIP = travel_app.start_of_booking()["trip"]

STANDARD = [
    {"none": None, "deep": [1, -(2**63), 2.5, float("inf"), True, "text \0", b"raw", {"k": []}]},
    {1: "one", None: "none", (1, 2): "pair", 2.5: {b"k": 1}},
    {1, 2, "three"},
    frozenset({uuid.UUID(int=1)}),
    {(1, 2), (3, (4, 5))},
    collections.deque([1, 2]),
    dt.datetime(2025, 3, 30, 2, 30, fold=1, tzinfo=dt.timezone(dt.timedelta(hours=5, minutes=30))),
    [dt.date(2025, 1, 2), dt.time(9, 30, tzinfo=dt.timezone.utc), dt.timedelta(days=-1, microseconds=5)],
    [zoneinfo.ZoneInfo("Europe/Paris"), dt.timezone(dt.timedelta(hours=1), "named")],
    [uuid.UUID(int=9), decimal.Decimal("1.10"), re.compile("a.c", re.IGNORECASE)],
    [pathlib.Path("/a/b"), ipaddress.ip_address("::1")],
    [ipaddress.ip_network("10.0.0.0/8"), ipaddress.ip_interface("10.0.0.1/8")],
]
OBJECTS = [
    HumanMessage("hello", id="1", name="ann", additional_kwargs={"when": dt.date(2025, 1, 2), "n": {1: 2}}),
    AIMessage([{"type": "text", "text": "hi"}], id="2", tool_calls=[{"name": "f", "args": {"a": [1]}, "id": "c"}]),
    AIMessage("spent", usage_metadata={"input_tokens": 1, "output_tokens": 2, "total_tokens": 3}),
    messages.AIMessageChunk("part", id="3"),
    ToolMessage("done", tool_call_id="c", artifact={"raw": b"\x00\xc4", "set": {1}}, status="error"),
    SystemMessage("be kind"),
    ChatMessage("x", role="critic"),
    RemoveMessage(id="9"),
    documents.Document("page", metadata={"score": 0.5}, id="d"),
    travel_app.Traveller("Ann", dt.date(1990, 2, 3), {"a"}),
    travel_app.Offer("DB", decimal.Decimal("1.5")),
    travel_app.Stop("Lyon", 3),
    Interrupt({"ask": "sure?", "offer": travel_app.Offer("DB", decimal.Decimal(1))}, id="i"),
    Command(update={"a": 1}, goto="b"),
    _DeltaSnapshot([HumanMessage("hello", id="1")]),
]
KEPT = [
    TRIP,
    travel_app.Class.SECOND,
    {travel_app.Class.SECOND},
    Send("quote", {"trip": TRIP, "seat": travel_app.Class.FIRST}),
    [travel_app.Traveller("Ann", dt.date(1990, 2, 3), {"a"}), TRIP],
    Interrupt({"ask": travel_app.Class.FIRST}, id="i"),
]


class Tags(RootModel[list[str]]):
    @field_validator("root")
    @classmethod
    def _never(cls, root: Any) -> Any:
        raise AssertionError("no validator runs when a value is read")


class Shelf(RootModel[dict[str, int]]):
    pass


class Tagged(BaseModel):
    tags: Tags
    shelf: Shelf | None = None


def transcoded(value: Any) -> bytes:
    """A value as the import stores it."""
    codec = TransferCodec()
    tag, content = LANGGRAPH.dumps_typed(value)
    return codec.encode(codec.load(tag, content))


@pytest.mark.parametrize("value", STANDARD + OBJECTS + KEPT, ids=lambda value: type(value).__name__)
def test_what_is_read_is_what_the_original_bytes_would_give(value: Any) -> None:
    original = load_typed(LANGGRAPH.dumps_typed(value), Codec())
    found = Codec().decode(transcoded(value))
    assert found == original
    assert type(found) is type(original)


@pytest.mark.parametrize("value", STANDARD + OBJECTS, ids=lambda value: type(value).__name__)
def test_a_graph_that_goes_on_stores_the_same_bytes(value: Any) -> None:
    content = transcoded(value)
    assert Codec().encode(Codec().decode(content)) == content


@pytest.mark.parametrize("value", OBJECTS[:4], ids=lambda value: type(value).__name__)
def test_a_new_message_with_the_same_fields_has_the_same_bytes(value: Any) -> None:
    # Without a dict whose keys LangGraph changes: what is packed is what the message holds.
    if not value.additional_kwargs:
        assert Codec().encode(value) == transcoded(value)


def test_the_fields_of_langchains_classes_are_known() -> None:
    for stored, fields in LANGCHAIN_FIELDS.items():
        module, _, name = stored.partition(":")
        cls = getattr(__import__(module, fromlist=[name]), name)
        assert cls.model_fields.keys() == fields, stored


def test_a_message_with_fields_of_its_own_keeps_them() -> None:
    message = HumanMessage("hello", id="1", mood="gay")
    content = transcoded(message)
    assert Codec().decode(content) == load_typed(LANGGRAPH.dumps_typed(message), Codec())
    assert Codec().decode(content).mood == "gay"


@pytest.mark.parametrize(
    "array",
    [
        numpy.arange(6, dtype="<i4").reshape(2, 3),
        numpy.asfortranarray(numpy.arange(6.0).reshape(2, 3)),
        numpy.arange(20)[::3],
        numpy.array([], dtype="float32"),
    ],
)
def test_arrays_keep_their_layout_and_their_bytes(array: Any) -> None:
    content = transcoded({"a": [array]})
    [found] = Codec().decode(content)["a"]
    assert (found == array).all()
    assert (found.dtype, found.shape) == (array.dtype, array.shape)
    assert found.flags.c_contiguous or array.flags.f_contiguous
    assert Codec().encode({"a": [found]}) == content


def test_a_class_that_is_missing_where_it_is_read_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    import sys

    values = [TRIP, [Send("n", {"x": TRIP})], travel_app.Traveller("Ann", TRIP), {"a": (Interrupt(TRIP),)}]  # type: ignore[arg-type]
    contents = [transcoded(value) for value in values]
    monkeypatch.delitem(sys.modules, "travel_app")
    for content in contents:
        with pytest.raises(NotAllowed, match=r"travel_app:\w+ is unknown here"):
            Codec().decode(content)


def test_what_cannot_be_built_here_is_kept_for_where_it_can() -> None:
    codec = TransferCodec()
    windows = b"\xc7" + bytes([len(parts := b"\x93\xa7pathlib\xabWindowsPath\x91\xa3C:\\")]) + b"\x01" + parts
    found = codec.load("msgpack", b"\x91" + windows)
    assert found == [Foreign(1, parts)]
    # Marked as what an import kept: LangGraph's extension types are read nowhere else.
    assert codec.encode(found) == b"\x91\xc7" + bytes([1 + len(parts)]) + b"\x23\x01" + parts


@pytest.mark.parametrize("content", [b"\xc7\x05\x05abcde", b"\xc1", b"", b"\x92\x01", b"\xd4\x02\x01"])
def test_bytes_that_are_no_value_are_corrupt(content: bytes) -> None:
    with pytest.raises(Corrupt):
        TransferCodec().load("msgpack", content)


@pytest.mark.parametrize("tag", ["json", "msgpack"])
def test_nothing_is_imported_because_stored_bytes_say_so(tag: str) -> None:
    import json
    import sys

    import ormsgpack

    assert "this" not in sys.modules
    if tag == "json":
        content = json.dumps({"lc": 2, "type": "constructor", "id": ["this", "s"], "args": ["x"]}).encode()
    else:
        content = ormsgpack.packb(ormsgpack.Ext(0, ormsgpack.packb(["this", "s", "x"])))
    codec = TransferCodec()
    stored = codec.encode(codec.load(tag, content))
    with pytest.raises(NotAllowed):
        Codec().decode(stored)
    assert "this" not in sys.modules


def test_arrays_of_objects_are_kept_and_never_called_corrupt() -> None:
    tag, content = JsonPlusSerializer().dumps_typed({"a": numpy.array([1, "x"], dtype=object)})
    transfer = TransferCodec()
    stored = transfer.encode_natively(transfer.load(tag, content))
    assert Codec(unknown_types="plain").decode(stored) == {"a": None}
    with pytest.raises(NotAllowed, match="array of objects"):
        Codec().decode(stored)


def test_an_import_counts_the_types_that_it_cannot_rebuild_and_lets_them_try(
    source: Path, target: Path, run_import: Callable[..., Any], import_here: Callable[..., Any]
) -> None:
    told = run_import(source, "--to", target).stdout
    assert "not rebuilt" in told
    assert "travel_app:" in told
    assert "--import MODULE" in told
    counted = json.loads(run_import(source, "--to", target, "--json").stdout)["unknown_types"]
    assert set(counted) >= {name for name in counted if name.startswith("travel_app:")} != set()
    assert not any(name.startswith("langchain_core.messages") for name in counted)
    # This process has the application's classes.
    assert "not rebuilt" not in import_here("--import", "travel_app", source, "--to", target).stdout


@pytest.mark.parametrize("root", [["a"], ["a", "b", "c"], [], [{"a": 1}, {"b": 2}]])
def test_a_root_model_is_rebuilt_from_its_root_and_is_plain_data_without_its_class(
    root: list[Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    import sys

    content = transcoded([Tags.model_construct(root)])
    [found] = Codec().decode(content)
    assert type(found) is Tags
    assert found.root == root
    assert repr(StructuralCodec().decode(content)) == f"[Tags({root!r})]"
    monkeypatch.delitem(sys.modules, Tags.__module__)
    assert Codec(unknown_types="plain").decode(content) == [root]


def test_a_root_model_of_a_dict_and_those_that_fields_hold_are_rebuilt() -> None:
    assert Codec().decode(transcoded(Shelf({"root": 1}))) == Shelf({"root": 1})
    tagged = Tagged.model_construct(tags=Tags.model_construct(["a"]), shelf=Shelf({"b": 2}))
    assert Codec().decode(transcoded(tagged)) == tagged
    bare = Tagged.model_construct(tags=Tags.model_construct(["a"]), shelf=None)
    assert Codec().decode(transcoded(bare)) == bare


@pytest.mark.parametrize("secret", [SecretStr("hush"), SecretBytes(b"hush")], ids=repr)
def test_an_imported_secret_is_one_again_and_is_masked_where_it_is_shown(secret: Any) -> None:
    content = transcoded({"login": [secret]})
    [found] = Codec().decode(content)["login"]
    assert type(found) is type(secret)
    assert found.get_secret_value() == secret.get_secret_value()
    looked_at = StructuralCodec().decode(content)
    for shown in (repr(looked_at), json.dumps(plain(looked_at))):
        assert "hush" not in shown
        assert base64.b64encode(b"hush").decode() not in shown
    assert "*****" in repr(looked_at)


class ApiSecret(SecretStr):
    pass


def test_a_secret_that_cannot_be_rebuilt_is_masked_too() -> None:
    assert "hush" not in repr(StructuralCodec().decode(transcoded(ApiSecret("hush"))))
    old = {"lc": 2, "type": "constructor", "id": ["pydantic", "types", "SecretStr"], "args": ["hush"]}
    codec = TransferCodec()
    stored = codec.encode(codec.load("json", json.dumps([old]).encode()))
    assert "hush" not in repr(StructuralCodec().decode(stored))
    assert Codec().decode(stored) == [SecretStr("hush")]


@pytest.mark.parametrize(
    ("time", "shown"),
    [
        (pandas.Timedelta("1h"), "Timedelta(days=0, seconds=3600, microseconds=0)"),
        (pandas.Timedelta("-1us"), "Timedelta(days=-1, seconds=86399, microseconds=999999)"),
        (pandas.Timestamp("2026-01-01T00:00:00.000000001"), "Timestamp('2026-01-01T00:00:00.000000001')"),
        (pandas.Timestamp("2026-01-01", tz="UTC"), "Timestamp('2026-01-01T00:00:00+00:00')"),
    ],
    ids=str,
)
def test_a_time_of_pandas_is_rebuilt_and_shown_as_what_it_is(time: Any, shown: str) -> None:
    content = transcoded(time)
    found = Codec().decode(content)
    assert type(found) is type(time)
    assert found == time
    assert repr(StructuralCodec().decode(content)) == shown


def test_what_did_not_move_is_not_said_to_have_moved(monkeypatch: pytest.MonkeyPatch) -> None:
    import sys

    content = transcoded(pandas.Timedelta("1h"))
    monkeypatch.delitem(sys.modules, "pandas")
    with pytest.raises(NotAllowed, match="is of pandas: import pandas before reading"):
        Codec().decode(content)
    with pytest.raises(NotAllowed, match="ApiSecret is no data class: register"):
        Codec().decode(transcoded(ApiSecret("hush")))


def test_an_import_and_both_ways_of_looking_a_store_over_count_the_same_types(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    import sys

    values = [TRIP, travel_app.Class.FIRST, Tags.model_construct(["a"]), SecretStr("x"), pandas.Timedelta("1h")]
    values += [HumanMessage("x"), numpy.arange(3), numpy.array([None]), travel_app.Stop("Lyon", 3)]
    tag, content = LANGGRAPH.dumps_typed(values)
    for gone in ("travel_app", "pandas", "numpy", "langchain_core.messages.human"):
        monkeypatch.delitem(sys.modules, gone)
    transfer = TransferCodec()
    stored = transfer.encode(transfer.load(tag, content))
    looked_over = StructuralCodec()
    looked_over.decode(stored)
    assert set(transfer.unknown) == set(looked_over.unknown) == set(unknown_in(Codec(), stored))
    assert set(transfer.unknown) == {"travel_app:Class", "travel_app:Stop", "travel_app:Trip"}
