"""Enums, names, versions and upgrades: what a class that changed says about its past."""

import enum
from dataclasses import dataclass

import pydantic
import pytest
from codec_stores import define

from threadline import NotAllowed, Serializer, register
from threadline.codec import Codec


def stored(value):
    return Codec().encode(value)


def read(packed):
    return Codec().decode(packed)


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
