"""A value that was changed in place is stored as changed, and the checkpoint before keeps what it had."""

import codec_kinds as kinds
import numpy as np
import pytest
from chunks_mutations import MUTATIONS
from codec_anatomy import anatomy
from codec_stores import put, values_at
from langchain_core.messages import HumanMessage

every_mutation = pytest.mark.parametrize("name", MUTATIONS)
PLACES = {
    "alone": (lambda value, others: value, lambda channel: channel),
    "in a list": (lambda value, others: [*others[:20], value, *others[20:]], lambda channel: channel[20]),
    "in a dict": (
        lambda value, others: {**{f"k{at}": other for at, other in enumerate(others)}, "it": value},
        lambda channel: channel["it"],
    ),
    "in a list of its kind": (lambda value, others: [value] * 30, lambda channel: channel[29]),
    "deep": (lambda value, others: [{"deep": [others, (value,)]}], lambda channel: channel[0]["deep"][1][0]),
}


def others():
    """What stands around the value, and is not changed."""
    return [HumanMessage(f"text {at} " * 20, id=str(at)) for at in range(40)]


def test_the_list_of_changes_is_long_enough():
    assert len(MUTATIONS) >= 25
    for make, mutate in MUTATIONS.values():
        value = make()
        mutate(value)
        assert anatomy(value) != anatomy(make())


@every_mutation
@pytest.mark.parametrize("cache_bytes", [64 * 1024 * 1024, 0], ids=["", "nothing remembered"])
def test_a_change_in_place_is_stored(connect, name, cache_bytes):
    """Wherever the value stands in its channel; the checkpoint before keeps the value as it was."""
    saver, reader = connect(cache_bytes=cache_bytes), connect()
    make, mutate = MUTATIONS[name]
    changed = make()
    mutate(changed)
    for place, (build, find) in PLACES.items():
        value = make()
        channel = build(value, others())
        configs = [put(saver, {"channel": channel, "untouched": others()}, thread=place)]
        mutate(value)
        for _ in range(2):
            configs.append(put(saver, {"channel": channel, "untouched": others()}, after=configs[-1]))
        saver.clear_cache()
        found = [anatomy(find(values_at(reader, config)["channel"])) for config in configs]
        assert found == [anatomy(make()), anatomy(changed), anatomy(changed)], place


@every_mutation
def test_a_change_and_its_taking_back_are_both_stored(connect, name):
    saver = connect()
    make, mutate = MUTATIONS[name]
    value = make()
    configs = [put(saver, {"channel": [value, *others()]})]
    mutate(value)
    configs.append(put(saver, {"channel": [value, *others()]}, after=configs[-1]))
    configs.append(put(saver, {"channel": [make(), *others()]}, after=configs[-1]))
    saver.clear_cache()
    changed = make()
    mutate(changed)
    found = [anatomy(values_at(saver, config)["channel"][0]) for config in configs]
    assert found == [anatomy(make()), anatomy(changed), anatomy(make())]


def test_a_write_is_stored_as_it_was_when_it_was_made(connect):
    saver = connect()
    config = put(saver, {"a": 1})
    items = [{"k": [1]}]
    saver.put_writes(config, [("a", items)], "task")
    items[0]["k"].append(2)
    assert saver.get_tuple(config).pending_writes == [("task", "a", [{"k": [1]}])]


def test_many_changes_in_one_list_are_all_stored(connect):
    saver = connect()
    messages = [HumanMessage(f"text {at}", id=str(at), additional_kwargs={"n": 1}) for at in range(500)]
    config = put(saver, {"messages": messages})
    for at in range(0, 500, 7):
        messages[at].additional_kwargs["n"] = True
    after = put(saver, {"messages": messages}, after=config)
    saver.clear_cache()
    assert anatomy(values_at(saver, after)["messages"]) == anatomy(messages)
    assert {type(m.additional_kwargs["n"]) for m in values_at(saver, config)["messages"]} == {int}


def test_with_trusted_identity_a_new_object_is_stored_and_the_promise_is_the_programs(connect):
    saver = connect(trust_identity=True)
    items = [kinds.Point(at) for at in range(100)]
    config = put(saver, {"items": items})
    items = [*items[:50], kinds.Point(True), *items[51:]]
    after = put(saver, {"items": items}, after=config)
    saver.clear_cache()
    assert anatomy(values_at(saver, after)["items"]) == anatomy(items)
    assert values_at(saver, config)["items"][50] == kinds.Point(50)


def test_values_read_from_the_store_can_be_changed_and_put_back(connect):
    """As graphs do: load, change in place, put."""
    saver = connect()
    config = put(saver, {"items": [{"n": at, "array": np.arange(3)} for at in range(100)]})
    for round in range(5):
        values = values_at(saver, config)
        values["items"][round * 20]["n"] = float(values["items"][round * 20]["n"])
        values["items"][round * 20]["array"][0] = 99
        config = put(saver, values, after=config)
        saver.clear_cache() if round % 2 else None
        assert anatomy(values_at(connect(), config)) == anatomy(values)


@pytest.mark.parametrize("share_decoded", [False, True])
def test_reading_twice_gives_objects_of_ones_own_unless_sharing_was_asked_for(connect, share_decoded):
    saver = connect(share_decoded=share_decoded)
    config = put(saver, {"items": [{"n": [at]} for at in range(100)]})
    saver.clear_cache()
    one, two = values_at(saver, config)["items"], values_at(saver, config)["items"]
    assert one is not two
    one[5]["n"].append("changed")
    assert (two[5]["n"] == [5]) != share_decoded
