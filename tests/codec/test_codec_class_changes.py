"""Classes change while their instances are stored: what is read then, and what is refused."""

import enum
import logging
import sys
import types
from dataclasses import dataclass, field
from typing import NamedTuple

import pydantic
import pytest
from pydantic import v1 as pydantic_v1

from threadline import NotAllowed, Serializer, register
from threadline.codec import Codec


@pytest.fixture
def app():
    """A module of a program, whose classes a test defines and defines again."""
    module = types.ModuleType("changing_app")
    sys.modules[module.__name__] = module
    yield module
    del sys.modules[module.__name__]


def define(app, cls):
    """Make a class one of the module's, in the place of the one that had its name."""
    cls.__module__, cls.__qualname__ = app.__name__, cls.__name__
    setattr(app, cls.__name__, cls)
    return cls


def stored(value):
    return Codec().encode(value)


def read(packed):
    return Codec().decode(packed)


# -- fields that came and went


def dataclasses_of(app):
    @dataclass
    class Note:
        text: str
        old: int = 1

    packed = stored(define(app, Note)("t", 2))

    @dataclass
    class Note:
        text: str
        tags: list = field(default_factory=lambda: ["new"])
        count: int = 7

    return packed, define(app, Note)


def slotted_dataclasses_of(app):
    @dataclass(slots=True)
    class Note:
        text: str
        old: int = 1

    packed = stored(define(app, Note)("t", 2))

    @dataclass(slots=True, frozen=True)
    class Note:
        text: str
        tags: list = field(default_factory=lambda: ["new"])
        count: int = 7

    return packed, define(app, Note)


def named_tuples_of(app):
    class Note(NamedTuple):
        old: int
        text: str

    packed = stored(define(app, Note)(2, "t"))

    class Note(NamedTuple):
        text: str
        tags: list = ["new"]  # noqa: RUF012
        count: int = 7

    return packed, define(app, Note)


def models_of(app):
    class Note(pydantic.BaseModel):
        text: str
        old: int = 1

    packed = stored(define(app, Note)(text="t", old=2))

    class Note(pydantic.BaseModel):
        text: str
        tags: list = pydantic.Field(default_factory=lambda: ["new"])
        count: int = 7

    return packed, define(app, Note)


def old_models_of(app):
    class Note(pydantic_v1.BaseModel):
        text: str
        old: int = 1

    packed = stored(define(app, Note)(text="t", old=2))

    class Note(pydantic_v1.BaseModel):
        text: str
        tags: list = pydantic_v1.Field(default_factory=lambda: ["new"])
        count: int = 7

    return packed, define(app, Note)


every_kind = pytest.mark.parametrize(
    "kinds_of", [dataclasses_of, slotted_dataclasses_of, named_tuples_of, models_of, old_models_of]
)


@every_kind
def test_a_field_the_class_has_gained_takes_its_default(app, kinds_of):
    packed, cls = kinds_of(app)
    found = read(packed)
    assert type(found) is cls
    assert (found.text, found.tags, found.count) == ("t", ["new"], 7)
    assert read(packed).tags is not found.tags or kinds_of is named_tuples_of


@every_kind
def test_a_field_the_class_has_lost_is_dropped_and_the_log_says_so(app, kinds_of, caplog):
    packed, _ = kinds_of(app)
    with caplog.at_level(logging.WARNING, logger="threadline"):
        found = read(packed)
    assert not hasattr(found, "old")
    assert "old" in caplog.text
    assert "changing_app:Note" in caplog.text


def test_a_field_the_class_has_gained_without_a_default_is_refused_by_name(app):
    @dataclass
    class Note:
        text: str

    define(app, Note)
    packed = [stored(Note("t"))]

    @dataclass
    class Note:
        text: str
        author: str

    define(app, Note)

    class Page(pydantic.BaseModel):
        text: str

    define(app, Page)
    packed.append(stored(Page(text="t")))

    class Page(pydantic.BaseModel):
        text: str
        author: str

    define(app, Page)
    for one in packed:
        with pytest.raises(NotAllowed, match="author"):
            read(one)


def test_private_attributes_a_model_has_gained_take_their_defaults(app):
    class Note(pydantic.BaseModel):
        text: str

    packed = stored(define(app, Note)(text="t"))

    class Note(pydantic.BaseModel):
        text: str
        _count: int = pydantic.PrivateAttr(default=3)

    define(app, Note)
    assert read(packed)._count == 3


def test_a_model_that_no_longer_allows_extra_fields_loses_them(app):
    class Note(pydantic.BaseModel):
        model_config = pydantic.ConfigDict(extra="allow")
        text: str

    packed = stored(define(app, Note)(text="t", more=1))

    class Note(pydantic.BaseModel):
        text: str

    found = read(packed) if define(app, Note) else None
    assert found.model_dump() == {"text": "t"}
    assert found.model_extra is None


def test_a_class_that_became_a_class_of_another_kind_is_read_as_what_it_is_now(app):
    @dataclass
    class Note:
        text: str
        count: int = 1

    packed = stored(define(app, Note)("t", 2))

    class Note(pydantic.BaseModel):
        text: str
        count: int = 1

    define(app, Note)
    assert read(packed) == Note(text="t", count=2)


# -- classes that are gone


def test_a_class_that_is_gone_is_refused_by_name(app):
    @dataclass
    class Note:
        text: str

    packed = stored(define(app, Note)("t"))
    del app.Note
    with pytest.raises(NotAllowed, match="changing_app:Note"):
        read(packed)
    del sys.modules["changing_app"]
    with pytest.raises(NotAllowed, match="changing_app:Note"):
        read(packed)
    sys.modules["changing_app"] = app


@pytest.mark.parametrize("other", [lambda: None, 5, "text", object(), type("Note", (), {}), sys])
def test_a_name_that_now_means_something_else_is_refused(app, other):
    @dataclass
    class Note:
        text: str

    packed = stored(define(app, Note)("t"))
    app.Note = other
    with pytest.raises(NotAllowed, match="changing_app:Note"):
        read(packed)


def test_a_codec_that_read_a_class_before_reads_the_class_that_took_its_place(app):
    """As when a cell of a notebook runs again."""
    codec = Codec()

    @dataclass
    class Note:
        text: str

    define(app, Note)
    packed = codec.encode(Note("t"))
    assert type(codec.decode(packed)) is Note

    @dataclass
    class Note:
        text: str

    define(app, Note)
    codec.encode(Note("t"))
    assert type(codec.decode(packed)) is Note


def test_an_instance_of_a_class_that_was_replaced_is_refused_or_read_as_its_successor(app):
    @dataclass
    class Note:
        text: str

    before = define(app, Note)("t")

    class Note(enum.Enum):
        TEXT = "t"

    define(app, Note)
    with pytest.raises(TypeError):  # by the put; or, if that accepts it, by the get
        assert read(stored(before)).text == "t"


# -- enums


def test_a_member_is_found_by_its_name_and_then_by_its_value(app):
    class Level(enum.Enum):
        LOW = 1
        HIGH = 2
        GONE = 3

    define(app, Level)
    low, high, gone = map(stored, Level)

    class Level(enum.Enum):
        LOW = 10
        UPPER = 2

    define(app, Level)
    assert read(low) is Level.LOW
    assert read(high) is Level.UPPER
    with pytest.raises(NotAllowed, match="GONE"):
        read(gone)


# -- names, versions and upgrades


def test_a_moved_class_is_read_under_its_alias(app):
    @dataclass
    class Note:
        text: str

    packed = stored(define(app, Note)("t"))
    del app.Note

    @dataclass
    class Memo:
        text: str

    register(define(app, Memo), aliases=["changing_app:Note", "older_app.models:Note"])
    assert read(packed) == Memo("t")
    assert read(packed.replace(b"changing_app:Note", b"changing_app:Memo")) == Memo("t")


def test_a_class_that_was_registered_later_reads_what_was_stored_before(app):
    @dataclass
    class Note:
        text: str

    packed = stored(define(app, Note)("t"))
    register(Note, name="note")
    assert read(packed) == Note("t")
    assert b"changing_app" not in stored(Note("t"))
    assert read(stored(Note("t"))) == Note("t")


def versions_of(app):
    @dataclass
    class Note:
        text: str

    first = stored(define(app, Note)("a b"))

    @dataclass
    class Note:
        words: list

    seen = []

    def upgrade(state, version):
        seen.append(version)
        if version == 1:
            state = {"words": state["text"].split()}
        return {"words": [word.upper() for word in state["words"]]} if version < 3 else state

    register(define(app, Note), version=2, upgrade=upgrade)
    second = stored(Note(["c"]))
    register(Note, version=3, upgrade=upgrade)
    return first, second, seen, Note


def test_states_of_older_versions_are_upgraded_when_they_are_read(app):
    first, second, seen, cls = versions_of(app)
    assert read(first) == cls(["A", "B"])
    assert read(second) == cls(["C"])
    assert seen == [1, 2]
    assert read(stored(cls(["d"]))) == cls(["d"])
    assert seen == [1, 2]


def test_a_state_of_a_newer_version_is_refused(app):
    _, _, _, cls = versions_of(app)
    packed = stored(cls(["d"]))
    register(cls, version=2)
    with pytest.raises(NotAllowed, match="version 3"):
        read(packed)


def test_a_codec_notices_registrations_that_come_after_it_was_used(app):
    codec, serializer = Codec(), Serializer()
    first, _, _, cls = versions_of(app)
    assert codec.decode(first) == cls(["A", "B"])
    assert serializer.loads_typed(("msgpack", first)) == cls(["A", "B"])
    register(cls, version=3, upgrade=lambda state, version: {"words": ["again"]})
    assert serializer.loads_typed(("msgpack", first)) == cls(["again"])
    assert serializer.loads(first) == cls(["again"])
    assert codec.decode(first) == cls(["again"])


def test_an_upgraded_model_does_not_take_other_fields_for_those_that_were_given(app):
    class Note(pydantic.BaseModel):
        a: int = 0
        c: int = 0

    packed = stored(define(app, Note)(c=1))

    class Note(pydantic.BaseModel):
        a: int = 0
        b: int = 0
        c: int = 0

    register(define(app, Note), version=2, upgrade=lambda state, version: {**state, "b": 5})
    found = read(packed)
    assert (found.a, found.b, found.c) == (0, 5, 1)
    assert "c" in found.model_fields_set


def test_an_upgrade_that_fails_says_so_in_a_way_that_can_be_caught(app):
    first, _, _, cls = versions_of(app)
    register(cls, version=4, upgrade=lambda state, version: 1 / 0)
    with pytest.raises(Exception, match="division") as caught:
        read(first)
    assert type(caught.value).__module__ == "threadline.errors"
