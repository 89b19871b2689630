"""Classes change while their instances are stored: what is read then, and what is refused."""

import enum
import logging
import sys
from dataclasses import dataclass, field
from typing import NamedTuple

import pydantic
import pytest
from codec_stores import define
from pydantic import v1 as pydantic_v1

from threadline import NotAllowed
from threadline.codec import Codec


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
