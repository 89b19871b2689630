"""Where ours differs from LangGraph's savers on purpose, as docs/differences.md says: both run, both are asserted.

When LangGraph changes what it does, a test here fails, and the page is to be changed with it.
"""

import asyncio
import enum
import sqlite3
from collections import Counter, OrderedDict
from dataclasses import dataclass

import pytest
from graph_pairs import CLASSES, WHERE, Face, opened
from langgraph.checkpoint.base import empty_checkpoint
from langgraph.checkpoint.serde.jsonplus import JsonPlusSerializer

from threadline.errors import Conflict, InvalidRequest, NotSerializable
from threadline.langgraph import InMemorySaver

CONFIG = {"configurable": {"thread_id": "thread-1", "checkpoint_ns": ""}}
PLAIN = {"source": "loop", "step": 1}


class Word(str, enum.Enum):
    YES = "yes"


class Outer:
    """Holds a class of its own."""

    @dataclass
    class Inner:
        number: int


class Unknown:
    """Neither a data class nor a model."""


@pytest.fixture(params=WHERE)
def pair(request, tmp_path):
    """Runs a body on LangGraph's saver and on ours; gives what each returns or raises."""

    def run(body):
        found = []
        for whose in ("original", "ours"):
            url = request.getfixturevalue("postgres").url if request.param == "postgres" else ""

            async def on_one(whose=whose, at=url or str(tmp_path / f"{whose}.db")):
                async with opened(whose, request.param, "sync", at) as saver:
                    return await body(saver, Face("sync"))

            try:
                found.append(asyncio.run(on_one()))
            except Exception as error:
                found.append(type(error))
        return found

    run.where = request.param
    return run


def put(saver, metadata=PLAIN, value=None, config=CONFIG, **fields):
    made = {**empty_checkpoint(), "channel_values": {"a": value}, "channel_versions": {"a": f"{1:032}.0.5"}, **fields}
    return saver.put(config, made, metadata, {"a": made["channel_versions"].get("a")})


@pytest.mark.parametrize(
    ("value", "original"),
    [
        ((1, (2,)), [1, [2]]),
        (OrderedDict(b=1, a=2), {"b": 1, "a": 2}),
        (Counter("aab"), {"a": 2, "b": 1}),
        (Outer.Inner(1), {"number": 1}),
        (["\ud800"], ["?"]),
        ([2**70], TypeError),
        (1j, TypeError),
    ],
)
def test_a_value_comes_back_as_it_was_given(pair, value, original):
    async def body(saver, face):
        put(saver, value=value)
        return saver.get_tuple(CONFIG).checkpoint["channel_values"]["a"]

    theirs, ours = pair(body)
    if isinstance(original, type):
        assert issubclass(theirs, original)
    else:
        assert (theirs, type(theirs)) == (original, type(original))
    assert (ours, type(ours)) == (value, type(value))


def test_a_text_that_is_an_enum_stays_one(pair):
    async def body(saver, face):
        put(saver, value=Word.YES)
        return type(saver.get_tuple(CONFIG).checkpoint["channel_values"]["a"])

    assert pair(body) == [str if pair.where == "postgres" else Word, Word]


def test_a_value_of_an_unknown_class_is_refused_with_its_path(pair):
    async def body(saver, face):
        put(saver, value=[Unknown()])

    assert pair(body) == [TypeError, NotSerializable]


@pytest.mark.parametrize("value", [{1, 2}, b"bytes"])
def test_metadata_that_json_has_no_word_for_is_kept(pair, value):
    async def body(saver, face):
        put(saver, {**PLAIN, "odd": value})
        return saver.get_tuple(CONFIG).metadata["odd"]

    assert pair(body) == [value if pair.where == "memory" else TypeError, value]


def test_a_nul_inside_of_nested_metadata_is_kept(pair):
    async def body(saver, face):
        put(saver, {**PLAIN, "odd": {"text": "a\0b"}})
        return saver.get_tuple(CONFIG).metadata["odd"]["text"]

    theirs, ours = pair(body)
    assert ours == "a\0b"
    assert issubclass(theirs, Exception) if pair.where == "postgres" else theirs == "a\0b"


def test_metadata_named_writes_is_kept(pair):
    async def body(saver, face):
        put(saver, {**PLAIN, "writes": {"a": 1}})
        return "writes" in saver.get_tuple(CONFIG).metadata

    assert pair(body) == [pair.where != "postgres", True]


def test_a_filter_compares_nested_metadata_whole_and_knows_operators(pair):
    async def body(saver, face):
        put(saver, {**PLAIN, "user": {"name": "ann", "plan": "pro"}})
        filters = [{"user": {"name": "ann"}}, {"user.name": "ann"}, {"step": {"$gte": 1}}]
        return [len(list(saver.list(CONFIG, filter=one))) for one in filters]

    theirs, ours = pair(body)
    assert theirs[0] == (pair.where == "postgres")
    assert ours == [0, 1, 1]


def test_new_threads_count_in_integers_and_old_ones_as_they_did(pair):
    async def body(saver, face):
        first = saver.get_next_version(None, None)
        return type(first), type(saver.get_next_version(f"{1:032}.0.5", None))

    assert pair(body) == [(str, str), (int, str)]


def test_the_serializer_is_another(pair):
    async def body(saver, face):
        return isinstance(saver.serde, JsonPlusSerializer)

    assert pair(body) == [True, False]


def test_a_config_that_comes_back_names_the_place_and_nothing_else(pair):
    async def body(saver, face):
        config = put(saver)
        asked = {"configurable": {**config["configurable"], "own": 1}, "metadata": {"x": 1}}
        return saver.get_tuple(asked).config.keys() | saver.get_tuple(asked).config["configurable"].keys()

    theirs, ours = pair(body)
    place = {"configurable", "thread_id", "checkpoint_ns", "checkpoint_id"}
    assert theirs == place | ({"own", "metadata"} if pair.where != "postgres" else set())
    assert ours == place


def test_what_cannot_be_right_is_refused(pair):
    async def body(saver, face):
        config = put(saver)
        own = {"id": config["configurable"]["checkpoint_id"]}
        wrongs = [
            lambda: put(saver, {"step": "first"}),
            lambda: put(saver, v=99),
            lambda: put(saver, config=config, **own),
        ]
        refused = []
        for wrong in wrongs:
            try:
                wrong()
                refused.append(False)
            except InvalidRequest:
                refused.append(True)
        return refused

    assert pair(body) == [[False, False, False], [True, True, True]]


def test_a_run_does_not_go_on_in_a_thread_that_was_deleted(pair):
    async def body(saver, face):
        config = put(saver)
        saver.delete_thread("thread-1")
        return put(saver, config=config) is not None

    assert pair(body) == [True, Conflict]


def test_threads_are_copied_and_runs_deleted_everywhere(pair):
    async def body(saver, face):
        put(saver)
        saver.copy_thread("thread-1", "thread-2")
        return saver.get_tuple({"configurable": {"thread_id": "thread-2"}}) is not None

    assert pair(body) == [NotImplementedError, True]


@pytest.mark.parametrize("whose", ["original", "ours"])
def test_a_sqlite_saver_has_an_async_half(whose, tmp_path):
    connection = sqlite3.connect(tmp_path / "threads.db", check_same_thread=False)
    saver = CLASSES[whose, "sqlite", "sync"](connection)
    if whose == "ours":
        assert asyncio.run(saver.aget_tuple(CONFIG)) is None
    else:
        with pytest.raises(NotImplementedError):
            asyncio.run(saver.aget_tuple(CONFIG))
    connection.close()


def test_a_memory_saver_takes_no_factory():
    with pytest.raises(InvalidRequest, match="factory"):
        InMemorySaver(factory=dict)


def test_values_of_a_list_are_decoded_when_they_are_looked_at():
    saver = InMemorySaver()
    put(saver, value=[1])
    (listed,) = saver.list(CONFIG)
    assert type(listed.checkpoint["channel_values"]) is not dict
    assert dict(listed.checkpoint["channel_values"]) == {"a": [1]}
