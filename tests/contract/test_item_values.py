"""What an item's value may be: the short way and the long way of packing it decide alike."""

import dataclasses
import datetime
import enum
import math
import struct
import subprocess
import sys
import threading
import uuid
from collections import OrderedDict
from contextlib import suppress

import ormsgpack
import pytest

import threadline
from threadline.graph import START, MessagesState, StateGraph


class Text(str):
    pass


class Colour(enum.Enum):
    RED = "red"


class Level(enum.IntEnum):
    HIGH = 3


@dataclasses.dataclass
class Point:
    x: int = 1


REFUSED = {
    "bytes": b"x",
    "empty bytes": b"",
    "bytearray": bytearray(b"x"),
    "memoryview": memoryview(b"x"),
    "extension": ormsgpack.Ext(5, b"abc"),
    "small extension": ormsgpack.Ext(5, b"a"),
    "large extension": ormsgpack.Ext(5, b"a" * 70_000),
    "datetime": datetime.datetime.now(),
    "uuid": uuid.uuid4(),
    "enum": Colour.RED,
    "dataclass": Point(),
    "set": {1},
    "complex": 1j,
    "object": object(),
    "function": len,
}
# (given, comes back)
KEPT = {
    "every kind": ({"a": None, "b": True, "c": 1, "d": 0.5, "e": "x", "f": [1, [2]], "g": {"h": {}}},) * 2,
    "tuple": ({"a": (1, (2, 3))}, {"a": [1, [2, 3]]}),
    "text of a subclass": ({Text("a"): Text("b")}, {"a": "b"}),
    "number of a subclass": ({"a": Level.HIGH}, {"a": 3}),
    "mapping of a subclass": (OrderedDict(a=OrderedDict(b=1)), {"a": {"b": 1}}),
    "large numbers": ({"a": 10**100, "b": -(2**63), "c": 2**64},) * 2,
    "infinities": ({"a": math.inf, "b": -math.inf},) * 2,
    # Their bytes look like the markers of bytes and of extensions.
    "texts": ({"a": "zażółć gęślą jaźń", "b": "مرحبا", "c": "Ծանոթ", "d": "x" * 0xC4, "e": "x" * 0xD4},) * 2,
    "floats": ({f"f{byte}": struct.unpack(">d", bytes([0x40, byte] * 4))[0] for byte in range(256)},) * 2,
    "lone surrogate": ({"a": "\ud800"},) * 2,
}


@pytest.fixture
def store(url):
    with threadline.Store(url) as opened:
        yield opened


@pytest.mark.parametrize("kind", REFUSED)
@pytest.mark.parametrize("wrap", [lambda one: one, lambda one: [1, [one]], lambda one: {"deep": {"er": one}}])
def test_what_json_has_not_is_refused_by_its_path(store, kind, wrap):
    for put in (
        lambda value: store.put(("n",), "k", value),
        lambda value: store.batch([threadline.PutOp(("n",), "first", {}), threadline.PutOp(("n",), "k", value)]),
    ):
        with pytest.raises(threadline.InvalidRequest, match="wrong"):
            put({"fine": 1, "wrong": wrap(REFUSED[kind])})
    assert store.count() == 0


@pytest.mark.parametrize("kind", KEPT)
def test_what_json_has_comes_back_as_it_was(store, kind):
    given, expected = KEPT[kind]
    store.put(("n",), "k", given)
    store.batch([threadline.PutOp(("n",), "b", given), threadline.PutOp(("n",), "c", given)])
    for key in ("k", "b", "c"):
        assert store.get(("n",), key).value == expected
    assert repr(store.search(("n",), limit=1)[0].value) == repr(expected)


def test_a_batch_of_puts_is_what_its_puts_are_one_by_one(store):
    values = [given for given, _ in KEPT.values()]
    store.batch([threadline.PutOp(("all",), f"k{number}", value) for number, value in enumerate(values)])
    lives = [threadline.PutOp(("some",), f"k{number}", value, None, 5) for number, value in enumerate(values)]
    store.batch([*lives, threadline.PutOp(("some",), "k0", {"last": 1}), threadline.PutOp(("some",), "for ever", {})])
    for number, (_, expected) in enumerate(KEPT.values()):
        assert repr(store.get(("all",), f"k{number}").value) == repr(expected)
        if number:
            assert repr(store.get(("some",), f"k{number}").value) == repr(expected)
            assert store.get(("some",), f"k{number}").expires_at is not None
    assert store.get(("all",), "k0").expires_at is store.get(("some",), "for ever").expires_at is None
    # The last of several puts to one item holds, with its time to live.
    assert store.get(("some",), "k0").value == {"last": 1}
    assert store.get(("some",), "k0").expires_at is None


@pytest.mark.parametrize("keys", [{1: "a"}, {None: "a"}, {("a",): 1}])
def test_keys_are_texts(store, keys):
    with pytest.raises(threadline.InvalidRequest, match="keys are texts"):
        store.put(("n",), "k", {"in": keys})


@pytest.mark.parametrize("depth", [400, 3000])
@pytest.mark.parametrize("wrap", [lambda inner: {"a": inner}, lambda inner: [inner]])
def test_a_value_that_is_nested_too_deeply_or_holds_itself_is_refused(store, depth, wrap):
    deep = {}
    for _ in range(depth):
        deep = wrap(deep)
    endless = {}
    endless["a"] = wrap(endless)
    for value in ({"deep": deep}, endless):
        with pytest.raises(threadline.InvalidRequest, match="nested"):
            store.put(("deep",), "k", value)
        with pytest.raises(threadline.InvalidRequest, match="nested"):
            store.batch([threadline.PutOp(("deep",), "j", {}), threadline.PutOp(("deep",), "k", value)])
    assert store.count(("deep",)) == 0


@pytest.mark.parametrize("given", [0, 1, 3])
def test_an_embedding_for_each_text_or_nothing_is_stored(url, given):
    with threadline.Store(url, index={"dims": 2, "embed": lambda texts: [[1.0, 2.0]] * given}) as store:
        puts = [threadline.PutOp(("embedded",), key, {"text": key}) for key in "ab"]
        with pytest.raises(threadline.InvalidRequest, match=f"{given} vectors for 2 texts"):
            store.batch(puts)
        assert store.count() == 0


def test_a_value_is_the_stores_own(store):
    given = {"list": [1], "dict": {"a": [2]}}
    store.put(("n",), "k", given)
    store.batch([threadline.PutOp(("n",), "b", given), threadline.PutOp(("n",), "c", given)])
    given["list"].append(9)
    given["dict"]["a"].append(9)
    for key in ("k", "b", "c"):
        got = store.get(("n",), key).value
        assert got == {"list": [1], "dict": {"a": [2]}}
        got["dict"]["a"].append(3)
        assert store.get(("n",), key).value == {"list": [1], "dict": {"a": [2]}}


@pytest.mark.parametrize("kept", [None, 3])
@pytest.mark.parametrize("url", ["memory://", "sqlite:///{}/counted.db"])
def test_agents_that_count_together_lose_none(tmp_path, url, kept):
    """They put the same value over the same version, and only one of them has counted."""
    store = threadline.Store(url.format(tmp_path), keep_versions=kept)

    def count(times=40):
        while times:
            item = store.get(("counted",), "n")
            value, version = ({"n": item.value["n"] + 1}, item.version) if item is not None else ({"n": 1}, 0)
            with suppress(threadline.Conflict):
                store.put(("counted",), "n", value, if_version=version)
                times -= 1

    agents = [threading.Thread(target=count) for _ in range(4)]
    for agent in agents:
        agent.start()
    for agent in agents:
        agent.join()
    item = store.get(("counted",), "n")
    assert (item.value, item.version) == ({"n": 160}, 160)


def test_a_store_with_an_index_asks_for_numpy_when_it_is_made():
    program = (
        "import sys; sys.modules['numpy'] = None\n"
        "import threadline\n"
        "try:\n"
        "    threadline.Store('memory://', index={'dims': 2, 'embed': len})\n"
        "except threadline.MissingExtra as error:\n"
        "    print(error)\n"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert "pip install 'threadline[vectors]'" in done.stdout


@pytest.mark.parametrize("kind", [str, lambda path: path])
def test_a_graph_is_given_a_store_and_no_url(tmp_path, kind):
    builder = StateGraph(MessagesState).add_node("n", lambda state: {}).add_edge(START, "n")
    with pytest.raises(TypeError, match=r"compile\(store=threadline\.Store\(url\)\)"):
        builder.compile(store=kind(tmp_path / "agents.db"))
