"""What holds for every value that can be made of storable parts, however they are combined."""

import collections
import datetime as dt
import decimal
import pathlib
import re
import uuid
import zoneinfo

import codec_kinds as kinds
from codec_anatomy import anatomy
from codec_stores import put, values_at
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import threadline
from threadline import Serializer
from threadline.codec import Codec

ZONES = [zoneinfo.ZoneInfo(name) for name in ("Europe/Paris", "America/New_York", "UTC", "Asia/Kathmandu")]
OFFSETS = st.integers(-86399, 86399).map(lambda seconds: dt.timezone(dt.timedelta(seconds=seconds)))
any_zone = st.none() | st.sampled_from(ZONES) | OFFSETS
any_text = st.text(st.characters(), max_size=20)  # surrogates and NUL are among the characters

scalars = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(),
    st.integers(-(2**70), 2**70),
    st.floats(),
    st.complex_numbers(),
    any_text,
    st.binary(max_size=40),
    st.decimals(),
    st.fractions(),
    st.uuids(),
    st.dates(),
    st.timedeltas(),
    st.builds(
        lambda when, zone, fold: when.replace(tzinfo=zone, fold=fold), st.datetimes(), any_zone, st.sampled_from([0, 1])
    ),
    st.builds(
        lambda when, zone, fold: when.replace(tzinfo=zone, fold=fold), st.times(), any_zone, st.sampled_from([0, 1])
    ),
    OFFSETS,
    st.ip_addresses(),
    st.builds(range, st.integers(), st.integers(), st.integers(1)),
    st.sampled_from([*kinds.Plain, *kinds.Text, *kinds.Number, *kinds.OldText]),
    st.integers(0, 7).map(kinds.Access),
    st.integers(0, 11).map(kinds.Bits),
    any_text.filter(lambda text: "\0" not in text).map(pathlib.PurePosixPath),
)
hashables = st.recursive(
    # What is equal to another key would be one key; a signalling nan has no hash.
    scalars.filter(lambda value: not (isinstance(value, decimal.Decimal) and value.is_snan())),
    lambda inner: (
        st.lists(inner, max_size=3).map(tuple)
        | st.frozensets(inner, max_size=3)
        | st.builds(kinds.FrozenPoint, inner, inner)
        | st.builds(kinds.Pair, inner, inner)
    ),
    max_leaves=5,
)
values = st.recursive(
    scalars | st.binary(max_size=20).map(bytearray),
    lambda inner: st.one_of(
        st.lists(inner, max_size=4),
        st.lists(inner, max_size=4).map(tuple),
        st.lists(inner, max_size=3).map(lambda items: collections.deque(items, 5)),
        st.dictionaries(any_text, inner, max_size=4),
        st.dictionaries(hashables, inner, max_size=4),
        st.dictionaries(any_text, inner, max_size=3).map(collections.OrderedDict),
        st.dictionaries(hashables, inner, max_size=2).map(lambda items: collections.defaultdict(set, items)),
        st.sets(hashables, max_size=4),
        st.frozensets(hashables, max_size=4),
        st.builds(kinds.Point, inner, inner),
        st.builds(kinds.SlottedPoint, inner, inner),
        st.builds(kinds.FrozenSlottedPoint, x=inner, y=inner),
        st.builds(kinds.Point3, inner, inner),
        st.builds(kinds.Pair, inner, inner),
        st.builds(lambda value: kinds.Person(name="n", extra_data=value), inner),
        st.builds(lambda value: kinds.Open(b=2, more=value), inner),
        st.builds(lambda value: kinds.FrozenModel(value=value), inner),
    ),
    max_leaves=15,
)
quick = settings(max_examples=250, deadline=None, suppress_health_check=[HealthCheck.too_slow])


@quick
@given(values)
def test_anything_comes_back_the_same_and_with_the_same_bytes(value):
    codec = Codec()
    packed = codec.encode(value)
    found = Codec().decode(packed)
    assert anatomy(found) == anatomy(value)
    assert codec.encode(found) == packed


@quick
@given(values)
def test_encoding_changes_nothing_in_the_value(value):
    before = anatomy(value)
    Codec().encode(value)
    assert anatomy(value) == before


@quick
@given(values, values)
def test_equal_bytes_mean_equal_values(one, other):
    codec = Codec()
    assert (codec.encode(one) == codec.encode(other)) == (anatomy(one) == anatomy(other))


@quick
@given(values)
def test_the_serializer_agrees_with_the_codec(value):
    serializer = Serializer()
    assert anatomy(Codec().decode(serializer.dumps(value))) == anatomy(value)
    assert anatomy(serializer.loads_typed(serializer.dumps_typed(value))) == anatomy(value)


@settings(quick, max_examples=100)
@given(st.lists(values, max_size=3), st.dictionaries(any_text, values, max_size=3))
def test_a_store_gives_anything_back_the_same(items, mapping):
    saver = threadline.connect("memory://")
    state = {"items": items, "mapping": mapping, "single": items[:1]}
    config = put(saver, state)
    saver.clear_cache()
    assert anatomy(values_at(saver, config)) == anatomy(state)


def test_the_store_on_sqlite_gives_anything_back_the_same(tmp_path):
    saver = threadline.connect(tmp_path / "threads.db", synchronous="OFF")

    @settings(quick, max_examples=40)
    @given(st.lists(values, max_size=3))
    def try_one(items):
        config = put(saver, {"items": items}, thread=str(uuid.uuid4()))
        saver.clear_cache()
        assert anatomy(values_at(saver, config)["items"]) == anatomy(items)

    try_one()
    saver.close()


def test_the_strategies_make_what_they_promise():
    """So that the tests above are not empty: every kind of value turns up, as a part of another."""
    seen = set()

    @settings(max_examples=60, deadline=None, database=None, derandomize=True)
    @given(st.lists(values, min_size=3))
    def collect(value):
        seen.update(re.findall(r"'(?:\w+\.)+(\w+)'", repr(anatomy(value))))

    collect()
    assert {"bytearray", "tuple", "frozenset", "deque", "datetime", "Decimal", "Point", "Open", "Access"} <= seen
