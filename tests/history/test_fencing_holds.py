"""A fence holds for as long as a run does, whatever else its saver reads; a fork that is meant goes through."""

import pytest

import threadline
from threadline import Conflict

# More than a saver of the usual size remembers of what it read, and than LangGraph reads in a long step.
OTHERS = 20_000


def place(name="t", at=None, namespace=""):
    config = {"thread_id": name, "checkpoint_ns": namespace}
    return {"configurable": config if at is None else {**config, "checkpoint_id": at}}


def put(call, saver, at, value, source="loop", made_id=None):
    made = threadline.empty_checkpoint()
    made["channel_values"] = made["channel_versions"] = {"z": value}
    if made_id is not None:
        made["id"] = made_id
    return call(saver, "put", at, made, {"source": source, "step": value}, {"z": value})


@pytest.fixture
def pair(connect):
    """Two savers that fence, on one store."""
    return connect(fencing=True), connect(fencing=True)


def read_others(saver, *, by_id=False):
    """Read many other threads, one checkpoint each, as the newest or by their ids."""
    [config] = [found.config for found in saver.list(place("shelf"))]
    for number in range(OTHERS):
        saver.get_tuple(config if by_id else place(f"none-{number}"))
        if by_id:
            saver._tools.note_read(threadline.core.requests.Place("shelf", "", str(number)), by_id=True)


@pytest.mark.parametrize("url", ["memory"], indirect=True)
@pytest.mark.parametrize("by_id", [False, True])
def test_a_run_is_fenced_however_much_is_read_in_between(pair, call, by_id):
    ours, theirs = pair
    put(call, ours, place("shelf"), 0)
    put(call, ours, place(), 0)
    seen = call(ours, "get_tuple", place()).config
    read_others(ours, by_id=by_id)
    mine = put(call, ours, seen, 1)
    read_others(ours, by_id=by_id)
    put(call, theirs, call(theirs, "get_tuple", place()).config, 2)
    with pytest.raises(Conflict, match="moved on"):
        put(call, ours, mine, 3)


@pytest.mark.parametrize("url", ["memory"], indirect=True)
@pytest.mark.parametrize("by_id", [False, True])
def test_a_run_that_goes_on_from_an_earlier_checkpoint_may_for_as_long(pair, call, by_id):
    ours, _ = pair
    put(call, ours, place("shelf"), 0)
    first = put(call, ours, place(), 0)
    put(call, ours, call(ours, "get_tuple", place()).config, 1)
    assert call(ours, "get_tuple", first).config == first
    read_others(ours, by_id=by_id)
    branch = put(call, ours, first, 2, made_id="0")
    read_others(ours, by_id=by_id)
    put(call, ours, branch, 3, made_id="1")


def test_a_thread_read_as_empty_stays_fenced(pair, call):
    ours, theirs = pair
    assert call(ours, "get_tuple", place()) is None
    assert call(theirs, "get_tuple", place()) is None
    for number in range(100):
        ours._tools.note_read(threadline.core.requests.Place(f"other-{number}", "", "1"), by_id=True)
    put(call, theirs, place(), 0)
    with pytest.raises(Conflict, match="moved on"):
        put(call, ours, place(), 1)


def test_what_another_saver_read_is_fenced_too(pair, call):
    """One worker reads and another writes: who cannot know how the parent was read expects it to be the head."""
    ours, theirs = pair
    put(call, ours, place(), 0)
    seen = call(ours, "get_tuple", place()).config
    put(call, ours, seen, 1)
    with pytest.raises(Conflict, match="moved on"):
        put(call, theirs, seen, 2)
    assert call(theirs, "get_tuple", seen).config == seen  # by its id: it means to branch
    put(call, theirs, seen, 2)


def test_a_look_at_a_checkpoint_that_is_not_there_takes_no_fence_away(pair, call):
    ours, theirs = pair
    assert call(ours, "get_tuple", place()) is None
    assert call(ours, "get_tuple", place(at="none")) is None
    put(call, theirs, place(), 0)
    with pytest.raises(Conflict, match="moved on"):
        put(call, ours, place(), 1)


def test_puts_of_one_batch_are_fenced_by_their_first(pair, call):
    ours, theirs = pair
    put(call, ours, place(), 0)
    seen = call(ours, "get_tuple", place()).config

    def batch(saver, at):
        puts = []
        for value in (1, 2, 3):
            made = threadline.empty_checkpoint()
            made["channel_values"] = made["channel_versions"] = {"z": value}
            puts.append((at, made, {"source": "loop", "step": value}, {"z": value}))
            at = place(at=made["id"])
        return call(saver, "put_many", puts)

    *_, last = batch(ours, seen)
    with pytest.raises(Conflict, match="moved on"):
        batch(theirs, seen)
    put(call, theirs, call(theirs, "get_tuple", place()).config, 4)
    with pytest.raises(Conflict, match="moved on"):
        put(call, ours, last, 5)


@pytest.mark.parametrize("source", ["fork", "update"])
def test_who_forks_or_updates_goes_on_from_there(pair, call, source):
    ours, _ = pair
    first = put(call, ours, place(), 0)
    put(call, ours, first, 1)
    branch = put(call, ours, first, 2, source=source, made_id="0")
    put(call, ours, branch, 3, made_id="1")


def test_a_fence_without_a_cache_holds_and_lets_forks_through(connect, call):
    saver = connect(fencing=True, cache_bytes=0)
    first = put(call, saver, place(), 0)
    seen = call(saver, "get_tuple", place()).config
    put(call, connect(), seen, 1)
    with pytest.raises(Conflict, match="moved on"):
        put(call, saver, seen, 2)
    call(saver, "get_tuple", first)
    put(call, saver, first, 2)
