"""The keys of a store: which there are, when they expire, and names that look like something else."""

import time

import lives
import pytest
from redis_tools import client_of, keys_of

import threadline

GLOBAL = ("dir:", "threads", "pools", "meta")


def pool_keys(client, prefix):
    head = prefix.encode() + b":{"
    return [key for key in keys_of(client, prefix) if key.startswith(head)]


def fill(saver, thread_id, steps=3):
    for step in range(steps):
        saver.put(*lives.put_arguments(thread_id, step))
        saver.put_writes(*lives.write_arguments(thread_id, step, "task-a"))


def test_without_ttl_no_key_expires(connect, client, prefix):
    saver = connect()
    fill(saver, "thread")
    with saver.lock("thread"):
        assert {client.pttl(key) for key in keys_of(client, prefix)} == {-1}
    assert len(pool_keys(client, prefix)) <= 8


def test_with_ttl_every_key_of_a_pool_has_one_expiry_that_each_put_moves(connect, client, prefix):
    saver = connect(ttl=100)
    fill(saver, "thread")
    with saver.lock("thread"):
        keys = pool_keys(client, prefix)
        assert {key.rpartition(b":")[2] for key in keys} == {
            b"pool", b"threads", b"chunks", b"rows", b"order", b"writes", b"tasks", b"heirs", b"leases",
        }  # fmt: skip
        ends = {client.pexpiretime(key) for key in keys}
    assert len(ends) == 1
    time.sleep(0.05)
    saver.put(*lives.put_arguments("thread", 3))
    later = {client.pexpiretime(key) for key in pool_keys(client, prefix)}
    assert len(later) == 1
    assert min(later) > max(ends)


def test_a_pool_lives_as_long_as_its_longest_thread(connect, client, prefix):
    saver = connect(ttl=1)
    fill(saver, "origin")
    saver.copy_thread("origin", "fork")
    for step in range(3, 9):
        time.sleep(0.3)
        config, *rest = lives.put_arguments("origin", step)
        config["configurable"]["thread_id"] = "fork"
        saver.put(config, *rest)
    assert lives.check(saver.get_tuple(lives.config("origin")), "origin") == 2
    assert lives.check_copy(saver.get_tuple(lives.config("fork")), "origin") == 8


def test_an_expired_thread_is_gone_and_can_begin_anew(connect, client, prefix):
    saver = connect(ttl=0.3)
    fill(saver, "thread")
    fill(saver, "other")
    wait_until_gone(client, prefix)
    assert saver.get_tuple(lives.config("thread")) is None
    assert list(saver.threads()) == []
    assert saver.count_threads() == 0
    fresh = connect()
    fill(fresh, "thread", 1)
    # What the first saver knew of the pool was true of another life of it.
    saver.put(lives.config("thread"), *lives.put_arguments("thread", 0)[1:])
    fresh.clear_cache()
    assert fresh.get_tuple(lives.config("thread")).checkpoint == lives.checkpoint("thread", 0)


def wait_until_gone(client, prefix):
    deadline = time.monotonic() + 20
    while any(key.endswith(b":chunks") for key in pool_keys(client, prefix)):
        assert time.monotonic() < deadline
        time.sleep(0.05)


def test_entries_of_expired_threads_are_swept_by_those_who_begin(connect, client, prefix):
    saver = connect(ttl=0.3)
    for number in range(10):
        fill(saver, f"old-{number}", 1)
    wait_until_gone(client, prefix)
    lasting = connect(ttl=1000)
    for number in range(20):
        fill(lasting, f"new-{number}", 1)
    left = [key for key in keys_of(client, prefix) if b":dir:old-" in key]
    assert len(left) < 10
    assert lasting.count_threads() == 20


@pytest.mark.parametrize("name", ["a{b", "a}b", "{}", "}{", "*", "%7B", "sp ace", "ünï", "a:dir:b"])
def test_a_prefix_may_hold_anything_and_keeps_stores_apart(url, name, prefix):
    hostile, plain = (threadline.connect(url, key_prefix=key_prefix) for key_prefix in (f"{prefix}{name}", prefix))
    fill(hostile, "thread")
    plain.setup()
    assert list(plain.threads()) == []
    assert lives.check(hostile.get_tuple(lives.config("thread")), "thread") == 2
    hostile.copy_thread("thread", "copy")
    hostile.delete_thread("thread")
    assert [info.thread_id for info in hostile.threads()] == ["copy"]
    client = client_of(url)
    for key in client.scan_iter(match="*", count=10_000):
        if key.startswith(prefix.encode()):
            client.delete(key)
    hostile.close()
    plain.close()


IDS = ["{a}", "a{b}c", "}", "*", "a:b", "a", "a:", "\U0001f600", "ab", "=a", "%00", "é"]


def test_thread_ids_that_look_like_keys_stay_apart_and_in_order(connect):
    saver = connect()
    for name in IDS:
        config, *rest = lives.put_arguments(name, 0)
        saver.put(config, *rest)
    assert [info.thread_id for info in saver.threads()] == sorted(IDS, key=str.encode)
    assert [info.thread_id for info in saver.threads(prefix="a")] == ["a", "a:", "a:b", "ab", "a{b}c"]
    for name in IDS:
        assert lives.check(saver.get_tuple(lives.config(name)), name) == 0
        saver.delete_thread(name)
        assert saver.get_tuple(lives.config(name)) is None


def test_namespaces_of_every_kind_are_listed_newest_first(connect):
    saver = connect()
    names = ["", "a", "a|b", "a:1|b:2", "\U0001f600", "zz"]
    for step in range(3):
        for name in names:
            saver.put(*lives.put_arguments("thread", step, name))
    listed = [
        (found.config["configurable"]["checkpoint_id"], found.config["configurable"]["checkpoint_ns"])
        for found in saver.list({"configurable": {"thread_id": "thread"}})
    ]
    ordered = sorted(names, key=str.encode)
    assert listed == [(lives.id_of(step), name) for step in (2, 1, 0) for name in ordered]
    for name in names:
        assert lives.check(saver.get_tuple(lives.config("thread", namespace=name)), "thread") == 2
