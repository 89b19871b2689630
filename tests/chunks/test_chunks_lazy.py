"""Values that are decoded when they are looked at behave as a dict in every way a program can ask."""

import copy
import json
import pickle
from collections import ChainMap

import ormsgpack
import pytest
from codec_stores import in_thread, put
from langgraph.checkpoint.serde.jsonplus import JsonPlusSerializer

import threadline
from threadline import Corrupt, Serializer
from threadline.chunks.lazy import LazyValues

PLAIN = {"b": [1, 2], "a": {"k": "v"}, "c": 3}


@pytest.fixture
def decoded():
    """The names whose values were decoded, in order."""
    return []


@pytest.fixture
def lazy(decoded):
    def decoder(name):
        def decode():
            decoded.append(name)
            return copy.deepcopy(PLAIN[name])

        return decode

    return LazyValues.of({name: decoder(name) for name in PLAIN})


WAYS = {
    "dict()": dict,
    "unpacked": lambda v: {**v},
    "copy": lambda v: v.copy(),
    "copy.copy": copy.copy,
    "deepcopy": copy.deepcopy,
    "merged": lambda v: v | {},
    "merged into": lambda v: {} | v,
    "updated": lambda v: (lambda d: (d.update(v), d)[1])({}),
    "in place": lambda v: (lambda d: d.__ior__(v))({}),
    "lazy in place": lambda v: v.__ior__({}),
    "lazy updated": lambda v: (v.update({}), v)[1],
    "items": lambda v: dict(v.items()),
    "items of keys": lambda v: {key: v[key] for key in v},
    "zip": lambda v: dict(zip(v.keys(), v.values(), strict=True)),
    "get": lambda v: {key: v.get(key) for key in v},
    "popped": lambda v: {key: v.pop(key) for key in list(v)},
    "popitem": lambda v: dict(reversed([v.popitem() for _ in range(len(v))])),
    "setdefault": lambda v: {key: v.setdefault(key, "default") for key in list(v)},
    "keyword arguments": lambda v: (lambda **kwargs: kwargs)(**v),
    "json": lambda v: json.loads(json.dumps(v)),
    "json with indent": lambda v: json.loads(json.dumps(v, indent=1)),
    "pickle": lambda v: pickle.loads(pickle.dumps(v)),
    "old pickle": lambda v: pickle.loads(pickle.dumps(v, 2)),
    "serializer": lambda v: Serializer().loads(Serializer().dumps(v)),
    "chain map": lambda v: dict(ChainMap({}, v)),
    "sorted items": lambda v: {
        key: value for key, value in sorted(v.items(), key=lambda pair: list(PLAIN).index(pair[0]))
    },
    "match": lambda v: _matched(v),
    "repr": lambda v: eval(repr(v)),
    "fromkeys": lambda v: {key: v[key] for key in dict.fromkeys(v)},
    "reversed": lambda v: {key: v[key] for key in reversed(list(reversed(v)))},
}


def _matched(value):
    match value:
        case {"b": b, "a": a, "c": c}:
            return {"b": b, "a": a, "c": c}


@pytest.mark.parametrize("way", WAYS)
def test_however_the_values_are_taken_they_are_the_values(lazy, way):
    found = WAYS[way](lazy)
    assert found == PLAIN
    assert list(found) == list(PLAIN)
    assert list(found.values()) == list(PLAIN.values())


def test_nothing_is_decoded_before_it_is_looked_at_and_nothing_twice(lazy, decoded):
    assert len(lazy) == 3
    assert "a" in lazy
    assert "z" not in lazy
    assert list(lazy) == list(lazy.keys()) == ["b", "a", "c"]
    assert bool(lazy)
    assert lazy.get("z") is None
    duplicate = lazy.copy()
    assert decoded == []
    assert lazy["a"] == {"k": "v"}
    assert lazy["a"] is lazy["a"]
    assert decoded == ["a"]
    assert duplicate["c"] == 3
    assert decoded == ["a", "c"]


def test_the_values_are_equal_to_those_of_a_dict(lazy, decoded):
    assert lazy == PLAIN
    assert lazy == PLAIN
    assert (lazy != PLAIN) is False
    assert lazy != {**PLAIN, "c": 4}
    assert lazy != {"a": 1}
    assert lazy != 5
    assert lazy == copy.copy(lazy)
    assert isinstance(lazy, dict)
    with pytest.raises(TypeError):
        hash(lazy)


def test_the_mapping_can_be_changed(lazy, decoded):
    lazy["a"] = 1
    lazy["new"] = 2
    del lazy["b"]
    lazy.update(c=5)
    assert lazy == {"a": 1, "c": 5, "new": 2}
    assert lazy.pop("missing", None) is None
    with pytest.raises(KeyError):
        lazy.pop("missing")
    with pytest.raises(KeyError):
        lazy["missing"]
    assert lazy.setdefault("fresh", []) == []
    lazy.clear()
    assert lazy == {}
    with pytest.raises(KeyError):
        lazy.popitem()
    assert decoded == []


def test_a_value_that_cannot_be_decoded_fails_when_it_is_looked_at_and_only_then():
    def fail():
        raise Corrupt("the chunk is missing")

    lazy = LazyValues.of({"bad": fail, "good": lambda: 1})
    assert lazy["good"] == 1
    for look in (
        lambda: lazy["bad"],
        lambda: dict(lazy),
        lambda: lazy == {},
        lambda: lazy.get("bad"),
        lambda: repr(lazy),
    ):
        with pytest.raises(Corrupt):
            look()
    lazy.pop("good")
    with pytest.raises(Corrupt):
        lazy.pop("bad")
    assert "bad" in lazy


@pytest.mark.parametrize(
    ("pack", "unpack"),
    [
        (ormsgpack.packb, ormsgpack.unpackb),
        (lambda v: ormsgpack.packb([v]), lambda packed: ormsgpack.unpackb(packed)[0]),
        (JsonPlusSerializer().dumps_typed, JsonPlusSerializer().loads_typed),
        (JsonPlusSerializer(pickle_fallback=True).dumps_typed, JsonPlusSerializer(pickle_fallback=True).loads_typed),
    ],
    ids=["msgpack", "msgpack, deep", "langgraph", "langgraph with pickle"],
)
def test_an_encoder_that_reads_past_python_gives_the_values_or_an_error(lazy, pack, unpack):
    """In C a dict can be read without being asked; what such code meets then, no encoder takes for a value."""
    try:
        packed = pack(lazy)
    except TypeError:
        packed = pack(dict(lazy))
    assert unpack(packed) == PLAIN


def test_a_listed_checkpoint_can_be_put_again_whole(connect):
    saver = connect()
    put(saver, {"items": [f"{at}" * 100 for at in range(100)], "n": 1})
    [found] = saver.list(in_thread())
    checkpoint = threadline.copy_checkpoint(found.checkpoint)
    checkpoint["id"] = threadline.empty_checkpoint()["id"]
    config = saver.put(found.config, checkpoint, found.metadata, checkpoint["channel_versions"])
    saver.clear_cache()
    assert saver.get_tuple(config).checkpoint["channel_values"] == found.checkpoint["channel_values"]
