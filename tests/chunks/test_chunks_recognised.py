"""Recognising what was encoded before: exactly, from several threads, for every text, and at a bounded cost."""

import datetime as dt
import threading
import uuid

import ormsgpack
import pytest
from chunks_shelf import Shelf
from codec_stores import put
from langchain_core.messages import HumanMessage
from langchain_core.outputs import Generation

import threadline
from threadline import NotSerializable
from threadline.base.bounded_cache import BoundedCache
from threadline.chunks.encode import Batch
from threadline.chunks.refs import unpack_ref
from threadline.codec.codec import Codec


class Rows(list):
    pass


class Fields(dict):
    pass


class Utc(dt.tzinfo):
    """The time zone of another library."""

    def utcoffset(self, moment):
        return dt.timedelta(0)

    def dst(self, moment):
        return dt.timedelta(0)


PAGE = "".join(chr(97 + at * 7 % 26) for at in range(40_000))
LARGE = {
    "dict with a list of a subclass": {"ids": Rows(uuid.UUID(int=at) for at in range(9)), "page": PAGE},
    "dict of a subclass": Fields(page=PAGE, more=1),
    "list of a subclass": Rows([PAGE, 1]),
    "dict with moments of another library": {"at": dt.datetime(2024, 1, 1, tzinfo=Utc()), "page": PAGE},
    "dict with a large dict of a subclass": {
        "inner": Fields({f"k{at}": PAGE[at : at + 500] for at in range(90)}),
        "n": 1,
    },
    "nested": {"outer": {"at": [dt.datetime(2024, 1, 1, tzinfo=Utc())] * 3, "page": PAGE, "text": "\ud800"}},
    "dict with other keys": {1: PAGE, "two": 2},
    "text": PAGE,
    "bytes": PAGE.encode(),
}


@pytest.mark.parametrize("item", LARGE.values(), ids=LARGE)
def test_large_items_are_brought_again_as_they_were(item):
    shelf = Shelf()
    encoded = shelf.keep([item, "small", item])
    again = Batch()
    pair, _ = shelf.encoder.again(encoded.source, again)
    assert unpack_ref(*pair) == encoded.ref
    assert shelf.needed_by(encoded.ref) == again.chunks.keys()
    assert {digest: shelf.chunks[digest] for digest in again.chunks} == again.chunks


@pytest.mark.parametrize("item", LARGE.values(), ids=LARGE)
def test_a_put_after_others_were_collected_is_whole(item, database):
    with threadline.connect(str(database)) as saver, threadline.connect(str(database)) as other:
        first = put(saver, {"channel": [item]})
        other.delete_checkpoint(first)
        again = put(saver, {"channel": [item]})
        [found] = threadline.connect(str(database)).get_tuple(again).checkpoint["channel_values"]["channel"]
        assert found == item


def test_many_threads_compare_with_the_same_contents():
    shelf = Shelf()
    messages = [HumanMessage(content=f"{at} " * 100, id=str(at)) for at in range(400)]
    encoded = shelf.keep(messages)
    failures = []

    def compare():
        try:
            for _ in range(20):
                assert shelf.encode(messages, encoded.source).ref == encoded.ref
        except BaseException as error:
            failures.append(error)

    for _ in range(10):
        threads = [threading.Thread(target=compare) for _ in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    assert failures == []


@pytest.mark.parametrize("text", ["plain", "zażółć gęślą jaźń Ąć", "x" * 452], ids=["plain", "Polish", "odd length"])
def test_every_text_is_recognised_by_its_packed_bytes(text, monkeypatch):
    shelf = Shelf()
    messages = [HumanMessage(content=f"{text} {at:04}", id=str(at)) for at in range(300)]
    first = shelf.keep(messages)
    monkeypatch.setattr(Codec, "encode", lambda *_: pytest.fail("an item was encoded by itself"))
    second = shelf.keep([*messages, HumanMessage(content="last")], first.source)
    assert second.source.is_exact
    assert len(second.chunks) <= 3


def test_what_repeats_is_stored_once_when_it_grows():
    shelf = Shelf()
    first = shelf.keep([0.5] * 1_000)
    assert len(shelf.keep([0.5] * 10_000, first.source).chunks) < 20


def test_types_that_rules_forbid_are_refused_in_lists_too():
    saver = threadline.connect("memory://", allowed_types="strict")
    values = [Generation(text="x" * 200 + str(at)) for at in range(3)]
    for state in ({"channel": values}, {"channel": {"a": values}}):
        with pytest.raises(NotSerializable, match="could not be loaded again"):
            put(saver, state)


def test_instances_that_were_never_set_up_are_refused_by_their_place():
    half = object.__new__(HumanMessage)
    object.__setattr__(half, "__dict__", {"content": "x"})
    saver = threadline.connect("memory://")
    for state in ({"channel": [half] * 3}, {"channel": {"a": [half, half]}}):
        with pytest.raises(NotSerializable, match="channel"):
            put(saver, state)
    with pytest.raises(NotSerializable):
        threadline.Serializer().dumps([half, half])


def test_an_entry_that_grows_does_not_take_a_cache_beyond_its_bound():
    cache = BoundedCache(100)
    cache.put("big", 1, 90)
    cache.put("a", 1, 5)
    cache.put("a", 2, 50)
    assert cache.used_bytes <= 100


@pytest.mark.parametrize("options", [{}, {"trust_identity": True}], ids=["by bytes", "by identity"])
def test_chunks_that_were_collected_are_brought_again_from_what_was_encoded(options, database):
    """Another process pruned meanwhile: the put sends everything, and never looks at the values again."""
    with threadline.connect(str(database), **options) as saver, threadline.connect(str(database)) as other:
        item = {"page": PAGE, "n": 1}
        first = put(saver, {"channel": [item], "other": "x" * 500})
        second = put(saver, {"channel": [item], "other": "y" * 500}, after=first)
        other.prune(["thread"])
        third = put(saver, {"channel": [item, "more " * 50], "other": "z" * 500}, after=second)
        assert other.get_tuple(third).checkpoint["channel_values"]["channel"] == [item, "more " * 50]


class Hook:
    """Something whose encoding gives other threads a moment."""


@pytest.mark.parametrize("large", [{"text": PAGE, "n": 0}, [PAGE, 0]], ids=["dict", "list"])
def test_what_changes_while_it_is_put_is_noticed_by_the_next_put(large):
    moments = []
    threadline.register(Hook, name="hook", encode=lambda _: [moment() for moment in moments] and 0, decode=lambda _: 0)
    saver, last = threadline.connect("memory://"), "n" if isinstance(large, dict) else 1

    def change():
        large[last] = 1

    moments.append(change)
    first = put(saver, {"channel": [large, Hook()]})
    moments.clear()
    second = put(saver, {"channel": [large, Hook()]}, after=first)
    assert saver.get_tuple(first).checkpoint["channel_values"]["channel"][0][last] in (0, 1)
    assert saver.get_tuple(second).checkpoint["channel_values"]["channel"][0][last] == 1


def test_a_list_that_shrinks_while_it_is_put_is_stored_as_it_was():
    moments, values = [], ["a" * 200, Hook(), "b" * 200, "c" * 200]
    threadline.register(Hook, name="hook", encode=lambda _: [moment() for moment in moments] and 0, decode=lambda _: 0)
    saver = threadline.connect("memory://")
    moments.append(values.clear)
    first = put(saver, {"channel": values})
    assert saver.get_tuple(first).checkpoint["channel_values"]["channel"] == ["a" * 200, 0, "b" * 200, "c" * 200]


@pytest.mark.parametrize("url", ["memory://", "sqlite"])
def test_bare_extensions_in_a_state_do_not_stop_later_puts(url, database):
    saver = threadline.connect(str(database) if url == "sqlite" else url)
    values, config = [[ormsgpack.Ext(77, b"\xc4" * 200)], "x" * 200], None
    for _ in range(4):
        config = put(saver, {"channel": values}, after=config)
        values.append("y" * 200)
    assert len(list(saver.list(config))) == 1
