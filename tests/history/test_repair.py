"""Quarantine and repair: a damaged thread becomes usable again, and nothing is made up."""

import dataclasses
import itertools
import uuid

import ormsgpack
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
from threadline.core.integrity.quarantine import evidence_key
from threadline.core.integrity.report import Damage
from threadline.core.tiering import choosing
from threadline.packs.cold import read_reference
from threadline.ports.records import pack_name


@pytest.fixture(params=["plain", "encrypted"])
def options(request):
    if request.param == "plain":
        return {"synchronous": "OFF"}
    return {"synchronous": "OFF", "encryption": KeyRing({"a": KeyRing.generate()})}


@pytest.fixture
def path(tmp_path, options):
    """A file with one thread, whose messages stay in the open run: each is a chunk of its own.

    Names decide where a run closes, and those of an encrypted store are keyed by a secret of its own.
    """
    for attempt in itertools.count():
        file = tmp_path / f"agents{attempt}.db"
        with threadline.connect(file, **options) as saver:
            saver.open()
            if any(closes_run(saver, "t", number) for number in range(1, STEPS + 3)):
                continue
            fill(saver)
            # Of the book, page 7 is in a pack, unless names have it that no run closes behind it.
            page = saver._tools.codec.encode(state(1)["book"]["page 7"])
            if any(page in pack.contents() for pack in packs_in(saver, file).values()):
                return file


@pytest.fixture
def saver(path, options):
    with threadline.connect(path, **options) as opened:
        opened.open()
        yield opened


def check_states(saver, numbers=range(1, STEPS + 1)):
    saver.clear_cache()
    for number in numbers:
        found = saver.get_tuple(config("t", name(number)))
        assert found.checkpoint["channel_values"] == state(number)
        assert found.metadata["step"] == number
        assert found.checkpoint["note"] == "kept"
        assert found.parent_config == (config("t", name(number - 1)) if number > 1 else None)
        assert found.pending_writes == [(f"task {number}", "messages", [message(number + 1)])]


# -- quarantine


def test_a_thread_is_usable_again_after_its_damaged_head_was_set_aside(path, saver, call):
    alter(path, "UPDATE threadline_checkpoints SET document = x'00' WHERE id = ?", (name(STEPS),))
    with pytest.raises(threadline.Corrupt):
        call(saver, "get_tuple", config())
    stored = rows(path, "SELECT metadata FROM threadline_checkpoints WHERE id = ?", (name(STEPS),))
    chunks = rows(path, "SELECT count(*) FROM threadline_chunks")
    assert call(saver, "quarantine", call(saver, "fsck").damaged) == 1
    assert call(saver, "get_tuple", config()).checkpoint["id"] == name(STEPS - 1)
    check_states(saver, range(1, STEPS))
    # Its chunks are sound, and stay for a restore.
    assert rows(path, "SELECT count(*) FROM threadline_chunks") == chunks
    report = call(saver, "fsck")
    assert report.ok
    assert not report.orphaned_chunks
    record = pack_name(evidence_key("t", "", name(STEPS)).split(":", 1))
    [(packed,)] = rows(path, "SELECT value FROM threadline_records WHERE space = 0 AND path = ?", (record,))
    [[thread_id, _, [why], row, kept]] = ormsgpack.unpackb(packed)
    assert (thread_id, row[1], row[5], row[7], kept[1]) == ("t", name(STEPS), b"\0", stored[0][0], name(STEPS))
    assert why.startswith("the document is damaged")
    put(saver, STEPS)
    write(saver, STEPS)
    check_states(saver)


def test_only_what_is_damaged_still_is_set_aside(path, saver, call):
    [(document,)] = rows(path, "SELECT document FROM threadline_checkpoints WHERE id = ?", (name(3),))
    alter(path, "UPDATE threadline_checkpoints SET document = x'00' WHERE id = ?", (name(3),))
    damaged = saver.fsck().damaged
    alter(path, "UPDATE threadline_checkpoints SET document = ? WHERE id = ?", (document, name(3)))
    unknown = [dataclasses.replace(damaged[0], thread_id="nobody"), dataclasses.replace(damaged[0], checkpoint_id="x")]
    assert call(saver, "quarantine", [*damaged, *unknown]) == 0
    check_states(saver)


def test_a_checkpoint_set_aside_twice_leaves_both_as_evidence(path, saver):
    for _ in range(2):
        alter(path, "UPDATE threadline_checkpoints SET document = x'00' WHERE id = ?", (name(STEPS),))
        assert saver.quarantine(saver.fsck().damaged) == 1
        put(saver, STEPS)
    record = pack_name(evidence_key("t", "", name(STEPS)).split(":", 1))
    [(packed,)] = rows(path, "SELECT value FROM threadline_records WHERE space = 0 AND path = ?", (record,))
    assert len(ormsgpack.unpackb(packed)) == 2


def test_damaged_writes_are_set_aside_with_their_checkpoint_or_without(path, saver, call):
    saver.put_writes(config("t", name(50)), [("step", 1)], "never arrived")
    alter(path, "UPDATE threadline_writes SET data = x'00' WHERE checkpoint_id IN (?, ?)", (name(STEPS), name(50)))
    assert call(saver, "quarantine", call(saver, "fsck").damaged) == 2
    assert call(saver, "fsck").ok
    check_states(saver, range(1, STEPS))
    assert saver.get_tuple(config()).checkpoint["id"] == name(STEPS - 1)


def test_of_a_circle_of_parents_only_the_oldest_goes(path, saver, call):
    put(saver, 3, parent=name(5))
    report = call(saver, "fsck")
    assert places(report.damaged) == [(3, None), (4, None), (5, None)]
    assert call(saver, "quarantine", report.damaged) == 1
    assert saver.get_tuple(config("t", name(3))) is None
    assert call(saver, "fsck").ok


def test_what_is_replayed_from_a_damaged_checkpoint_goes_with_it(tmp_path, options, call):
    """For a delta channel, writes are state: without them a later checkpoint would be replayed wrongly."""
    with threadline.connect(tmp_path / "delta.db", **options) as saver:
        for number in range(1, 7):
            metadata = {"source": "loop", "step": number, "counters_since_delta_snapshot": {"log": [number, number]}}
            held = {"log": ["a seed"]} if number in (1, 5) else {}
            checkpoint = {
                "v": 4,
                "id": name(number),
                "ts": "2026-01-01T00:00:00+00:00",
                "channel_values": held,
                "channel_versions": {"log": number},
                "versions_seen": {},
                "updated_channels": None,
            }
            before = name(number - 1) if number > 1 else None
            saver.put(config("t", before), checkpoint, metadata, {"log": number})
            saver.put_writes(config("t", name(number)), [("log", f"entry {number}")], "task")
        alter(tmp_path / "delta.db", "UPDATE threadline_writes SET data = x'00' WHERE checkpoint_id = ?", (name(2),))
        assert call(saver, "quarantine", call(saver, "fsck").damaged) == 3
        assert [found.checkpoint["id"] for found in saver.list(config())] == [name(6), name(5), name(1)]
        replayed = saver.get_delta_channel_history(config=config("t", name(6)), channels=["log"])["log"]
        assert replayed["seed"] == ["a seed"]


def test_damages_must_be_damages(saver, call):
    for wrong in (call(saver, "fsck"), "t", [1], None):
        with pytest.raises(threadline.InvalidRequest):
            call(saver, "quarantine", wrong)
        with pytest.raises(threadline.InvalidRequest):
            call(saver, "repair", wrong, reducers={})
    with pytest.raises(threadline.InvalidRequest):
        call(saver, "repair", [], reducers={"messages": "add"})


def test_a_damaged_chunk_goes_with_the_last_checkpoint_that_needs_it(path, saver, call):
    """Were it to stay, a put of the same content would take it for stored."""
    held = chunk_of(saver, message(STEPS + 1))
    flip_chunk(path, held)  # only the head's pending write has it
    assert call(saver, "quarantine", call(saver, "fsck").damaged) == 1
    report = call(saver, "fsck")
    assert (report.ok, report.spoiled_chunks) == (True, ())
    put(saver, STEPS)
    write(saver, STEPS)
    check_states(saver, [STEPS])


# -- repair


@pytest.mark.parametrize("harm", [flip_chunk, delete_chunk])
def test_messages_are_rebuilt_as_they_were(path, saver, call, harm):
    """A run of damaged checkpoints heals from its first good ancestor."""
    held = chunk_of(saver, message(7))
    # The write that brought the message shares its chunk; as text it is stored apart.
    alter(path, "DELETE FROM threadline_writes WHERE checkpoint_id = ?", (name(6),))
    saver.put_writes(config("t", name(6)), [("messages", message(7)["text"])], "task 6")
    harm(path, held)
    damaged = call(saver, "fsck").damaged
    assert sorted(places(damaged)) == [(number, "messages") for number in range(7, STEPS + 1)]

    def reducer(left, right):
        return add(left, [{"id": "m7", "text": right}] if isinstance(right, str) else right)

    before = rows(path, "SELECT * FROM threadline_checkpoints ORDER BY id")
    assert call(saver, "repair", damaged, reducers={"messages": reducer}) == []
    assert call(saver, "fsck").ok
    assert rows(path, "SELECT * FROM threadline_checkpoints ORDER BY id") == before
    alter(path, "DELETE FROM threadline_writes WHERE checkpoint_id = ?", (name(6),))
    write(saver, 6)
    check_states(saver)
    saver.prune(["t"])
    assert saver.get_tuple(config()).checkpoint["channel_values"] == state(STEPS)


@pytest.mark.parametrize("harm", [flip_chunk, delete_chunk])
def test_nodes_of_a_tree_are_rebuilt(path, saver, call, harm):
    nodes = "SELECT digest, links FROM threadline_chunks WHERE length(links) > 0"
    last = chunk_of(saver, message(STEPS))
    node = next(digest for digest, links in rows(path, nodes) if last in links)
    harm(path, node)
    damaged = call(saver, "fsck").damaged
    assert places(damaged) == [(STEPS, "messages")]
    assert call(saver, "repair", damaged, reducers={"messages": add}) == []
    assert call(saver, "fsck").ok
    check_states(saver)


def test_a_chunk_that_was_altered_in_its_object_is_rebuilt_into_the_database(
    path, options, call, tmp_path, monkeypatch
):
    for bound in ("_LEAST_BYTES", "_LEAST_LINKED_BYTES", "_LEAST_OBJECT_BYTES"):
        monkeypatch.setattr(choosing, bound, 1)
    with threadline.connect(path, cold=f"file://{tmp_path / 'cold'}", **options) as saver:
        last = chunk_of(saver.open(), message(STEPS))
        nodes = "SELECT digest, links FROM threadline_chunks WHERE length(links) > 0"
        node = next(digest for digest, links in rows(path, nodes) if last in links)
        saver.tier("0s")
        assert saver.tier_status().hot_chunks == 0
        [(data,)] = rows(path, "SELECT data FROM threadline_chunks WHERE digest = ?", (node,))
        reference = read_reference(data)
        [held] = (tmp_path / "cold").iterdir()
        content = bytearray(held.read_bytes())
        content[reference.offset + reference.length // 2] ^= 1
        held.write_bytes(content)
        damaged = call(saver, "fsck").damaged
        assert places(damaged) == [(STEPS, "messages")]
        assert held.name in damaged[0].what
        assert call(saver, "repair", damaged, reducers={"messages": add}) == []
        assert call(saver, "fsck").ok
        assert saver.tier_status().hot_chunks >= 1
        check_states(saver)


def test_a_first_value_is_rebuilt_from_its_writes_alone(tmp_path, options, call):
    with threadline.connect(tmp_path / "first.db", **options) as saver:
        put(saver, 1, values={"step": 1})
        saver.put_writes(config("t", name(1)), [("messages", [message(1)]), ("messages", [message(2)])], "task")
        # Too few for a run to close, too many for their references to stand in the checkpoint.
        put(saver, 2, values={"messages": [message(1), message(2)] * 3 + ["x" * 100], "step": 2})
        nodes = rows(tmp_path / "first.db", "SELECT digest FROM threadline_chunks WHERE length(links) > 0")
        flip_chunk(tmp_path / "first.db", nodes[0][0])

        def reducer(left, right):
            joined = left + right
            return joined * 3 + ["x" * 100] if len(joined) == 2 else joined

        damaged = call(saver, "fsck").damaged
        assert places(damaged) == [(2, "messages")]
        assert call(saver, "repair", damaged, reducers={"messages": reducer}) == []
        assert call(saver, "fsck").ok


def test_a_value_that_was_not_changed_since_its_parent_needs_no_reducer(path, saver, call):
    """The parent was put again in its place, whole; the children share its chunks and heal with it."""
    flip_chunk(path, pack_of(saver, path, state(1)["book"]["page 7"]))
    damaged = call(saver, "fsck").damaged
    assert {channel for _, channel in places(damaged)} == {"book"}
    left = call(saver, "repair", damaged, reducers={})
    assert len(left) == STEPS
    assert "it has no parent" in left[0].what
    assert all("cannot be read" in damage.what for damage in left[1:])


@pytest.mark.parametrize(
    ("reducers", "statement", "values", "why"),
    [
        ({}, None, (), "there is no reducer"),
        (
            {"messages": add},
            "DELETE FROM threadline_writes WHERE checkpoint_id = ?",
            (name(STEPS - 1),),
            "has no writes",
        ),
        (
            {"messages": add},
            "DELETE FROM threadline_checkpoints WHERE id = ?",
            (name(STEPS - 1),),
            "its parent is gone",
        ),
        (
            {"messages": add},
            "UPDATE threadline_checkpoints SET document = x'00' WHERE id = ?",
            (name(STEPS - 1),),
            "parent's document cannot be read",
        ),
        (
            {"messages": add},
            "UPDATE threadline_writes SET data = x'' WHERE checkpoint_id = ?",
            (name(STEPS - 1),),
            "Corrupt",
        ),
        ({"messages": lambda left, right: left}, None, (), "not the value that was lost"),
        ({"messages": lambda left, right: 1 / 0}, None, (), "its reducer failed (ZeroDivisionError)"),
        ({"messages": lambda left, right: object()}, None, (), "no stored form"),
    ],
)
def test_what_cannot_be_rebuilt_stays_damaged_and_says_why(path, saver, call, reducers, statement, values, why):
    nodes = "SELECT digest, links FROM threadline_chunks WHERE length(links) > 0"
    last = chunk_of(saver, message(STEPS))
    flip_chunk(path, next(digest for digest, links in rows(path, nodes) if last in links))
    damaged = [damage for damage in saver.fsck().damaged if damage.checkpoint_id == name(STEPS)]
    if statement:
        alter(path, statement, values)
    before = rows(path, "SELECT * FROM threadline_chunks"), rows(path, "SELECT * FROM threadline_checkpoints")
    [left] = call(saver, "repair", damaged, reducers=reducers)
    assert why in left.what
    assert dataclasses.replace(left, what=damaged[0].what) == damaged[0]
    assert before == (rows(path, "SELECT * FROM threadline_chunks"), rows(path, "SELECT * FROM threadline_checkpoints"))


def test_documents_metadata_and_writes_cannot_be_rebuilt(path, saver, call):
    alter(path, "UPDATE threadline_checkpoints SET document = x'00' WHERE id = ?", (name(4),))
    alter(path, "UPDATE threadline_writes SET data = x'00' WHERE checkpoint_id = ?", (name(8),))
    damaged = call(saver, "fsck").damaged
    assert places(damaged) == [(4, None), (8, "messages")]
    assert places(call(saver, "repair", damaged, reducers={"messages": add})) == [(4, None), (8, "messages")]


def test_a_reducer_that_never_makes_the_same_value_twice_heals_when_that_is_accepted(path, saver, call):
    def stamped(left, right):
        return [*left, *({**one, "id": str(uuid.uuid4())} for one in right)]

    nodes = "SELECT digest, links FROM threadline_chunks WHERE length(links) > 0"
    lost, numbers = chunk_of(saver, message(8)), range(10, STEPS + 1)  # those whose messages have a root
    for digest, links in rows(path, nodes):
        if lost in links:
            flip_chunk(path, digest)
    damaged = call(saver, "fsck").damaged
    assert sorted(places(damaged)) == [(number, "messages") for number in numbers]
    assert len(call(saver, "repair", damaged, reducers={"messages": stamped})) == len(numbers)
    assert call(saver, "repair", damaged, reducers={"messages": stamped}, exact=False) == []
    assert call(saver, "fsck").ok
    saver.clear_cache()
    check_states(saver, range(1, numbers[0]))
    for number in numbers:
        found = saver.get_tuple(config("t", name(number)))
        values = found.checkpoint["channel_values"]
        assert [one["text"] for one in values["messages"]] == [one["text"] for one in state(number)["messages"]]
        assert {**values, "messages": 0} == {**state(number), "messages": 0}
        assert found.checkpoint["channel_versions"] == {"messages": number, "step": number, "large": 3, "book": 1}
        assert (found.checkpoint["note"], found.metadata["run_id"]) == ("kept", "run")
    assert [found.metadata["step"] for found in saver.list(config(), filter={"step": STEPS})] == [STEPS]
    put(saver, STEPS + 1)
    assert call(saver, "fsck").ok


def edited(left, right):
    return [right if one["text"] == right["was"] else one for one in left]


@pytest.mark.parametrize("harm", [flip_chunk, delete_chunk])
def test_a_list_in_which_an_item_was_changed_is_proven_by_its_links(tmp_path, options, call, harm):
    """Whether a run is a plain leaf depends on the past of the list: the links tell it, or the names in the pool."""
    before = [{"text": f"{at} " + "long " * 40} for at in range(400)]
    change = {"text": "other " * 40, "was": before[0]["text"]}
    with threadline.connect(tmp_path / "edited.db", **options) as saver:
        put(saver, 1, values={"messages": before})
        saver.put_writes(config("t", name(1)), [("messages", change)], "task 1")
        put(saver, 2, values={"messages": edited(before, change)})
        roots = rows(tmp_path / "edited.db", "SELECT links FROM threadline_checkpoints WHERE id = ?", (name(2),))
        harm(tmp_path / "edited.db", roots[0][0][:16])
        damaged = call(saver, "fsck").damaged
        assert places(damaged) == [(2, "messages")]
        left = call(saver, "repair", damaged, reducers={"messages": edited})
        assert left == []
        assert call(saver, "fsck").ok
        saver.clear_cache()
        found = saver.get_tuple(config("t", name(2)))
        assert found.checkpoint["channel_values"] == {"messages": edited(before, change)}


def test_what_vanished_is_not_damaged_any_more(path, saver, call):
    flip_chunk(path, chunk_of(saver, message(7)))
    damaged = saver.fsck().damaged
    saver.delete_thread("t")
    assert call(saver, "repair", damaged, reducers={"messages": add}) == []
    assert call(saver, "quarantine", damaged) == 0
    nobody = Damage(thread_id="x", namespace="", checkpoint_id="y", channel="z", what="")
    assert call(saver, "repair", [nobody], reducers={}) == []


def test_a_store_in_memory_is_repaired_and_set_aside_like_any_other(call):
    with threadline.connect("memory://") as saver:
        fill(saver)
        [held] = saver._engine._backend._chunks.values()
        last = chunk_of(saver, message(STEPS))
        node = next(digest for digest, (links, _, _) in held.items() if last in links)
        held[node] = (*held[node][:2], b"\0")
        damaged = call(saver, "fsck").damaged
        assert places(damaged) == [(STEPS, "messages")]
        assert call(saver, "repair", damaged, reducers={"messages": add}) == []
        assert call(saver, "fsck").ok
        check_states(saver)
        del held[node]
        assert call(saver, "quarantine", call(saver, "fsck").damaged) == 1
        assert call(saver, "fsck").ok
        put(saver, STEPS)
        write(saver, STEPS)
        check_states(saver)


def test_a_checkpoint_that_is_put_again_while_it_is_judged_is_not_set_aside(path, saver, options, monkeypatch):
    alter(path, "UPDATE threadline_checkpoints SET document = x'00' WHERE id = ?", (name(STEPS),))
    damaged = saver.fsck().damaged
    real, acted = SqlBackend.write_records, []

    with threadline.connect(path, **options) as other:

        async def write_records(self, changes):
            if not acted:
                acted.append(True)
                put(other, STEPS)
            return await real(self, changes)

        other.open()
        monkeypatch.setattr(SqlBackend, "write_records", write_records)
        assert saver.quarantine(damaged) == 0
    assert acted
    check_states(saver)
