"""What the native module does while values are packed: the same as Python does, in less time."""

import gc
import random
import weakref
from datetime import datetime, timedelta, timezone
from enum import Enum

import ormsgpack
import pytest
from codec_values import MAKERS

from threadline.base.native import native
from threadline.chunks import encode as encoding
from threadline.chunks import growing
from threadline.chunks.digest import Digester
from threadline.codec import Codec, packing
from threadline.codec.framing import array_header
from threadline.codec.packing import has_bytes

pytestmark = pytest.mark.skipif(native is None, reason="the native module was not built: there is no C compiler")

SCALARS = [
    None, True, False, 0, 127, 128, 255, 256, 65535, 65536, 2**32 - 1, 2**32, 2**63, -1, -32, -33, -128, -129,
    -32769, -(2**31) - 1, 0.5, -1e300, "", "ąćęłı", "a" * 31, "a" * 32, "Ä" * 200, "z" * 70_000, "\xc4\xc5\xc6",
    ormsgpack.Ext(5, b"\xc4"), ormsgpack.Ext(5, b""), *[ormsgpack.Ext(1, bytes(size)) for size in (1, 2, 4, 8, 16, 17)],
    ormsgpack.Ext(7, b"\xc5" * 300), ormsgpack.Ext(7, b"\xc6" * 70_000),
]  # fmt: skip


class Colour(Enum):
    RED = "red"
    BLUE = "blue"


def random_value(rng, depth, leaves):
    if depth == 0 or rng.random() < 0.4:
        return rng.choice(leaves)
    count = rng.choice((0, 1, 3, 15, 16, 20))
    if rng.random() < 0.5:
        return [random_value(rng, depth - 1, leaves) for _ in range(count)]
    return {f"{number}": random_value(rng, depth - 1, leaves) for number in range(count)}


@pytest.mark.parametrize("seed", range(40))
def test_bytes_are_found_where_they_are_and_nowhere_else(seed):
    rng = random.Random(seed)
    leaves = SCALARS if seed % 2 else [*SCALARS, b"", b"x" * 300]
    for _ in range(20):
        values = [random_value(rng, 4, leaves) for _ in range(rng.randrange(4))]
        packed = b"".join(map(ormsgpack.packb, values))
        assert native.holds_bytes(packed) is any(map(has_bytes, values))


@pytest.mark.parametrize("value", SCALARS, ids=lambda value: repr(value)[:20])
def test_what_is_cut_short_counts_as_bytes(value):
    packed = ormsgpack.packb(value)
    assert not native.holds_bytes(packed)
    for length in {*range(1, min(len(packed), 40)), len(packed) - 1}:
        if 0 < length < len(packed):
            assert native.holds_bytes(packed[:length]), length


@pytest.mark.parametrize("packed", [b"\xc1", b"\xdb\xff\xff\xff\xff", b"\xc9\xff\xff\xff\xff\x05", b"\xc7", b"\xa5abc"])
def test_what_is_not_msgpack_counts_as_bytes(packed):
    assert native.holds_bytes(packed)


def test_only_bytes_are_looked_through():
    with pytest.raises(TypeError, match="takes bytes"):
        native.holds_bytes(bytearray(b"\x01"))


@pytest.mark.parametrize("text", ["zażółć gęślą jaźń", "İstanbul'da ağaç", "příliš žluťoučký kůň"])
def test_a_list_of_such_letters_grows_in_a_straight_line(monkeypatch, text):
    """Their bytes look like msgpack's markers of bytes; what is stored is the same either way."""
    cuts = []
    monkeypatch.setattr(encoding, "cut", lambda *args, cut=encoding.cut: (cuts.append(1), cut(*args)))

    def grown():
        encoder, batch, source = encoding.Encoder(Codec(), Digester()), encoding.Batch(), None
        roots = []
        for count in range(1, 7):
            pair, source = encoder.value([f"{text} {number}" * 10 for number in range(count)], "m", batch, source)
            roots.append(pair)
        return roots, batch.chunks

    natively = grown()
    assert not cuts
    for module in (encoding, growing):
        monkeypatch.setattr(module, "native", None)
    assert grown() == natively
    assert len(cuts) == 6


@pytest.mark.parametrize("inside", [b"raw", bytearray(b"raw")])
def test_bytes_among_such_letters_are_still_told_apart(inside):
    codec = Codec()
    encoder, source = encoding.Encoder(codec, Digester()), None
    kept = []
    for count in range(1, 4):
        batch = encoding.Batch()
        _, source = encoder.value([["ąę" * 100, inside, number] for number in range(count)], "m", batch, source)
        kept += [content for _, content in batch.chunks.values()]
    assert len({type(codec.decode(content)[1]) for content in kept}) == 1
    assert type(codec.decode(kept[0])[1]) is type(inside)


def by_python(monkeypatch):
    """A codec whose hooks are Python's."""
    with monkeypatch.context() as patch:
        patch.setattr(packing, "native", None)
        return Codec()


MOMENTS = [
    datetime(2026, 1, 2, 3, 4, 5, 678901),
    datetime(2026, 1, 2, 3, 4, 5, tzinfo=timezone.utc),
    datetime(1, 1, 1),
    datetime(9999, 12, 31, 23, 59, 59, 999999, tzinfo=timezone.utc),
    datetime(2026, 1, 2, fold=1),
    datetime(2026, 1, 2, fold=1, tzinfo=timezone.utc),
    datetime(2026, 1, 2, tzinfo=timezone(timedelta(0))),
    datetime(2026, 1, 2, tzinfo=timezone(timedelta(hours=2), "CEST")),
]


@pytest.mark.parametrize("moment", MOMENTS, ids=str)
def test_moments_are_packed_alike(monkeypatch, moment):
    codec, slow = Codec(), by_python(monkeypatch)
    for value in (moment, [moment, Colour.RED], {"at": {"deep": [moment]}}):
        assert codec.encode(value) == slow.encode(value)
    found = codec.decode(codec.encode(moment))
    assert (found, found.fold, found.tzinfo) == (moment, moment.fold, moment.tzinfo)


@pytest.mark.parametrize("name", MAKERS)
def test_every_kind_is_packed_alike(monkeypatch, name):
    codec, slow = Codec(), by_python(monkeypatch)
    value = MAKERS[name]()
    for one in (value, [value, value], {"a": [value]}):
        assert codec.encode(one) == slow.encode(one)
        assert codec.encode_alone([one, one]) == slow.encode_alone([one, one])


def test_members_are_packed_once_and_by_what_they_are():
    codec = Codec()
    once = codec.encode([Colour.RED, Colour.BLUE])
    assert codec.encode([Colour.RED, Colour.BLUE]) == once
    assert codec.encode([Colour.BLUE, Colour.RED]) != once


def test_a_hook_is_collected_with_its_codec():
    codec = Codec()
    codec.encode([Colour.RED, datetime(2026, 1, 1)])
    gone = weakref.ref(codec)
    del codec
    gc.collect()
    assert gone() is None


@pytest.mark.parametrize("arguments", [(), (1, 2, 3, 4, 5, b""), ({}, callable, repr, repr, 5, "text")])
def test_a_hook_takes_what_it_needs(arguments):
    with pytest.raises(TypeError, match=r"hook\(\) takes"):
        native.hook(*arguments)


def test_a_hook_says_what_went_wrong():
    hook = native.hook({}, str.upper, repr, tuple, 5, b"")
    with pytest.raises(TypeError, match="not packed to bytes"):
        hook(datetime(2026, 1, 1))
    with pytest.raises(TypeError, match="one value"):
        hook()
    with pytest.raises(TypeError, match="one value"):
        hook(value=1)
    assert hook("other") == "OTHER"
    with pytest.raises(TypeError):
        hook(1)
    with pytest.raises(TypeError):
        type(hook)()


def test_an_error_of_packing_a_moment_is_passed_on():
    def fail(_):
        raise ValueError("no")

    with pytest.raises(ValueError, match="no"):
        native.hook({}, callable, fail, tuple, 5, b"")(datetime(2026, 1, 1))


def test_a_list_header_is_looked_through_as_well():
    assert native.holds_bytes(array_header(2) + ormsgpack.packb("x") + ormsgpack.packb(b"y"))
