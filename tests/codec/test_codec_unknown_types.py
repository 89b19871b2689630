"""What a process cannot rebuild: plain data or a refusal, and never a call."""

import collections
import dataclasses
import datetime as dt
import enum
import gc
import logging
import sys
import types
from typing import Any, NamedTuple

import pydantic
import pytest
from codec_stores import in_thread, put, values_at
from langgraph.checkpoint.serde.jsonplus import JsonPlusSerializer

import threadline
from threadline import NotAllowed, NotSerializable, Serializer
from threadline.codec import structural as plain

SOURCE = """
import dataclasses, enum, collections, pydantic
from typing import Any, NamedTuple

@dataclasses.dataclass
class Note:
    text: str = ""
    inner: Any = None

@dataclasses.dataclass(slots=True)
class Slim:
    a: int = 1

class Person(pydantic.BaseModel):
    name: str
    friend: Any = None

class Open(pydantic.BaseModel, extra="allow"):
    a: int = 1
    _hidden: int = 5

class Names(pydantic.RootModel[list[str]]):
    pass

class Old(pydantic.v1.BaseModel):
    a: int = 1

class Colour(enum.Enum):
    RED = "red"
    MIX = (1, 2)

class Rights(enum.Flag):
    READ = 1
    WRITE = 2

class Pair(NamedTuple):
    left: int
    right: Any
"""
PLAIN = {
    "Note('x', Note('y'))": {"text": "x", "inner": {"text": "y", "inner": None}},
    "Slim(3)": {"a": 3},
    "Person(name='n', friend=Person(name='m'))": {"name": "n", "friend": {"name": "m", "friend": None}},
    "Open(b=2)": {"a": 1, "b": 2},
    "Names(['a', 'b'])": ["a", "b"],
    "Old(a=4)": {"a": 4},
    "Colour.RED": "red",
    "Colour.MIX": "MIX",
    "Rights.READ": 1,
    "Pair(1, (2, Colour.RED))": {"left": 1, "right": (2, "red")},
    "[1, {'k': Note('x')}, Slim()]": [1, {"k": {"text": "x", "inner": None}}, {"a": 1}],
}


@pytest.fixture
def gone():
    """A module of classes; `gone.forget()` makes it as if this process had never imported it."""
    module = types.ModuleType("application_that_went")
    sys.modules[module.__name__] = module
    exec(SOURCE, module.__dict__)
    module.forget = lambda: sys.modules.pop(module.__name__, None)
    plain._warned.clear()
    yield module
    module.forget()


@pytest.mark.parametrize(("expression", "expected"), PLAIN.items())
def test_what_is_not_here_comes_back_as_plain_data(gone, expression, expected):
    stored = Serializer().dumps_typed(eval(expression, gone.__dict__))
    gone.forget()
    assert Serializer(unknown_types="plain").loads_typed(stored) == expected
    with pytest.raises(NotAllowed, match="application_that_went"):
        Serializer().loads_typed(stored)


@pytest.mark.parametrize(("expression", "expected"), PLAIN.items())
def test_under_strict_rules_values_are_stored_and_come_back_as_plain_data(gone, expression, expected):
    strict = Serializer(allowed_types="strict", unknown_types="plain")
    assert strict.loads_typed(strict.dumps_typed(eval(expression, gone.__dict__))) == expected


def test_what_is_allowed_stays_itself_beside_what_is_not(gone):
    strict = Serializer(allowed_types=[gone.Note], unknown_types="plain")
    note, slim = strict.loads(strict.dumps([gone.Note("x", gone.Slim(2)), gone.Slim(3)]))
    assert note == gone.Note("x", {"a": 2})
    assert slim == {"a": 3}


def test_each_type_is_warned_of_once(gone, caplog):
    stored = Serializer().dumps([gone.Note("x"), gone.Note("y"), gone.Slim()])
    gone.forget()
    with caplog.at_level(logging.WARNING, "threadline"):
        for _ in range(3):
            Serializer(unknown_types="plain").loads(stored)
    said = [record.getMessage() for record in caplog.records]
    assert len(said) == 2
    assert "application_that_went:Note comes back as plain data" in said[0]


def test_no_code_of_a_class_runs_for_plain_data():
    ran = []

    class Loud:
        def __init__(self, *args: Any) -> None:
            ran.append("init")

        def __getattr__(self, name: str) -> Any:
            ran.append(name)
            raise AttributeError(name)

    module = types.ModuleType("loud_module")
    module.Loud = Loud
    sys.modules["loud_module"] = module
    try:
        stored = b"\xc7\x12\x20\x10loud_module:Loud\x80"
        assert Serializer(unknown_types="plain").loads(stored) == {}
    finally:
        del sys.modules["loud_module"]
    assert ran == []


@pytest.mark.parametrize(
    ("before", "after", "expected"),
    [
        ("a: int = 1", "b: int", {"a": 1}),
        ("a: int = 1\n    c: int = 2", "c: int", 2),
    ],
    ids=["a field was gained that has no default", "a field was lost"],
)
def test_a_class_that_changed_locks_nobody_out(gone, before, after, expected):
    head = "@dataclasses.dataclass\nclass Changed:\n    "
    exec(head + before, gone.__dict__)
    stored = Serializer().dumps(gone.Changed())
    exec(head + after, gone.__dict__)
    found = Serializer(unknown_types="plain").loads(stored)
    assert found == expected if isinstance(expected, dict) else found.c == expected


def test_an_enum_member_that_was_removed_comes_back_as_its_value(gone):
    stored = Serializer().dumps(gone.Colour.RED)
    exec("class Colour(enum.Enum):\n    BLUE = 'blue'", gone.__dict__)
    assert Serializer(unknown_types="plain").loads(stored) == "red"


def test_a_saver_says_which_it_wants_and_its_clones_keep_it(gone, connect):
    config = put(connect(), {"note": gone.Note("x")})
    gone.forget()
    plainly = connect(unknown_types="plain")
    assert plainly.get_tuple(config).checkpoint["channel_values"] == {"note": {"text": "x", "inner": None}}
    clone = plainly.with_allowlist([("somewhere", "Else")])
    assert clone.get_tuple(config).checkpoint["channel_values"] == {"note": {"text": "x", "inner": None}}
    with pytest.raises(NotAllowed, match=r"channel 'note'.*application_that_went:Note"):
        connect().get_tuple(config)
    with pytest.raises(threadline.InvalidRequest, match="unknown_types is 'plain' or 'refuse', not 'maybe'"):
        connect(unknown_types="maybe")
    with pytest.raises(threadline.InvalidRequest, match="unknown_types is 'plain' or 'refuse', not 'maybe'"):
        Serializer(unknown_types="maybe")
    with pytest.raises(threadline.InvalidRequest, match="give unknown_types= to the Serializer"):
        connect(serde=Serializer(), unknown_types="plain")


def test_what_was_plain_is_itself_again_once_its_class_is_there(gone, connect):
    config = put(connect(), {"note": gone.Note("x")})
    gone.forget()
    saver = connect(unknown_types="plain")
    assert type(saver.get_tuple(config).checkpoint["channel_values"]["note"]) is dict
    sys.modules[gone.__name__] = gone
    assert saver.get_tuple(config).checkpoint["channel_values"]["note"] == gone.Note("x")


def test_arrays_are_plain_data_until_numpy_is_imported(monkeypatch, caplog):
    import numpy

    values = [numpy.arange(3, dtype="<i2"), numpy.float64(1.5), numpy.bool_(True), numpy.str_("a"), numpy.dtype("<f4")]
    stored = Serializer().dumps(values)
    theirs = JsonPlusSerializer().dumps_typed({"array": values[0]})
    monkeypatch.setitem(sys.modules, "numpy", None)
    plain = Serializer(unknown_types="plain")
    array = {"dtype": "<i2", "shape": [3], "order": "C", "data": bytes([0, 0, 1, 0, 2, 0])}
    assert plain.loads(stored) == [array, 1.5, True, {"dtype": "<U1", "data": "a".encode("utf-32-le")}, "<f4"]
    assert plain.loads_typed(theirs) == {"array": array}
    assert "numpy:ndarray comes back as plain data" in caplog.text
    with pytest.raises(NotAllowed, match="import numpy"):
        Serializer().loads(stored)


def test_times_and_frames_are_plain_data_until_pandas_is_imported(monkeypatch):
    import pandas

    moment, span = pandas.Timestamp("2026-01-02", tz="UTC"), pandas.Timedelta(3, "s")
    times, frame = Serializer().dumps([moment, span]), Serializer().dumps(pandas.DataFrame({"a": [1]}))
    plain = Serializer(unknown_types="plain")
    with monkeypatch.context() as patched:
        patched.setitem(sys.modules, "pyarrow", None)  # pandas is here, and what frames are stored in is not
        assert plain.loads(frame).keys() == {"arrow"}
    monkeypatch.setitem(sys.modules, "pandas", None)
    (count, unit), zone = (moment.asm8.view("i8").item(), moment.unit), dt.timezone.utc
    assert plain.loads(times) == [
        {"count": count, "unit": unit, "zone": zone, "fold": 0},
        {"count": span.asm8.view("i8").item(), "unit": span.unit},
    ]
    assert plain.loads(frame)["arrow"].startswith(b"\xff\xff\xff\xff")


# -- classes that no name leads to


def local_dataclass():
    @dataclasses.dataclass
    class Local:
        x: int = 1

    return Local(5)


def local_slots():
    @dataclasses.dataclass(slots=True, frozen=True)
    class Local:
        x: int = 1

    return Local(5)


def local_model():
    class Local(pydantic.BaseModel):
        x: int = 1

    return Local(x=5)


def local_tuple():
    class Local(NamedTuple):
        x: int = 1

    return Local(5)


def local_enum():
    class Local(enum.Enum):
        X = 5

    return Local.X


def generated():
    return dataclasses.make_dataclass("Generated", [("x", int)])(5)


def created_model():
    return pydantic.create_model("Created", x=(int, 1))(x=5)


Renamed = collections.namedtuple("Original", ["x"])


class Outer:
    @dataclasses.dataclass
    class Inner:
        x: int = 1


NAMELESS = [local_dataclass, local_slots, local_model, local_tuple, local_enum, generated, created_model]


@pytest.mark.parametrize("make", NAMELESS)
def test_a_class_that_no_name_leads_to_comes_back_as_itself(make, connect):
    value = make()
    config = put(connect(), {"value": [value]})
    found = values_at(connect(), config)["value"][0]
    assert found == value
    assert type(found) is type(value)


@pytest.mark.parametrize("make", NAMELESS)
def test_of_two_such_classes_of_one_name_the_last_that_was_stored_counts(make):
    first, second = make(), make()
    serializer, other = Serializer(), Serializer()
    for value in (first, second):
        assert type(other.loads(serializer.dumps(value))) is type(value)


@pytest.mark.parametrize("make", NAMELESS)
def test_elsewhere_such_a_class_is_plain_data_and_the_message_says_why(make):
    stored = Serializer().dumps(make())
    gc.collect()
    found = Serializer(unknown_types="plain").loads(stored)
    assert found in ({"x": 5}, 5)
    with pytest.raises(NotAllowed) as refused:
        Serializer().loads(stored)
    assert "any more" not in str(refused.value)
    assert "Was it renamed" not in str(refused.value)
    if "<locals>" in str(refused.value):
        assert "made inside a function" in str(refused.value)
        assert "moved" not in str(refused.value)
    else:
        assert "is known once this process has stored one" in str(refused.value)


def test_such_a_class_is_not_kept_alive_by_being_remembered():
    from threadline.codec.allowed import _nameless

    name = threadline.codec.allowed.class_name(type(local_dataclass()))
    Serializer().dumps(local_dataclass())
    gc.collect()
    assert name not in _nameless


def test_strict_rules_need_its_name_all_the_same():
    with pytest.raises(NotSerializable, match="not allowed"):
        Serializer(allowed_types="strict").dumps(local_dataclass())
    value = local_dataclass()
    allowed = Serializer(allowed_types=[type(value)])
    assert allowed.loads(allowed.dumps(value)) == value


def test_a_class_is_found_by_the_name_it_is_bound_to_and_inside_of_others():
    serializer = Serializer()
    assert b"test_codec_unknown_types:Renamed" in serializer.dumps(Renamed(5))
    for value in (Renamed(5), Outer.Inner(5)):
        found = serializer.loads(serializer.dumps(value))
        assert type(found) is type(value)
        assert found == value


def test_many_classes_of_functions_do_not_fill_the_memory(monkeypatch):
    from threadline.codec import codec as wire

    monkeypatch.setattr(wire, "_MOST_NAMES", 50)
    codec = Serializer().codec
    for _ in range(200):
        codec.decode(codec.encode(local_dataclass()))
    assert len(codec._plans) <= 50
    assert len(codec._builders) <= 50 + 1


def test_a_thread_with_a_local_class_goes_on_in_its_own_process(connect):
    saver = connect()
    config = put(saver, {"items": [local_dataclass()]})
    config = put(saver, {"items": [*values_at(saver, config)["items"], local_dataclass()]}, after=config)
    assert [item.x for item in values_at(saver, in_thread())["items"]] == [5, 5]
