"""Content is compressed where that pays, and never otherwise."""

import os

import pytest
from codec_stores import put, values_at

import threadline
from threadline import Corrupt, InvalidRequest, KeyRing
from threadline.codec import Envelope


def test_small_content_is_left_alone():
    for size in (0, 1, 500, 1999):
        assert Envelope().wrap(b"a" * size, b"") == (0, b"a" * size)


def test_content_from_two_kilobytes_up_is_compressed():
    for size in (2000, 5000, 1_000_000):
        form, stored = Envelope().wrap(b"a" * size, b"")
        assert form == 1
        assert len(stored) < size / 10
        assert Envelope().unwrap(form, stored, b"") == b"a" * size


def test_content_that_hardly_shrinks_is_left_alone():
    noise = os.urandom(5000)
    assert Envelope().wrap(noise, b"") == (0, noise)
    mixed = os.urandom(4700) + b"a" * 300
    assert Envelope().wrap(mixed, b"")[0] == 0


def test_compression_can_be_turned_off():
    assert Envelope(compression=None).wrap(b"a" * 5000, b"") == (0, b"a" * 5000)


def test_what_was_compressed_is_read_by_a_saver_that_does_not_compress(connect):
    state = {"text": "a" * 20_000, "items": ["b" * 3000] * 30}
    config = put(connect(), state)
    assert values_at(connect(compression=None), config) == state
    config = put(connect(compression=None), state, thread="plain")
    assert values_at(connect(), config) == state


def test_compression_saves_what_it_should(connect):
    saver = connect()
    put(saver, {"text": "a long and boring text, again and again. " * 5000})
    assert saver.stats().bytes_stored < 150_000  # of 205,000; an empty store has a page for each table and index


@pytest.mark.parametrize("compression", ["gzip", "", True, 3])
def test_an_unknown_compression_is_refused(compression):
    with pytest.raises(InvalidRequest, match="zstd"):
        threadline.connect("memory://", compression=compression)


def test_compressed_content_is_sealed_after_and_opened_before():
    envelope = Envelope(ring=KeyRing({"k": bytes(32)}))
    envelope.key_numbers = {"k": 1}
    form, stored = envelope.wrap(b"a" * 5000, b"here")
    assert form == 3
    assert len(stored) < 500
    assert envelope.unwrap(form, stored, b"here") == b"a" * 5000
    with pytest.raises(Corrupt):
        envelope.unwrap(form, stored, b"there")


@pytest.mark.parametrize("form", [2, 3, 5, 1 << 40, -1, -2])
def test_a_form_that_makes_no_sense_is_an_error_of_ours(form):
    for envelope in (Envelope(), Envelope(ring=KeyRing({"k": bytes(32)}))):
        with pytest.raises(threadline.ThreadlineError):
            envelope.unwrap(form, b"x" * 40, b"")
