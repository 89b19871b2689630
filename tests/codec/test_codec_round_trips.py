"""What is put comes back the same, to the last bit and type, wherever it stands and wherever it is stored."""

import collections
import copy
import pickle

import codec_kinds as kinds
import pytest
from codec_anatomy import anatomy
from codec_stores import put, values_at
from codec_values import MAKERS

from threadline import Serializer, StoredException, register
from threadline.base.checkpoint import metadata_value
from threadline.codec import Codec

every_value = pytest.mark.parametrize("make", MAKERS.values(), ids=MAKERS.keys())
HASHABLE = [make for make in MAKERS.values() if getattr(type(make()), "__hash__", None) is not None]


def again(value):
    codec = Codec()
    return codec.decode(codec.encode(value))


@every_value
def test_a_value_comes_back_the_same(make, codec):
    packed = codec.encode(make())
    assert anatomy(Codec().decode(packed)) == anatomy(make())


@every_value
def test_what_came_back_has_the_same_bytes_again(make, codec):
    packed = codec.encode(make())
    assert codec.encode(codec.decode(packed)) == packed
    assert Codec().encode(make()) == packed


WRAPS = {
    "list": lambda value: [value],
    "list beside a big number": lambda value: [1, value, 2**70],
    "tuple": lambda value: (value,),
    "dict": lambda value: {"key": value},
    "dict beside a surrogate": lambda value: {"key": [value], "\ud800": 1},
    "dict of ints": lambda value: {1: value},
    "depths": lambda value: [bytearray(b"b"), {"deep": [{"deeper": (value,)}]}],
    "deque": lambda value: collections.deque([value], 5),
    "ordered dict": lambda value: collections.OrderedDict(z=value, a=1),
    "dataclass": lambda value: kinds.Point(1, value),
    "slotted dataclass": lambda value: kinds.FrozenSlottedPoint(x=1, y=value),
    "named tuple": lambda value: kinds.Pair(value),
    "model": lambda value: kinds.Person(name="n", extra_data=value),
    "extra field of a model": lambda value: kinds.Open(more=value, a=1, b=2),
}


@pytest.mark.parametrize("wrap", WRAPS.values(), ids=WRAPS.keys())
def test_a_value_comes_back_the_same_from_inside_another(wrap):
    for name, make in MAKERS.items():
        assert anatomy(again(wrap(make()))) == anatomy(wrap(make())), name


def test_the_fast_and_the_slow_way_give_the_same_bytes(codec):
    """A bytearray anywhere sends everything that stands beside it down the slow way."""
    for name, make in MAKERS.items():
        both = codec.encode([make(), bytearray(b"")])
        assert both[1:].startswith(codec.encode(make())), name


def test_every_hashable_value_comes_back_as_a_key_and_as_a_member():
    assert len(HASHABLE) > 60
    for make in HASHABLE:
        try:
            hash(make())
        except TypeError:
            continue  # a signalling nan, or a tuple that holds a list
        assert anatomy(again({make(): 1})) == anatomy({make(): 1})
        assert anatomy(again({make()})) == anatomy({make()})
        assert anatomy(again(frozenset({make(), "other"}))) == anatomy(frozenset({make(), "other"}))


def test_the_order_of_a_dict_is_kept_whatever_its_keys():
    for keys in (["b", "a"], ["b", "a", "\ud800"], [2, 1], [(2,), (1,)], ["b", 1, "a", None]):
        for order in (keys, keys[::-1]):
            assert list(again(dict.fromkeys(order))) == order


def test_keys_that_are_equal_but_of_other_types_stay_what_they_are():
    for key in (1, True, 1.0, kinds.Number.ONE):
        [found] = again({key: "value"})
        assert type(found) is type(key)


def test_the_bytes_of_a_set_do_not_depend_on_the_order_of_its_members(codec):
    members = ["a", "b", 1, 2.5, None, (1, 2), b"x", frozenset({1, 2}), kinds.Plain.RED, kinds.FrozenPoint(1)]
    forward, backward = set(members), set()
    for member in reversed(members):
        backward.add(member)
    assert codec.encode(forward) == codec.encode(backward)


def test_the_bytes_of_a_set_are_the_same_in_processes_with_other_hashes(run_script):
    script = """
        from threadline.codec import Codec
        print(Codec().encode({"x", "y", "z", frozenset({"p", "q"}), ("t", 1)}).hex())
    """
    assert run_script(script, PYTHONHASHSEED="1") == run_script(script, PYTHONHASHSEED="2")


def test_sets_within_sets_are_not_encoded_twice_as_often_at_every_level(codec):
    asked = []
    register(kinds.Opaque, name="opaque", encode=lambda value: asked.append(1), decode=lambda state: None)
    nested = frozenset({kinds.Opaque()})
    for _ in range(11):
        nested = frozenset({nested})
    codec.encode(nested)
    assert len(asked) < 100


def test_values_that_look_equal_have_different_bytes(codec):
    alike = [
        *(1, 1.0, True, kinds.Number.ONE, 1 + 0j),
        *(0.0, -0.0, False, 0),
        *("low", kinds.Text.LOW, kinds.OldText.LOW, b"low", bytearray(b"low")),
        *((1, 2), [1, 2], kinds.Pair(1, 2), collections.deque([1, 2]), collections.deque([1, 2], 2)),
        *({1, 2}, frozenset({1, 2})),
        *({"a": 1, "b": 2}, {"b": 2, "a": 1}),
        *(collections.OrderedDict(a=1, b=2), collections.OrderedDict(b=2, a=1), collections.Counter(a=1, b=2)),
        *(collections.defaultdict(int, a=1), collections.defaultdict(float, a=1), collections.defaultdict(None, a=1)),
        *(kinds.Point(1, 2), kinds.FrozenPoint(1, 2), kinds.SlottedPoint(1, 2), kinds.CheckedPoint(1, 2)),
        *(kinds.Person(name="n"), kinds.Person(name="n", age=0)),
    ]
    packed = [codec.encode(value) for value in alike]
    assert len(set(packed)) == len(alike)


@pytest.mark.parametrize(
    ("value", "reduced"),
    [
        (kinds.TextOfMine("t"), "t"),
        (kinds.IntOfMine(2**70), 2**70),
        (kinds.FloatOfMine(-0.0), -0.0),
        (kinds.BytesOfMine(b"b"), b"b"),
        (kinds.ListOfMine([1, kinds.TextOfMine("t")]), [1, "t"]),
        (kinds.DictOfMine({kinds.TextOfMine("k"): 1}), {"k": 1}),
        (kinds.TupleOfMine((1,)), (1,)),
        (kinds.SetOfMine({1}), {1}),
    ],
    ids=lambda value: type(value).__name__,
)
def test_a_subclass_of_a_basic_type_is_kept_as_the_basic_type(value, reduced):
    assert anatomy(again(value)) == anatomy(reduced)


def test_an_exception_is_kept_as_its_name_and_its_text():
    for error in (ValueError("bad"), KeyError("k"), OSError(2, "gone"), ExceptionWithParts("x", 1)):
        found = again([error])[0]
        assert type(found) is StoredException
        assert found.type_name == f"{type(error).__module__}:{type(error).__qualname__}"
        assert found.message == str(error)
        assert found == repr(error)
        assert again(found) == found
        assert again(found).type_name == found.type_name


def test_an_exception_from_a_store_can_be_copied_and_pickled():
    found = again(ValueError("bad"))
    for copied in (copy.copy(found), copy.deepcopy(found), pickle.loads(pickle.dumps(found))):
        assert copied == found
        assert (copied.type_name, copied.message) == (found.type_name, found.message)


class ExceptionWithParts(Exception):
    pass


def test_an_exception_that_cannot_be_printed_is_kept_or_refused_but_breaks_nothing(codec):
    found = again(kinds.Grumpy("x"))
    assert found.type_name == "codec_kinds:Grumpy"


@every_value
def test_the_serializer_gives_back_what_it_was_given(make):
    assert anatomy(Serializer().loads(Serializer().dumps(make()))) == anatomy(make())
    assert anatomy(Serializer().loads_typed(Serializer().dumps_typed(make()))) == anatomy(make())


@pytest.mark.parametrize(
    ("value", "tag"),
    [(None, "null"), (b"b", "bytes"), (bytearray(b"b"), "bytearray"), ("t", "msgpack"), (kinds.Point(1), "msgpack")],
)
def test_tags_are_those_of_langgraphs_serializers(value, tag):
    found, packed = Serializer().dumps_typed(value)
    assert found == tag
    assert type(packed) is bytes


def test_a_store_gives_every_value_back_the_same(connect):
    """As a channel, as an item of a list or a dict, as a pending write, and, as far as JSON goes, as metadata."""
    saver = connect()
    # Metadata is compared and merged by keys, so it takes the values one level down.
    config = put(
        saver,
        {
            **{f"one {name}": make() for name, make in MAKERS.items()},
            "list": [make() for make in MAKERS.values()],
            "dict": {name: make() for name, make in MAKERS.items()},
            "tuple": tuple(make() for make in MAKERS.values()),
        },
        note={name: make() for name, make in MAKERS.items()},
    )
    saver.put_writes(config, [(f"write {name}", make()) for name, make in MAKERS.items()], "task")
    saver.clear_cache()
    for reader in (saver, connect()):
        found = reader.get_tuple(config)
        values = found.checkpoint["channel_values"]
        writes = {channel: value for _, channel, value in found.pending_writes}
        for at, (name, make) in enumerate(MAKERS.items()):
            expected = anatomy(make())
            places = (values[f"one {name}"], values["list"][at], values["dict"][name], values["tuple"][at])
            for place in (*places, writes[f"write {name}"]):
                assert anatomy(place) == expected, name
            # Metadata is as JSON gives it back, where JSON has a word for it.
            assert anatomy(found.metadata["note"][name]) == anatomy(metadata_value({"": make()})[""]), name


@pytest.mark.parametrize("options", [{"share_decoded": True}, {"cache_bytes": 1}, {"trust_identity": True}])
def test_a_store_gives_every_value_back_the_same_whatever_its_options(connect, options):
    saver = connect(**options)
    config = put(saver, {"values": [make() for make in MAKERS.values()]})
    config = put(saver, {"values": [make() for make in MAKERS.values()], "none": None}, after=config)
    for reader in (saver, connect()):
        found = values_at(reader, config)["values"]
        for (name, make), value in zip(MAKERS.items(), found, strict=True):
            assert anatomy(value) == anatomy(make()), name


@pytest.mark.parametrize("name", ["\0", "a\0b", "\ud800", "", "漢字", "a" * 5000, "[0]", "'"])
def test_a_channel_may_have_any_name(connect, name):
    config = put(connect(), {name: [1, 2], "other": 3})
    assert anatomy(values_at(connect(), config)) == anatomy({name: [1, 2], "other": 3})
