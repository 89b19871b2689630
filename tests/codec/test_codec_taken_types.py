"""Types that LangGraph's savers take: secrets, times of pandas, views of bytes, prompts, exceptions as text."""

import asyncio
import copy
import datetime as dt
import json
import pickle
import sys
import zoneinfo
from typing import Any

import numpy
import pandas
import pydantic
import pytest
from codec_stores import put, values_at
from langgraph.checkpoint.serde.jsonplus import JsonPlusSerializer

import threadline
from threadline import NotAllowed, Serializer, StoredException


def again(value, **options):
    serializer = Serializer(**options)
    return serializer.loads_typed(serializer.dumps_typed(value))


class Custom(Exception):
    pass


class Wordless(Exception):
    def __repr__(self):
        raise RuntimeError("no")


ERRORS = [
    ValueError("bad"),
    ValueError(),
    KeyError("k"),
    OSError(2, "gone"),
    Custom(1, {"x": 2}),
    asyncio.CancelledError(),
]


@pytest.mark.parametrize("error", ERRORS, ids=repr)
def test_an_exception_is_the_text_that_langgraph_gives(error):
    original = JsonPlusSerializer()
    found = again({"error": error})["error"]
    assert found == original.loads_typed(original.dumps_typed(error)) == repr(error)
    assert isinstance(found, str)
    assert found.type_name == f"{type(error).__module__}:{type(error).__qualname__}"
    assert found.message == str(error)
    assert found.startswith(type(error).__name__)
    assert f"{found}" == "".join([found]) == repr(error)
    assert json.loads(json.dumps({"error": found})) == {"error": repr(error)}
    for copied in (copy.copy(found), copy.deepcopy(found), pickle.loads(pickle.dumps(found)), again(found)):
        assert type(copied) is StoredException
        assert (copied, copied.type_name, copied.message) == (found, found.type_name, found.message)


def test_an_exception_without_words_is_stored_all_the_same():
    found = again(Wordless("x"))
    assert found == "(its text cannot be had)"
    assert found.message == "x"


def test_the_error_of_a_task_is_text(connect):
    saver = connect()
    config = put(saver, {"a": 1})
    saver.put_writes(config, [("__error__", Custom(1, {"x": 2}))], "task")
    [(_, _, error)] = saver.get_tuple(config).pending_writes
    assert error == "Custom(1, {'x': 2})"
    assert "'x': 2" in error


@pytest.mark.parametrize("secret", [pydantic.SecretStr("s3cret"), pydantic.SecretBytes(b"s3cret")], ids=repr)
@pytest.mark.parametrize("allowed", [None, "strict"])
def test_a_secret_comes_back_and_stays_masked(secret, allowed):
    found = again([secret], allowed_types=allowed)[0]
    assert found == secret
    assert type(found) is type(secret)
    assert found.get_secret_value() == secret.get_secret_value()
    assert "s3cret" not in repr(found)


class Login(pydantic.BaseModel):
    user: str
    password: pydantic.SecretStr


def test_a_model_may_hold_a_secret():
    found = again(Login(user="u", password="p"))
    assert found == Login(user="u", password="p")


def test_a_secret_where_pydantic_is_not_is_plain_or_refused(monkeypatch):
    stored = Serializer().dumps([pydantic.SecretStr("s")])
    monkeypatch.delitem(sys.modules, "pydantic.types")
    with pytest.raises(NotAllowed, match="import pydantic"):
        Serializer().loads(stored)
    assert Serializer(unknown_types="plain").loads(stored) == ["s"]


def test_a_forged_secret_is_corrupt():
    stored = Serializer().dumps(pydantic.SecretStr("s"))
    with pytest.raises(threadline.Corrupt, match="not a text"):
        Serializer().loads(stored.replace(b"\xa1s", b"\xc3").replace(b"\xc7\x0c", b"\xc7\x0b"))


TIMES = [
    pandas.Timestamp("2026-01-01"),
    pandas.Timestamp("2026-07-01T01:02:03.123456789"),
    pandas.Timestamp("2026-07-01", tz="UTC"),
    pandas.Timestamp("2026-07-01", tz=zoneinfo.ZoneInfo("Europe/Berlin")),
    pandas.Timestamp("2026-07-01", tz=dt.timezone(dt.timedelta(hours=5, minutes=30))),
    pandas.Timestamp("2026-10-25 00:30", tz="UTC").tz_convert(zoneinfo.ZoneInfo("Europe/Berlin")),
    pandas.Timestamp("2026-10-25 01:30", tz="UTC").tz_convert(zoneinfo.ZoneInfo("Europe/Berlin")),
    pandas.Timestamp(5, unit="s").as_unit("s"),
    pandas.Timestamp(-1),
    pandas.Timedelta(5, "s"),
    pandas.Timedelta(1, "ns"),
    pandas.Timedelta(-3, "D").as_unit("ms"),
]


@pytest.mark.parametrize("moment", TIMES, ids=repr)
def test_a_time_of_pandas_comes_back(moment):
    found = again({"at": moment})["at"]
    assert found == moment
    assert type(found) is type(moment)
    assert found.unit == moment.unit
    if isinstance(moment, pandas.Timestamp):
        assert (found.fold, found.utcoffset()) == (moment.fold, moment.utcoffset())
        assert str(found.tzinfo) == str(moment.tzinfo)


def test_no_time_comes_back():
    assert again([pandas.NaT])[0] is pandas.NaT


@pytest.mark.parametrize(
    "value",
    [memoryview(b"abc"), memoryview(bytearray(b"abc")), memoryview(b"a-b-c")[::2]],
    ids=["of bytes", "of a bytearray", "with gaps"],
)
def test_a_view_of_bytes_is_kept_as_the_bytes_it_shows(value, connect):
    for wrap, unwrap in ((lambda v: v, lambda v: v), (lambda v: [1, {"k": v}], lambda v: v[1]["k"])):
        found = unwrap(again(wrap(value)))
        assert type(found) is bytes
        assert found == b"abc"
    assert values_at(connect(), put(connect(), {"view": value}))["view"] == b"abc"


def test_a_prompt_comes_back_and_works():
    from langchain_core.prompts import ChatPromptTemplate, MessagesPlaceholder

    prompt = ChatPromptTemplate([("system", "be {mood}"), ("human", "{text}"), MessagesPlaceholder("rest")])
    given = {"mood": "kind", "text": "hello", "rest": [("ai", "hi")]}
    assert again([prompt])[0].invoke(given) == prompt.invoke(given)


class Leaving(pydantic.BaseModel):
    kept: int = 1
    left: Any = pydantic.Field(default="default", exclude=True)
    needed: Any = pydantic.Field(exclude=True)
    _kind: type = int
    _count: int = 0


def test_only_what_cannot_be_stored_is_left_out_of_a_model():
    whole = Leaving(left=[1], needed=2)
    whole._count = 7
    found = again(whole)
    assert (found.left, found.needed, found._kind, found._count) == ([1], 2, int, 7)
    assert again(Leaving(left=len, needed=2)).left == "default"
    with pytest.raises(threadline.NotSerializable, match="needed"):
        again(Leaving(needed=len))
    changed = Leaving(needed=1)
    changed._kind = str
    with pytest.raises(threadline.NotSerializable, match="_kind"):
        again(changed)


def test_an_array_of_objects_in_langgraphs_bytes_is_not_called_corrupt():
    original = JsonPlusSerializer()
    stored = original.dumps_typed([numpy.array([1, "a", None], dtype=object), 5])
    assert Serializer(unknown_types="plain").loads_typed(stored) == original.loads_typed(stored) == [None, 5]
    with pytest.raises(NotAllowed, match="array of objects"):
        Serializer().loads_typed(stored)
