"""Values shown by their structure: nothing is imported, nothing is built, nothing is lost by copying."""

from __future__ import annotations

import collections
import datetime
import enum
import json
import pathlib
import subprocess
import sys
from dataclasses import dataclass
from typing import Any

import pytest
from cli_process import settings
from pydantic import BaseModel, SecretBytes, SecretStr

from threadline.codec import Codec
from threadline.codec.structural import StructuralCodec, Structure
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
        "from threadline.codec.structural import StructuralCodec\n"
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


def test_secrets_are_masked_unless_they_are_asked_for(tmp_path: pathlib.Path) -> None:
    import threadline

    path = tmp_path / "secret.db"
    with threadline.connect(path) as saver:
        for step, words in enumerate(("first word", "second word"), start=1):
            checkpoint = threadline.empty_checkpoint()
            checkpoint["channel_values"] = {"login": {"key": SecretStr(words), "raw": [SecretBytes(words.encode())]}}
            checkpoint["channel_versions"] = {"login": step}
            place = {"configurable": {"thread_id": "t", "checkpoint_ns": ""}}
            config = saver.put(place, checkpoint, {"source": "update", "step": step}, {"login": step})
        saver.put_writes(config, [("login", SecretStr("third word")), ("__interrupt__", SecretStr("fourth"))], "task")
    commands = [
        [*command, "--url", str(path), *options]
        for command in (["show", "t"], ["diff", "t", "step:1", "step:2"], ["writes", "t"])
        for options in ([], ["--json"])
    ]
    # Processes of their own: whether secrets are shown is decided once in each.
    masked, revealed = _told(commands), _told([[*command, "--reveal"] for command in commands])
    assert len(masked) == len(revealed) == 6
    for hidden, shown in zip(masked, revealed, strict=True):
        assert "word" not in hidden
        assert "*****" in hidden
        assert "word" in shown


def _told(commands: list[list[str]]) -> list[str]:
    """What each of some commands prints, all of them in one new process."""
    script = (
        "import contextlib, io, json, sys\n"
        "from threadline.cli import main\n"
        "told = []\n"
        "for command in json.loads(sys.argv[1]):\n"
        "    with contextlib.redirect_stdout(io.StringIO()) as printed:\n"
        "        assert main(command) == 0\n"
        "    told.append(printed.getvalue())\n"
        "print(json.dumps(told))\n"
    )
    arguments = [sys.executable, "-c", script, json.dumps(commands)]
    done = subprocess.run(arguments, env=settings(), capture_output=True, text=True, check=True, timeout=120)
    found: list[str] = json.loads(done.stdout)
    return found


APPLICATION = """
import dataclasses
@dataclasses.dataclass
class Order:
    number: int
"""


def test_fsck_counts_the_types_that_it_cannot_rebuild_and_lets_them_try(tmp_path: pathlib.Path) -> None:
    (tmp_path / "orders_app.py").write_text(APPLICATION)
    script = (
        "import orders_app, threadline\n"
        "saver, checkpoint = threadline.connect('orders.db'), threadline.empty_checkpoint()\n"
        "checkpoint['channel_values'] = {'orders': [orders_app.Order(n) for n in range(3)]}\n"
        "checkpoint['channel_versions'] = {'orders': 1}\n"
        "saver.put({'configurable': {'thread_id': 't', 'checkpoint_ns': ''}}, checkpoint, {}, {'orders': 1})\n"
    )

    def run(*arguments: str, status: int = 0) -> str:
        done = subprocess.run(
            [sys.executable, *arguments], cwd=tmp_path, env=settings(), capture_output=True, text=True, timeout=60
        )
        assert done.returncode == status, done.stderr
        return done.stdout + done.stderr

    run("-c", script)
    told = run("-m", "threadline", "fsck", "--url", "orders.db")
    assert "not rebuilt: 3 objects of 1 types that this process cannot rebuild: orders_app:Order (3)" in told
    assert "--import MODULE" in told
    assert '"orders_app:Order": 3' in run("-m", "threadline", "fsck", "--url", "orders.db", "--json")
    assert "not rebuilt" not in run("-m", "threadline", "fsck", "--url", "orders.db", "--import", "orders_app")
    (tmp_path / "orders_app.py").write_text(APPLICATION + "    added: int\n")
    told = run("-m", "threadline", "fsck", "--url", "orders.db", "--import", "orders_app")
    assert "orders_app:Order (3)" in told
    assert "lacks the field 'added'" in told
    assert "no_such_module" in run(
        "-m", "threadline", "fsck", "--url", "orders.db", "--import", "no_such_module", status=2
    )
