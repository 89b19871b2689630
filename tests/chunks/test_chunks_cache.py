"""Caches stay within their bounds, and nothing depends on what they hold."""

import threading

import pytest
from codec_stores import in_thread, put, values_at

from threadline.base.bounded_cache import BoundedCache


def test_what_was_not_used_for_a_generation_leaves_first():
    cache = BoundedCache(100)  # two generations of 50
    for name in "abcd":
        cache.put(name, name.upper(), 25)
    assert cache.get("a") == "A"  # was old, is young again, and pushes c and d into the old generation
    assert cache.get("b") is None
    assert [cache.get(name) for name in "acd"] == ["A", "C", "D"]
    assert cache.used_bytes <= 100


def test_a_value_that_was_replaced_while_it_was_read_does_not_come_back():
    cache = BoundedCache(100)
    cache.put("a", 1, 40)
    cache.put("b", 2, 40)  # now a is old
    entry = cache._old["a"]
    cache.put("a", 3, 40)
    cache._promote([("a", entry)])
    assert cache.get("a") == 3


def test_the_bound_holds_whatever_is_put():
    cache = BoundedCache(100)
    for at in range(1000):
        cache.put(at % 17, at, (at * 37) % 130)
        assert 0 <= cache.used_bytes <= 100
    for at in range(17):
        cache.drop(at)
    assert cache.used_bytes == 0
    assert len(cache) == 0


def test_what_is_larger_than_the_bound_is_not_kept_and_takes_its_predecessor_along():
    cache = BoundedCache(100)
    cache.put("a", 1, 50)
    cache.put("a", 2, 101)
    assert cache.get("a") is None
    assert cache.used_bytes == 0
    nothing = BoundedCache(0)
    nothing.put("a", 1, 1)
    assert nothing.get("a") is None


def test_putting_a_key_again_replaces_its_value_and_its_cost():
    cache = BoundedCache(100)
    cache.put("a", 1, 60)
    cache.put("a", 2, 10)
    assert cache.get("a") == 2
    assert cache.used_bytes == 10
    cache.clear()
    assert cache.used_bytes == 0
    assert cache.get("a") is None


def test_many_threads_may_use_a_cache_at_once():
    cache, problems = BoundedCache(500), []

    def use(seed):
        try:
            for at in range(3000):
                key = (at * seed) % 50
                cache.put(key, key, 20)
                found = cache.get((key + seed) % 50)
                assert found is None or found == (key + seed) % 50
                if at % 100 == 0:
                    cache.drop(key)
        except Exception as problem:
            problems.append(problem)

    threads = [threading.Thread(target=use, args=(seed,)) for seed in range(1, 7)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert problems == []
    assert cache.used_bytes == 20 * len(cache) <= 500


@pytest.mark.parametrize("cache_bytes", [0, 1, 1_000, 30_000, 10_000_000])
def test_a_saver_works_with_any_bound(connect, cache_bytes):
    saver = connect(cache_bytes=cache_bytes)
    config, states = None, []
    for step in range(12):
        state = {"items": [f"{at} " * 50 for at in range(step * 10)], "n": step, "files": {str(step): "x" * 3000}}
        config = put(saver, state, after=config)
        states.append((config, state))
    for found, state in states:
        assert values_at(saver, found) == state
    assert [one.checkpoint["channel_values"]["n"] for one in saver.list(in_thread())] == list(range(11, -1, -1))


def test_what_a_saver_remembers_of_many_threads_stays_within_its_bound(connect):
    saver = connect(cache_bytes=50_000)
    for at in range(60):
        put(saver, {"items": [f"{at} {number} " * 30 for number in range(30)]}, thread=f"thread {at}")
    tools = saver._tools
    held = [tools.lines._held, tools.known._threads]
    assert all(cache.used_bytes <= cache.limit_bytes for cache in held)
    assert sum(cache.limit_bytes for cache in held) + tools.reader.used_bytes <= 50_000 * 3
    assert tools.coming == {}
    for at in (0, 30, 59):
        assert values_at(saver, in_thread(f"thread {at}"))["items"][0] == f"{at} 0 " * 30


def test_puts_that_failed_or_were_refused_are_remembered_within_a_bound(connect, monkeypatch):
    from threadline.core import context as tools

    monkeypatch.setattr(tools, "_MOST_NOTED", 5)
    held = connect()._tools
    for at in range(20):
        held.expect("thread", f"id {at}", (None, True))
        held.refused.note("thread", f"id {at}", True)
    assert list(held.coming) == list(held.refused) == [("thread", f"id {at}") for at in range(15, 20)]
    held.expect("thread", "id 19", (None, True))
    assert ("thread", "id 19") not in held.refused
