"""Retention by policies, and what no policy may take away; fencing and leases that guard a thread's head."""

from __future__ import annotations

from ...base.checkpoint import Config
from ...base.hashing import blake2b
from ...core.retention.policy import Policy
from ...errors import Conflict, InvalidRequest, NotFound
from ..half import Half
from ..making import everything, id_of, ids_of, place, put, values_at
from ..marks import two_savers
from ..raising import refused


async def _talk(saver: Half, thread: str, turns: int = 8) -> list[Config]:
    configs: list[Config] = []
    for turn in range(turns):
        at = configs[-1] if configs else place(thread)
        values = {"turn": turn, "words": [f"word {n} " * 20 for n in range(turn * 3)]}
        configs.append(await put(saver, at, values, step=turn))
    return configs


async def test_a_plan_says_what_would_go_and_a_prune_does_it(saver: Half, thread: str) -> None:
    configs = await _talk(saver, thread)
    plan = await saver.of(thread).prune(keep_last=3, dry_run=True)
    assert [key.id for key in plan.removes] == [id_of(config) for config in configs[:5]]
    assert plan.freed_bytes > 0
    assert len(await everything(saver, place(thread))) == 8
    seen: list[tuple[int, int]] = []
    assert await saver.of(thread).prune(keep_last=3, progress=lambda *done: seen.append(done)) == plan
    assert ids_of(await everything(saver, place(thread))) == [id_of(config) for config in configs[:4:-1]]
    assert seen[-1] == (5, 5)
    for turn, config in enumerate(configs[5:], 5):
        assert len((await values_at(saver, config))["words"]) == turn * 3


async def test_what_must_stay_stays(saver: Half, thread: str) -> None:
    configs = await _talk(saver, thread)
    await saver.of(thread).tag("first", configs[0])
    await saver.of(thread).pin(configs[2])
    await saver.put_writes(configs[7], [("turn", 9)], "task")
    branch = await put(saver, configs[3], {"turn": 40}, step=4)
    inner = await put(saver, place(thread), {"inner": 1}, ns="child:1", parents={"": id_of(configs[2])})
    gone = await put(saver, place(thread), {"inner": 2}, ns="child:2", parents={"": id_of(configs[4])})
    plan = await saver.of(thread).prune(keep_last=1)
    kept = {(key.namespace, key.id) for key in plan.keeps}
    stays = (configs[0], configs[2], configs[7], branch, inner)
    assert kept == {(one["configurable"]["checkpoint_ns"], id_of(one)) for one in stays}
    assert await saver.get_tuple(gone) is None
    assert (await saver.get_tuple(configs[7])).pending_writes == [("task", "turn", 9)]
    old = await saver.of(thread).prune(keep_last=1, drop_branches_older_than=0.0)
    assert [key.id for key in old.removes] == []  # it has unsettled writes, or is the newest


async def test_what_lost_its_children_is_no_head_of_a_branch(saver: Half, thread: str) -> None:
    configs = await _talk(saver, thread)
    for config in configs[:-1]:
        await saver.put_writes(config, [("turn", 1)], "task")
    await saver.of(thread).tag("then", configs[2])
    await saver.of(thread).prune(keep_last=2)
    assert len(await everything(saver, place(thread))) == 3
    await saver.of(thread).untag("then")
    plan = await saver.of(thread).prune(keep_last=2)
    assert [key.id for key in plan.removes] == [id_of(configs[2])]
    assert len(await everything(saver, place(thread))) == 2


async def test_time_keeps_what_is_young(saver: Half, thread: str) -> None:
    await _talk(saver, thread, 4)
    assert (await saver.of(thread).prune(keep_within="1h", dry_run=True)).removes == ()
    assert len((await saver.of(thread).prune(keep_daily=2, dry_run=True)).removes) == 3
    assert len((await saver.of(thread).prune(keep_hourly=1, dry_run=True)).removes) == 3


async def test_a_policy_that_keeps_nothing_is_refused(saver: Half, thread: str) -> None:
    await _talk(saver, thread, 2)
    for rules in ({}, {"keep_last": 0}, {"keep_last": -1}, {"keep_within": "soon"}, {"keep_first": 3}):
        with refused(InvalidRequest):
            await saver.of(thread).prune(**rules)
    with refused(NotFound):
        await saver.of(thread + "-none").prune(keep_last=1)
    assert len(await everything(saver, place(thread))) == 2


async def test_settled_writes_can_go_on_their_own(saver: Half, thread: str) -> None:
    configs = await _talk(saver, thread, 3)
    for config in configs:
        await saver.put_writes(config, [("turn", 1)], "task")
    await saver.of(thread).prune(Policy(drop_settled_writes=True))
    assert len(await everything(saver, place(thread))) == 3
    left = [len((await saver.get_tuple(config)).pending_writes) for config in configs]
    assert left == [0, 0, 1]


async def test_a_sweep_prunes_every_thread_and_deletes_what_has_expired(saver: Half, thread: str) -> None:
    await _talk(saver, thread + "-a", 4)
    await _talk(saver, thread + "-b", 4)
    await saver.of(thread + "-b").create(ttl=0.001)
    await saver.sleep(0.05)
    swept = await saver.sweep(Policy(keep_last=1), prefix=thread, dry_run=True)
    assert (swept.checkpoints, swept.expired) == (3, (thread + "-b",))
    swept = await saver.sweep(Policy(keep_last=1), prefix=thread)
    assert (swept.threads, swept.checkpoints) == (2, 3)
    assert len(await everything(saver, place(thread + "-a"))) == 1
    assert await saver.get_tuple(place(thread + "-b")) is None
    assert await saver.collect() == 0
    await saver.compact()


async def test_collecting_takes_the_dead_parts_of_packs(saver: Half, thread: str) -> None:
    """Items of a run that closed are in a pack; when most of them are gone, the others leave it."""
    # A run has 128 items at most, whatever their names are: so many make a pack.
    words = [blake2b(f"{thread} {n}".encode()).hexdigest() * 4 for n in range(140)]
    configs: list[Config] = []
    for turn, length in enumerate((1, 2, 3, 140)):
        at = configs[-1] if configs else place(thread)
        configs.append(await put(saver, at, {"words": words[:length]}, step=turn))
    await saver.of(thread).tag("early", configs[2])
    await put(saver, configs[-1], {"words": ["other", *words[2:5]]}, step=4)
    await saver.of(thread).prune(keep_last=1)
    assert await saver.collect() > 0
    await saver.clear_cache()
    assert (await values_at(saver, configs[2]))["words"] == words[:3]
    assert (await values_at(saver, place(thread)))["words"] == ["other", *words[2:5]]
    assert await saver.collect() == 0
    assert (await saver.fsck()).ok


async def test_a_fenced_put_refuses_a_head_that_has_moved(saver: Half, thread: str) -> None:
    fenced = saver.another(fencing=True)
    if not saver.store.is_shared:
        return
    first = await put(fenced, place(thread), {"turn": 0})
    seen = (await fenced.get_tuple(place(thread))).config
    mine = await put(fenced, seen, {"turn": 1})
    with refused(Conflict, saying="moved on"):
        await put(fenced, seen, {"turn": 2})
    await put(saver, mine, {"turn": 3})  # another saver, without fencing
    with refused(Conflict, saying="moved on"):
        await put(fenced, mine, {"turn": 4})
    # Whoever names a checkpoint, forks or updates means to branch.
    assert (await fenced.get_tuple(first)).config == first
    await put(fenced, first, {"turn": 5})
    await fenced.get_tuple(place(thread))
    await put(fenced, mine, {"turn": 6}, source="update")


async def test_a_fenced_put_made_again_is_no_conflict(saver: Half, thread: str) -> None:
    if not saver.store.is_shared:
        return
    fenced = saver.another(fencing=True)
    assert await fenced.get_tuple(place(thread)) is None
    first = await put(fenced, place(thread), {"turn": 0}, id="same")
    assert await put(fenced, place(thread), {"turn": 0}, id="same") == first
    with refused(Conflict):
        await put(fenced, place(thread), {"turn": 0}, id="other")


@two_savers
async def test_a_put_under_a_lost_lease_is_refused(saver: Half, thread: str) -> None:
    config = await put(saver, place(thread), {"turn": 0})
    async with saver.lock(thread, ttl=30):
        await put(saver, config, {"turn": 1})
        engine = saver.saver._engine
        stolen = bytes(16) + b"\0" * 8

        async def steal(backend: object) -> None:
            [current] = await backend.leases(thread)  # type: ignore[attr-defined]
            assert await backend.swap_lease(thread, current, stolen)  # type: ignore[attr-defined]

        await engine.arun(steal) if saver.is_async else engine.run(steal)
        with refused(Conflict, saying="lease"):
            await put(saver, config, {"turn": 2})
        with refused(Conflict, saying="lease"):
            await saver.put_writes(config, [("turn", 2)], "task")
    await put(saver.another(), config, {"turn": 3})


async def test_latest_reads_many_threads_at_once(saver: Half, thread: str) -> None:
    names = [f"{thread}-{n}" for n in range(12)]
    for n, name in enumerate(names):
        await put(saver, place(name), {"turn": n, "text": "x" * 3000})
        await put(saver, place(name), {"turn": n + 100, "text": "y" * 3000})
    found = await saver.latest([*names, thread + "-none"], ["turn"])
    assert found == {name: {"turn": n + 100} for n, name in enumerate(names)}
