"""Former values of items: what a Store with history knows of times to live, and of writers that keep none."""

from __future__ import annotations

import time
from datetime import datetime, timedelta, timezone

from ....core.records.batch import PutOp
from ....errors import Conflict, InvalidRequest
from ....ports.records import MOST_NAME_BYTES
from ...half import Half
from ...raising import refused
from .items import Items

__all__: list[str] = []


async def test_what_reads_kept_alive_was_there_though_it_was_put_again_or_swept(saver: Half, thread: str) -> None:
    store = Items(saver, keep_versions=True)
    for key in ("again", "swept", "unread"):
        await store.put((thread,), key, {"n": 1}, ttl=timedelta(seconds=1.2))
    for _ in range(2):
        await saver.sleep(0.7)
        for key in ("again", "swept"):
            assert await store.get((thread,), key) is not None
    then = time.time()
    await store.put((thread,), "again", {"n": 2})
    for is_over in (False, True):
        if is_over:
            await saver.sleep(1.3)
            await store.sweep()
        assert (await store.get((thread,), "again", as_of=then)).value == {"n": 1}
        assert (await store.get((thread,), "swept", as_of=then)).value == {"n": 1}
        assert await store.get((thread,), "unread", as_of=then) is None
        assert sorted(item.key for item in await store.search((thread,), as_of=then)) == ["again", "swept"]
    await store.sweep()
    [swept] = await store.history((thread,), "swept")
    assert then < swept.until <= then + 1.3
    [unread] = await store.history((thread,), "unread")
    assert abs(unread.until - unread.since - 1.2) < 0.01
    assert await store.get((thread,), "swept", as_of=time.time()) is None


async def test_what_a_store_without_history_put_or_deleted_is_not_denied(saver: Half, thread: str) -> None:
    store, plain = Items(saver, keep_versions=True), Items(saver)
    for key in ("deleted", "batch", "replaced", "below"):
        await store.put((thread, "n") if key == "below" else (thread,), key, {"n": 1})
    await plain.put((thread,), "never", {"n": 1})
    before = time.time()
    await saver.sleep(0.02)
    await plain.delete((thread,), "deleted")
    await plain.batch([PutOp((thread,), "batch", None), PutOp((thread,), "other", None)])
    assert await plain.delete_namespace((thread, "n")) == 1
    await plain.put((thread,), "replaced", {"n": 2})
    after = time.time()
    for key in ("deleted", "batch"):
        assert (await store.get((thread,), key, as_of=before)).value == {"n": 1}
        assert await store.get((thread,), key, as_of=after) is None
        assert [one.value for one in await store.history((thread,), key)] == [None, {"n": 1}]
    assert await store.get((thread, "n"), "below", as_of=after) is None
    found = {item.key: item.value["n"] for item in await store.search((thread,), as_of=after)}
    assert found == {"replaced": 2, "never": 1}
    found = {item.key: item.value["n"] for item in await store.search((thread,), as_of=before)}
    assert found == {"replaced": 1, "never": 1, "deleted": 1, "batch": 1, "below": 1}
    assert await store.history((thread,), "other") == await store.history((thread,), "never") == []
    await store.put((thread,), "replaced", {"n": 3})
    assert [one.value["n"] for one in await store.history((thread,), "replaced")] == [3, 2, 1]
    assert (await store.get((thread,), "replaced", as_of=after)).value == {"n": 2}


async def test_a_former_value_has_the_time_of_creation_of_its_item(saver: Half, thread: str) -> None:
    store = Items(saver, keep_versions=10)
    await store.put((thread,), "k", {"n": 1})
    created = (await store.get((thread,), "k")).created_at
    await saver.sleep(0.02)
    await store.put((thread,), "k", {"n": 2})
    then = datetime.now(timezone.utc)
    await saver.sleep(0.02)
    await store.put((thread,), "k", {"n": 3})
    item = await store.get((thread,), "k", as_of=then)
    assert (item.value, item.version, item.created_at) == ({"n": 2}, 2, created)
    assert item.updated_at > created
    assert (await store.search((thread,), as_of=then))[0].created_at == created


async def test_an_expired_item_that_no_sweep_has_met_begins_anew(saver: Half, thread: str) -> None:
    stores = ((Items(saver), [1]), (Items(saver, keep_versions=True), [2, 1]))
    begun = []
    for store, versions in stores:
        place = (thread, str(len(versions)))
        await store.put(place, "k", {"n": 1}, ttl=timedelta(seconds=0.6))
        begun.append(await store.get(place, "k", refresh_ttl=False))
    await saver.sleep(0.7)
    for (store, versions), first in zip(stores, begun, strict=True):
        label = str(len(versions))
        await store.put((thread, label), "k", {"n": 2}, if_version=0)
        second = await store.get((thread, label), "k")
        assert (second.value, second.version) == ({"n": 2}, versions[0])
        assert second.created_at > first.created_at
    history = await store.history((thread, label), "k")
    assert [one.version for one in history] == versions
    assert history[1].until < history[0].since


async def test_a_version_is_restored_with_the_time_to_live_that_it_had(saver: Half, thread: str) -> None:
    store = Items(saver, keep_versions=True, default_ttl=5)
    await store.put((thread,), "k", {"n": 1}, ttl=timedelta(hours=3))
    await store.put((thread,), "k", {"n": 2}, ttl=None)
    await store.restore((thread,), "k", version=1)
    left = (await store.get((thread,), "k")).expires_at - datetime.now(timezone.utc)
    assert timedelta(hours=2) < left < timedelta(hours=4)
    await store.restore((thread,), "k", version=2)
    assert (await store.get((thread,), "k")).expires_at is None


async def test_of_several_puts_to_one_item_every_condition_counts(saver: Half, thread: str) -> None:
    for store in (Items(saver), Items(saver, keep_versions=True)):
        await store.delete((thread,), "k", forget=True)
        with refused(Conflict):
            await store.batch([PutOp((thread,), "k", {"n": 1}, if_version=99), PutOp((thread,), "k", {"n": 2})])
        with refused(Conflict):
            ops = [PutOp((thread,), "k", {"n": n}, if_version=n) for n in range(2)]
            await store.batch(ops)
        assert await store.get((thread,), "k") is None
        await store.batch([PutOp((thread,), "k", {"n": 1}, if_version=0), PutOp((thread,), "k", {"n": 2})])
        assert (await store.get((thread,), "k")).value == {"n": 2}
        for wrong in ("1", 1.0, True, -1):
            with refused(InvalidRequest, saying="if_version"):
                await store.put((thread,), "k", {"n": 3}, if_version=wrong)


async def test_an_item_with_the_longest_name_can_be_deleted_by_a_store_with_history(saver: Half, thread: str) -> None:
    plain, store = Items(saver), Items(saver, keep_versions=True)
    key = "k" * (MOST_NAME_BYTES - len(thread.encode()) - 3)
    await plain.put((thread,), key, {"n": 1})
    with refused(InvalidRequest, saying="bytes"):
        await store.put((thread,), key, {"n": 2})
    await store.delete((thread,), key)
    assert await plain.get((thread,), key) is None


async def test_deleting_a_namespace_counts_what_was_there(saver: Half, thread: str) -> None:
    for store in (Items(saver), Items(saver, keep_versions=True)):
        await store.put((thread,), "gone", {"n": 1}, ttl=timedelta(seconds=0.1))
        await store.put((thread,), "there", {"n": 1})
        await saver.sleep(0.2)
        assert await store.delete_namespace((thread,)) == 1
        assert await store.count((thread,)) == 0
