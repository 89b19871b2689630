"""How often a call waits for the server, counted on the wire."""

import asyncio

import pytest

import threadline
from threadline.backends.lending import Pool
from threadline.testing.making import checkpoint, place


def long_list(length):
    return [{"id": number, "content": f"message {number} " + "lorem ipsum " * 30} for number in range(length)]


def arguments(at, step):
    versions = {"messages": step, "count": step}
    made = checkpoint({"messages": long_list(step), "count": step}, versions)
    return at, made, {"source": "loop", "step": step, "parents": {}}, versions


@pytest.fixture
def saver(proxied_url, schema):
    saver = threadline.connect(proxied_url, schema=schema, pool_size=2)
    yield saver
    saver.close()


def test_a_put_waits_for_the_server_once(saver, proxy):
    at = saver.put(*arguments(place("t"), 1))
    for step in range(2, 40):
        before = proxy.trips
        at = saver.put(*arguments(at, step))
        assert proxy.trips - before == 1

    assert len(saver.get(place("t"))["channel_values"]["messages"]) == 39


def test_an_async_put_waits_for_the_server_once(saver, proxy):
    async def put_all():
        at = await saver.aput(*arguments(place("t"), 1))
        counted = []
        for step in range(2, 40):
            before = proxy.trips
            at = await saver.aput(*arguments(at, step))
            counted.append(proxy.trips - before)
        found = await saver.aget(place("t"))
        await saver.aclose()
        return counted, found

    counted, found = asyncio.run(put_all())
    assert set(counted) == {1}
    assert len(found["channel_values"]["messages"]) == 39


def test_writes_wait_for_the_server_once(saver, proxy):
    at = saver.put(*arguments(place("t"), 1))
    before = proxy.trips
    saver.put_writes(at, [("messages", long_list(50)), ("count", 2), ("__error__", "no")], "task")
    saver.put_writes(at, [("__error__", "still no")], "task")
    assert proxy.trips - before == 2

    found = saver.get_tuple(at).pending_writes
    assert sorted(channel for _, channel, _ in found) == ["__error__", "count", "messages"]
    assert dict((channel, value) for _, channel, value in found)["__error__"] == "still no"


def test_the_first_put_of_a_thread_waits_for_the_server_once(saver, proxy):
    saver.put(*arguments(place("t"), 1))
    for number in range(5):
        before = proxy.trips
        saver.put(*arguments(place(f"t{number}"), 1))
        assert proxy.trips - before == 1
    assert saver.count_threads() == 6


def test_a_put_under_a_fence_or_a_lease_waits_once_too(proxied_url, schema, proxy):
    saver = threadline.connect(proxied_url, schema=schema, fencing=True)
    with saver.lock("t"):
        at = saver.put(*arguments(place("t"), 1))
        for step in range(2, 6):
            before = proxy.trips
            at = saver.put(*arguments(at, step))
            assert proxy.trips - before == 1
    saver.close()


def test_a_question_and_its_answer_wait_once_each(saver, proxy):
    at = saver.put(*arguments(place("t"), 1))
    for step in range(2, 5):
        before = proxy.trips
        saver.put_writes(at, [("__interrupt__", [{"value": "ok?"}])], "task")
        at = saver.put(*arguments(at, step))
        assert proxy.trips - before == 2


def test_a_checkpoint_and_its_writes_are_read_in_one_trip_and_each_level_in_one_more(saver, proxy):
    at = saver.put(*arguments(place("t"), 400))
    saver.put_writes(at, [("count", 2)], "task")
    saver.clear_cache()
    before = proxy.trips
    found = saver.get_tuple(place("t"))
    assert proxy.trips - before <= 4
    assert found.checkpoint["channel_values"]["messages"] == long_list(400)


def test_a_put_under_a_tenant_waits_once_too(proxied_url, schema, proxy):
    saver = threadline.connect(proxied_url, schema=schema, tenant="acme")
    at = saver.put(*arguments(place("t"), 1))
    before = proxy.trips
    saver.put(*arguments(at, 2))
    assert proxy.trips - before == 1
    saver.close()


def test_a_prune_waits_for_the_server_a_few_times_however_much_it_deletes(saver, proxy):
    at = place("t")
    for step in range(1, 120):
        at = saver.put(*arguments(at, step))
        saver.put_writes(at, [("count", step)], "task")
    chunks = saver.stats().chunks
    before = proxy.trips
    plan = saver.thread("t").prune(keep_last=2)
    assert len(plan.removes) == 117
    assert proxy.trips - before < 60
    assert saver.stats().chunks < chunks
    assert [found.metadata["step"] for found in saver.list(place("t"))] == [119, 118]
    assert saver.get(place("t"))["channel_values"]["messages"] == long_list(119)


def test_a_usual_put_that_is_refused_is_not_sent_a_second_time_before_the_general_way(saver, admin, monkeypatch):
    at = saver.put(*arguments(saver.put(*arguments(place("t"), 1)), 2))
    asked, lend_now = [], Pool.lend_now
    monkeypatch.setattr(Pool, "lend_now", lambda *args: asked.append(args) or lend_now(*args))
    for step in (3, 4):
        admin.execute("UPDATE threadline_threads SET epoch = epoch + 1")
        at = saver.put(*arguments(at, step))
    assert len(asked) == 2
    assert len(saver.get(place("t"))["channel_values"]["messages"]) == 4
