"""What another saver of the same store may do between two steps of an operation: it never tears anything."""

import lives
import pytest

import threadline
from threadline.core.retention import prune as retention


def big(name, count=60):
    """A list long enough for a tree of chunks."""
    return [{"id": n, "text": lives.text(name, n)} for n in range(count)]


def put(half, saver, step, values, *, parent=None, new=None, thread_id="t"):
    config = lives.config(thread_id, None if parent is None else lives.id_of(parent))
    versions = dict.fromkeys(values, 1) if new is None else new
    checkpoint = {
        "v": 4,
        "id": lives.id_of(step),
        "ts": "2026-01-01T00:00:00+00:00",
        "channel_values": values,
        "channel_versions": {**dict.fromkeys(values, 1), **versions},
        "versions_seen": {},
    }
    return half.call(saver, "put", config, checkpoint, {"source": "loop", "step": step}, versions)


def values_at(half, saver, step=None, thread_id="t"):
    found = half.call(saver, "get_tuple", lives.config(thread_id, None if step is None else lives.id_of(step)))
    return found and found.checkpoint["channel_values"]


@pytest.fixture
def two(connect, url):
    """Two savers of one store, the second of which remembers nothing that the first one did."""
    return connect(url), connect(url)


@pytest.fixture
def fresh(connect, url):
    return lambda: connect(url)


def test_a_named_checkpoint_deleted_while_it_is_read_is_not_found(half, two, interleave):
    saver, other = two
    put(half, other, 1, {"a": big("old")})
    put(half, other, 2, {"a": big("new")})
    happened = interleave("chunks", lambda: other.delete_checkpoint(lives.config("t", lives.id_of(1))))
    with pytest.raises(threadline.NotFound, match=lives.id_of(1)):
        values_at(half, saver, 1)
    assert happened()


def test_the_newest_checkpoint_deleted_while_it_is_read_gives_way_to_the_one_before(half, two, interleave):
    saver, other = two
    put(half, other, 1, {"a": big("old")})
    put(half, other, 2, {"a": big("new")})
    happened = interleave("chunks", lambda: other.delete_checkpoint(lives.config("t", lives.id_of(2))))
    assert values_at(half, saver) == {"a": big("old")}
    assert happened()


def test_a_thread_deleted_while_it_is_read_is_whole_or_gone(half, two, interleave):
    saver, other = two
    put(half, other, 1, {"a": big("old")})
    happened = interleave("chunks", lambda: other.delete_thread("t"))
    assert values_at(half, saver) is None
    assert happened()


def test_a_checkpoint_replaced_while_it_is_read_is_the_old_or_the_new_one(half, two, interleave):
    saver, other = two
    put(half, other, 0, {"a": big("first")})
    put(half, other, 1, {"a": big("old")})

    def replace():
        put(half=SYNC, saver=other, step=1, values={"a": big("new")})
        other.prune(["t"])  # collects what only the replaced row needed

    happened = interleave("chunks", replace)
    assert values_at(half, saver, 1) in ({"a": big("old")}, {"a": big("new")})
    assert happened()


@pytest.mark.parametrize("tasks", [["task"], []], ids=["with writes", "without writes"])
def test_a_list_leaves_out_what_is_pruned_under_it(half, two, interleave, tasks):
    saver, other = two
    for step in range(4):
        put(half, other, step, {"a": big(step)})
        for task_id in tasks:
            other.put_writes(lives.config("t", lives.id_of(step)), [("a", big(("write", step)))], task_id)
    happened = interleave("chunks", lambda: other.prune(["t"]))
    listed = half.listed(saver, lives.config("t"))
    assert happened()
    assert lives.step_of(listed[0].checkpoint["id"]) == 3
    for found in listed:
        step = lives.step_of(found.checkpoint["id"])
        assert dict(found.checkpoint["channel_values"]) == {"a": big(step)}
        assert found.pending_writes == [(task_id, "a", big(("write", step))) for task_id in tasks]


def test_a_put_sends_again_what_was_collected_after_it_was_prepared(half, two, fresh, interleave):
    saver, other = two
    put(half, saver, 1, {"a": big("same"), "b": 1})
    put(half, saver, 2, {"a": big("other"), "b": 2})
    # The saver knows the chunks of step 1; the other one deletes them at the last moment.
    happened = interleave("apply", lambda: other.prune(["t"]))
    put(half, saver, 3, {"a": big("same"), "b": 3}, parent=2, new={"a": 3, "b": 3})
    assert happened()
    assert values_at(half, fresh(), 3) == {"a": big("same"), "b": 3}


def test_a_put_that_leans_on_a_parent_deleted_meanwhile_is_whole_or_a_conflict(half, two, fresh, interleave):
    saver, other = two
    inherited = {"a": big("inherited"), "b": 1}
    put(half, saver, 1, inherited)
    happened = interleave("apply", lambda: other.delete_checkpoint(lives.config("t", lives.id_of(1))))
    try:
        put(half, saver, 2, {**inherited, "b": 2}, parent=1, new={"b": 2})
    except threadline.Conflict as conflict:
        assert "'a'" in str(conflict)  # noqa: PT017 - either outcome is right, a torn one is not
        assert values_at(half, fresh(), 2) is None
        put(half, saver, 2, {**inherited, "b": 2}, parent=1, new={"b": 2})
    assert happened()
    assert values_at(half, fresh(), 2) == {**inherited, "b": 2}


def test_pending_writes_send_again_what_was_collected_after_they_were_prepared(half, two, fresh, interleave):
    saver, other = two
    put(half, saver, 1, {"a": big("same")})
    put(half, saver, 2, {"a": big("other")})
    happened = interleave("apply", lambda: other.prune(["t"]))
    half.call(saver, "put_writes", lives.config("t", lives.id_of(2)), [("a", big("same"))], "task")
    assert happened()
    assert half.call(fresh(), "get_tuple", lives.config("t")).pending_writes == [("task", "a", big("same"))]


def test_a_fork_of_a_thread_pruned_under_it_is_whole(half, two, fresh, interleave):
    saver, other = two
    for step in range(4):
        put(half, other, step, {"a": big(step)})
    happened = interleave("page", lambda: other.prune(["t"]), when="after")
    half.call(saver, "copy_thread", "t", "copy")
    assert happened()
    listed = half.listed(fresh(), lives.config("copy"))
    assert {lives.step_of(found.checkpoint["id"]) for found in listed} >= {3}
    for found in listed:
        assert dict(found.checkpoint["channel_values"]) == {"a": big(lives.step_of(found.checkpoint["id"]))}


def test_a_fork_of_a_thread_deleted_under_it_is_whole_or_not_found(half, two, fresh, interleave):
    saver, other = two
    put(half, other, 1, {"a": big("only")})
    happened = interleave("page", lambda: other.delete_thread("t"), when="after")
    with pytest.raises(threadline.NotFound, match="'t'"):
        half.call(saver, "copy_thread", "t", "copy")
    assert happened()
    assert half.call(fresh(), "get_tuple", lives.config("copy")) is None


def test_a_collection_spares_what_was_put_after_its_forecast(half, two, fresh, interleave):
    saver, other = two
    put(half, saver, 1, {"a": big("back")})
    put(half, saver, 2, {"a": big("other")})
    happened = interleave("collect", lambda: put(SYNC, other, 3, {"a": big("back")}))
    half.call(saver, "prune", ["t"])
    assert happened()
    assert values_at(half, fresh(), 3) == {"a": big("back")}


def test_two_collections_at_once_spare_what_came_back_between_them(two, fresh, interleave):
    """While the one forecasts, the other deletes a node; then the node and its items are put again."""
    saver, other = two
    put(SYNC, saver, 1, {"a": big("back", 400)})
    put(SYNC, saver, 2, {"a": big("other")})
    pool = saver._engine.run(lambda backend: backend.thread("t")).pool
    came_back = []

    def delete():
        other.prune(["t"])
        came_back.append(interleave("collect", lambda: put(SYNC, other, 3, {"a": big("back", 400)})))

    interleave("roots", delete)
    saver._engine.run(lambda backend: retention.collect_pool(backend, pool))
    assert came_back
    assert came_back[0]()
    assert values_at(SYNC, fresh(), 3) == {"a": big("back", 400)}


class _Sync:
    """The sync half by name, for what happens in between."""

    def call(self, owner, verb, *args, **kwargs):
        return getattr(owner, verb)(*args, **kwargs)


SYNC = _Sync()
