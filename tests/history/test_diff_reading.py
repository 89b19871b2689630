"""Promises of a diff about reading: no more than what differs, and nothing damaged."""

import pytest
from history_diffs import LONG, compared, messages, put, watched_diff

from threadline import Corrupt, NotFound
from threadline.chunks.gather import Pile, chunk_place
from threadline.chunks.pack import PACK, unpack_pack
from threadline.chunks.refs import LIST, MAP, Inline, Node, Pieces, Tree
from threadline.chunks.tree_diff import walk_of


def chunks_of(saver, config):
    """Every chunk that a checkpoint needs."""

    async def walk(backend):
        named = config["configurable"]
        found = await backend.find(named["thread_id"], "", named["checkpoint_id"])
        level = {found.row.links[i : i + 16] for i in range(0, len(found.row.links), 16)}
        seen = set()
        while level:
            seen |= level
            links = (await backend.links(found.pool, sorted(level))).values()
            level = {link[i : i + 16] for link in links for i in range(0, len(link), 16)} - seen
        return seen

    return saver._engine.run(walk)


@pytest.fixture
def edited(connect):
    """A long thread and the same with three messages edited, put by a saver that is not used again."""
    saver, items = connect(), messages(10_000)
    after = list(items)
    for place in (17, 5000, 9990):
        after[place] = items[place].model_copy(update={"content": f"edited {place} {LONG}"})
    return put(saver, "t", {"messages": items, "other": items[:500]}), put(
        saver, "t", {"messages": after, "other": items[:500]}
    )


def messages_in(saver, digests):
    """How many messages some chunks hold: packs many, items one."""

    async def fetch(backend):
        return await backend.chunks(1, sorted(digests))

    count = 0
    for digest, links, form, stored in saver._engine.run(fetch):
        content = saver._tools.envelope.unwrap(form, stored, chunk_place(1, digest))
        count += len(unpack_pack(content)) if content.startswith(PACK) else not links
    return count


def test_three_messages_of_ten_thousand_are_found_in_under_one_percent_of_the_messages(connect, edited):
    saver = connect()
    found, watched = watched_diff(saver, *edited)
    assert [(item.kind, item.before.id, item.after.id) for item in found.channels[0].items] == [
        ("changed", id, id) for id in ("m17", "m5000", "m9990")
    ]
    assert 3 < messages_in(saver, watched.asked) < 100
    # A root and a path to each of the three on either side. A chunk holds many messages, so there are few of them.
    assert len(watched.asked) <= 2 + 2 * 3 * 3 + 3 < len(chunks_of(saver, edited[0])) / 30
    assert len(watched.asked) == len(set(watched.asked))
    assert len(watched.queries) <= 5  # the roots, the levels of the tree, and the items


def test_what_both_sides_share_may_be_lost_without_being_missed(connect, edited):
    saver = connect()
    _, watched = watched_diff(connect(), *edited)
    shared = chunks_of(saver, edited[0]) - set(watched.asked)
    found, _ = watched_diff(saver, *edited, lost=shared)
    assert len(found.channels[0].items) == 3


@pytest.mark.parametrize(("fewer", "more"), [(100, 110), (150, 1500), (1500, 30_000)])
def test_a_list_that_grew_into_a_deeper_tree_is_read_where_it_grew(connect, fewer, more):
    saver, items = connect(), [f"{i} {LONG}" for i in range(more)]
    a, b = put(saver, "t", {"x": items[:fewer]}), put(saver, "t", {"x": items})
    _, watched = watched_diff(connect(), a, b)
    both = chunks_of(saver, a) & chunks_of(saver, b) & set(watched.asked)
    # The run that was open before has closed since: its items moved into one pack, where both have them now.
    assert len(both) <= 1
    assert messages_in(saver, both) <= 128


def test_any_chunk_lost_or_altered_is_corrupt_by_name(connect, edited):
    _, watched = watched_diff(connect(), *edited)
    sides = [chunks_of(connect(), config) for config in edited]
    for how in ("lost", "spoilt"):
        for digest in watched.asked:
            owner = edited[0] if digest in sides[0] else edited[1]
            found, _ = watched_diff(connect(), *edited, **{how: [digest]})
            [damaged] = [one for one in found.channels if one.kind == "damaged"]
            for look in ("items", "before", "after"):
                with pytest.raises(Corrupt) as caught:
                    getattr(damaged, look)
            said = str(caught.value)
            named = f"thread 't', checkpoint {owner['configurable']['checkpoint_id']}, channel 'messages'"
            assert said.startswith(named)
            assert digest.hex() in said


class Late:
    """A backend whose rows are followed by a change that takes their chunks away."""

    def __init__(self, backend, now):
        self.backend, self.now = backend, now
        self.is_late = True

    def __getattr__(self, name):
        return getattr(self.backend, name)

    async def chunks(self, pool, digests):
        return [] if self.is_late else await self.backend.chunks(pool, digests)

    async def find(self, *place, with_writes=True):
        if with_writes:
            return await self.backend.find(*place)
        self.is_late = False
        return await self.now(self.backend, place)


def test_a_checkpoint_that_was_deleted_meanwhile_is_not_found(connect):
    saver = connect()
    a, b = put(saver, "t", {"x": messages(100)}), put(saver, "t", {"x": messages(90)})

    async def gone(backend, place):
        return None

    reader = connect()  # which has not cached the chunks
    with pytest.raises(NotFound, match="was deleted while it was compared"):
        reader._engine.run(lambda backend: compared(Late(backend, gone), reader, a, b))


def test_a_checkpoint_that_was_replaced_meanwhile_is_compared_as_it_is_now(connect):
    saver = connect()
    a, b, c = (put(saver, "t", {"x": messages(count)}) for count in (100, 90, 80))

    async def replaced(backend, place):
        other = c["configurable"]["checkpoint_id"] if place[2] == b["configurable"]["checkpoint_id"] else place[2]
        return await backend.find(place[0], place[1], other)

    reader = connect()  # which has not cached the chunks
    found = reader._engine.run(lambda backend: compared(Late(backend, replaced), reader, a, b))
    assert [item.before for item in found.channels[0].items] == messages(100)[80:]
    assert found.b == c


# -- nodes that nobody would write

NAMES = ("the first", "the second")


def keys(kind):
    """The keys of a tree without items, if it has any."""
    return ((),) if kind == MAP else ()


def forged(*nodes):
    """A pile of these nodes, under names of their own."""
    pile = Pile()
    pile.nodes = {bytes([number]) * 16: node for number, node in enumerate(nodes)}
    return list(pile.nodes), pile


@pytest.mark.parametrize(
    ("kind", "depth", "node"),
    [
        (LIST, 1, Node((b"a" * 16,), ("key",))),
        (LIST, 2, Node((Inline(b"\x01"),))),
        (MAP, 1, Node((b"a" * 16,))),
        (MAP, 1, Node((b"a" * 16,), ("a", "b"))),
        (MAP, 1, Node((b"a" * 16,), ([],))),
        (MAP, 2, Node((b"a" * 16,), ("a",))),
    ],
)
def test_a_node_that_cannot_stand_where_it_is_named_is_corrupt(kind, depth, node):
    [forgery, empty], pile = forged(node, Node((), () if (kind, depth) == (MAP, 1) else None))
    trees = tuple(Tree(kind, ((name,), *[()] * (depth - 1)), (), *keys(kind)) for name in (empty, forgery))
    for before, after, name in ((*trees, "the second"), (*trees[::-1], "the first")):
        walk = walk_of(before, after, NAMES)
        with pytest.raises(Corrupt, match=f"^{name}: its chunks do not fit together"):
            while not walk.is_over:
                walk.descend(pile, pile)


@pytest.mark.parametrize("kind", [LIST, MAP])
def test_trees_without_children_end_the_walk(kind):
    [node], pile = forged(Node((Inline(b"\x01"),), ("a",) if kind == MAP else None))
    walk = walk_of(Tree(kind, (), (), *keys(kind)), Tree(kind, ((node,),), (), *keys(kind)), NAMES)
    while not walk.is_over:
        walk.descend(pile, pile)
    if kind == MAP:
        assert walk.entries() == ({}, {"a": Inline(b"\x01")})
    else:
        assert [(gap.before, gap.after) for gap in walk.gaps()] == [([], [Inline(b"\x01")])]


def test_what_is_not_two_trees_of_one_kind_has_no_walk():
    some_list, some_dict = Tree(LIST, (), (Inline(b"\x01"),)), Tree(MAP, (), (Inline(b"\x01"),), ("a",))
    for other in (Inline(b"\x01"), b"d" * 16, Pieces((b"d" * 16,)), some_dict):
        assert walk_of(some_list, other, NAMES) is None
        assert walk_of(other, some_list, NAMES) is None
