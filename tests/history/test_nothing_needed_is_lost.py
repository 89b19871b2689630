"""Retention, fencing, keys and leases where a careless step would lose or let through what it must not."""

import itertools
import time

import pytest

import threadline
from threadline import Conflict, InvalidRequest, KeyRing, Policy
from threadline.core.history.graph import History
from threadline.core.retention import prune as retention

OLD, NEW = bytes(range(32)), bytes(range(1, 33))
DELTAS = {"counters_since_delta_snapshot": {"m": [1, 1]}}
VERSIONS = itertools.count(1)


def thread(name="t"):
    return {"configurable": {"thread_id": name, "checkpoint_ns": ""}}


def put(saver, values, after=None, name="t", source="loop", **metadata):
    made = threadline.empty_checkpoint()
    made["channel_values"], made["channel_versions"] = dict(values), dict.fromkeys(values, next(VERSIONS))
    return saver.put(after or thread(name), made, {"source": source, "step": 0, **metadata}, made["channel_versions"])


def delta_chain(saver, count=3, **metadata):
    """A thread whose channel `m` is a seed and the writes since."""
    config = put(saver, {"m": ["seed"]}, **metadata)
    for at in range(count):
        saver.put_writes(config, [("m", [at])], f"task-{at}")
        config = put(saver, {"z": at}, config, **DELTAS, **metadata)
    return config


def replayed(saver, config):
    saver.clear_cache()
    found = saver.get_delta_channel_history(config=config, channels=["m"])["m"]
    return found.get("seed"), [value for _, _, value in found["writes"]]


def test_a_prune_by_who_has_not_heard_of_a_new_key_keeps_the_chain(connect):
    late = connect(encryption=KeyRing({"old": OLD, "new": NEW}, current="old")).open()
    late.count_threads()
    put(late, {"z": 0}, name="other")
    writer = connect(encryption=KeyRing({"old": OLD, "new": NEW}, current="new"))
    config = delta_chain(writer)
    late.prune(["t"])
    assert replayed(writer, config) == (["seed"], [[0], [1], [2]])


def test_a_prune_where_metadata_may_not_be_read_keeps_what_it_may_need(connect):
    import decimal

    config = delta_chain(connect(), price=decimal.Decimal(1), kind=threadline.StoredException("x", "y"))
    connect(allowed_types="strict").prune(["t"])
    assert replayed(connect(), config) == (["seed"], [[0], [1], [2]])


def test_writes_that_any_branch_is_replayed_from_stay(connect):
    saver = connect()
    config = put(saver, {"m": ["seed"]})
    saver.put_writes(config, [("m", ["w"])], "task")
    put(saver, {"m": ["seed", "w"]}, config)
    other = put(saver, {"z": 1}, config, source="update", **DELTAS)
    saver.thread("t").prune(Policy(drop_settled_writes=True))
    assert replayed(saver, other) == (["seed"], [["w"]])


def test_what_was_written_after_a_prune_is_not_settled_by_children_that_are_gone(connect):
    saver = connect()
    first = put(saver, {"z": 0})
    config = first
    for at in range(3):
        config = put(saver, {"z": at}, config)
    saver.thread("t").tag("first", first)
    saver.thread("t").prune(keep_last=1)
    saver.put_writes(first, [("__interrupt__", "ok?")], "asking")
    saver.put_writes(first, [("z", 9)], "finished")
    saver.thread("t").prune(keep_last=1, drop_settled_writes=True)
    assert len(saver.get_tuple(first).pending_writes) == 2
    saver.thread("t").untag("first")
    saver.thread("t").prune(keep_last=1)
    assert saver.get_tuple(first) is not None


def test_a_sweep_leaves_a_thread_that_is_in_use_again(connect):
    saver = connect()
    for name in ("a", "b"):
        put(saver, {"z": 0}, name=name)
        saver.thread(name).create(ttl=0.001)
    time.sleep(0.01)

    def use_b(done, total):
        saver.thread("b").create(ttl="1d")

    swept = saver.sweep(progress=use_b)
    assert swept.expired == ("a",)
    assert saver.get_tuple(thread("b")) is not None


def test_a_thread_idle_for_less_than_its_activity_is_noted_does_not_expire(connect):
    saver = connect(ttl=0.001)
    put(saver, {"z": 0})
    time.sleep(0.01)
    assert saver.sweep().expired == ()


@pytest.mark.parametrize("look", ["state", "writes", "info", "log"])
def test_looking_at_a_thread_does_not_take_its_fence_away(connect, look):
    ours, theirs = connect(fencing=True), connect(fencing=True)
    put(ours, {"z": 0})
    seen = ours.get_tuple(thread()).config
    assert theirs.get_tuple(thread()).config == seen
    getattr(ours.thread("t"), look)()
    put(theirs, {"z": 1}, seen)
    with pytest.raises(Conflict, match="moved on"):
        put(ours, {"z": 2}, seen)


def test_a_view_cannot_encrypt_a_store_that_holds_plaintext(connect):
    put(connect(), {"z": 0}, name="other/1")
    view = connect(encryption=KeyRing({"k": OLD})).within("new/")
    with pytest.raises(InvalidRequest, match="plaintext"):
        put(view, {"z": 0}, name="new/1")
    assert connect().get_tuple(thread("other/1")) is not None


def test_rotation_reaches_what_was_said_about_a_thread(connect):
    first = connect(encryption=KeyRing({"old": OLD}))
    first.thread("t").create(metadata={"user": "ann"})
    both = connect(encryption=KeyRing({"old": OLD, "new": NEW}, current="new"))
    assert both.keys_in_use() == {"old"}
    both.rotate_keys()
    assert both.keys_in_use() == {"new"}
    last = connect(encryption=KeyRing({"new": NEW}))
    assert [info.metadata for info in last.threads()] == [{"user": "ann"}]


def test_a_merge_names_delta_channels_that_it_cannot_merge(connect):
    saver = connect()
    base = delta_chain(saver, 1)
    saver.put_writes(base, [("m", ["theirs"])], "task-x")
    theirs = put(saver, {"z": 5, "m": ["seed", "other"]}, base)
    replayed_only = threadline.empty_checkpoint()
    replayed_only["channel_values"], replayed_only["channel_versions"] = {"z": 6}, {"z": 2, "m": 2}
    theirs = saver.put(base, replayed_only, {"source": "loop", "step": 1, **DELTAS}, {"z": 2, "m": 2})
    put(saver, {"z": 7}, base, **DELTAS)
    with pytest.raises(threadline.MergeConflict, match="m"):
        saver.thread("t").merge(theirs, strategy={"z": "ours"})


def test_metadata_of_odd_shapes_stops_no_sweep(connect):
    saver = connect()
    for name, metadata in {
        "a": {"counters_since_delta_snapshot": 5},
        "b": {"parents": [1]},
        "c": {"parents": {"": [1]}},
        "d": {"merged_from": 5, "source": "update"},
    }.items():
        put(saver, {"z": 1}, put(saver, {"z": 0}, name=name), name=name, **metadata)
        saver.thread(name).log()
    put(saver, {"z": 1}, put(saver, {"z": 0}, name="whole"), name="whole")
    swept = saver.sweep(Policy(keep_last=1))
    assert swept.threads == 5
    assert len(saver.thread("whole").log()) == 1


def test_a_lease_is_entered_once_and_has_a_finite_time(connect):
    lease = connect().lock("t", 30)
    with lease, pytest.raises(InvalidRequest, match="held already"), lease:
        pass
    for ttl in (float("nan"), float("inf"), "30", True):
        with pytest.raises(InvalidRequest):
            connect().lock("t", ttl)


@pytest.mark.parametrize("at", ["step:" + "9" * 5000, "head~" + "9" * 5000, "~" * 3000, 10**30, "0001-01-01"])
def test_absurd_places_are_errors_of_ours(connect, at):
    saver = connect()
    put(saver, {"z": 0})
    with pytest.raises(threadline.ThreadlineError):
        saver.thread("t").at(at)


def test_a_prune_spares_what_a_checkpoint_that_came_meanwhile_is_replayed_from(connect, monkeypatch):
    """Between the decision and the deletion somebody goes on from a checkpoint that was to go."""
    saver, other = connect(), connect()
    head = delta_chain(saver)
    parent = saver.get_tuple(head).parent_config
    put(saver, {"m": ["whole"]}, head)
    came = []
    decide = History.keep_latest

    def decide_and_dawdle(history):
        kept = decide(history)
        came.append(put(other, {"z": "late"}, parent, **DELTAS))
        return kept

    monkeypatch.setattr(History, "keep_latest", decide_and_dawdle)
    saver.prune(["t"])
    [late] = came
    assert replayed(connect(), late) == (["seed"], [[0], [1], [2]])


def test_a_prune_spares_what_somebody_went_on_from_after_its_last_look(connect, monkeypatch):
    """Between the last look and the deletion; the store refuses, and the prune looks again."""
    saver, other = connect(), connect()
    head = delta_chain(saver)
    parent = saver.get_tuple(head).parent_config
    put(saver, {"m": ["whole"]}, head)
    looks, came = [], []
    look = retention.history_of

    async def look_and_dawdle(*args):
        history = await look(*args)
        looks.append(len(history))
        if len(looks) == 1:  # the one that decides is the last before the deletion
            came.append(put(other, {"z": "late"}, parent, **DELTAS))
        return history

    monkeypatch.setattr(retention, "history_of", look_and_dawdle)
    saver.prune(["t"])
    assert len(looks) == 2
    [late] = came
    assert replayed(connect(), late) == (["seed"], [[0], [1], [2]])


def test_a_prune_that_is_overtaken_at_every_look_says_so(connect, monkeypatch):
    saver, other = connect(), connect()
    configs = [put(saver, {"z": 0})]
    for at in range(40):
        configs.append(put(saver, {"z": at}, configs[-1]))
    look, waiting = retention.history_of, configs[:-1]

    async def look_and_dawdle(*args):
        history = await look(*args)
        put(other, {"z": "late"}, waiting.pop(0))
        return history

    monkeypatch.setattr(retention, "history_of", look_and_dawdle)
    with pytest.raises(threadline.Unavailable, match=r"failed after 32 attempts: .*; retry"):
        saver.prune(["t"])
    assert len(list(saver.list(configs[-1] | {"configurable": {"thread_id": "t"}}))) > 41
