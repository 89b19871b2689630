"""Lists of nothing but objects: their names are stored once, and they come back as if each had been stored alone."""

import datetime as dt
import itertools

import codec_kinds as kinds
import ormsgpack
import pytest
from codec_anatomy import anatomy
from codec_values import MAKERS
from hypothesis import given
from hypothesis import strategies as st

from threadline import Corrupt, NotAllowed, NotSerializable, Serializer
from threadline.codec import Codec
from threadline.codec.codec import OBJECT
from threadline.codec.framing import ext_frame
from threadline.codec.structural import StructuralCodec
from threadline.transfer.transcode import TransferCodec

NATIVE = (str, int, float, bool, type(None), list, dict, bytes)
OBJECTS = {name: make for name, make in MAKERS.items() if not isinstance(make(), NATIVE)}


def group(*parts):
    return ormsgpack.packb(ormsgpack.Ext(OBJECT, b"\x01*" + ormsgpack.packb(list(parts))))


def test_two_of_every_kind_come_back_the_same(codec):
    assert len(OBJECTS) > 80
    for name, make in OBJECTS.items():
        pair = [make(), make()]
        assert anatomy(codec.decode(codec.encode_alone(pair))) == anatomy(pair), name


def test_what_no_group_can_hold_is_encoded_one_by_one(codec):
    for odd in (bytearray(b"b"), {1: 2}, 2**70, "\ud800", {"deep": [{"deeper": bytearray(b"b")}]}):
        pair = [kinds.Point(1, 2), kinds.Point(odd, 2)]
        assert codec.encode_alone(pair) == codec.encode(pair)
        assert anatomy(codec.decode(codec.encode_alone(pair))) == anatomy(pair)


def test_a_store_has_no_groups(codec):
    pair = [kinds.Point(1, 2), kinds.Point(3, 4)]
    assert codec.encode(pair).count(b"codec_kinds:Point") == 2
    assert codec.encode({"a": pair}).count(b"codec_kinds:Point") == 2


def test_kinds_next_to_each_other_come_back_in_their_order(codec):
    makers = list(OBJECTS.values())
    for first, second in itertools.pairwise(makers):
        mixed = [first(), second(), first()]
        assert anatomy(codec.decode(codec.encode_alone(mixed))) == anatomy(mixed)
    every = [make() for make in makers]
    assert anatomy(codec.decode(codec.encode_alone(every))) == anatomy(every)


def test_more_than_256_names_fit_into_one_group(codec):
    # Which fields were given is part of the name.
    chosen = [names for n in range(9) for names in itertools.combinations("abcdefghi", n)]
    models = [kinds.Nine(**dict.fromkeys(names, 1)) for names in chosen]
    assert len(models) > 500
    found = codec.decode(codec.encode_alone(models))
    assert [one.model_fields_set for one in found] == [one.model_fields_set for one in models]


def test_a_name_is_stored_once(codec):
    points = [kinds.Point(n, n) for n in range(100)]
    assert codec.encode_alone(points).count(b"codec_kinds:Point") == 1
    assert codec.encode_alone([*points, None]).count(b"codec_kinds:Point") == 100


def test_objects_of_a_group_are_objects_of_their_own(codec):
    shared = kinds.Point(1, [])
    first, second = codec.decode(codec.encode_alone([shared, shared]))
    assert first is not second
    assert first.y is not second.y


def test_what_cannot_be_stored_is_named_by_its_place(codec):
    with pytest.raises(NotSerializable) as caught:
        codec.encode_alone([kinds.Point(1, 2), kinds.Point(1, {"deep": object()})])
    assert caught.value.path == "[1]<Point>['y']['deep']"


def test_a_process_without_the_classes_reads_them(codec):
    read = StructuralCodec().decode(codec.encode_alone([kinds.Point(1, 2), (1, 2), kinds.Person(name="n")]))
    assert [getattr(one, "type_name", one) for one in read] == ["codec_kinds:Point", (1, 2), "codec_kinds:Person"]
    assert read[0].fields == {"x": 1, "y": 2}


def test_an_import_keeps_the_objects_of_a_group_one_by_one(codec):
    values = [kinds.Point(1, [dt.date(2024, 1, 1)]), dt.datetime(2024, 1, 1), kinds.Point(2, 3)]
    for each in (values, values[::2], values[1:2] * 2):
        kept = TransferCodec().load(*Serializer().dumps_typed(each))
        assert TransferCodec().encode(kept) == codec.encode(each)
        assert anatomy(codec.decode(TransferCodec().encode(kept))) == anatomy(each)


@pytest.mark.parametrize(
    "forged",
    [
        group(["t"], [], 5),
        group(["t"], [], [5]),
        group(["t", "s"], [], [[1]]),
        group(["t"], [0, 0], [[1]]),
        group(["t", "s"], [0, 7], [[1], [2]]),
        group(["t", "s"], [0, -3], [[1], [2]]),
        group(["t", "s"], ["a", "b"], [[1], [2]]),
        group([], [], [[1]]),
        group([1], [], [[1]]),
        group(["t"], []),
        group(),
    ],
)
def test_a_group_that_does_not_fit_together_is_corrupt(forged, codec):
    with pytest.raises(Corrupt):
        codec.decode(forged)
    with pytest.raises(Corrupt):
        codec.decode_items([forged, forged])


def test_a_group_of_a_class_that_may_not_be_rebuilt_is_refused(codec):
    with pytest.raises(NotAllowed, match="nowhere"):
        codec.decode(group(["nowhere:Nothing"], [], [{}]))


def test_members_that_call_themselves_equal_stay_apart(codec):
    for members in ([kinds.AllEqual.ONE, kinds.AllEqual.TWO], [None, kinds.AllEqual.ONE, kinds.AllEqual.TWO]):
        assert [getattr(one, "name", None) for one in codec.decode(codec.encode_alone(members))] == [
            getattr(one, "name", None) for one in members
        ]


@given(st.datetimes(timezones=st.sampled_from([None, dt.timezone.utc])).map(lambda moment: moment.replace(fold=0)))
def test_a_moment_is_stored_as_its_iso_format(moment):
    packed = Codec().encode(moment)
    assert packed == ormsgpack.packb(ormsgpack.Ext(OBJECT, b"\x02dt" + ormsgpack.packb(moment.isoformat())))
    assert Codec().decode(packed) == moment


@pytest.mark.parametrize("length", [0, 1, 2, 3, 4, 5, 8, 15, 16, 17, 255, 256, 65_535, 65_536])
def test_a_frame_is_what_ormsgpack_makes_of_it(length):
    data = b"x" * length
    assert ext_frame(OBJECT, data[:1], data[1:]) == ormsgpack.packb(ormsgpack.Ext(OBJECT, data))
