"""Whatever a put takes can be read, and is sound to fsck: with bounds so small that values of a few KB reach them."""

import random
from collections import Counter

import pytest
from codec_anatomy import anatomy

import threadline
from threadline.chunks import cutting, encode, growing, read, undivided, weigh

FEW = 60_000


@pytest.fixture(autouse=True)
def small_bounds(monkeypatch):
    monkeypatch.setattr(cutting, "_MOST_REPEATED", FEW)
    monkeypatch.setattr(cutting, "_MOST_TIMES", 16)
    for module in (cutting, encode, read, undivided, weigh):
        monkeypatch.setattr(module, "FEW_REPEATED", FEW)
    monkeypatch.setattr(weigh, "MANY_REPEATED", FEW // 8)
    for module in (encode, growing):
        monkeypatch.setattr(module, "SMALL_BYTES", 3_000)


def made(rng, level=0):
    """A value that repeats itself on all levels."""
    kind = rng.random()
    if level > 3 or kind < 0.5:
        length = rng.choice([1, 30, 200, 1_000, 20_000, 40_000, 200_000] if level < 3 else [1, 200, 1_000])
        letters = rng.choice(["a", "b", "ab", "".join(rng.choices("cdefgh", k=length))])
        return (letters * (length // len(letters) + 1))[:length] if kind < 0.4 else bytes(length)
    base = [made(rng, level + 1) for _ in range(rng.choice([1, 3, 10]))]
    if kind < 0.8:
        return rng.choices(base, k=rng.choice([3, 20, 300] if level < 2 else [2, 5]))
    return {f"key {number}": rng.choice(base) for number in range(rng.choice([3, 30]))}


def changed(rng, value):
    if isinstance(value, list):
        value = [*value, rng.choice(value)]
        value[rng.randrange(len(value))] = made(rng, 2)
        return value * 2 if rng.random() < 0.2 else value
    return {**value, "new": made(rng, 2)} if isinstance(value, dict) else made(rng)


def size(value):
    parts = value.values() if isinstance(value, dict) else value if isinstance(value, list) else ()
    return sum(map(size, parts)) if parts else len(value)


@pytest.mark.parametrize("options", [{}, {"share_decoded": True}], ids=str)
def test_whatever_is_put_is_stored_and_can_be_read(options, monkeypatch):
    found, whole = Counter(), encode.undivided
    monkeypatch.setattr(encode, "undivided", lambda made: found.update(["undivided"]) or whole(made))
    for seed in range(60):
        rng = random.Random(seed)
        with threadline.connect("memory://", **options) as saver:
            thread, value = saver.thread("t"), made(rng)
            for _ in range(4):
                while size(value) > 4_000_000:
                    value = made(rng)
                thread.put({"a": value})
                found["stored"] += 1
                if rng.random() < 0.5:
                    saver.clear_cache()
                assert anatomy(thread.state()["a"]) == anatomy(value), seed
                value = changed(rng, value)
            assert saver.fsck().ok, seed
            assert saver.collect() == 0, seed
    assert found["stored"] == 240
    assert found["undivided"] > 10
