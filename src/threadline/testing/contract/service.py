"""The life of a saver: opening, figures, probes, caches, clones, closing."""

from __future__ import annotations

import copy

from ...errors import Closed
from ..half import Half
from ..making import checkpoint, everything, id_of, ids_of, place, put, values_at
from ..marks import two_savers
from ..raising import refused


def _words(count: int) -> list[str]:
    return [f"word {at} " * 30 for at in range(count)]


async def test_nothing_needs_to_be_opened_first(saver: Half, thread: str) -> None:
    assert await saver.get_tuple(place(thread)) is None
    for first_use in (
        lambda other: everything(other, place(thread)),
        lambda other: other.delete_thread(thread),
        lambda other: put(other, place(thread), {"a": 1}),
        lambda other: other.stats(),
        lambda other: other.count_threads(),
        lambda other: other.latest([thread]),
        lambda other: other.prune([thread]),
    ):
        await first_use(saver.another())


async def test_open_and_setup_may_be_called_any_number_of_times(saver: Half, thread: str) -> None:
    for _ in range(2):
        assert await saver.open() is saver.saver
        await saver.setup()
    config = await put(saver, place(thread), {"a": 1})
    await saver.setup()
    assert await values_at(saver, config) == {"a": 1}


async def test_the_figures_count_what_is_stored(saver: Half, thread: str) -> None:
    before = await saver.stats()
    config = place(thread)
    for turn in range(10):
        config = await put(saver, config, {"words": _words(50 + turn)})
        await saver.put_writes(config, [("a", 1), ("b", 2)], "task")
    await put(saver, place(thread + "-2"), {"n": 1})

    after = await saver.stats()

    assert after.threads == before.threads + 2
    assert after.checkpoints == before.checkpoints + 11
    assert after.writes == before.writes + 20
    assert 10 <= after.chunks - before.chunks <= 100
    assert after.bytes_stored > 0
    assert after.bytes_without_sharing - before.bytes_without_sharing > 10 * 50 * 50
    assert after.bytes_saved == max(0, after.bytes_without_sharing - after.bytes_stored)
    assert len(after.checkpoints_per_hour) == 24
    assert sum(after.checkpoints_per_hour) == sum(before.checkpoints_per_hour) + 11
    assert after.checkpoints_per_hour[0] + after.checkpoints_per_hour[1] >= 11
    assert dict(after.busiest_threads).get(thread, 0) in (0, 10)
    assert after.mean_checkpoint_bytes == after.bytes_without_sharing / after.checkpoints


async def test_the_busiest_threads_come_first(saver: Half, thread: str) -> None:
    for count, name in ((3, "-a"), (5, "-b"), (1, "-c")):
        for _ in range(count):
            await put(saver, place(thread + name), {})
    busiest = [(name, count) for name, count in (await saver.stats()).busiest_threads if name.startswith(thread)]
    assert busiest == [(thread + "-b", 5), (thread + "-a", 3), (thread + "-c", 1)]


async def test_health_writes_reads_and_removes(saver: Half, thread: str) -> None:
    before = await saver.stats()
    health = await saver.health()
    assert health.ok
    assert health.error is None
    assert 0 < health.latency_seconds < 30
    assert (await saver.stats()).chunks == before.chunks


async def test_health_tells_of_a_closed_saver_instead_of_raising(saver: Half, thread: str) -> None:
    other = saver.another()
    assert (await other.health()).ok
    await other.close()
    health = await other.health()
    assert not health.ok
    assert "Closed" in (health.error or "")


async def test_forgetting_everything_loses_nothing(saver: Half, thread: str) -> None:
    config = place(thread)
    for turn in range(6):
        config = await put(saver, config, {"words": _words(30 + turn)})
        await saver.clear_cache()
        assert await values_at(saver, config) == {"words": _words(30 + turn)}
        if turn % 2:
            await saver.clear_cache()
    assert [len(one.checkpoint["channel_values"]["words"]) for one in await everything(saver, place(thread))] == [
        35, 34, 33, 32, 31, 30,
    ]  # fmt: skip


async def test_tiny_caches_change_nothing_but_speed(saver: Half, thread: str) -> None:
    for cache_bytes in (0, 1, 1000, 20_000):
        small, name = saver.another(cache_bytes=cache_bytes), f"{thread}-{cache_bytes}"
        config = place(name)
        for turn in range(6):
            config = await put(small, config, {"words": _words(40 + turn), "turn": turn})
            await small.put_writes(config, [("words", _words(3))], "task")
            assert await values_at(small, config) == {"words": _words(40 + turn), "turn": turn}
        await small.prune([name])
        config = await put(small, config, {"words": _words(44)})
        assert await values_at(small, config) == {"words": _words(44)}
        assert len(await everything(small, place(name))) == 2


async def test_clones_share_the_store_and_its_end(saver: Half, thread: str) -> None:
    config = await put(saver, place(thread), {"a": 1})
    clones = [copy.copy(saver.saver), saver.saver.with_allowlist([complex])]
    for clone in clones:
        assert (clone.get_tuple(config)).checkpoint["channel_values"] == {"a": 1}
        clone.put(config, {**clone.get(config), "id": id_of(config) + "z"}, {"step": 1}, {})
        assert ids_of(await everything(saver, place(thread))) == [id_of(config) + "z", id_of(config)]
    await saver.close()
    for clone in clones:
        with refused(Closed):
            clone.get_tuple(config)


async def test_both_halves_of_one_saver_see_the_same(saver: Half, thread: str) -> None:
    other = saver.other_half() if saver.is_async else saver
    if other is saver:  # the sync half runs without a loop; the async half tries this for both
        return
    config = place(thread)
    for turn in range(6):
        writer, reader = (saver, other) if turn % 2 else (other, saver)
        config = await put(writer, config, {"words": _words(20 + turn)})
        assert await values_at(reader, config) == {"words": _words(20 + turn)}
        assert len(await everything(reader, place(thread))) == turn + 1
    await other.delete_thread(thread)
    assert await saver.get_tuple(place(thread)) is None


async def test_a_closed_saver_refuses_every_use(saver: Half, thread: str) -> None:
    config = await put(saver, place(thread), {"a": 1})
    await saver.close()
    for use in (
        lambda: put(saver, config, {"a": 2}),
        lambda: saver.put_writes(config, [("a", 1)], "task"),
        lambda: saver.put_many([(config, checkpoint({}), {}, {})]),
        lambda: saver.get_tuple(config),
        lambda: saver.get(config),
        lambda: everything(saver, config),
        lambda: everything(saver, None),
        lambda: saver.delete_thread(thread),
        lambda: saver.delete_for_runs(["r"]),
        lambda: saver.delete_checkpoint(config),
        lambda: saver.copy_thread(thread, thread + "-copy"),
        lambda: saver.prune([thread]),
        lambda: saver.get_delta_channel_history(config=config, channels=["a"]),
        lambda: saver.of(thread).versions("a"),
        lambda: saver.latest([thread]),
        lambda: saver.count_threads(),
        lambda: saver.threads().__anext__(),
        lambda: saver.interrupts().__anext__(),
        lambda: saver.stats(),
        lambda: saver.setup(),
        lambda: saver.open(),
        lambda: saver.lock(thread, wait=0).__aenter__(),
    ):
        with refused(Closed):
            await use()
    await saver.close()


async def test_a_saver_that_was_never_used_can_be_closed(saver: Half, thread: str) -> None:
    other = saver.another()
    await other.close()
    with refused(Closed):
        await put(other, place(thread), {})


@two_savers
async def test_what_one_saver_put_another_reads_at_once(saver: Half, thread: str) -> None:
    other, config = saver.another(), place(thread)
    for turn in range(5):
        writer, reader = (saver, other) if turn % 2 else (other, saver)
        config = await put(writer, config, {"words": _words(30 + turn)})
        await writer.put_writes(config, [("words", turn)], "task")
        found = await reader.get_tuple(place(thread))
        assert found.checkpoint["channel_values"] == {"words": _words(30 + turn)}
        assert found.pending_writes == [("task", "words", turn)]


@two_savers
async def test_closing_one_saver_leaves_the_others_open(saver: Half, thread: str) -> None:
    other = saver.another()
    config = await put(other, place(thread), {"words": _words(40)})
    await other.close()
    assert await values_at(saver, config) == {"words": _words(40)}
