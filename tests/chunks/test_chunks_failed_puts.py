"""A put that failed loses nothing: what it had recognised or encoded is not taken for stored."""

import random

import pytest
from chunks_shelf import Shelf
from codec_anatomy import anatomy
from codec_stores import put, values_at

import threadline
from threadline import KeyRing, Unavailable
from threadline.chunks.cutting import ends_run

LONG = "x" * 200


def texts(count, start=0):
    return [f"{at} {LONG}" for at in range(start, start + count)]


def closed_run_of(length):
    """Texts whose run ends exactly here, as chance has it for one list in thirty."""
    shelf, at = Shelf(), 0
    items = texts(length - 1)
    while True:
        at += 1
        last = f"last {at} {LONG}"
        if ends_run((shelf.encoder.digester.item(shelf.codec.encode(last)), None), length):
            return [*items, last]


def all_there(reader, config, state):
    reader.clear_cache()
    assert anatomy(values_at(reader, config)) == anatomy(state)


@pytest.mark.parametrize("fault", ["before", "after"])
@pytest.mark.parametrize("first", [0, 1, 8, 9, 50, 200])
@pytest.mark.parametrize("added", [1, 5, 40, 300])
def test_the_put_after_a_failed_one_stores_everything(connect, faults, fault, first, added):
    saver = connect()
    items = texts(first)
    config = put(saver, {"items": items})
    items = [*items, *texts(added, first)]
    faults.append(fault)
    with pytest.raises(Unavailable):
        put(saver, {"items": items}, after=config)
    items = [*items, "after the failure"]
    after = put(saver, {"items": items}, after=config)
    all_there(saver, after, {"items": items})
    all_there(connect(), config, {"items": texts(first)})


@pytest.mark.parametrize("length", [8, 9, 20])
@pytest.mark.parametrize("times", [1, 3])
def test_a_run_that_was_whole_before_the_failure_is_stored_after_it(connect, faults, length, times):
    """The root of eight items needs no node; the failed put is the first that made one of them."""
    saver = connect()
    items = closed_run_of(length)
    config = put(saver, {"items": items, "mapping": {f"k{at}": item for at, item in enumerate(items)}})
    grown = [*items, *texts(10, 100)]
    state = {"items": grown, "mapping": {f"k{at}": item for at, item in enumerate(grown)}}
    for _ in range(times):
        faults.append("before")
        with pytest.raises(Unavailable):
            put(saver, state, after=config)
    after = put(saver, state, after=config)
    all_there(saver, after, state)
    all_there(connect(), after, state)


def test_a_first_put_that_failed_is_no_beginning(connect, faults):
    saver = connect()
    faults.append("before")
    with pytest.raises(Unavailable):
        put(saver, {"items": texts(300)})
    assert saver.get_tuple({"configurable": {"thread_id": "thread"}}) is None
    config = put(saver, {"items": texts(300)})
    all_there(saver, config, {"items": texts(300)})


def test_the_very_same_put_can_be_tried_again(connect, faults):
    saver = connect()
    config = put(saver, {"items": texts(100)})
    checkpoint = threadline.empty_checkpoint()
    checkpoint["channel_values"], checkpoint["channel_versions"] = {"items": texts(150)}, {"items": 999}
    for fault in ("before", "after", "before"):
        faults.append(fault)
        with pytest.raises(Unavailable):
            saver.put(config, checkpoint, {"step": 2}, {"items": 999})
    after = saver.put(config, checkpoint, {"step": 2}, {"items": 999})
    all_there(saver, after, {"items": texts(150)})
    assert len(list(saver.list(None))) == 2


def test_a_put_may_follow_one_that_never_arrived(connect, faults):
    """LangGraph names a parent that failed; channels it does not bring again must not be lost silently."""
    saver = connect()
    first = put(saver, {"items": texts(50), "kept": texts(20, 500)})
    faults.append("before")
    lost = threadline.empty_checkpoint()
    with pytest.raises(Unavailable):
        put(saver, {"items": texts(60), "kept": texts(20, 500)}, after=first)
    orphan = {"configurable": {"thread_id": "thread", "checkpoint_ns": "", "checkpoint_id": lost["id"]}}
    after = put(saver, {"items": texts(70), "kept": texts(20, 500)}, after=orphan)
    all_there(saver, after, {"items": texts(70), "kept": texts(20, 500)})


def test_writes_that_failed_can_be_written_again(connect, faults):
    saver = connect()
    config = put(saver, {"items": texts(10)})
    faults.append("before")
    with pytest.raises(Unavailable):
        saver.put_writes(config, [("items", texts(100, 50))], "task")
    assert saver.get_tuple(config).pending_writes == []
    put(saver, {"items": texts(100, 50)}, after=config)
    saver.put_writes(config, [("items", texts(100, 50))], "task")
    saver.clear_cache()
    assert saver.get_tuple(config).pending_writes == [("task", "items", texts(100, 50))]


def test_many_puts_of_which_one_fails_are_all_tried_again(connect, faults):
    saver = connect()

    def batch():
        made = []
        for at in range(3):
            checkpoint = threadline.empty_checkpoint()
            checkpoint["channel_values"], checkpoint["channel_versions"] = {"items": texts(50 + at)}, {"items": at + 1}
            config = {"configurable": {"thread_id": "thread", "checkpoint_ns": ""}}
            made.append((config, checkpoint, {"step": at}, {"items": at + 1}))
        return made

    faults.append("before")
    with pytest.raises(Unavailable):
        saver.put_many(batch())
    assert list(saver.list(None)) == []
    configs = saver.put_many(batch())
    for at, config in enumerate(configs):
        all_there(saver, config, {"items": texts(50 + at)})


def test_a_sealed_store_loses_nothing_either(connect, faults):
    saver = connect(encryption=KeyRing({"k": bytes(32)}))
    config = put(saver, {"items": texts(100)})
    for _ in range(2):
        faults.append("before")
        with pytest.raises(Unavailable):
            put(saver, {"items": texts(130)}, after=config)
    after = put(saver, {"items": texts(131)}, after=config)
    all_there(saver, after, {"items": texts(131)})


def edited(items, step, chance):
    """One random change of a list, as programs make them."""
    at = chance.randrange(len(items) + 1)
    return chance.choice(
        [
            lambda: [*items, *texts(chance.randint(1, 12), 1000 * step)],
            lambda: [*items[:at], f"edited {step} {LONG}", *items[at + 1 :]],
            lambda: items[at // 4 :],
            lambda: items,
        ]
    )()


@pytest.mark.parametrize(
    "options", [{}, {"cache_bytes": 20_000}, {"cache_bytes": 0}, {"trust_identity": True}], ids=str
)
@pytest.mark.parametrize("seed", range(6))
def test_whatever_fails_every_acknowledged_put_is_whole(connect, faults, options, seed):
    """Random edits, random failures, collected garbage in between; then everything is read anew."""
    chance = random.Random(seed)
    saver = connect(**options)
    items, mapping, config, stored = texts(5), {}, None, []
    for step in range(60):
        items = edited(items, step, chance)
        mapping = {**mapping, f"k{chance.randrange(40)}": f"{step} {LONG}"}
        faults[:] = chance.choices(["", "before", "after"], [6, 2, 1], k=1)
        state = {"items": list(items), "mapping": dict(mapping), "step": step}
        try:
            config = put(saver, state, after=config)
        except Unavailable:
            continue
        finally:
            faults.clear()
        stored.append((config, state))
        if chance.random() < 0.1:
            saver.delete_checkpoint(stored.pop(chance.randrange(len(stored)))[0])
        if not stored:
            config = None
        if chance.random() < 0.1:
            saver.clear_cache()
    assert len(stored) > 10
    for reader in (saver, connect()):
        for config, state in stored:
            all_there(reader, config, state)
