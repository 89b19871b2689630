"""What is read is checked: a chunk that is missing, altered or moved is never a wrong or partial value."""

import sqlite3
from contextlib import closing

import ormsgpack
import pytest
from chunks_shelf import Shelf, is_cut, packed
from codec_stores import in_thread, put, values_at
from hypothesis import given, settings
from hypothesis import strategies as st

import threadline
from threadline import Corrupt
from threadline.chunks.digest import Digester
from threadline.chunks.refs import LIST, MAP, Inline, Pieces, Root, Tree, unpack_node, unpack_ref, unpack_refs

LONG = "x" * 200
VALUES = {
    "item": LONG,
    "list": [f"{at} {LONG}" for at in range(300)],
    "dict": {f"k{at}": f"{at} {LONG}" for at in range(300)},
    "pieces": "".join(f"line {at}\n" for at in range(20_000)),
    "nested": [["".join(f"{at} {row}" for at in range(3000)), row] for row in range(4)],
}


# -- chunks


@pytest.mark.parametrize("name", VALUES)
def test_any_missing_chunk_is_named(name):
    shelf = Shelf()
    ref = shelf.keep(VALUES[name]).ref
    for digest in list(shelf.chunks)[:: max(1, len(shelf.chunks) // 40)]:
        chunk = shelf.chunks.pop(digest)
        with pytest.raises(Corrupt, match=f"{digest.hex()} is missing"):
            shelf.read(ref)
        shelf.chunks[digest] = chunk
    assert shelf.read(ref) == VALUES[name]


@pytest.mark.parametrize("name", VALUES)
def test_any_altered_chunk_is_named(name):
    shelf = Shelf()
    ref = shelf.keep(VALUES[name]).ref
    for digest in list(shelf.chunks)[:: max(1, len(shelf.chunks) // 20)]:
        links, content = shelf.chunks[digest]
        for altered in (
            (links, content[:-1]),
            (links, content + b"\xc0"),
            (links, bytes((content[0] ^ 1,)) + content[1:]),
            (links[:-16], content),
            (links + b"\0" * 16, content),
            (links[::-1], content + b"\0"),
            (links, b""),
        ):
            shelf.chunks[digest] = altered
            if altered[1] == content and not links and not altered[0]:
                continue  # an item has no links to take away
            # An item that has links is said to have moved into a pack.
            with pytest.raises(
                Corrupt, match=f"{digest.hex()} (was altered|is damaged: it points to no place in a pack)"
            ):
                shelf.read(ref)
        shelf.chunks[digest] = (links, content)
    assert shelf.read(ref) == VALUES[name]


def test_an_item_is_not_taken_for_a_node_nor_a_node_for_an_item():
    digester = Digester()
    assert digester.item(b"content") != digester.node(b"", b"content")
    assert digester.node(b"a" * 16, b"b") != digester.node(b"", b"a" * 16 + b"b")
    assert len(digester.item(b"")) == 16
    assert Digester(b"key").item(b"content") != digester.item(b"content")
    shelf = Shelf()
    tree = shelf.tree(shelf.keep(VALUES["list"]).ref)
    leaf = tree.levels[-1][0]
    with pytest.raises(Corrupt):
        shelf.read(leaf)
    item = tree.refs[0]
    with pytest.raises(Corrupt):
        shelf.read(Tree(LIST, ((item,),), ()))
    for wrong in (
        Tree(MAP, tree.levels, (), ()),
        Tree(LIST, (*tree.levels, ()), ()),
        Pieces(tree.levels[-1]),
        Root(leaf),
        Root(item),
        Root(item, (item,)),
        Root(leaf, (item, leaf)),
    ):
        with pytest.raises(Corrupt):
            shelf.read(wrong)


@pytest.fixture
def path(tmp_path):
    return tmp_path / "threads.db"


def run_sql(path, statement, *values):
    with closing(sqlite3.connect(path)) as database, database:
        return database.execute(statement, values).fetchall()


def test_a_damaged_chunk_is_corrupt_with_thread_checkpoint_and_channel(path):
    saver = threadline.connect(path)
    good = put(saver, {"items": VALUES["list"][:100]}, thread="good")
    bad = put(saver, {"items": VALUES["list"], "other": 1}, thread="bad thread")
    for statement in (
        "update threadline_chunks set data = x'00' where digest = ? and pool = 2",
        "update threadline_chunks set form = 1 where digest = ? and pool = 2",
        "update threadline_chunks set form = 2 where digest = ? and pool = 2",
        "delete from threadline_chunks where digest = ? and pool = 2",
    ):
        [(digest,)] = run_sql(path, "select digest from threadline_chunks where pool = 2 limit 1")
        run_sql(path, statement, digest)
        saver.clear_cache()
        with pytest.raises(Corrupt) as caught:
            saver.get_tuple(bad)
        for part in ("bad thread", bad["configurable"]["checkpoint_id"], "'items'", digest.hex()):
            assert part in str(caught.value)
        assert LONG not in str(caught.value)
        assert values_at(saver, good)["items"] == VALUES["list"][:100]
    saver.close()


def test_one_damaged_value_does_not_end_a_list(path):
    saver = threadline.connect(path)
    for at in range(6):
        put(saver, {"items": [f"of {at} {LONG}"], "n": at}, thread=f"thread {at}")
    run_sql(path, "update threadline_chunks set data = x'00' where pool = 3")
    saver.clear_cache()
    found = list(saver.list(None))
    assert len(found) == 6
    values = [one.checkpoint["channel_values"] for one in found]
    assert sorted(each["n"] for each in values) == list(range(6))
    damaged = 0
    for each in values:
        try:
            assert each["items"] == [f"of {each['n']} {LONG}"]
        except Corrupt:
            damaged += 1
    assert damaged == 1
    saver.close()


def test_what_was_verified_once_is_kept_as_bytes_and_within_its_bound(path):
    for cache_bytes in (0, 5_000, 10_000_000):
        saver = threadline.connect(path, cache_bytes=cache_bytes)
        put(saver, {"items": VALUES["list"]}, thread=str(cache_bytes))
        for _ in range(3):
            assert values_at(saver, in_thread(str(cache_bytes)))["items"] == VALUES["list"]
        assert saver._tools.reader.used_bytes <= cache_bytes
        saver.close()


# -- references


DIGESTS = st.binary(min_size=16, max_size=16)
LEVELS = st.lists(st.lists(DIGESTS, max_size=3).map(tuple), max_size=3).map(tuple)
REFS = st.recursive(
    DIGESTS
    | st.builds(Inline, st.binary(max_size=20))
    | st.builds(Root, DIGESTS)
    | st.builds(Root, DIGESTS, st.lists(DIGESTS, min_size=1, max_size=7).map(tuple))
    | st.builds(Pieces, st.lists(DIGESTS, max_size=4).map(tuple)),
    lambda inner: (
        st.builds(lambda levels, refs: Tree(LIST, levels, tuple(refs)), LEVELS, st.lists(inner, max_size=4))
        | st.builds(
            lambda levels, pairs: Tree(MAP, levels, tuple(pairs.values()), tuple(pairs)),
            LEVELS,
            st.dictionaries(st.text(max_size=5), inner, max_size=4),
        )
    ),
    max_leaves=10,
)


@settings(max_examples=300, deadline=None)
@given(REFS)
def test_a_reference_comes_back_from_its_links_and_what_is_left_of_it(ref):
    links, rest = packed(ref)
    assert unpack_ref(links, ormsgpack.unpackb(ormsgpack.packb(rest))) == ref


@settings(max_examples=200, deadline=None)
@given(REFS)
def test_a_reference_whose_links_were_cut_is_corrupt(ref):
    links, rest = packed(ref)
    for length in range(0, len(links), 16):
        with pytest.raises(Corrupt):
            unpack_ref(links[:length], rest)


NONSENSE = st.recursive(
    st.none() | st.integers(-3, 5000) | st.text(max_size=3) | st.binary(max_size=3) | st.floats(),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=3), inner, max_size=3),
    max_leaves=8,
)


@settings(max_examples=500, deadline=None)
@given(st.binary(max_size=64), NONSENSE)
def test_references_from_nowhere_are_corrupt_or_references(links, packed):
    for read in (
        lambda: unpack_refs(links, {"a": packed}),
        lambda: unpack_node(links, ormsgpack.packb(packed), LIST),
        lambda: unpack_node(links, ormsgpack.packb(packed), MAP),
        lambda: unpack_node(links, links, LIST),
    ):
        try:
            read()
        except Corrupt:
            continue


@settings(max_examples=300, deadline=None)
@given(NONSENSE)
def test_a_reference_from_nowhere_is_read_as_corrupt_or_as_a_value_and_soon(packed):
    shelf = Shelf()
    try:
        ref = unpack_refs(b"\x01" * 64, {"a": packed})["a"]
    except Corrupt:
        return
    try:
        shelf.read(ref)
    except Corrupt:
        return


@pytest.mark.parametrize("kind", [LIST, MAP])
def test_a_tree_deeper_than_any_list_could_need_is_corrupt(kind):
    """Walking down as far as a forged depth says would take as long as its author likes."""
    with pytest.raises(Corrupt):
        unpack_ref(b"", [kind, [0] * 40, []])


def test_the_kinds_of_references_are_what_the_values_say():
    shelf = Shelf()
    assert isinstance(shelf.keep("short").ref, Inline)
    assert isinstance(shelf.keep(LONG).ref, bytes)
    assert is_cut(shelf.keep(VALUES["pieces"]).ref)
    assert isinstance(shelf.keep(VALUES["list"]).ref, Root)
    assert shelf.tree(shelf.keep(VALUES["list"]).ref).kind == LIST
    assert shelf.tree(shelf.keep(VALUES["dict"]).ref).kind == MAP
