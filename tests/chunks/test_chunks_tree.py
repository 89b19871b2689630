"""The tree over items: runs within bounds, equal content under equal names, and edits that store little."""

import random

import ormsgpack
import pytest
from chunks_shelf import Shelf
from langchain_core.messages import HumanMessage

from threadline.chunks.cutting import ends_run
from threadline.chunks.digest import Digester
from threadline.chunks.encode import is_same_value
from threadline.chunks.refs import LIST, MAP, Inline, Root, Tree, pairs_of, unpack_ref
from threadline.errors import Corrupt

LONG = "x" * 200
CONTENTS = {
    "small": lambda at: at,
    "long": lambda at: f"{at} {LONG}",
    "equal": lambda at: 7,
    "equal and long": lambda at: LONG,
    "few kinds": lambda at: f"{at % 3} {LONG}",
    "mixed": lambda at: [at, f"{at} {LONG}", {"k": at}, None][at % 4],
}
SIZES = [*range(40), 63, 64, 65, 127, 128, 129, 130, 255, 256, 257, 500, 1000, 1024, 2000, 5000]


@pytest.mark.parametrize("make", CONTENTS.values(), ids=CONTENTS.keys())
def test_a_list_of_any_length_comes_back_from_a_tree_within_its_bounds(make):
    for size in SIZES:
        shelf, items = Shelf(), [make(at) for at in range(size)]
        ref = shelf.keep(items).ref
        assert shelf.read(ref) == items
        tree = shelf.tree(ref)
        if not isinstance(tree, Tree):
            assert len(ormsgpack.packb(items)) < 128
            continue
        assert tree.kind == LIST
        assert tree.depth <= 4
        assert len(tree.refs) < 128
        leaves = shelf.leaves(tree)
        assert all(8 <= count <= 128 for count in leaves)
        assert sum(leaves) + len(tree.refs) == size
        for level in tree.levels:
            assert len(level) < 128


def test_a_dict_of_any_size_comes_back_with_its_order():
    for size in (0, 1, 7, 8, 9, 40, 128, 129, 1000, 5000):
        for make in (lambda at: at, lambda at: f"{at} {LONG}"):
            shelf, mapping = Shelf(), {f"key {(at * 7919) % 10007}": make(at) for at in range(size)}
            ref = shelf.keep(mapping).ref
            found = shelf.read(ref)
            assert list(found.items()) == list(mapping.items())
            tree = shelf.tree(ref)
            if isinstance(tree, Tree):
                assert tree.kind == MAP
                assert all(8 <= count <= 128 for count in shelf.leaves(tree))


def test_a_short_root_stands_by_itself():
    shelf = Shelf()
    assert isinstance(shelf.keep([1, 2, 3]).ref, Inline)
    assert isinstance(shelf.keep({"a": 1}).ref, Inline)
    short = shelf.keep([LONG + str(at) for at in range(7)]).ref
    assert isinstance(short, Tree)
    assert short.levels == ()
    assert isinstance(shelf.keep([LONG + str(at) for at in range(1000)]).ref, Root)


def test_runs_end_where_their_content_says_and_within_bounds():
    digests = [Digester().item(str(at).encode()) for at in range(5000)]
    lengths, length = [], 0
    for digest in digests:
        length += 1
        if ends_run((digest, None), length):
            lengths.append(length)
            length = 0
    assert all(8 <= length <= 128 for length in lengths)
    assert 12 < len(digests) / len(lengths) < 24
    assert [length for length in range(1, 200) if ends_run((b"\xff" * 16, None), length)] == list(range(128, 200))
    assert [length for length in range(1, 20) if ends_run((b"\x00" * 16, None), length)] == list(range(8, 20))


def edits(items, chance):
    """One random change of a list, as programs make them."""
    position = chance.randrange(len(items) + 1)
    return chance.choice(
        [
            lambda: [*items, *(f"new {chance.random()} {LONG}" for _ in range(chance.randint(1, 40)))],
            lambda: [*items[:position], f"inserted {chance.random()} {LONG}", *items[position:]],
            lambda: [*items[:position], *items[position + chance.randint(1, 20) :]],
            lambda: [*items[:position], f"edited {chance.random()}", *items[position + 1 :]],
            lambda: items[chance.randint(1, 30) :],
            lambda: items[: -chance.randint(1, 30)],
            lambda: [*items[position:], *items[:position]],
            lambda: items,
            lambda: items[:position] * 2,
        ]
    )()


@pytest.mark.parametrize(
    "wrap", [lambda text: text, lambda text: (text,), HumanMessage], ids=["text", "tuple", "message"]
)
@pytest.mark.parametrize("seed", range(5))
def test_equal_content_is_equal_whatever_edits_led_to_it(seed, wrap):
    """Texts are recognised packed together, tuples one by one, messages by their fields."""
    chance = random.Random(seed)
    shelf, items, before = Shelf(), [], None
    for _ in range(40):
        items = edits(items, chance)[:1000]
        values = list(map(wrap, items))
        encoded = shelf.keep(values, before)
        assert is_same_value(encoded.source, Shelf().keep(values).source)
        assert all(needed in shelf.chunks for needed in shelf.needed_by(encoded.ref))
        assert shelf.read(encoded.ref) == values
        before = encoded.source if chance.random() < 0.8 else None


def test_equal_content_is_equal_when_objects_are_recognised_by_identity():
    chance = random.Random(1)
    shelf, items, before = Shelf(trust_identity=True), [], None
    for _ in range(100):
        items = edits(items, chance)[:1000]
        encoded = shelf.keep(items, before)
        assert is_same_value(encoded.source, Shelf().keep(list(items)).source)
        assert shelf.read(encoded.ref) == items
        before = encoded.source


@pytest.mark.parametrize("seed", range(6))
def test_equal_dicts_are_equal_whatever_edits_led_to_them(seed):
    chance = random.Random(seed)
    shelf, mapping, before = Shelf(), {}, None
    for _ in range(60):
        mapping = dict(mapping)
        for _ in range(chance.randint(1, 10)):
            key = f"key {chance.randrange(300)}"
            if chance.random() < 0.25:
                mapping.pop(key, None)
            else:
                mapping[key] = chance.choice([1, f"{chance.random()} {LONG}", [key]])
        encoded = shelf.keep(mapping, before)
        assert is_same_value(encoded.source, Shelf().keep(dict(mapping)).source)
        assert list(shelf.read(encoded.ref).items()) == list(mapping.items())
        before = encoded.source


def test_a_list_is_no_continuation_of_a_dict_nor_a_dict_of_a_list():
    shelf = Shelf()
    values = [f"{at} {LONG}" for at in range(100)]
    as_list = shelf.keep(values)
    as_dict = shelf.keep(dict(zip(map(str, range(100)), values, strict=True)), as_list.source)
    assert shelf.read(as_dict.ref) == dict(zip(map(str, range(100)), values, strict=True))
    back = shelf.keep(values, as_dict.source)
    assert back.ref == as_list.ref
    other_keys = shelf.keep({f"k{at}": value for at, value in enumerate(values)}, as_dict.source)
    assert list(shelf.read(other_keys.ref)) == [f"k{at}" for at in range(100)]


@pytest.mark.parametrize(
    ("change", "most"),
    [
        (lambda items: [*items, f"one more {LONG}"], 6),
        (lambda items: [*items, *(f"{at} more {LONG}" for at in range(3))], 9),
        (lambda items: [f"first {LONG}", *items], 40),
        (lambda items: [*items[:2500], f"inserted {LONG}", *items[2500:]], 40),
        (lambda items: [*items[:2500], f"edited {LONG}", *items[2501:]], 40),
        (lambda items: [*items[:2500], *items[2501:]], 40),
        (lambda items: items[1:], 40),
        (lambda items: items[100:], 40),
        (lambda items: items[:-1], 40),
        (lambda items: list(items), 0),
    ],
    ids=["append", "append three", "prepend", "insert", "edit", "delete", "drop first", "trim", "drop last", "nothing"],
)
def test_a_change_of_a_long_list_makes_few_new_chunks(change, most):
    shelf = Shelf()
    items = [f"{at} {LONG}" for at in range(5000)]
    first = shelf.keep(items)
    known = set(shelf.chunks)
    changed = change(items)
    encoded = shelf.encode(changed, first.source)
    assert len(encoded.chunks.keys() - known) <= most
    assert shelf.read(shelf.keep(changed, first.source).ref) == changed


def test_appending_one_by_one_makes_as_many_nodes_as_it_must():
    """A thousand appends: a chunk for each item, and a path for each put."""
    shelf, items, before = Shelf(), [], None
    for at in range(1000):
        items.append(f"{at} {LONG}")
        before = shelf.keep(items, before).source
    assert len(shelf.chunks) < 1000 + 1000 * 2
    last = shelf.keep(items, before).ref
    assert shelf.read(last) == items
    assert len(shelf.needed_by(last)) < 130


def test_every_chunk_a_value_needs_can_be_found_by_links_alone():
    shelf = Shelf()
    for value in (
        [f"{at} {LONG}" for at in range(700)],
        {f"k{at}": LONG * 300 for at in range(20)},
        ["y" * 100_000, {"deep": ["z" * 50_000]}, 1],
        "w" * 200_000,
    ):
        other = Shelf()
        ref = other.keep(value).ref
        assert other.needed_by(ref) == set(other.chunks)
        assert shelf.read(shelf.keep(value).ref) == value


def test_a_state_is_read_level_by_level_each_level_in_one_query():
    shelf = Shelf()
    items = [f"{at} {LONG}" for at in range(5000)]
    ref = shelf.keep(items).ref
    shelf.fetches.clear()
    assert shelf.read(ref) == items
    assert len(shelf.fetches) <= 4
    asked = [digest for fetch in shelf.fetches for digest in fetch]
    assert len(asked) == len(set(asked))
    assert all(fetch == sorted(fetch) for fetch in shelf.fetches)


def test_a_list_that_grows_stores_a_root_for_one_of_eight_items():
    """The others stand behind the root of before; however the list came about, the reference is the same."""
    shelf, items, before, roots = Shelf(), [], None, []
    for at in range(300):
        items = [*items, LONG + str(at)]
        kept = shelf.keep(items, before)
        before = kept.source
        assert shelf.read(kept.ref) == items
        if isinstance(kept.ref, Root):
            assert len(kept.ref.behind) == len(shelf.tree(kept.ref).refs) % 8
            roots.append(kept.ref.digest)
        whole = Shelf().keep(items).ref
        assert type(whole) is type(kept.ref)
        assert not isinstance(whole, Root) or whole.behind == kept.ref.behind
    assert len(roots) > 150
    assert len(set(roots)) < len(roots) / 3  # a root more where a run closes


def test_items_behind_a_root_that_is_not_of_a_list_are_corrupt():
    shelf = Shelf()
    root = shelf.keep({str(at): LONG + str(at) for at in range(100)}).ref
    item = shelf.keep(LONG).ref
    assert isinstance(root, Root)
    with pytest.raises(Corrupt):
        shelf.read(Root(root.digest, (item,)))


@pytest.mark.parametrize("count", [0, -1, 128, 1 << 62, False])
def test_an_impossible_number_of_items_behind_a_root_is_corrupt(count):
    for unpack in (lambda: unpack_ref(b"x" * 16 * 200, count), lambda: pairs_of(b"x" * 16 * 200, {"a": count})):
        with pytest.raises(Corrupt):
            unpack()


def test_fewer_items_than_stand_behind_a_root_are_corrupt():
    with pytest.raises(Corrupt):
        unpack_ref(b"x" * 32, 2)
    with pytest.raises(Corrupt):
        pairs_of(b"x" * 32, {"a": 2})
    assert unpack_ref(b"x" * 48, 2) == Root(b"x" * 16, (b"x" * 16, b"x" * 16))
