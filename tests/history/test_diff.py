"""Promises of a diff: what it says of every kind of change."""

import asyncio

import pytest
from history_diffs import LONG, brief, channel_diff, compared, diff_of, messages, put, watched_diff
from langchain_core.messages import AIMessage, HumanMessage

from threadline import KeyRing
from threadline.base.checkpoint import is_engine_channel

# -- lists


def test_items_added_to_a_short_list_have_their_index(connect):
    assert brief(channel_diff(connect, [1, 2], [1, 2, 3])) == [("+", 2, None, 3)]


def test_items_removed_have_the_index_they_had(connect):
    assert brief(channel_diff(connect, ["a", "b", "c", "d"], ["a", "d"])) == [("-", 1, "b", None), ("-", 2, "c", None)]


def test_items_changed_in_place_are_paired_by_position(connect):
    found = channel_diff(connect, ["a", "b" + LONG, "c"], ["a", "B" + LONG, "c"])
    assert brief(found) == [("~", 1, "b" + LONG, "B" + LONG)]


def test_a_changed_item_has_the_index_that_it_has_now(connect):
    found = channel_diff(connect, [LONG, "a", "b", "c"], ["new", LONG, "a", "B", "c"])
    assert brief(found) == [("+", 0, None, "new"), ("~", 3, "b", "B")]


def test_without_ids_and_of_other_length_nothing_is_paired(connect):
    found = channel_diff(connect, [LONG, "a", "z"], [LONG, "b", "c", "z"])
    assert brief(found) == [("-", 1, "a", None), ("+", 1, None, "b"), ("+", 2, None, "c")]


def test_a_moved_item_is_removed_and_added(connect):
    found = channel_diff(connect, ["a", "b", "c", LONG], ["b", "c", LONG, "a"])
    assert brief(found) == [("-", 0, "a", None), ("+", 3, None, "a")]


def test_a_list_that_was_emptied_or_filled(connect):
    assert brief(channel_diff(connect, [LONG, 1], [])) == [("-", 0, LONG, None), ("-", 1, 1, None)]
    assert brief(channel_diff(connect, [], [1])) == [("+", 0, None, 1)]


@pytest.mark.parametrize(("fewer", "more"), [(3, 40), (40, 400), (3, 3000), (400, 3000)])
def test_trees_of_different_depth(connect, fewer, more):
    items = [f"{i} {LONG}" for i in range(more)]
    grown = channel_diff(connect, items[:fewer], items)
    assert [(item.kind, item.after) for item in grown.items] == [("added", item) for item in items[fewer:]]
    shrunk = channel_diff(connect, items, items[:fewer])
    assert [(item.kind, item.before) for item in shrunk.items] == [("removed", item) for item in items[fewer:]]


def test_an_index_is_given_where_the_tree_was_read_up_to_it(connect):
    items = [f"{i} {LONG}" for i in range(3000)]
    first, last = ["other", *items[1:]], [*items[:-1], "other"]
    assert brief(channel_diff(connect, items, first)) == [("~", 0, items[0], "other")]
    assert brief(channel_diff(connect, items, last)) == [("~", None, items[-1], "other")]


def test_items_that_were_cut_or_taken_apart_are_shown_whole(connect):
    def large(mark):
        return [{"table": [f"{mark} {i}" * 20 for i in range(2000)]}, mark + "y" * 100_000]

    before, after = large("a"), large("b")
    assert brief(channel_diff(connect, before, after)) == [("~", i, before[i], after[i]) for i in (0, 1)]


# -- items with ids


def test_messages_are_paired_by_their_ids(connect):
    before = messages(6)
    edited = before[2].model_copy(update={"content": "edited"})
    new = HumanMessage(content="new", id="n")
    after = [*before[:2], new, edited, *before[3:]]
    assert brief(channel_diff(connect, before, after)) == [("+", 2, None, new), ("~", 3, before[2], edited)]


def test_messages_of_other_ids_are_not_paired(connect):
    before = messages(3)
    new = AIMessage(content="new", id="n")
    found = channel_diff(connect, before, [*before[:2], new])
    assert brief(found) == [("-", 2, before[2], None), ("+", 2, None, new)]


def test_dicts_are_paired_by_the_key_id(connect):
    before = [{"id": 1, "n": "a"}, {"id": 2, "n": "b"}, {"n": "none"}]
    after = [{"id": 3, "n": "c"}, {"id": 2, "n": "B"}, {"n": "other"}]
    assert brief(channel_diff(connect, before, after)) == [
        ("-", 0, before[0], None),
        ("+", 0, None, after[0]),
        ("~", 1, before[1], after[1]),
        ("~", 2, before[2], after[2]),
    ]


def test_one_and_true_are_two_ids(connect):
    found = channel_diff(connect, [{"id": 1, "n": "a"}], [{"id": True, "n": "b"}])
    assert [item.kind for item in found.items] == ["removed", "added"]


# -- dicts


def test_every_change_of_a_dict_by_its_key(connect):
    before = {"same": LONG, "gone": 1, "other": "a" + LONG}
    after = {"same": LONG, "other": "b" + LONG, "new": None}
    assert brief(channel_diff(connect, before, after)) == [
        ("-", "gone", 1, None),
        ("~", "other", "a" + LONG, "b" + LONG),
        ("+", "new", None, None),
    ]


def test_a_large_dict_is_compared_by_its_keys(connect):
    before = {f"k{i}": f"{i} {LONG}" for i in range(3000)}
    after = {"first": 1, **before, "k1500": "changed"}
    del after["k2000"]
    assert brief(channel_diff(connect, before, after)) == [
        ("-", "k2000", before["k2000"], None),
        ("+", "first", None, 1),
        ("~", "k1500", before["k1500"], "changed"),
    ]


@pytest.mark.parametrize("count", [2, 8, 500])
def test_a_dict_in_another_order_has_changed_and_none_of_its_items_has(connect, count):
    value = {f"k{i}": f"{i} {LONG[:i]}" for i in range(count)}
    found = channel_diff(connect, value, dict(reversed(value.items())))
    assert (found.kind, found.items) == ("changed", ())


def test_dicts_with_keys_that_are_numbers(connect):
    assert brief(channel_diff(connect, {1: "a", 2: "b"}, {1: "a", 2: "c"})) == [("~", 2, "b", "c")]
    assert brief(channel_diff(connect, {"1": LONG}, {1: LONG})) == [("-", "1", LONG, None), ("+", 1, None, LONG)]


def test_dicts_with_keys_that_may_be_equal_and_differ_are_shown_whole(connect):
    found = channel_diff(connect, {1: "a"}, {True: "a"})
    assert found.items is None
    assert list(found.before) == [1]
    assert list(found.after) == [True]
    assert brief(channel_diff(connect, {(1, 2): "a"}, {(1, 2): "b"})) == ("~", {(1, 2): "a"}, {(1, 2): "b"})


def test_an_empty_dict_and_a_full_one(connect):
    assert brief(channel_diff(connect, {}, {"a": LONG})) == [("+", "a", None, LONG)]
    assert brief(channel_diff(connect, {"a": 1}, {})) == [("-", "a", 1, None)]


# -- other values


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ("a", "b"),
        (1, 2.5),
        (LONG, None),
        ("a" * 100_000, "b" * 100_000),
        ("a" * 100_000, [LONG]),
        ([LONG], {"a": LONG}),
        ([f"{i} {LONG}" for i in range(100)], {f"{i}": LONG for i in range(100)}),
        ([], {}),
        ((1, 2), [1, 2]),
        ({1, 2}, {1, 3}),
    ],
    ids=lambda value: f"{type(value).__name__}",
)
def test_values_that_are_not_two_lists_or_two_dicts_are_shown_whole(connect, before, after):
    found = channel_diff(connect, before, after)
    assert found.items is None
    assert (found.kind, found.before, found.after) == ("changed", before, after)
    assert (type(found.before), type(found.after)) == (type(before), type(after))


@pytest.mark.parametrize(("before", "after"), [(1, True), (1, 1.0), (0.0, -0.0), ("1", 1)])
def test_values_of_other_types_differ_though_they_are_equal(connect, before, after):
    for wrap in (lambda value: value, lambda value: [LONG, value], lambda value: {"a": LONG, "b": value}):
        found = channel_diff(connect, wrap(before), wrap(after))
        assert found is not None
        if found.items is not None:
            [item] = found.items
            assert (type(item.before), type(item.after)) == (type(before), type(after))


def test_equal_values_do_not_differ(connect):
    for value in (1, [], {}, [1, 2], messages(20), {"a": [LONG, {"b": LONG}]}, {1: 2}, None):
        assert channel_diff(connect, value, value) is None


def test_a_change_deep_inside_an_item_is_a_change_of_the_item(connect):
    before = {"plan": {"steps": [{"name": "a", "done": False}, {"name": "b", "done": False}]}, "pad": LONG}
    after = {"plan": {"steps": [{"name": "a", "done": True}, {"name": "b", "done": False}]}, "pad": LONG}
    assert brief(channel_diff(connect, before, after)) == [("~", "plan", before["plan"], after["plan"])]


# -- whole checkpoints


def test_channels_that_came_and_went(connect):
    saver = connect()
    a = put(saver, "t", {"kept": 1, "gone": [LONG], "none": 0})
    b = put(saver, "t", {"kept": 1, "none": None, "new": {"k": LONG}})
    found = diff_of(saver, a, b)
    assert {c.channel: brief(c) for c in found.channels} == {
        "gone": ("-", [LONG], None),
        "none": ("~", 0, None),
        "new": ("+", None, {"k": LONG}),
    }
    assert found.config == found.b == b
    assert found.a == a
    assert found


def test_a_checkpoint_does_not_differ_from_itself(connect):
    saver = connect()
    a = put(saver, "t", {"messages": messages(100)})
    found, watched = watched_diff(connect(), a, a)
    assert not found
    assert watched.asked == []


def test_a_later_version_of_an_equal_value_is_no_difference(connect):
    saver = connect()
    assert not diff_of(saver, put(saver, "t", {"x": [LONG]}), put(saver, "t", {"x": [LONG]}))


ENGINE = ["__start__", "__pregel_tasks", "branch:to:agent", "join:a+b:c", "start:agent"]


def test_channels_of_the_engine_are_left_out_unless_asked_for(connect):
    saver = connect()
    a = put(saver, "t", dict.fromkeys([*ENGINE, "x", "__root__", "__previous__"], 1))
    b = put(saver, "t", dict.fromkeys([*ENGINE, "x", "__root__", "__previous__"], 2))
    own = {"x", "__root__", "__previous__"}
    assert {c.channel for c in diff_of(saver, a, b).channels} == own
    assert {c.channel for c in diff_of(saver, a, b, all_channels=True).channels} == {*ENGINE, *own}
    assert all(map(is_engine_channel, ENGINE))
    assert not any(map(is_engine_channel, [*own, "branch", "my__x", "started"]))


def test_two_threads_of_one_pool_and_of_two(connect):
    saver = connect()
    items = messages(300)
    put(saver, "one", {"x": items})
    saver.copy_thread("one", "fork")
    forked = put(saver, "fork", {"x": [*items, "fork"]})
    other = put(saver, "other", {"x": items[:-1]})
    mine = put(saver, "one", {"x": [*items, "mine"]})
    assert [i[0::2] for i in brief(diff_of(connect(), mine, forked).channels[0])] == [("~", "mine")]
    kinds = [(item.kind, item.before) for item in diff_of(connect(), mine, other).channels[0].items]
    assert kinds == [("removed", items[-1]), ("removed", "mine")]
    across = put(saver, "another", {"x": items})
    assert not diff_of(connect(), across, put(saver, "copy", {"x": items}))


def test_the_async_half_says_the_same(connect):
    saver = connect()
    items = messages(500)
    a = put(saver, "t", {"x": items})
    b = put(saver, "t", {"x": [*items[:100], *items[101:], "new"]})
    other = connect()

    async def half():
        return await other._engine.arun(lambda backend: compared(backend, other, a, b))

    assert asyncio.run(half()) == diff_of(connect(), a, b)


def test_a_sealed_store_is_compared_like_any_other(connect):
    ring = KeyRing({"one": b"k" * 32}, current="one")
    saver = connect(encryption=ring)
    items = messages(500)
    a, b = put(saver, "t", {"x": items}), put(saver, "t", {"x": [*items[:250], *items[251:]]})
    found = diff_of(connect(encryption=ring), a, b)
    assert [(item.kind, item.before) for item in found.channels[0].items] == [("removed", items[250])]


@pytest.mark.parametrize("share", [False, True])
def test_decoded_objects_may_be_shared(connect, share):
    found = channel_diff(connect, messages(50), messages(51), share_decoded=share)
    assert [item.after for item in found.items] == messages(51)[50:]


# -- as people see it


def test_a_diff_reads_as_short_lines(connect):
    saver = connect()
    a = put(saver, "t", {"list": ["a", LONG * 50], "n": 1, "old": 1, "order": {"a": 1, "b": 2}})
    b = put(saver, "t", {"list": ["b", "c", LONG * 50], "n": 2, "new": {"k": 1}, "order": {"b": 2, "a": 1}})
    assert str(diff_of(saver, a, b)).splitlines() == [
        "~ list",
        "  - [0] 'a'",
        "  + [0] 'b'",
        "  + [1] 'c'",
        "~ n: 1 → 2",
        "- old: 1",
        "~ order: the same items in another order",
        "+ new: {'k': 1}",
    ]
    assert str(diff_of(saver, a, a)) == "nothing differs"


def test_lines_are_short_name_messages_by_id_and_hold_nothing_a_terminal_obeys(connect):
    saver = connect()
    items = messages(400)
    a = put(saver, "t", {"x": items, "\x1b[2J": 1})
    b = put(saver, "t", {"x": [*items, HumanMessage(content="y" * 10_000, id="n\x1b")], "\x1b[2J": 2})
    lines = str(diff_of(saver, a, b)).splitlines()
    assert all(line.isprintable() and len(line) < 200 for line in lines)
    assert lines[1].startswith("  + id n\ufffd HumanMessage(content='yyy")


def test_a_notebook_shows_a_table_in_which_everything_is_escaped(connect):
    saver = connect()
    evil = "<script>alert('1')</script>"
    a = put(saver, "t" + evil, {"x" + evil: {evil: evil, "b": LONG}, "s": evil, "o": {"a": 1, "b": 1}})
    b = put(saver, "t" + evil, {"x" + evil: {evil: 1, "b": LONG}, "new": [evil], "o": {"b": 1, "a": 1}})
    shown = diff_of(saver, a, b)._repr_html_()
    assert "<script" not in shown
    assert shown.count("&lt;script") >= 5
    assert "another order" in shown
    assert "nothing differs" in diff_of(saver, a, a)._repr_html_()
