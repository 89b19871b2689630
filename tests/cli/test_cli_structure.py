"""Values shown by their structure: nothing is imported, nothing is built, nothing is lost by copying."""

from __future__ import annotations

import collections
import datetime
import enum
import pathlib
import subprocess
import sys
from dataclasses import dataclass
from typing import Any

import pytest
from cli_process import settings
from pydantic import BaseModel

from threadline.codec import Codec
from threadline.codec.structure import StructuralCodec, Structure
from threadline.errors import Corrupt, NotSerializable


class Colour(enum.Flag):
    RED = 1
    BLUE = 2


@dataclass(frozen=True)
class Point:
    x: int
    y: Any = None


class Model(BaseModel):
    name: str
    points: list[Point] = []


VALUES: list[Any] = [
    Point(1, Point(2)),
    {Point(1), Point(2)},
    {Point(1): [Colour.RED | Colour.BLUE]},
    Model(name="n", points=[Point(1)]),
    Model.model_construct(name="n"),
    [b"bytes", bytearray(b"more"), 2**70, "\ud800", (1, [2.5]), {1: {None}}],
    collections.OrderedDict(a=Point(1)),
    [datetime.timedelta(1), datetime.date(2026, 1, 2), pathlib.PurePosixPath("/x"), ValueError("v")],
]


@pytest.mark.parametrize("value", VALUES, ids=lambda value: type(value).__name__)
def test_what_is_read_as_a_structure_packs_to_the_very_same_bytes(value: Any) -> None:
    packed = Codec().encode(value)
    read = StructuralCodec().decode(packed)
    assert StructuralCodec().encode(read) == packed


def test_no_class_of_the_program_is_built_even_where_it_is_known() -> None:
    read = StructuralCodec().decode(Codec().encode([Point(1, 2), Colour.RED]))
    assert [type(one) for one in read] == [Structure, Structure]
    assert (read[0].x, read[0].y) == (1, 2)
    assert not hasattr(read[0], "z")
    assert repr(read) == "[Point(x=1, y=2), <Colour.RED: 1>]"


def test_messages_show_what_they_say() -> None:
    messages = pytest.importorskip("langchain_core.messages")
    said = [messages.AIMessage("hello", id="m-1"), messages.HumanMessage("", name="ann")]
    for packed in (Codec().encode(said), _by_langgraph(said)):
        assert repr(StructuralCodec().decode(packed)) == (
            "[AIMessage(content='hello', id='m-1'), HumanMessage(name='ann')]"
        )


def test_langgraphs_own_form_is_shown_and_never_packed_again() -> None:
    pytest.importorskip("langgraph.checkpoint.serde.jsonplus")
    read = StructuralCodec().decode(_by_langgraph([Point(1, 2), Model(name="n"), {1, 2}]))
    assert repr(read) == "[Point(x=1, y=2), Model(name='n', points=[]), {1, 2}]"
    with pytest.raises(NotSerializable, match="only be looked at"):
        StructuralCodec().encode(read)


def test_arrays_are_shown_without_numpy() -> None:
    numpy = pytest.importorskip("numpy")
    packed = Codec().encode([numpy.zeros((2, 30)), numpy.float32(1)])
    script = (
        "import sys\n"
        "from threadline.codec.structure import StructuralCodec\n"
        f"print(StructuralCodec().decode({packed!r}))\n"
        "print('numpy' in sys.modules)\n"
    )
    done = subprocess.run([sys.executable, "-c", script], env=settings(), capture_output=True, text=True, check=True)
    shown, imported = done.stdout.splitlines()
    assert shown.startswith("[ndarray(dtype='<f8', shape=[2, 30], order='C', data=<480 bytes>), generic(dtype='<f4'")
    assert imported == "False"


def test_what_no_rule_reads_is_shown_by_its_tag() -> None:
    class Odd:
        def dumps_typed(self, value: Any) -> tuple[str, bytes]:
            return "odd", b"\x00" * 100

        def loads_typed(self, data: Any) -> Any:
            raise AssertionError("nobody may call this")

    packed = Codec(foreign=Odd()).encode({"a": 1})
    assert repr(StructuralCodec().decode(packed)) == "odd(<100 bytes>)"


def test_damaged_bytes_are_corrupt() -> None:
    with pytest.raises(Corrupt):
        StructuralCodec().decode(Codec().encode(Point(1))[:-1])


def test_a_structure_cannot_be_stored_by_an_ordinary_codec() -> None:
    read = StructuralCodec().decode(Codec().encode(Point(1)))
    with pytest.raises(NotSerializable):
        Codec().encode(read)


def _by_langgraph(value: Any) -> bytes:
    """What a store holds that was written with LangGraph's serializer."""
    from langgraph.checkpoint.serde.jsonplus import JsonPlusSerializer

    return Codec(foreign=JsonPlusSerializer()).encode(value)
