"""An acknowledged put is read back whole: lists that repeat themselves, values that change, batches, collection."""

import random
import threading

import pytest
from codec_stores import in_thread, put, values_at

import threadline
from threadline import KeyRing

LONG = "x" * 200


def texts(count):
    return [f"{at} {LONG}" for at in range(count)]


def read_cold(database, config, **options):
    with threadline.connect(str(database), **options) as saver:
        assert saver.fsck().ok
        return values_at(saver, config)


@pytest.mark.parametrize("start", range(0, 180, 15))
def test_a_list_that_repeats_a_part_of_itself(database, start):
    items = texts(200)
    for length in (1, 20, 40):
        with threadline.connect(str(database)) as saver:
            first = put(saver, {"items": items}, thread=f"{start} {length}")
            whole = [*items, *items[start : start + length]]
            second = put(saver, {"items": whole}, thread=f"{start} {length}", after=first)
        assert read_cold(database, second)["items"] == whole


class Token:
    """Something that encodes to other bytes each time."""


def test_a_type_that_encodes_otherwise_each_time(database):
    chance = random.Random(1)
    threadline.register(Token, name="token", encode=lambda _: "t" * chance.randrange(1, 99), decode=lambda _: Token())
    with threadline.connect(str(database)) as saver:
        first = put(saver, {"items": [{"token": Token(), "pad": LONG} for _ in range(30)]})
        second = put(saver, {"items": [{"token": Token(), "pad": LONG} for _ in range(31)]}, after=first)
    for config, count in ((first, 30), (second, 31)):
        found = read_cold(database, config)["items"]
        assert [one["pad"] for one in found] == [LONG] * count


def test_values_that_another_thread_changes_while_they_are_put(database):
    items = [{"a": "x", "pad": LONG} for _ in range(60)]
    is_over = threading.Event()

    def change():
        chance = random.Random(2)
        while not is_over.is_set():
            items[chance.randrange(60)]["a"] = "y" * chance.randrange(1, 50)

    thread = threading.Thread(target=change)
    with threadline.connect(str(database)) as saver:
        thread.start()
        try:
            config, configs = None, []
            for _ in range(30):
                config = put(saver, {"items": items}, after=config)
                configs.append(config)
        finally:
            is_over.set()
            thread.join()
    with threadline.connect(str(database)) as cold:
        for one in configs:
            found = values_at(cold, one)["items"]
            assert [set(item) for item in found] == [{"a", "pad"}] * 60


def batch(saver, thread, parent, states):
    """Checkpoints in one transaction: each a state, and the channels that are new in it."""
    puts, config, versions = [], parent or in_thread(thread), {}
    for step, (state, new) in enumerate(states):
        versions = {**versions, **{name: step + 10 for name in new}}
        checkpoint = {**threadline.empty_checkpoint(), "channel_values": state, "channel_versions": dict(versions)}
        checkpoint["id"] = f"f0000000-0000-6000-8000-{step:012d}"
        puts.append((config, checkpoint, {"step": step}, {name: versions[name] for name in new}))
        config = {"configurable": {**in_thread(thread)["configurable"], "checkpoint_id": checkpoint["id"]}}
    return saver.put_many(puts)


@pytest.mark.parametrize("options", [{}, {"encryption": KeyRing({"k": b"k" * 32})}], ids=["plain", "sealed"])
def test_checkpoints_of_one_batch_inherit_from_each_other(database, options):
    items = texts(40)
    edited = [*items[:5], "other " * 40, *items[6:]]
    states = [
        ({"a": items, "b": LONG}, ["a", "b"]),
        ({"a": items, "b": LONG + "2"}, ["b"]),
        ({"a": edited, "b": LONG + "2"}, ["a"]),
        ({"a": edited, "b": LONG + "3"}, ["b"]),
        ({"a": edited, "b": LONG + "4"}, ["b"]),
    ]
    with threadline.connect(str(database), **options) as saver:
        configs = batch(saver, "batch", None, states)
    for config, (state, _) in zip(configs, states, strict=True):
        assert read_cold(database, config, **options) == state


def test_trusting_identity_keeps_bytes_and_bytearrays_apart(database):
    data, items = b"b" * 200, [LONG]
    with threadline.connect(str(database), trust_identity=True) as saver:
        config = put(saver, {"items": [data, *items]})
        config = put(saver, {"items": [data, *items, "more"]}, after=config)
        config = put(saver, {"items": [bytearray(data), *items, "more"]}, after=config)
    assert type(read_cold(database, config)["items"][0]) is bytearray
