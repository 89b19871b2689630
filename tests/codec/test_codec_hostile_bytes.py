"""Bytes that were cut, altered or made up: an error of our tree or a value, never anything else, and soon."""

import json
import random

import codec_kinds as kinds
import ormsgpack
import pytest
import zstandard
from codec_values import MAKERS
from hypothesis import given, settings
from hypothesis import strategies as st

from threadline import Corrupt, NotAllowed, Serializer, ThreadlineError
from threadline.codec import Codec, Envelope
from threadline.codec.codec import FOREIGN, OBJECT

# What altered bytes say may be odd enough for numpy or re to warn of it.
pytestmark = pytest.mark.filterwarnings("ignore")
CODEC = Codec()


def try_to_read(packed, read=CODEC.decode):
    """Read bytes; whatever is wrong with them must be said in an error of ours."""
    try:
        return read(packed)
    except (Corrupt, NotAllowed) as error:
        return error


def extension(code, payload):
    return ormsgpack.packb(ormsgpack.Ext(code, payload))


def named(name, state):
    encoded = name.encode()
    return extension(OBJECT, bytes((len(encoded),)) + encoded + ormsgpack.packb(state))


SHORT = {name: CODEC.encode(make()) for name, make in MAKERS.items() if len(CODEC.encode(make())) < 3000}


@pytest.mark.parametrize("name", SHORT)
def test_bytes_cut_anywhere_are_corrupt(name):
    packed = SHORT[name]
    for length in range(len(packed)):
        error = try_to_read(packed[:length])
        assert isinstance(error, Corrupt), length


@pytest.mark.parametrize("name", SHORT)
def test_bytes_with_one_bit_wrong_give_an_error_of_ours_or_a_value(name):
    packed = SHORT[name]
    for position in range(min(len(packed), 400)):
        for bit in range(8):
            altered = bytearray(packed)
            altered[position] ^= 1 << bit
            try_to_read(bytes(altered))


def test_bytes_with_many_bytes_wrong_give_an_error_of_ours_or_a_value():
    chance = random.Random(20260101)
    everything = CODEC.encode([make() for name, make in MAKERS.items() if name in SHORT])
    for _ in range(1500):
        altered = bytearray(everything)
        for _ in range(chance.randint(1, 8)):
            altered[chance.randrange(len(altered))] = chance.randrange(256)
        start = chance.randrange(len(altered))
        try_to_read(bytes(altered))
        try_to_read(bytes(altered[start : start + 200]))


@settings(max_examples=500, deadline=None)
@given(st.binary(max_size=60))
def test_bytes_from_nowhere_give_an_error_of_ours_or_a_value(data):
    try_to_read(data)
    for tag in ("msgpack", "json"):
        try_to_read((tag, data), Serializer().loads_typed)
    try_to_read(extension(OBJECT, data))
    try_to_read(extension(FOREIGN, data))
    for code in range(9):
        try_to_read(extension(code, data))


STATES = st.recursive(
    st.none() | st.booleans() | st.integers(-5, 2**40) | st.floats() | st.text(max_size=8) | st.binary(max_size=8),
    lambda inner: st.lists(inner, max_size=5) | st.dictionaries(st.text(max_size=4), inner, max_size=3),
    max_leaves=8,
)
NAMES = st.sampled_from(
    [
        *("t", "ba", "dq", "od", "dd", "ct", "dt", "date", "time", "td", "tz", "zi", "uuid", "dec", "frac", "cx"),
        *("range", "re", "PurePosixPath", "PosixPath", "WindowsPath", "IPv4Address", "IPv6Network", "exc"),
        *("s", "fs", "i", "m", "u", "nd", "np", "npdtype", "pickle"),
        *(
            "codec_kinds:Point",
            "codec_kinds:SlottedPoint",
            "codec_kinds:Pair",
            "codec_kinds:Plain",
            "codec_kinds:Access",
        ),
        *(
            "codec_kinds:Person",
            "codec_kinds:Person?3",
            "codec_kinds:Person?zz",
            "codec_kinds:Open",
            "codec_kinds:Point@2",
        ),
        *("codec_kinds:Secretive", "codec_kinds:OldPerson", "codec_kinds:Numbers", "codec_kinds:Point@x", "x:y@2?3"),
    ]
)


@settings(max_examples=500, deadline=None)
@given(NAMES, STATES)
def test_a_known_name_over_any_state_gives_an_error_of_ours_or_a_value(name, state):
    try_to_read(named(name, state))
    try_to_read(ormsgpack.packb([1, {"deep": ormsgpack.Ext(OBJECT, b"")}]))


@settings(max_examples=500, deadline=None)
@given(
    st.integers(0, 7),
    st.sampled_from(
        [
            *(
                ["datetime", "datetime"],
                ["datetime", "time"],
                ["uuid", "UUID"],
                ["decimal", "Decimal"],
                ["builtins", "set"],
            ),
            *(["re", "compile"], ["pathlib", "Path"], ["zoneinfo", "ZoneInfo"], ["collections", "deque"]),
            *(
                ["langgraph.types", "Send"],
                ["codec_kinds", "Person"],
                ["codec_kinds", "Plain"],
                ["codec_kinds", "OldPerson"],
            ),
            [5, None],
        ]
    ),
    STATES,
)
def test_langgraphs_extensions_over_any_state_give_an_error_of_ours_or_a_value(code, target, state):
    try_to_read(("msgpack", extension(code, ormsgpack.packb([*target, state, "x"]))), Serializer().loads_typed)
    fields = state if isinstance(state, dict) else {"args": state}
    document = {"lc": 2, "type": "constructor", "id": target, "kwargs": fields, "args": state}
    try:
        text = json.dumps(document)
    except TypeError:
        return  # bytes have no place in JSON
    try_to_read(("json", text.encode()), Serializer().loads_typed)


@pytest.mark.parametrize(
    "text",
    [
        *("", "{", "nul", "[1,", '"\\ud800', "[" * 100_000, '{"a":' * 100_000),
        *('{"lc":1,"type":"constructor"}', '{"lc":2,"type":"constructor","id":null}'),
        *('{"lc":2,"type":"constructor","id":[]}', '{"lc":2,"type":"constructor","id":5}'),
        '{"lc":2,"type":"constructor","id":["decimal","Decimal"],"args":["x"]}',
        '{"lc":2,"type":"constructor","id":["uuid","UUID"],"args":[[]],"kwargs":{"a":1}}',
        '{"lc":1,"type":"constructor","id":[1,2],"kwargs":3}',
        '{"lc":2,"type":"constructor","id":["langgraph","types","Send"],"kwargs":{}}',
    ],
    ids=lambda text: text[:40] or "empty",
)
def test_json_that_is_damaged_gives_an_error_of_ours(text):
    for data in (text.encode("utf-8", "surrogatepass"), b"\xff" + text.encode("utf-8", "surrogatepass")):
        assert isinstance(try_to_read(("json", data), Serializer().loads_typed), ThreadlineError)


def test_lengths_that_are_lies_take_no_memory_and_no_time():
    lies = [
        *(b"\xdd\xff\xff\xff\xff", b"\xdf\xff\xff\xff\xff", b"\xdb\xff\xff\xff\xff", b"\xc6\xff\xff\xff\xff"),
        *(b"\xc9\xff\xff\xff\xff\x20", b"\xdd\x7f\xff\xff\xff" + b"\xc0" * 100, b"\x91" * 100_000),
    ]
    for lie in lies:
        assert isinstance(try_to_read(lie), Corrupt)
        assert isinstance(try_to_read(extension(OBJECT, b"\x01t" + lie)), Corrupt)


def test_extensions_within_extensions_end_soon_whatever_their_depth():
    for depth in (100, 500, 20_000):
        packed = b"\x01"
        for _ in range(depth):
            packed = extension(OBJECT, b"\x01t\x91" + packed)
        try_to_read(packed)
        broken = packed[:-1] + b"\xc1"
        assert isinstance(try_to_read(broken), Corrupt)


def test_shapes_that_are_lies_take_no_memory():
    for state in (
        ["<f8", [2**40, 2**40], "C", b""],
        ["<f8", [-1, -1], "C", b"12345678"],
        ["object", [2**50], "C", []],
        ["O", [1], "C", b"\0" * 8],
        [[["a", "O"]], [1], "C", b"\0" * 8],
        ["V100000000", [0], "C", b""],
        ["<f8", [1], "Z", b"12345678"],
        ["nonsense", [1], "C", b""],
    ):
        try_to_read(named("nd", state))
    for state in (["O", b"\0" * 8], ["<U0", b""], ["V0", b""], [[["a", "O"]], b"\0" * 8], ["<f8", b""]):
        try_to_read(named("np", state))


def test_a_hash_of_ones_own_is_the_only_code_a_forged_key_can_reach():
    assert isinstance(try_to_read(named("m", [[[], 1]])), Corrupt)
    assert isinstance(try_to_read(named("s", [{}])), Corrupt)
    assert isinstance(try_to_read(named("s", 5)), Corrupt)


def test_a_pickle_in_bytes_is_refused_unless_it_was_asked_for():
    loud = b"cbuiltins\nprint\n(S'executed'\ntR."
    for read, packed in (
        (Codec().decode, named("pickle", loud)),
        (Serializer().loads_typed, ("pickle", loud)),
        (Codec().decode, extension(FOREIGN, b"\x06pickle" + loud)),
    ):
        with pytest.raises(NotAllowed, match="pickle"):
            read(packed)
    asked = Serializer(pickle_fallback=True)
    packed = asked.dumps({"deep": [kinds.Opaque((1, 2))]})
    assert asked.loads(packed)["deep"][0].value == (1, 2)
    with pytest.raises(NotAllowed):
        Serializer().loads(packed)


# -- compressed bytes


def test_a_small_frame_that_claims_to_be_huge_is_corrupt():
    bomb = zstandard.ZstdCompressor().compress(b"\0" * 1000)
    claim = zstandard.get_frame_parameters(bomb).content_size
    assert claim == 1000
    # A frame header with a content size of 8 bytes: 1 TB.
    huge = b"\x28\xb5\x2f\xfd" + bytes((0b11000000, 0x70)) + (1 << 40).to_bytes(8, "little") + b"\x01\x00\x00"
    assert zstandard.get_frame_parameters(huge).content_size == 1 << 40
    with pytest.raises(Corrupt, match="size"):
        Envelope().unwrap(1, huge, b"")


def test_a_frame_that_does_not_say_its_size_is_corrupt():
    stream = zstandard.ZstdCompressor(write_content_size=False).compress(b"\0" * 10_000_000)
    with pytest.raises(Corrupt):
        Envelope().unwrap(1, stream, b"")


def test_a_compressed_content_that_was_cut_or_altered_is_corrupt_or_other_bytes():
    form, stored = Envelope().wrap(b"abc" * 700 + bytes(range(256)), b"")
    assert form == 1
    for length in range(len(stored)):
        with pytest.raises(Corrupt):
            Envelope().unwrap(1, stored[:length], b"")
    for position in range(len(stored)):
        try_to_read(stored[:position] + b"\x99" + stored[position + 1 :], lambda data: Envelope().unwrap(1, data, b""))


def test_what_fills_up_compressed_bytes_is_all_there_or_not_at_all():
    """What compresses very well is stored with filling; stores written before that rule have none."""
    plain = b"abc" * 2000
    form, stored = Envelope().wrap(plain, b"")
    assert form == 1
    whole = stored.index(b"\x50\x2a\x4d\x18")
    assert Envelope().unwrap(1, stored[:whole], b"") == plain
    for length in (*range(whole), *range(whole + 1, len(stored))):
        with pytest.raises(Corrupt):
            Envelope().unwrap(1, stored[:length], b"")
    for position in range(whole, len(stored)):
        with pytest.raises(Corrupt):
            Envelope().unwrap(1, stored[:position] + b"\x99" + stored[position + 1 :], b"")
    with pytest.raises(Corrupt):
        Envelope().unwrap(1, stored + b"\0", b"")
