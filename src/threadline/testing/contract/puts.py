"""Putting a checkpoint and getting it back."""

from __future__ import annotations

import uuid
from typing import Any

from ...base.ids import new_id
from ...errors import InvalidRequest, NotSerializable
from ..half import Half
from ..making import checkpoint, everything, id_of, ids_of, place, put, stored, values_at
from ..raising import refused

_LOOP = {"source": "loop", "step": 0, "parents": {}}


async def test_a_checkpoint_comes_back_as_it_was_put(saver: Half, thread: str) -> None:
    made = checkpoint(
        {"words": ["a", "b"], "count": 2, "nothing": None},
        {"words": 3, "count": 2, "nothing": 1},
        versions_seen={"__input__": {}, "agent": {"words": 2, "count": 1}},
        updated_channels=["words"],
    )
    metadata = {"source": "loop", "step": 7, "parents": {"": "above"}, "tags": ["x", {"deep": [1.5, None, True]}]}

    returned = await saver.put({"configurable": {"thread_id": thread}}, made, metadata, made["channel_versions"])
    found = await stored(saver, returned)

    assert returned == place(thread, made["id"])
    assert found == await stored(saver, {"configurable": {"thread_id": thread}})
    assert found.checkpoint == made
    assert found.metadata == metadata
    assert found.config == returned
    assert found.parent_config is None
    assert found.pending_writes == []


async def test_an_unknown_thread_or_checkpoint_is_none(saver: Half, thread: str) -> None:
    assert await saver.get_tuple(place(thread)) is None
    assert await saver.get(place(thread)) is None
    await put(saver, place(thread), {"a": 1})
    assert await saver.get_tuple(place(thread, new_id())) is None
    assert await saver.get_tuple(place(thread, namespace="child:1")) is None


async def test_get_is_the_checkpoint_of_the_tuple(saver: Half, thread: str) -> None:
    config = await put(saver, place(thread), {"a": [1]})
    assert await saver.get(config) == (await stored(saver, config)).checkpoint


async def test_a_thread_alone_names_its_newest_checkpoint_by_id(saver: Half, thread: str) -> None:
    older, newer = new_id(), new_id()
    await put(saver, place(thread), {"a": "newer"}, id=newer)
    await put(saver, place(thread), {"a": "older"}, id=older)
    assert id_of((await stored(saver, place(thread))).config) == newer
    assert await values_at(saver, place(thread, older)) == {"a": "older"}


async def test_putting_an_id_again_replaces_the_checkpoint(saver: Half, thread: str) -> None:
    first = await put(saver, place(thread), {"a": 1, "gone": "x" * 500}, step=1, mood="calm")
    second = await put(saver, place(thread), {"a": 2}, id=id_of(first), step=2)

    [found] = await everything(saver, place(thread))

    assert first == second == found.config
    assert found.checkpoint["channel_values"] == {"a": 2}
    assert found.metadata["step"] == 2
    assert "mood" not in found.metadata


async def test_putting_the_very_same_twice_changes_nothing(saver: Half, thread: str) -> None:
    made = checkpoint({"words": ["w" * 300] * 20})
    for _ in range(2):
        config = await saver.put(place(thread), made, _LOOP, made["channel_versions"])
    [found] = await everything(saver, place(thread))
    assert found.config == config
    assert found.checkpoint == made


async def test_a_put_names_its_parent(saver: Half, thread: str) -> None:
    parent = await put(saver, place(thread), {"a": 1})
    child = await put(saver, parent, {"a": 2})
    assert (await stored(saver, child)).parent_config == parent
    assert (await stored(saver, parent)).parent_config is None


async def test_a_parent_that_never_arrived_is_no_obstacle(saver: Half, thread: str) -> None:
    absent = place(thread, new_id())
    made = checkpoint({"a": 1, "long": ["x" * 200] * 30}, {"a": 4, "long": 2})

    child = await saver.put(absent, made, _LOOP, {"a": 4})

    assert (await stored(saver, child)).parent_config == absent
    assert await values_at(saver, child) == made["channel_values"]


async def test_a_channel_not_in_new_versions_keeps_its_parents_value(saver: Half, thread: str) -> None:
    long = [f"{at} " * 100 for at in range(50)]
    parent = await saver.put(
        place(thread), checkpoint({"long": long, "short": 1, "step": 0}), _LOOP, {"long": 1, "short": 1, "step": 1}
    )
    versions = {"long": 1, "short": 1, "step": 2}
    present = await saver.put(parent, checkpoint({"long": long, "short": 1, "step": 1}, versions), _LOOP, {"step": 2})
    left_out = await saver.put(parent, checkpoint({"step": 2}, versions), _LOOP, {"step": 2})
    copied = await saver.put(parent, checkpoint({"long": [*long], "step": 3}, versions), _LOOP, {"step": 2})

    await saver.clear_cache()

    assert await values_at(saver, present) == {"long": long, "short": 1, "step": 1}
    assert await values_at(saver, left_out) == {"long": long, "short": 1, "step": 2}
    assert await values_at(saver, copied) == {"long": long, "short": 1, "step": 3}


async def test_a_kept_value_is_found_without_anything_remembered(saver: Half, thread: str) -> None:
    long = ["x" * 300] * 40
    parent = await saver.put(place(thread), checkpoint({"long": long}), _LOOP, {"long": 1})
    await saver.clear_cache()
    child = await saver.put(parent, checkpoint({"n": 1}, {"long": 1, "n": 1}), _LOOP, {"n": 1})
    await saver.clear_cache()
    assert await values_at(saver, child) == {"long": long, "n": 1}


async def test_a_channel_of_another_version_than_its_parents_is_stored(saver: Half, thread: str) -> None:
    parent = await saver.put(place(thread), checkpoint({"a": "old"}), _LOOP, {"a": 1})
    child = await saver.put(parent, checkpoint({"a": "new"}, {"a": 2}), _LOOP, {})
    assert await values_at(saver, child) == {"a": "new"}
    assert await values_at(saver, parent) == {"a": "old"}


async def test_only_the_named_parent_hands_values_down(saver: Half, thread: str) -> None:
    """Two branches may give one version number to two values."""
    root = await saver.put(place(thread), checkpoint({"a": 0}), _LOOP, {"a": 1})
    left = await saver.put(root, checkpoint({"a": "left " * 50}, {"a": 2}), _LOOP, {"a": 2})
    right = await saver.put(root, checkpoint({"a": "right " * 50}, {"a": 2}), _LOOP, {"a": 2})
    heirs = [await saver.put(above, checkpoint({"b": 1}, {"a": 2, "b": 1}), _LOOP, {"b": 1}) for above in (left, right)]
    assert [(await values_at(saver, heir))["a"] for heir in heirs] == ["left " * 50, "right " * 50]


async def test_a_channel_with_a_version_but_no_value_is_absent(saver: Half, thread: str) -> None:
    parent = await saver.put(place(thread), checkpoint({"a": 1, "b": 1}), _LOOP, {"a": 1, "b": 1})
    child = await saver.put(parent, checkpoint({"b": 1}, {"a": 2, "b": 1, "c": 1}), _LOOP, {"a": 2, "c": 1})

    found = await stored(saver, child)

    assert found.checkpoint["channel_values"] == {"b": 1}
    assert found.checkpoint["channel_versions"] == {"a": 2, "b": 1, "c": 1}


async def test_a_copy_put_under_the_grandparent_has_all_its_values(saver: Half, thread: str) -> None:
    """What LangGraph does on update_state(None) and on replay: no new versions, and another parent."""
    long = [f"{at} " * 60 for at in range(40)]
    root = await saver.put(place(thread), checkpoint({"long": long[:1], "n": 0}), _LOOP, {"long": 1, "n": 1})
    target = await saver.put(root, checkpoint({"long": long, "n": 1}, {"long": 2, "n": 2}), _LOOP, {"long": 2, "n": 2})
    read = (await stored(saver, target)).checkpoint

    copied = await saver.put(root, {**read, "id": new_id()}, {"source": "fork", "step": 2, "parents": {}}, {})
    await saver.clear_cache()

    assert await values_at(saver, copied) == {"long": long, "n": 1}
    assert (await stored(saver, copied)).parent_config == root


async def test_without_a_parent_every_value_is_stored(saver: Half, thread: str) -> None:
    config = await saver.put(place(thread), checkpoint({"a": 1, "b": ["y" * 200] * 9}), _LOOP, {})
    assert await values_at(saver, config) == {"a": 1, "b": ["y" * 200] * 9}


async def test_what_is_changed_after_a_put_is_not_changed_in_the_store(saver: Half, thread: str) -> None:
    words: list[Any] = [{"text": "x" * 200, "at": at} for at in range(20)]
    metadata: dict[str, Any] = {**_LOOP, "notes": [1]}
    made = checkpoint({"words": words})
    config = await saver.put(place(thread), made, metadata, {"words": 1})

    words[3]["at"] = "changed"
    words.append("more")
    metadata["notes"].append(2)
    made["channel_versions"]["words"] = 99

    found = await stored(saver, config)
    assert found.checkpoint["channel_values"]["words"] == [{"text": "x" * 200, "at": at} for at in range(20)]
    assert found.checkpoint["channel_versions"] == {"words": 1}
    assert found.metadata["notes"] == [1]


async def test_a_change_in_place_is_stored_by_the_next_put(saver: Half, thread: str) -> None:
    words: list[Any] = [{"text": "x" * 200, "at": at} for at in range(100)]
    first = await put(saver, place(thread), {"words": words})
    words[50]["at"] = True
    words[51]["at"] = 51.0
    second = await put(saver, first, {"words": words})

    before, after = [(await values_at(saver, config))["words"] for config in (first, second)]

    assert [before[50]["at"], before[51]["at"]] == [50, 51]
    assert after[50]["at"] is True
    assert type(after[51]["at"]) is float


async def test_metadata_is_joined_by_the_plain_values_of_the_config(saver: Half, thread: str) -> None:
    config = {
        "metadata": {"run_id": "r-1", "ratio": 0.5, "step": 99, "__secret": "s", "many": [1]},
        "configurable": {"thread_id": thread, "checkpoint_ns": "", "user": "ann", "__pregel_x": "p", "model": {"a": 1}},
    }
    made = checkpoint({})
    returned = await saver.put(config, made, {"source": "input", "step": -1, "parents": {}, "user": "given"}, {})
    assert (await stored(saver, returned)).metadata == {
        "source": "input", "step": -1, "parents": {}, "user": "given", "run_id": "r-1", "ratio": 0.5,
    }  # fmt: skip


async def test_metadata_survives_what_databases_cannot_index(saver: Half, thread: str) -> None:
    odd: dict[str, Any] = {
        "surrogate": "\ud800",
        "huge": 2**80,
        "infinite": float("inf"),
        "key\0 '\"": 1,
        "": "",
    }
    config = await put(saver, place(thread), {}, **odd, note="line\nbreak")
    metadata = (await stored(saver, config)).metadata
    assert {key: metadata[key] for key in odd} == odd


async def test_metadata_comes_back_as_json_gives_it(saver: Half, thread: str) -> None:
    pair = (1, ("a", None))
    given: dict[str, Any] = {"pair": pair, "by": {1: (2,), None: 3, 1.5: {True: ()}}, "nul": "a\0b", "\0": 1}
    config = await put(saver, place(thread), {}, **given)
    metadata = (await stored(saver, config)).metadata
    expected = {"pair": [1, ["a", None]], "by": {"1": [2], "null": 3, "1.5": {"true": []}}, "nul": "ab", "\0": 1}
    assert {key: metadata[key] for key in expected} == expected
    for filter in ({"pair": pair}, {"nul": "a\0b"}, {"pair": {"$in": [pair]}}):
        found = await everything(saver, place(thread), filter=filter)
        assert [one.config for one in found] == [config]


async def test_a_checkpoint_may_have_an_empty_time(saver: Half, thread: str) -> None:
    made = {**checkpoint({"a": 1}), "ts": ""}
    config = await saver.put(place(thread), made, {"source": "input", "step": -1}, {"a": 1})
    assert (await stored(saver, config)).checkpoint["ts"] == ""
    assert [found.checkpoint["ts"] for found in await everything(saver, place(thread))] == [""]


async def test_any_text_can_be_a_thread_id(saver: Half, thread: str) -> None:
    odd = [f"{thread}{end}" for end in ("/:{}*%_'\"\\;--", "\0", " ", "é\U0001f600", "A", "a", "x" * 1000)]
    configs = [await put(saver, place(name), {"name": name}) for name in odd]
    for name, config in zip(odd, configs, strict=True):
        assert await values_at(saver, place(name)) == {"name": name}
        assert ids_of(await everything(saver, place(name))) == [id_of(config)]
    await saver.delete_thread(odd[0])
    assert await saver.get_tuple(place(odd[0])) is None
    assert await values_at(saver, place(odd[1])) == {"name": odd[1]}


async def test_integers_and_uuids_are_taken_as_text(saver: Half, thread: str) -> None:
    named = uuid.uuid5(uuid.NAMESPACE_OID, thread)
    config = await saver.put(place(named), checkpoint({"a": 1}), _LOOP, {"a": 1})  # type: ignore[arg-type]
    assert config["configurable"]["thread_id"] == str(named)
    assert await values_at(saver, place(str(named))) == {"a": 1}
    number = named.int
    await saver.put(place(number), checkpoint({"a": 2}), _LOOP, {"a": 1})  # type: ignore[arg-type]
    assert await values_at(saver, place(str(number))) == {"a": 2}


async def test_what_cannot_be_stored_is_refused_with_its_path_and_stores_nothing(saver: Half, thread: str) -> None:
    first = await put(saver, place(thread), {"words": ["x" * 200] * 30})
    with refused(NotSerializable) as refusal:
        await put(saver, first, {"fine": 1, "words": [{"deep": object()}]})
    assert "words[0]" in str(refusal.error)
    with refused(NotSerializable):
        await saver.put_writes(first, [("fine", 1), ("bad", object())], "task")

    [found] = await everything(saver, place(thread))
    assert found.pending_writes == []
    second = await put(saver, first, {"words": ["x" * 200] * 31})
    assert await values_at(saver, second) == {"words": ["x" * 200] * 31}


async def test_a_wrong_call_is_refused_before_anything_is_stored(saver: Half, thread: str) -> None:
    good = checkpoint({})
    nowhere: list[Any] = [{}, {"configurable": {}}, place(""), {"configurable": {"thread_id": 1.5}}, None]
    for config in nowhere:
        with refused(InvalidRequest):
            await saver.put(config, good, _LOOP, {})
        with refused(InvalidRequest):
            await saver.get_tuple(config)
    for missing in ("id", "ts", "channel_versions"):
        with refused(InvalidRequest):
            await saver.put(place(thread), {key: good[key] for key in good if key != missing}, _LOOP, {})
    for wrong in (
        {"v": 99},
        {"v": "1"},
        {"id": ""},
        {"id": 5},
        {"channel_versions": {"a": None}},
        {"channel_values": 1},
    ):
        with refused(InvalidRequest):
            await saver.put(place(thread), {**good, **wrong}, _LOOP, {})
    described: list[Any] = [{"step": -5}, {"step": "1"}, {"step": True}, [], None]
    for metadata in described:
        with refused(InvalidRequest):
            await saver.put(place(thread), good, metadata, {})
    assert await everything(saver, place(thread)) == []
