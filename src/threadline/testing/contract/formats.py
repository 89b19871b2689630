"""Checkpoints of older formats, and the versions that other savers gave to channels."""

from __future__ import annotations

import uuid
from typing import Any

from ...base.checkpoint import TASKS
from ..half import Half
from ..making import checkpoint, everything, place, put, stored, values_at

_LOOP = {"source": "loop", "step": 0, "parents": {}}


async def test_formats_1_to_4_come_back_in_their_own_format(saver: Half, thread: str) -> None:
    for v in (1, 2, 3, 4):
        made = checkpoint({"a": v}, v=v)
        config = await saver.put(place(thread), made, _LOOP, {"a": 1})
        assert (await stored(saver, config)).checkpoint == made


async def test_keys_of_another_format_are_kept(saver: Half, thread: str) -> None:
    made = checkpoint({"a": 1}, pending_sends=[], current_tasks={"t": {"x": 1}})
    del made["updated_channels"]
    config = await saver.put(place(thread), made, _LOOP, {"a": 1})
    assert (await stored(saver, config)).checkpoint == made
    [listed] = await everything(saver, place(thread))
    assert listed.checkpoint == made


async def test_pending_sends_of_old_formats_surface_as_a_channel(saver: Half, thread: str) -> None:
    for v in (1, 2, 3):
        made = checkpoint({"a": 1}, {"a": 5, "b": 7}, v=v, pending_sends=["send 1", {"send": 2}])
        config = await saver.put(place(thread), made, _LOOP, {"a": 5, "b": 7})
        for found in (await stored(saver, config), (await everything(saver, config))[0]):
            assert found.checkpoint["channel_values"] == {"a": 1, TASKS: ["send 1", {"send": 2}]}
            assert found.checkpoint["channel_versions"] == {"a": 5, "b": 7, TASKS: 7}


async def test_sends_among_the_parents_writes_surface_in_old_formats(saver: Half, thread: str) -> None:
    parent = await put(saver, place(thread), {"a": 1})
    await saver.put_writes(parent, [(TASKS, "second"), ("a", 0)], "task", "2")
    await saver.put_writes(parent, [("a", 0), (TASKS, "first")], "task-b", "1")
    versions = {"a": "00000000000000000000000000000002.0250", "b": "00000000000000000000000000000010.0125"}
    old = await saver.put(parent, checkpoint({"a": 2}, versions, v=3), _LOOP, versions)
    new = await saver.put(parent, checkpoint({"a": 2}, versions, v=4), _LOOP, versions)

    for found in (await stored(saver, old), (await everything(saver, old))[0]):
        assert found.checkpoint["channel_values"] == {"a": 2, TASKS: ["first", "second"]}
        assert found.checkpoint["channel_versions"] == {**versions, TASKS: versions["b"]}
    assert await values_at(saver, new) == {"a": 2}


async def test_a_checkpoint_without_any_version_gets_one_for_its_sends(saver: Half, thread: str) -> None:
    config = await saver.put(place(thread), checkpoint({}, v=1, pending_sends=["s"]), _LOOP, {})
    found = await stored(saver, config)
    assert found.checkpoint["channel_versions"] == {TASKS: saver.saver.get_next_version(None)}


async def test_sends_of_format_4_are_an_ordinary_channel(saver: Half, thread: str) -> None:
    made = checkpoint({TASKS: ["s"], "a": 1}, {TASKS: 3, "a": 9})
    config = await saver.put(place(thread), made, _LOOP, {TASKS: 3, "a": 9})
    assert (await stored(saver, config)).checkpoint == made


async def test_versions_of_every_kind_come_back_exactly(saver: Half, thread: str) -> None:
    for version in (1, 2**70, 1.5, "00000000000000000000000000000003.0.52", str(uuid.UUID(int=5)), "7"):
        made = checkpoint({"a": "x"}, {"a": version, "b": version}, versions_seen={"node": {"a": version}})
        config = await saver.put(place(thread), made, _LOOP, {"a": version, "b": version})
        found = (await stored(saver, config)).checkpoint
        assert found == made
        assert type(found["channel_versions"]["a"]) is type(version)


async def test_a_value_is_kept_under_versions_of_every_kind(saver: Half, thread: str) -> None:
    for version in (4, 2.5, "00000000000000000000000000000003.0.52", str(uuid.UUID(int=5))):
        long = [f"{version} " * 40] * 30
        parent = await saver.put(place(thread), checkpoint({"a": long}, {"a": version}), _LOOP, {"a": version})
        child = await saver.put(parent, checkpoint({}, {"a": version}), _LOOP, {})
        assert await values_at(saver, child) == {"a": long}


async def test_the_next_version_is_of_the_same_kind_and_later(saver: Half, thread: str) -> None:
    next_version = saver.saver.get_next_version
    first: Any = next_version(None)
    assert first == 1
    assert type(first) is int
    assert next_version(first) == 2
    assert next_version(41) == 42
    assert next_version(1.5) == 2.5
    for text in (f"{9:032d}.{0.25:016f}", "099", str(uuid.UUID(int=1)), str(uuid.uuid1())):
        later = next_version(text)
        assert type(later) is str
        assert max(later, text) == later != text
    assert next_version(f"{9:032d}.{0.25:016f}").partition(".")[0] == f"{10:032d}"
