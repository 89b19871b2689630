"""Any edit of any list or dict is told by its diff."""

import random
from collections import Counter

import pytest
from history_diffs import LONG, channel_diff, diff_of, put
from hypothesis import given, settings
from hypothesis import strategies as st

import threadline
from threadline.chunks import sequence_diff as align
from threadline.chunks.sequence_diff import differing
from threadline.codec import Codec

ITEMS = st.one_of(
    st.integers(0, 3), st.text("ab", max_size=2), st.booleans(), st.integers(0, 40).map(lambda n: f"{n} {LONG}")
)


def encoded(values):
    return Counter(map(Codec().encode, values))


@settings(max_examples=60, deadline=None)
@given(st.lists(ITEMS, max_size=12), st.integers(0, 700), st.randoms(use_true_random=False), st.data())
def test_applying_a_diff_to_the_items_of_one_list_gives_those_of_the_other(items, more, rng, data):
    before = items + [f"{i} {LONG}" for i in range(more)]
    after = list(before)
    for _ in range(data.draw(st.integers(0, 6))):
        start = rng.randint(0, len(after))
        end = min(len(after), start + data.draw(st.sampled_from([0, 0, 1, 2, 50])))
        after[start:end] = data.draw(st.lists(ITEMS, max_size=4))
    with threadline.connect("memory://") as saver:
        a, b = put(saver, "t", {"x": before}), put(saver, "t", {"x": after})
        found = diff_of(saver, a, b)
    changes = found.channels[0].items if found else ()
    left = encoded(before)
    left.subtract(encoded(item.before for item in changes if item.kind != "added"))
    left.update(encoded(item.after for item in changes if item.kind != "removed"))
    assert +left == encoded(after)
    assert min(left.values(), default=0) >= 0
    for item in changes:
        if item.key is not None:
            where, what = (before, item.before) if item.kind == "removed" else (after, item.after)
            assert encoded([where[item.key]]) == encoded([what])


@settings(max_examples=40, deadline=None)
@given(
    st.dictionaries(st.text("abc", max_size=3), ITEMS, max_size=300),
    st.dictionaries(st.text("abc", max_size=3), ITEMS, max_size=300),
    st.integers(0, 400),
)
def test_applying_a_diff_to_one_dict_gives_the_other(before, after, more):
    common = {f"k{i}": f"{i} {LONG}" for i in range(more)}
    before, after = before | common, common | after
    with threadline.connect("memory://") as saver:
        found = diff_of(saver, put(saver, "t", {"x": before}), put(saver, "t", {"x": after}))
    for item in found.channels[0].items if found else ():
        assert item.kind != "added" or item.key not in before
        if item.kind == "removed":
            del before[item.key]
        else:
            before[item.key] = item.after
    assert {key: Codec().encode(value) for key, value in before.items()} == {
        key: Codec().encode(value) for key, value in after.items()
    }


def rebuilt(before, after):
    """The second list, made from the first and what differs."""
    built, a, b = [], 0, 0
    for a0, a1, b0, b1 in differing(before, after):
        assert a0 < a1 or b0 < b1
        assert before[a:a0] == after[b:b0]
        built += before[a:a0] + after[b0:b1]
        a, b = a1, b1
    assert before[a:] == after[b:]
    return built + before[a:]


@pytest.mark.parametrize("most_work", [align._MOST_WORK, 0])
def test_what_stands_between_differing_stretches_is_equal(monkeypatch, most_work):
    monkeypatch.setattr(align, "_MOST_WORK", most_work)
    for values in (1, 3, 20):
        lists = st.lists(st.integers(0, values), max_size=30)

        @given(lists, lists)
        def holds(before, after):
            assert rebuilt(before, after) == after

        holds()


def test_long_lists_of_few_values_are_compared_place_by_place_where_that_fits(connect):
    rng = random.Random(1)
    before = [rng.randint(0, 1) for _ in range(5000)]
    after = [1 - value if rng.random() < 0.1 else value for value in before]
    found = channel_diff(connect, before, after)
    assert [item.key for item in found.items] == [i for i in range(5000) if before[i] != after[i]]


def test_long_lists_of_repeated_values_are_aligned_in_little_work():
    # difflib alone would take minutes for each of these.
    before = [i // 2 for i in range(20_000)]
    apart = [part for i, value in enumerate(before) for part in (value, f"new {i}")]
    assert rebuilt(before, apart) == apart
    assert sum(a1 - a0 for a0, a1, _, _ in differing(before, apart)) == 0
    rng = random.Random(1)
    bits = [rng.randint(0, 1) for _ in range(10_000)], [rng.randint(0, 1) for _ in range(9_000)]
    assert rebuilt(*bits) == bits[1]
    assert sum(a1 - a0 for a0, a1, _, _ in differing(*bits)) < 9000
