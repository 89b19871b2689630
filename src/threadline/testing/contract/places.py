"""Places in history: every way to name a checkpoint leads to it, and what means none or several says so."""

from __future__ import annotations

from datetime import datetime, timedelta, timezone
from typing import Any

from ...base.checkpoint import Config
from ...errors import InvalidRequest, NotFound
from ..half import Half
from ..making import id_of, place, put
from ..raising import refused


async def _talk(saver: Half, thread: str, turns: int = 5) -> list[Config]:
    configs: list[Config] = []
    for turn in range(turns):
        at = configs[-1] if configs else place(thread)
        configs.append(await put(saver, at, {"turn": turn, "branch:to:x": None}, step=turn))
    return configs


async def test_every_way_to_name_a_checkpoint_leads_to_it(saver: Half, thread: str) -> None:
    configs = await _talk(saver, thread)
    handle, wanted = saver.of(thread), id_of(configs[2])
    await handle.tag("third", wanted)
    ways = [wanted, "head~2", "third", "third~0", 2, "step:2", configs[2], await handle.at(wanted)]
    for way in ways:
        assert (await handle.at(way)).config == configs[2], way
    for way in (None, "head", "head~0", "~0", place(thread)):
        assert (await handle.at(way)).id == id_of(configs[-1]), way
    assert (await handle.at("third~")).id == (await handle.at("~3")).id == id_of(configs[1])


async def test_a_time_means_the_newest_checkpoint_made_until_then(saver: Half, thread: str) -> None:
    await _talk(saver, thread, 2)
    await saver.sleep(0.02)
    between = datetime.now(timezone.utc)
    await saver.sleep(0.02)
    await put(saver, place(thread), {"turn": 9}, step=9)
    handle = saver.of(thread)
    assert (await handle.state(between))["turn"] == 1
    assert (await handle.state(between.isoformat()))["turn"] == 1
    assert (await handle.state(datetime.now(timezone.utc)))["turn"] == 9
    with refused(NotFound, saying="made until"):
        await handle.at(between - timedelta(days=1))


async def test_the_beginning_of_an_id_is_enough_if_it_is_unique(saver: Half, thread: str) -> None:
    for checkpoint_id in ("aa-1", "aa-2", "ab-1"):
        await put(saver, place(thread), {"id": checkpoint_id}, id=checkpoint_id)
    handle = saver.of(thread)
    assert (await handle.at("ab")).id == "ab-1"
    assert (await handle.at("aa-2")).id == "aa-2"
    with refused(InvalidRequest, saying="several"):
        await handle.at("aa")


async def test_what_is_not_there_is_not_found(saver: Half, thread: str) -> None:
    with refused(NotFound, saying="no thread"):
        await saver.of(thread).at()
    configs = await _talk(saver, thread, 2)
    unknown: list[Any] = ["zz", "head~2", 77, "step:77", "unknown-tag", place(thread, "zz")]
    for way in unknown:
        with refused(NotFound):
            await saver.of(thread).at(way)
    wrong: list[Any] = [True, 1.5, "", place(thread + "-other", id_of(configs[0]))]
    for way in wrong:
        with refused(InvalidRequest):
            await saver.of(thread).at(way)


async def test_a_state_has_the_values_without_the_engines_own_channels(saver: Half, thread: str) -> None:
    configs = await _talk(saver, thread, 3)
    state = await saver.of(thread).state("head~1")
    assert state == {"turn": 1}
    assert state.config == configs[1]
    assert "<table>" in state._repr_html_()


async def test_tags_move_vanish_and_are_listed(saver: Half, thread: str) -> None:
    configs = await _talk(saver, thread, 3)
    handle = saver.of(thread)
    await handle.tag("best", "head~2")
    await handle.tag("best")
    await handle.pin("head~1")
    assert (await handle.at("best")).config == configs[-1]
    entries = (await handle.log()).entries
    assert [entry.tags for entry in entries] == [("best",), (), ()]
    assert [entry.is_pinned for entry in entries] == [False, True, False]
    assert [info.tags async for info in saver.threads(prefix=thread)] == [("best",)]
    assert [info.thread_id async for info in saver.threads(prefix=thread, tag="other")] == []
    await handle.untag("best")
    with refused(NotFound):
        await handle.at("best")
    with refused(NotFound, saying="no tag"):
        await handle.untag("best")
    for name in ("head", "", "1st", "a~b", "a b"):
        with refused(InvalidRequest, saying="tag"):
            await handle.tag(name)


async def test_a_log_shows_the_tree_and_what_each_step_changed(saver: Half, thread: str) -> None:
    configs = await _talk(saver, thread, 3)
    await put(saver, configs[0], {"turn": 7}, step=1)
    await put(saver, place(thread), {"inner": 1}, ns="child:1")
    log = await saver.of(thread).log()
    assert len(log) == 5
    assert len(log.heads) == 3
    root = await saver.of(thread).log(namespace="")
    assert [entry.parent for entry in root][::-1][:2] == [None, id_of(configs[0])]
    assert root.entries[-1].changed == ("turn", "branch:to:x")
    assert all(entry.added_bytes > 0 for entry in log)
    assert log.entries[0].config["configurable"]["thread_id"] == thread


async def test_writes_tell_who_wrote_what(saver: Half, thread: str) -> None:
    [config] = await _talk(saver, thread, 1)
    await saver.put_writes(config, [("turn", 2), ("note", "x" * 500)], "task-1", "~__pregel_pull, agent")
    await saver.put_writes(config, [("turn", 3)], "task-2", "~__pregel_pull, tools")
    told = await saver.of(thread).writes()
    assert [(one.task, one.channel, one.value) for one in told] == [
        ("agent", "turn", 2),
        ("agent", "note", "x" * 500),
        ("tools", "turn", 3),
    ]
    assert told[1].value_bytes > 500
    totals = await saver.writes_by_task(thread_id=thread)
    assert {one.task: one.writes for one in totals.by_task} == {"agent": 2, "tools": 1}
