"""Values read in one pass by the native module are those that the other way gives, of whatever bytes."""

import gc
import sys
import threading
from datetime import datetime, timezone

import codec_kinds as kinds
import ormsgpack
import pytest
from codec_anatomy import anatomy
from codec_values import MAKERS
from hypothesis import given, settings
from hypothesis import strategies as st
from langchain_core.messages import AIMessage, HumanMessage, ToolMessage

import threadline
from threadline.base.native import native
from threadline.codec import Codec
from threadline.codec.codec import GROUP, OBJECT, OPTIONS
from threadline.codec.data_classes import Together
from threadline.codec.framing import ext_frame

pytestmark = pytest.mark.skipif(native is None, reason="the native module was not built: there is no C compiler")

USUAL = [
    HumanMessage("a", id="1"),
    HumanMessage([{"type": "text", "text": "ä"}], id="2"),
    AIMessage("b", tool_calls=[{"name": "t", "args": {"x": [1, -5, 2.5, None]}, "id": "x"}]),
    AIMessage("c", usage_metadata={"input_tokens": 1, "output_tokens": 2, "total_tokens": 3}),
    ToolMessage("c", tool_call_id="x"),
    kinds.Point(1, kinds.Point(2, kinds.Person(name="n"))),
    kinds.Person(name="n"),
    kinds.Address(street="s"),
    kinds.Open(a=1),
    {"when": datetime(2026, 1, 1, tzinfo=timezone.utc), "set": {1, 2}, "tuple": (1, (2,))},
]
plain = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**63), 2**64 - 1) | st.floats() | st.text() | st.binary(max_size=300),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(max_size=50), inner),
    max_leaves=40,
)


class OtherWay(Codec):
    _reads_natively = False


def outcome(act):
    """What comes of it: a value, or an error with its words."""
    try:
        return anatomy(act())
    except Exception as error:
        return type(error), str(error)


def same(data):
    """Both ways make the same of these bytes."""
    assert outcome(lambda: Codec().decode(data)) == outcome(lambda: OtherWay().decode(data))


def read(data, codec=None):
    codec = codec or Codec()
    return codec.read([data])


@pytest.mark.parametrize("name", MAKERS)
def test_every_kind_of_value_comes_back_as_the_other_way_has_it(name):
    value = MAKERS[name]()
    data = Codec().encode(value)
    assert anatomy(Codec().decode(data)) == anatomy(OtherWay().decode(data)) == anatomy(value)


def test_what_is_usual_is_read_in_one_pass():
    codec = Codec()
    for value in [*USUAL, USUAL, {"messages": USUAL}, "text", None, [], {}]:
        [found] = codec.read([codec.encode(value)])
        assert anatomy(found) == anatomy(value)
    assert anatomy(codec.read([codec.encode(value) for value in USUAL])) == anatomy(USUAL)


def test_states_side_by_side_are_read_in_one_pass():
    codec, values = Codec(), [*USUAL, "text", *USUAL, 7]
    heads, states = codec.states(values)
    assert len(set(heads)) > 4
    codec.decode_items([codec.encode(value) for value in values])  # it knows how each is built now
    packed = [ormsgpack.packb(state, codec.pack_within, OPTIONS) for state in states]
    for bodies in ([b"".join(packed)], packed, [b"".join(packed[:3]), b"", memoryview(b"".join(packed[3:]))]):
        assert anatomy(codec.read(bodies, heads)) == anatomy(OtherWay().decode_states(heads, bodies)) == anatomy(values)
    whole = b"".join(packed)
    for odd in ([whole[:-1]], [whole + b"\xc0"], [whole[:40], whole[40:]], [], [whole, "text"]):
        assert codec.read(odd, heads) is None
    assert anatomy(codec.decode_states(heads, [whole[:40], whole[40:]])) == anatomy(values)
    for odd in ([*heads, b""], heads[:-1], [b"\x05abc", *heads[1:]], [b"\x01" + GROUP, *heads[1:]], ["", *heads[1:]]):
        assert native.values([whole], odd, codec._builders, Together, codec._checked) is None


@given(plain)
@settings(max_examples=300, deadline=None)
def test_plain_data_is_what_msgpack_says(value):
    data = ormsgpack.packb(value)
    [found] = read(data)
    assert anatomy(found) == anatomy(ormsgpack.unpackb(data))


@given(st.binary(max_size=60))
@settings(max_examples=1_000, deadline=None)
def test_any_bytes_are_taken_as_the_other_way_takes_them(data):
    same(data)


@given(st.data())
@settings(max_examples=1_000, deadline=None)
def test_altered_bytes_are_taken_as_the_other_way_takes_them(data):
    found = bytearray(Codec().encode(data.draw(st.sampled_from([*USUAL, USUAL]))))
    for _ in range(data.draw(st.integers(1, 4))):
        place = data.draw(st.integers(0, len(found) - 1))
        new = data.draw(st.binary(max_size=3))
        found[place : place + data.draw(st.integers(0, 3))] = new
        if not found:
            break
    same(bytes(found))


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"\xc1",
        b"\x81\x01\x01",  # a key that is no text
        b"\x82\xa1a\x01\xa1a\x02",  # a key that stands there twice
        b"\xa2\xed\xa0",  # half a surrogate
        b"\xa3\xed\xa0\x80",
        b"\xdd\xff\xff\xff\xff",  # more than there are bytes
        b"\xdf\xff\xff\xff\xff",
        b"\xdb\xff\xff\xff\xff",
        b"\xc6\xff\xff\xff\xff",
        b"\xc9\xff\xff\xff\xff\x20",
        b"\x9f" * 2_000,
        b"\x91" * 99 + b"\xc0",
        b"\x91" * 101 + b"\xc0",
        b"\x91" * 1_023 + b"\xc0",
        b"\x91" * 1_025 + b"\xc0",
        b"\x81\xa1a" * 300 + b"\xc0",
        b"\xc7\x00\x20",
        b"\xc7\x01\x20\x00",
        b"\xc7\x02\x20\xff\xc0",
        b"\xc7\x03\x20\x01s\xc0",
        b"\xd4\xff\x00",
        b"\xd6\xff\x00\x00\x00\x00",
        b"\xca\x7f\xc0\x00\x00",
        b"\xd3\x80" + bytes(7),
        b"\xcf" + b"\xff" * 8,
    ],
)
def test_odd_bytes_are_taken_as_the_other_way_takes_them(data):
    same(data)
    same(b"\x92\xc0" + data)
    same(ext_frame(OBJECT, b"\x02dt", data))


def test_nested_objects_that_differ_at_their_end_are_read_in_time():
    """Fields that do not go on as those before did are not read twice: that would double at each level."""
    codec, name = Codec(), b"codec_kinds:Point"
    data = b"\xc0"
    for _ in range(40):
        data = ext_frame(OBJECT, bytes((len(name),)) + name, b"\x82\xa1x" + data + b"\xa1z\x01")
    codec.encode(kinds.Point(1, 2))
    same(data)


def test_objects_with_fields_in_any_order_are_told_apart():
    codec, name = Codec(), b"\x11codec_kinds:Point"
    states = [b"\x82\xa1x\x01\xa1y\x02", b"\x82\xa1y\x01\xa1x\x02", b"\x82\xa1x\x01\xa1x\x02", b"\x81\xa1x\x01"]
    codec.encode(kinds.Point(1, 2))
    for first in states:
        for other in states:
            data = b"\x93" + b"".join(ext_frame(OBJECT, name, one) for one in (first, first, other))
            same(data)


def test_a_decoder_that_raises_is_heard():
    class Stop(BaseException):
        pass

    def stop(state):
        raise Stop

    class Ticket:
        pass

    threadline.register(Ticket, encode=lambda one: "ticket", decode=stop)
    codec = Codec()
    with pytest.raises(Stop):
        codec.decode(codec.encode([Ticket(), Ticket()]))
    assert gc.isenabled()


def test_what_is_read_is_collected_as_others_are():
    codec = Codec()
    items = [codec.encode(value) for value in USUAL]
    codec.decode_items(items)
    gc.collect()
    before, blocks = len(gc.get_objects()), sys.getallocatedblocks()
    for _ in range(50):
        codec.decode_items(items)
        codec.read([items[0][:-1]])
        codec.read([*items, b"\xc1"])
    gc.collect()
    assert abs(len(gc.get_objects()) - before) < 20
    assert sys.getallocatedblocks() - blocks < 200
    assert gc.isenabled()


@pytest.mark.parametrize(
    "arguments", [(), ([],), ((), None, {}, Together, id), ([], (), {}, Together, id), ([], [], [], 1, 2)]
)
def test_wrong_arguments_are_errors(arguments):
    with pytest.raises(TypeError):
        native.values(*arguments)


def test_a_thread_that_does_not_know_its_stack_yet_reads_all_the_same(monkeypatch):
    """A signal handler, or a finalizer, may read while its thread asks for the first time."""
    codec, size_of_new_threads, found = Codec(), threading.stack_size, []
    data = codec.encode({"n": [1]})

    def asked(*size):
        if not size:
            found.append(codec.decode(data))
        return size_of_new_threads(*size)

    monkeypatch.setattr(threading, "stack_size", asked)
    thread = threading.Thread(target=lambda: found.append(codec.decode(data)))
    thread.start()
    thread.join(10)
    assert found == [{"n": [1]}] * 2
