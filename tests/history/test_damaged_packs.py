"""Packs and the pointers into them: damage is named with all that needs it, and what can be rebuilt is."""

import itertools

import pytest
from fsck_store import (
    STEPS,
    add,
    alter,
    chunk_of,
    closes_run,
    config,
    delete_chunk,
    fill,
    flip,
    flip_chunk,
    message,
    name,
    pack_of,
    packs_in,
    places,
    put,
    rows,
    state,
    write,
)

import threadline
from threadline import KeyRing
from threadline.backends.sql.backend import SqlBackend
from threadline.core.retention import prune

# The message with which the first run of the threads here closes; the next run stays open.
LAST = 8


@pytest.fixture(params=["plain", "encrypted"])
def options(request):
    if request.param == "plain":
        return {"synchronous": "OFF"}
    return {"synchronous": "OFF", "encryption": KeyRing({"a": KeyRing.generate()})}


@pytest.fixture
def path(tmp_path):
    return tmp_path / "agents.db"


@pytest.fixture
def saver(path, options):
    with threadline.connect(path, **options) as opened:
        opened.open()
        yield opened


@pytest.fixture
def thread(saver):
    """A thread whose first run of messages has become a pack; names decide where, so the thread's name is sought."""
    for number in itertools.count():
        found = f"t{number}"
        if closes_run(saver, found, LAST):
            return found


@pytest.fixture
def filled(saver, thread):
    fill(saver, thread)
    saver.clear_cache()
    return thread


def pointers_into(path, digest):
    return [held for (held,) in rows(path, "SELECT digest FROM threadline_chunks WHERE links = ?", (digest,))]


def readable(saver, thread):
    """The numbers of the checkpoints that can be read whole, writes included."""
    found = set()
    saver.clear_cache()
    for number in range(1, STEPS + 1):
        try:
            held = saver.get_tuple(config(thread, name(number)))
            assert held.checkpoint["channel_values"] == state(number, thread)
            assert held.pending_writes == [(f"task {number}", "messages", [message(number + 1, thread)])]
        except threadline.Corrupt:
            continue
        found.add(number)
    return found


def test_items_of_a_closed_run_are_pointers_into_its_pack(path, saver, filled):
    pack = pack_of(saver, path, message(1, filled))
    # The last one came with the pack; only its write has it besides, in a row of its own.
    assert sorted(pointers_into(path, pack)) == sorted(chunk_of(saver, message(n, filled)) for n in range(1, LAST))
    report = saver.fsck()
    assert report.ok
    assert not report.orphaned_chunks
    assert report.chunks == saver.stats().chunks
    assert readable(saver, filled) == set(range(1, STEPS + 1))


@pytest.mark.parametrize("harm", [flip_chunk, delete_chunk])
def test_a_damaged_pack_is_named_with_all_that_needs_it(path, saver, filled, call, harm):
    pack = pack_of(saver, path, message(3, filled))
    harm(path, pack)
    report = call(saver, "fsck")
    # The writes that brought the messages point into the pack, too.
    channels = [(number, "messages") for number in range(1, STEPS + 1)]
    writes = [(number, "messages") for number in range(1, LAST - 1)]
    assert sorted(places(report.damaged)) == sorted(channels + writes)
    assert all(damage.chunks == (pack.hex(),) for damage in report.damaged)
    assert all(f"the chunk {pack.hex()} " in damage.what for damage in report.damaged)
    if harm is delete_chunk:
        [missing] = report.missing
        assert missing.digest == pack.hex()
        assert sorted(places(missing.needed_by)) == sorted(channels + writes)
    else:
        assert not report.missing
        assert report.chunks == saver.stats().chunks
    assert not report.orphaned_chunks
    assert not readable(saver, filled)


@pytest.mark.parametrize("column", ["data", "links"])
def test_an_altered_pointer_is_named_with_all_that_needs_it(path, saver, filled, call, column):
    """Those after the pack do not need the pointer."""
    pointer = chunk_of(saver, message(5, filled))
    [(stored,)] = rows(path, f"SELECT {column} FROM threadline_chunks WHERE digest = ?", (pointer,))
    alter(path, f"UPDATE threadline_chunks SET {column} = ? WHERE digest = ?", (flip(stored, 0), pointer))
    report = call(saver, "fsck")
    assert sorted(places(report.damaged)) == [(number, "messages") for number in range(4, LAST)]
    assert {damage.chunks for damage in report.damaged} == {(pointer.hex(),)}
    assert readable(saver, filled) == {1, 2, 3, *range(LAST, STEPS + 1)}


def test_a_pointer_to_another_place_or_pack_is_altered(path, saver, filled, call):
    """The check of a pointer is its own: none can be put in the place of another."""
    [one, other] = [chunk_of(saver, message(number, filled)) for number in (5, 6)]
    [(stored,)] = rows(path, "SELECT data FROM threadline_chunks WHERE digest = ?", (other,))
    alter(path, "UPDATE threadline_chunks SET data = ? WHERE digest = ?", (stored, one))
    report = call(saver, "fsck")
    assert {damage.chunks for damage in report.damaged} == {(one.hex(),)}
    assert 5 not in readable(saver, filled)


def test_a_lost_pointer_is_missing(path, saver, filled, call):
    pointer = chunk_of(saver, message(5, filled))
    delete_chunk(path, pointer)
    report = call(saver, "fsck")
    [missing] = report.missing
    assert missing.digest == pointer.hex()
    assert sorted(places(missing.needed_by)) == [(number, "messages") for number in range(4, LAST)]


@pytest.mark.parametrize("harm", [flip_chunk, delete_chunk])
def test_a_pointer_is_rebuilt_from_the_history(path, saver, filled, call, harm):
    """Checkpoint 4 has the messages before; the write that brought message 5 is put again."""
    pointer, pack = chunk_of(saver, message(5, filled)), pack_of(saver, path, message(5, filled))
    alter(path, "DELETE FROM threadline_writes WHERE checkpoint_id = ?", (name(4),))
    saver.put_writes(config(filled, name(4)), [("messages", message(5, filled)["text"])], "task 4")
    harm(path, pointer)

    def reducer(left, right):
        return add(left, [{"id": "m5", "text": right}] if isinstance(right, str) else right)

    damaged = call(saver, "fsck").damaged
    assert sorted(places(damaged)) == [(number, "messages") for number in range(5, LAST)]
    others = set(pointers_into(path, pack)) - {pointer}
    assert call(saver, "repair", damaged, reducers={"messages": reducer}) == []
    assert call(saver, "fsck").ok
    # The others are left as they are: the item alone has a row of its own now.
    assert set(pointers_into(path, pack)) == others
    alter(path, "DELETE FROM threadline_writes WHERE checkpoint_id = ?", (name(4),))
    write(saver, 4, filled)
    assert readable(saver, filled) == set(range(1, STEPS + 1))


@pytest.mark.parametrize("harm", [flip_chunk, delete_chunk])
def test_a_pack_is_rebuilt_from_writes_that_are_stored_apart(path, saver, thread, call, harm):
    """A value of many messages at once: its pack is the only place that has them."""
    messages = state(STEPS, thread)["messages"]
    put(saver, 1, thread, values={"step": 1})
    # As one text each write is a value of its own.
    texts = [one["text"] for one in messages]
    saver.put_writes(config(thread, name(1)), [("messages", text) for text in texts], "task")
    put(saver, 2, thread, values={"messages": messages, "step": 2})
    pack = pack_of(saver, path, messages[0])
    before = rows(path, "SELECT digest, links FROM threadline_chunks ORDER BY digest")
    harm(path, pack)
    saver.clear_cache()
    damaged = call(saver, "fsck").damaged
    assert places(damaged) == [(2, "messages")]

    def reducer(left, right):
        return [*left, {"id": f"m{len(left) + 1}", "text": right}]

    assert "no reducer" in call(saver, "repair", damaged, reducers={})[0].what
    assert call(saver, "repair", damaged, reducers={"messages": reducer}) == []
    assert call(saver, "fsck").ok
    assert rows(path, "SELECT digest, links FROM threadline_chunks ORDER BY digest") == before
    saver.clear_cache()
    assert saver.get_tuple(config(thread)).checkpoint["channel_values"]["messages"] == messages


@pytest.mark.parametrize("harm", [flip_chunk, delete_chunk])
def test_what_a_lost_pack_alone_held_is_not_made_up(path, saver, filled, call, harm):
    harm(path, pack_of(saver, path, message(1, filled)))
    damaged = call(saver, "fsck").damaged
    left = call(saver, "repair", damaged, reducers={"messages": add})
    assert sorted(places(left)) == sorted(places(damaged))
    assert call(saver, "quarantine", damaged) == STEPS
    assert call(saver, "fsck").ok
    fill(saver, filled)
    assert readable(saver, filled) == set(range(1, STEPS + 1))
    assert call(saver, "fsck").ok


@pytest.mark.parametrize("harm", [flip_chunk, delete_chunk])
def test_a_root_above_an_edited_run_is_rebuilt(path, saver, call, harm):
    """The leaf of an edited run names its items one by one: so does a rebuilt one."""
    files = {f"file {n}": f"file {n} of many " * 15 for n in range(100)}
    put(saver, 1, values={"files": files, "step": 1})
    saver.put_writes(config("t", name(1)), [("files", {"file 4": "another " * 30})], "task")
    edited = {**files, "file 4": "another " * 30}
    known = set(rows(path, "SELECT digest FROM threadline_chunks"))
    put(saver, 2, values={"files": edited, "step": 2})
    added = rows(path, "SELECT digest, links FROM threadline_chunks WHERE links <> x''")
    # The leaf, and the root if it has grown into a chunk.
    leads = [digest for digest, _ in added if (digest,) not in known]
    assert leads
    for digest in leads:
        harm(path, digest)
        saver.clear_cache()
        damaged = call(saver, "fsck").damaged
        assert places(damaged) == [(2, "files")]
        assert call(saver, "repair", damaged, reducers={"files": lambda left, right: {**left, **right}}) == []
        assert call(saver, "fsck").ok
        saver.clear_cache()
        assert saver.get_tuple(config()).checkpoint["channel_values"]["files"] == edited


def test_a_pack_that_only_pointers_need_is_counted_and_kept(path, saver, filled, call):
    pack = pack_of(saver, path, message(1, filled))
    alter(path, "DELETE FROM threadline_checkpoints WHERE id >= ?", (name(LAST),))
    alter(path, "DELETE FROM threadline_writes WHERE checkpoint_id >= ?", (name(LAST),))
    saver.thread(filled).prune(keep_last=LAST)
    report = call(saver, "fsck")
    assert report.ok, str(report)
    assert report.chunks == saver.stats().chunks
    assert pack in packs_in(saver, path)


@pytest.mark.parametrize("harm", [flip_chunk, delete_chunk])
def test_another_value_takes_the_place_of_one_in_a_lost_pack(path, saver, thread, call, harm):
    """What nothing needs any more goes with the pack: its pointers would be taken for items by a put."""
    put(saver, 1, thread, values={"step": 1})
    texts = [message(number, thread)["text"] for number in range(1, STEPS + 1)]
    saver.put_writes(config(thread, name(1)), [("messages", text) for text in texts], "task")
    messages = state(STEPS, thread)["messages"]
    put(saver, 2, thread, values={"messages": messages[: LAST - 1], "step": 2})
    put(saver, 3, thread, values={"messages": messages, "step": 3})
    alter(path, "DELETE FROM threadline_checkpoints WHERE id = ?", (name(2),))
    put(saver, 3, thread, parent=name(1), values={"messages": messages, "step": 3})
    pack = pack_of(saver, path, messages[0])
    assert pointers_into(path, pack)
    harm(path, pack)
    saver.clear_cache()
    damaged = call(saver, "fsck").damaged
    assert places(damaged) == [(3, "messages")]
    assert call(saver, "repair", damaged, reducers={"messages": lambda left, right: [*left, right]}, exact=False) == []
    assert saver.thread(thread).prune(keep_last=9) is not None
    put(saver, 4, thread, parent=name(3), values={"messages": messages[:3], "step": 4})
    saver.clear_cache()
    assert saver.get_tuple(config(thread)).checkpoint["channel_values"]["messages"] == messages[:3]
    assert call(saver, "fsck").ok


def test_an_orphaned_pointer_without_its_pack_is_spoiled(path, saver, filled, call):
    """A put of the item would rely on it."""
    pack = pack_of(saver, path, message(1, filled))
    held = sorted(digest.hex() for digest in pointers_into(path, pack))
    alter(path, "DELETE FROM threadline_checkpoints")
    alter(path, "DELETE FROM threadline_writes")
    assert not call(saver, "fsck").spoiled_chunks
    delete_chunk(path, pack)
    report = call(saver, "fsck")
    assert not report.ok
    assert sorted(report.spoiled_chunks) == held


def test_no_pointer_outlives_its_pack_while_chunks_are_collected(path, saver, filled, monkeypatch):
    """Chunks are deleted in batches, and a writer who puts an item between two of them relies on its row."""
    monkeypatch.setattr(prune, "_CHUNK_BATCH", 1)
    monkeypatch.setattr(prune, "_MOST_MARKINGS", 1000)
    pointers = {chunk_of(saver, message(number, filled)) for number in range(1, LAST)}
    real, left = SqlBackend.collect, []

    async def collect(self, *args):
        removed = await real(self, *args)
        held = dict(rows(path, "SELECT digest, links FROM threadline_chunks"))
        left.append(len(pointers & held.keys()))
        assert all(held[digest] in held for digest in pointers & held.keys())
        return removed

    monkeypatch.setattr(SqlBackend, "collect", collect)
    put(saver, STEPS + 1, filled, values={"step": 1})
    saver.prune([filled])
    assert left[-1] == 0
    assert len(set(left)) > 1
    assert saver.fsck().ok
