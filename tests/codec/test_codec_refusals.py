"""A value that could not be loaded again is refused by the put, which names its place; nothing of it is stored."""

import collections
import io
import itertools
import socket
import threading
import types
import zoneinfo
from dataclasses import dataclass

import codec_kinds as kinds
import pytest
from codec_anatomy import anatomy
from codec_stores import in_thread, put, values_at

import threadline
from threadline import NotSerializable
from threadline.codec import Codec


def endless():
    value = []
    value.append(value)
    return value


def endless_dict():
    value = {}
    value["self"] = [value]
    return value


def endless_dataclass():
    value = kinds.Point(1)
    value.y = (value,)
    return value


def too_deep(wrap):
    value = 1
    for _ in range(3000):
        value = wrap(value)
    return value


REFUSED = {
    "lambda": lambda: lambda: 1,
    "function": lambda: endless,
    "builtin": lambda: len,
    "method": lambda: [].append,
    "class": lambda: kinds.Point,
    "module": lambda: types,
    "open file": lambda: io.BytesIO(b""),
    "socket": socket.socket,
    "lock": threading.Lock,
    "generator": lambda: (x for x in "ab"),
    "iterator": lambda: iter([1]),
    "counter": itertools.count,
    "object": object,
    "opaque object": kinds.Opaque,
    "keys of a dict": lambda: {"a": 1}.keys(),
    "mapping proxy": lambda: types.MappingProxyType({"a": 1}),
    "chain map": lambda: collections.ChainMap({"a": 1}),
    "namespace": lambda: types.SimpleNamespace(a=1),
    "not implemented": lambda: NotImplemented,
    "ellipsis": lambda: ...,
    "slice": lambda: slice(1, 2),
    "defaultdict with a factory of its own": lambda: collections.defaultdict(lambda: 5, a=1),
    "zone without a name": lambda: zoneinfo.ZoneInfo.from_file(io.BytesIO(_zone_file())),
    "data class with a destructor": kinds.Closing,
    "list that holds itself": endless,
    "dict that holds itself": endless_dict,
    "data class that holds itself": endless_dataclass,
    "very deep list": lambda: too_deep(lambda value: [value]),
    "very deep tuple": lambda: too_deep(lambda value: (value,)),
    "very deep dict": lambda: too_deep(lambda value: {"k": value}),
    "very deep dict of ints": lambda: too_deep(lambda value: {1: value}),
    "very deep data class": lambda: too_deep(kinds.Point),
}
each_refused = pytest.mark.parametrize("make", REFUSED.values(), ids=REFUSED.keys())


def _zone_file():
    from importlib import resources

    return (resources.files("tzdata.zoneinfo") / "UTC").read_bytes()


@each_refused
def test_a_value_that_cannot_come_back_is_refused(make):
    with pytest.raises(NotSerializable):
        Codec().encode(make(), "channel")


@pytest.mark.parametrize("name", REFUSED)
def test_a_put_names_the_channel_and_the_place_of_what_it_refuses(connect, name):
    saver, make = connect(), REFUSED[name]
    first = put(saver, {"good": [1]}, thread="before")
    for values, place in (
        ({"good": 1, "bad": make()}, "bad"),
        ({"bad": [0, 1, make()]}, "bad[2]"),
        ({"bad": {"key": make()}}, "bad['key']"),
        ({"bad": {"key": [{"deep": make()}]}}, "bad['key'][0]['deep']"),
    ):
        with pytest.raises(NotSerializable) as caught:
            put(saver, values)
        # What has no end has no place of its own: there the channel, or more of the path, is named.
        path = caught.value.path
        assert path.startswith("bad" if "deep" in name or "itself" in name else place)
        assert str(caught.value).startswith(path)
        assert isinstance(caught.value, TypeError)
    assert [found.config for found in saver.list(None)] == [first]
    assert saver.get_tuple(in_thread()) is None


@pytest.mark.parametrize(
    ("wrap", "place"),
    [
        (lambda bad: (1, bad), "state[1]"),
        (lambda bad: {1: bad}, "state[1]"),
        (lambda bad: {(1, "t"): [bad]}, "state[(1, 't')][0]"),
        (lambda bad: kinds.Point(1, bad), "state<Point>['y']"),
        (lambda bad: kinds.Pair(1, [bad]), "state<Pair>['right'][0]"),
        (lambda bad: kinds.Person(name="n", extra_data=bad), "state<Person>['extra_data']"),
        (lambda bad: kinds.Open(more=bad), "state<Open>"),
        (lambda bad: collections.OrderedDict(k=bad), "state<OrderedDict>['k']"),
        (lambda bad: collections.deque([bad]), "state<deque>"),
        (lambda bad: {bad: 1}, "state key"),
        (lambda bad: {bad}, "state"),
        (lambda bad: [[[[[bad]]]]], "state[0][0][0][0][0]"),
        (lambda bad: {"a": 2**70, "b": {"\ud800": bad}}, "state['b']"),
        (lambda bad: [bytearray(b"x"), b"y", bad], "state[2]"),
    ],
)
def test_the_place_is_named_whatever_stands_around_it(wrap, place):
    with pytest.raises(NotSerializable) as caught:
        Codec().encode(wrap(kinds.Opaque("secret of the state")), "state")
    assert caught.value.path.startswith(place)
    assert "codec_kinds:Opaque" in str(caught.value)


def test_depth_is_bounded_on_both_ways_alike():
    """What can be encoded can be decoded: no depth is accepted that could not be read."""
    codec = Codec()
    wraps = (
        lambda v: [v],
        lambda v: (v,),
        lambda v: {"k": v},
        lambda v: {1: v},
        lambda v: [(v,)],
        kinds.Point,
        lambda v: collections.deque([v]),
    )
    for wrap in wraps:
        accepted = []
        for depth in (1, 50, 100, 125, 130, 200, 245, 250, 255, 256, 300, 400, 700, 1500):
            value = 1
            for _ in range(depth):
                value = wrap(value)
            try:
                packed = codec.encode(value)
            except NotSerializable:
                continue
            accepted.append(depth)
            codec.decode(packed)
        assert {1, 50, 100} <= set(accepted)


def test_what_is_deep_within_a_channel_can_be_put_and_read(connect):
    """The items of a channel stand inside a list: what an item may be deep, the channel can be read with."""
    saver = connect()
    for depth in (100, 150, 200, 245, 250, 255, 256, 260):
        value = 1
        for _ in range(depth):
            value = [value]
        try:
            config = put(saver, {"a": value, "b": [value], "c": {"k": value}}, thread=str(depth))
        except NotSerializable:
            continue
        saver.clear_cache()
        found = values_at(saver, config)
        assert found["a"] == value
        assert found["b"] == [value]
        assert found["c"] == {"k": value}


def test_a_write_is_refused_like_a_put(connect):
    saver = connect()
    config = put(saver, {"good": 1})
    with pytest.raises(NotSerializable) as caught:
        saver.put_writes(config, [("good", 1), ("bad", [{"deep": kinds.Opaque()}])], "task")
    assert "bad" in caught.value.path
    assert "[0]['deep']" in caught.value.path
    assert saver.get_tuple(config).pending_writes == []


def test_metadata_is_refused_like_a_value(connect):
    saver = connect()
    with pytest.raises(NotSerializable) as caught:
        put(saver, {"good": 1}, note={"deep": [kinds.Opaque()]})
    assert caught.value.path == "metadata['note']['deep'][0]"
    assert list(saver.list(None)) == []


def test_one_bad_put_of_many_keeps_all_of_them_out(connect):
    saver = connect()

    def one(value):
        checkpoint = threadline.empty_checkpoint()
        checkpoint["channel_values"], checkpoint["channel_versions"] = {"c": value}, {"c": 1}
        return (in_thread(), checkpoint, {"step": 1}, {"c": 1})

    with pytest.raises(NotSerializable, match=r"c\[1\]"):
        saver.put_many([one([1]), one([1, kinds.Opaque()]), one([3])])
    assert list(saver.list(None)) == []


@pytest.mark.parametrize(
    "item",
    [
        lambda: {"k": [1]},
        lambda: {"k": (1, [2])},
        lambda: {"k": bytearray(b"x")},
        lambda: kinds.Point(1, {"z": 1}),
        lambda: [2**70],
    ],
)
def test_a_value_that_became_unstorable_in_place_is_refused_with_its_place(connect, item):
    """The second put recognises what it knows; that must not cost the error its path, or the items their truth."""
    saver = connect()
    items = [item() for _ in range(40)]
    config = put(saver, {"items": items, "other": {"a": items}})
    before = anatomy([item() for _ in range(40)])
    holder = items[17]
    if isinstance(holder, kinds.Point):
        holder.y = kinds.Opaque()
    elif isinstance(holder, list):
        holder.append(kinds.Opaque())
    else:
        holder["k"] = kinds.Opaque()
    with pytest.raises(NotSerializable) as caught:
        put(saver, {"items": items, "other": {"a": items}}, after=config)
    assert caught.value.path.startswith("items[17]")
    saver.clear_cache()
    assert anatomy(values_at(saver, config)["items"]) == before
    items[17] = item()
    config = put(saver, {"items": items, "other": 1}, after=config)
    saver.clear_cache()
    assert anatomy(values_at(saver, config)["items"]) == before


def test_a_name_too_long_to_store_is_refused():
    cls = type("L" * 300, (kinds.Opaque,), {})
    threadline.register(cls, name="short", encode=lambda o: 1, decode=lambda s: cls())
    assert type(Codec().decode(Codec().encode(cls()))) is cls
    long = dataclass(type("D" * 300, (), {"__annotations__": {"x": int}, "x": 1, "__module__": "codec_kinds"}))
    setattr(kinds, long.__name__, long)
    try:
        with pytest.raises(NotSerializable, match="too long"):
            Codec().encode(long())
    finally:
        delattr(kinds, long.__name__)
