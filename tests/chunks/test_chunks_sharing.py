"""Each item is stored once: across puts, channels, checkpoints, writes and forks of one thread."""

import sqlite3
from contextlib import closing

import pytest
from chunks_shelf import Shelf
from codec_anatomy import anatomy
from codec_stores import in_thread, put, values_at

import threadline
from threadline.chunks.encode import is_same_value

LONG = "x" * 300


def texts(count, start=0):
    return [f"{at} {LONG}" for at in range(start, start + count)]


def chunks(saver):
    return saver.stats().chunks


def grown(saver, act):
    before = chunks(saver)
    act()
    return chunks(saver) - before


@pytest.mark.parametrize("options", [{}, {"cache_bytes": 0}, {"trust_identity": True}], ids=str)
def test_appending_stores_the_new_item_and_a_path(connect, options):
    saver = connect(**options)
    items = texts(1000)
    config = put(saver, {"items": items})
    for at in range(20):
        items = [*items, f"new {at} {LONG}"]
        before = chunks(saver)
        config = put(saver, {"items": items}, after=config)
        assert 1 <= chunks(saver) - before <= 5
    saver.clear_cache()
    assert values_at(saver, config)["items"] == items


def test_the_same_put_twice_stores_no_chunk_again(connect):
    saver = connect()
    config = put(saver, {"items": texts(500), "files": {str(at): LONG * 10 for at in range(20)}})

    def again():
        put(saver, {"items": texts(500), "files": {str(at): LONG * 10 for at in range(20)}}, after=config)

    assert grown(saver, again) == 0
    saver.clear_cache()
    assert grown(saver, again) == 0


def test_another_process_stores_no_chunk_again(connect):
    config = put(connect(), {"items": texts(500)})
    other = connect()
    assert grown(other, lambda: put(other, {"items": [*texts(500), "more"]}, after=config)) <= 5


def test_two_channels_with_equal_items_share_them(connect):
    saver = connect()
    put(saver, {"items": texts(200)})
    assert grown(saver, lambda: put(saver, {"items": texts(200), "copy": texts(200)})) == 0


def test_a_list_and_a_dict_share_their_items(connect):
    saver = connect()
    put(saver, {"items": texts(200)})
    added = grown(saver, lambda: put(saver, {"items": dict(zip(map(str, range(200)), texts(200), strict=True))}))
    assert added < 30


def test_a_write_and_the_checkpoint_it_becomes_share_their_items(connect):
    saver = connect()
    config = put(saver, {"items": texts(10)})
    saver.put_writes(config, [("items", texts(50, 10))], "task")
    assert grown(saver, lambda: put(saver, {"items": texts(60)}, after=config)) < 8


def test_equal_writes_of_many_tasks_are_stored_once(connect):
    saver = connect()
    config = put(saver, {"items": []})
    saver.put_writes(config, [("items", texts(50))], "task 0")
    added = grown(
        saver, lambda: [saver.put_writes(config, [("items", texts(50))], f"task {at}") for at in range(1, 20)]
    )
    assert added == 0
    found = saver.get_tuple(config).pending_writes
    assert len(found) == 20
    assert all(value == texts(50) for _, _, value in found)


def test_a_copied_thread_shares_all_its_chunks_and_then_goes_its_own_way(connect):
    saver = connect()
    put(saver, {"items": texts(300)}, thread="origin")
    assert grown(saver, lambda: saver.copy_thread("origin", "copy")) == 0
    head = saver.get_tuple(in_thread("copy")).config
    assert grown(saver, lambda: put(saver, {"items": [*texts(300), "of the copy"]}, after=head)) <= 5
    assert values_at(saver, in_thread("origin"))["items"] == texts(300)
    assert values_at(saver, in_thread("copy"))["items"][-1] == "of the copy"


def test_threads_of_their_own_share_nothing(connect):
    saver = connect()
    put(saver, {"items": texts(100)}, thread="one")
    assert grown(saver, lambda: put(saver, {"items": texts(100)}, thread="two")) >= 10


def test_a_channel_that_did_not_change_is_not_even_encoded(connect):
    class Loud(list):
        asked = 0

        def __iter__(self):
            Loud.asked += 1
            return super().__iter__()

    saver = connect()
    saver._tools.checks_versions = False  # as it is for LangGraph, whose loop keeps versions itself
    config = put(saver, {"items": texts(300), "n": 1})
    import threadline

    checkpoint = threadline.empty_checkpoint()
    versions = saver.get_tuple(config).checkpoint["channel_versions"]
    checkpoint["channel_values"] = {"items": Loud(["not the value at all"]), "n": 2}
    checkpoint["channel_versions"] = {**versions, "n": 99_999}
    after = saver.put(config, checkpoint, {"step": 2}, {"n": 99_999})
    assert Loud.asked == 0
    saver.clear_cache()
    assert values_at(saver, after) == {"items": texts(300), "n": 2}


def test_small_values_need_no_chunk_at_all(connect):
    saver = connect()
    state = {"n": 1, "flag": True, "short": "text", "todo": ["a", "b"], "branch": None, "empty": [], "no": {}}
    assert grown(saver, lambda: put(saver, state)) == 0
    assert anatomy(values_at(connect(), in_thread())) == anatomy(state)


# -- large items


def test_a_large_text_is_stored_in_pieces_and_an_edit_stores_the_piece(connect):
    saver = connect(compression=None)
    text = "".join(f"line {at} of a long file\n" for at in range(20_000))
    config = put(saver, {"file": text, "files": {"a": text}})
    edited = text[:200_000] + "an edit\n" + text[200_000:]
    before = saver.stats()
    config = put(saver, {"file": edited, "files": {"a": edited}}, after=config)
    assert saver.stats().chunks - before.chunks < 8
    saver.clear_cache()
    assert values_at(saver, config) == {"file": edited, "files": {"a": edited}}


@pytest.mark.parametrize(
    "value",
    [
        {1: "x" * 40_000},
        {1: "x" * 40_000, "a": 2},
        {"\ud800": "x" * 40_000},
        {(1, 2): ["x" * 1000] * 60},
        [{1: "x" * 40_000}],
        {"deep": {1: {2: "x" * 40_000}}},
        ("x" * 40_000, ["y" * 40_000]),
        [["x" * 1000] * 100] * 3,
        {"a": {"b": {"c": ["x" * 1000] * 100}}},
        ["x" * 32_760, "y" * 32_768, "z" * 32_769, "w" * 33_000],
        {"k" * 40_000: 1},
        [b"\xc4" * 50_000, bytearray(50_000), 2**300_000],
        {at: f"{at} {LONG}" for at in range(2000)},
        {"set": {f"{at} {LONG}" for at in range(500)}},
    ],
    ids=range(14),
)
def test_a_large_value_of_any_shape_comes_back(connect, value):
    saver = connect()
    config = put(saver, {"alone": value, "listed": [1, value], "keyed": {"k": value}})
    saver.put_writes(config, [("alone", value)], "task")
    config = put(saver, {"alone": value, "listed": [1, value, 2], "keyed": {"k": value, "l": 1}}, after=config)
    saver.clear_cache()
    found = values_at(saver, config)
    assert anatomy(found["alone"]) == anatomy(value)
    assert anatomy(found["listed"]) == anatomy([1, value, 2])
    assert anatomy(found["keyed"]) == anatomy({"k": value, "l": 1})


def test_deleting_and_collecting_leaves_what_others_share(connect):
    saver = connect()
    configs = [put(saver, {"items": texts(200)})]
    for at in range(1, 6):
        configs.append(put(saver, {"items": [*texts(200), *texts(at, 900)]}, after=configs[-1]))
    for config in (configs[0], configs[2], configs[5]):
        saver.delete_checkpoint(config)
    for at in (1, 3, 4):
        saver.clear_cache()
        assert values_at(saver, configs[at])["items"] == [*texts(200), *texts(at, 900)]
    after = put(saver, {"items": texts(205)}, after=configs[4])
    saver.clear_cache()
    assert values_at(saver, after)["items"] == texts(205)


@pytest.mark.parametrize("change", ["trimmed", "trimmed more", "inserted", "removed", "both ends"])
def test_runs_are_recognised_where_they_have_moved(change):
    """Only what stands next to a change is encoded again, wherever the rest has moved to."""
    shelf = Shelf()
    items = [f"item {n} " + "x" * 200 for n in range(2_000)]
    first = shelf.keep(items)
    after = {
        "trimmed": items[1:],
        "trimmed more": items[77:],
        "inserted": [*items[:500], "new " * 60, *items[500:]],
        "removed": [*items[:900], *items[905:]],
        "both ends": [*items[3:], "last " * 60],
    }[change]
    second = shelf.keep(after, first.source)
    assert len(second.chunks) < 60
    assert is_same_value(second.source, Shelf().keep(after).source)
    assert shelf.read(second.ref) == after


def test_what_was_removed_from_a_list_is_forgotten_when_its_checkpoints_are(database):
    """The run that held it was a pack: nothing that stays may need that pack."""
    with threadline.connect(str(database), compression=None) as saver:
        items, config = [f"item {at} {LONG}" for at in range(40)], None
        for count in range(1, 41):
            config = put(saver, {"items": items[:count]}, after=config)
        assert any(items[7].encode() in data for data in stored(database))
        kept = put(saver, {"items": [*items[:7], *items[8:]]}, after=config)
        saver.prune(["thread"])
        saver.collect()
        assert values_at(saver, kept)["items"] == [*items[:7], *items[8:]]
        assert not any(items[7].encode() in data for data in stored(database))


def stored(database):
    with closing(sqlite3.connect(database)) as connection:
        return [data for (data,) in connection.execute("SELECT data FROM threadline_chunks")]
