"""The pack file: what goes in comes out, and nothing that was cut or altered passes for a pack."""

from __future__ import annotations

import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st

from threadline.base.drive import run_now
from threadline.errors import Corrupt
from threadline.packs.cold import COLD, cold_row, fits, hot_form, is_cold, read_reference
from threadline.packs.format import MAGIC, MOST_BYTES, name_of
from threadline.packs.reader import read_index, read_pack, rows_of
from threadline.packs.spans import merged, sliced
from threadline.packs.writer import PackWriter, packs_of
from threadline.ports.checkpoints import ChunkRow

DIGESTS = st.binary(min_size=16, max_size=16)
ROWS = st.lists(
    st.builds(
        ChunkRow, DIGESTS, st.lists(DIGESTS, max_size=3).map(b"".join), st.integers(0, 9), st.binary(max_size=300)
    ),
    max_size=20,
)


@given(ROWS, st.integers(0, 2**40), st.binary(max_size=16))
def test_a_pack_gives_back_the_rows_it_was_made_of(rows, pool, salt):
    writer = PackWriter(pool, salt=salt)
    for row in rows:
        writer.add(row)
    packed = writer.finish()
    index = read_pack(packed.content, packed.name)
    assert (index.pool, index.salt) == (pool, salt)
    assert list(rows_of(packed.content, index)) == rows
    assert name_of(packed.content) == packed.name


@given(ROWS)
def test_a_pack_is_read_by_ranges(rows):
    [packed] = packs_of(3, rows) if rows else [PackWriter(3).finish()]
    asked = []

    async def read(offset, length):
        asked.append((offset, length))
        return packed.content[offset : offset + length]

    index = run_now(read_index(read, len(packed.content)))
    assert index == read_pack(packed.content)
    assert len(asked) == 2


@given(st.data())
def test_a_pack_that_was_altered_or_cut_is_refused(data):
    [packed] = packs_of(1, [ChunkRow(b"d" * 16, b"", 0, b"some bytes of a chunk" * 9)])
    at = data.draw(st.integers(0, len(packed.content) - 1))
    flipped = bytearray(packed.content)
    flipped[at] ^= data.draw(st.integers(1, 255))
    with pytest.raises(Corrupt):
        read_pack(bytes(flipped))
    with pytest.raises(Corrupt):
        read_pack(packed.content[:at])


@given(st.binary(max_size=400))
def test_no_other_bytes_pass_for_a_pack(content):
    with pytest.raises(Corrupt):
        read_pack(MAGIC + content)

    async def read(offset, length):
        return (MAGIC + content)[offset : offset + length]

    try:
        index = run_now(read_index(read, len(MAGIC + content)))
    except Corrupt:
        return
    assert all(entry.offset + entry.length <= len(MAGIC + content) for entry in index.entries)


def test_a_pack_under_another_name_is_refused():
    [packed] = packs_of(1, [ChunkRow(b"d" * 16, b"", 0, b"bytes")])
    with pytest.raises(Corrupt, match="another one"):
        read_pack(packed.content, b"n" * 16)


def test_packs_are_filled_up_to_their_bound_and_a_larger_chunk_has_one_of_its_own():
    rows = [ChunkRow(bytes([n]) * 16, b"", 0, b"x" * 400) for n in range(10)]
    packs = list(packs_of(1, rows, most_bytes=1000))
    assert [len(one.index.entries) for one in packs] == [2, 2, 2, 2, 2]
    large = ChunkRow(b"l" * 16, b"", 0, b"y" * 5000)
    assert [len(one.index.entries) for one in packs_of(1, [rows[0], large, rows[1]], most_bytes=1000)] == [1, 1, 1]
    assert MOST_BYTES == 16 * 1024 * 1024


def test_equal_chunks_of_two_pools_are_no_equal_objects():
    rows = [ChunkRow(b"d" * 16, b"", 0, b"bytes")]
    names = {one.name for pool, salt in ((1, b"a"), (2, b"b"), (1, b"b")) for one in packs_of(pool, rows, salt=salt)}
    assert len(names) == 3


@given(st.builds(ChunkRow, DIGESTS, DIGESTS, st.integers(0, 2**20), st.binary(max_size=50)), st.integers(0, 2**50))
def test_a_cold_row_says_where_its_bytes_are_and_keeps_its_key_number(row, offset):
    cold = cold_row(row, b"n" * 16, offset)
    assert (cold.digest, cold.links) == (row.digest, row.links)
    assert is_cold(cold.form)
    assert not is_cold(row.form)
    assert hot_form(cold.form) == row.form
    reference = read_reference(cold.data)
    assert reference[:3] == (b"n" * 16, offset, len(row.data))
    assert fits(reference, row.data)
    assert not fits(reference, row.data + b"x")


@pytest.mark.parametrize("form", [None, "1073741824", -1, COLD - 1, COLD * 2, 1.5, True])
def test_no_other_form_is_a_cold_one(form):
    assert not is_cold(form)


@pytest.mark.parametrize("data", [b"", b"x" * 35, b"x" * 37, None, "x" * 36])
def test_a_damaged_reference_is_corrupt(data):
    with pytest.raises(Corrupt):
        read_reference(data)


@given(st.lists(st.tuples(st.integers(0, 500), st.integers(1, 60)), min_size=1), st.integers(0, 100))
def test_neighbours_are_read_together_and_each_part_is_found_again(spans, gap):
    whole = bytes(n % 251 for n in range(600))
    together = merged(spans, gap)
    assert len(together) <= len(spans)
    assert all(after[0] - sum(before) > gap for before, after in itertools.pairwise(together))
    read = [(offset, whole[offset : offset + length]) for offset, length in together]
    assert sliced(spans, read) == [whole[offset : offset + length] for offset, length in spans]
