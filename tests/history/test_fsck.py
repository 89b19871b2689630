"""fsck: a clean store is clean, each kind of damage is named for what it is, and nothing else is."""

import dataclasses
import random
import threading

import pytest
from fsck_store import (
    STEPS,
    alter,
    chunk_of,
    config,
    delete_chunk,
    fill,
    flip,
    flip_chunk,
    message,
    name,
    places,
    put,
    rows,
    state,
    write,
)

import threadline
from threadline import KeyRing
from threadline.backends.memory.backend import MemoryBackend
from threadline.backends.memory.engine import MemoryEngine
from threadline.backends.sql.backend import SqlBackend
from threadline.backends.sqlite.put import SqliteBackend
from threadline.chunks.cutting import pieces
from threadline.chunks.pack import pointer_to
from threadline.core.integrity.verify import Walk
from threadline.core.retention.prune import collect_pool


@dataclasses.dataclass
class Unloved:
    """A type that only some savers may rebuild."""

    text: str


@pytest.fixture
def path(tmp_path):
    """A file with one thread; nobody has it open."""
    with threadline.connect(tmp_path / "agents.db", synchronous="OFF") as saver:
        fill(saver)
    return tmp_path / "agents.db"


@pytest.fixture
def saver(path):
    with threadline.connect(path, synchronous="OFF") as opened:
        yield opened


def clean(report):
    return report.ok and not (report.damaged or report.missing or report.warnings or report.orphaned_chunks)


@pytest.mark.parametrize("encrypted", [False, True])
def test_a_clean_store_is_clean(connect, call, encrypted):
    options = {"encryption": KeyRing({"a": KeyRing.generate()})} if encrypted else {}
    saver = connect(**options)
    assert call(saver, "fsck").threads == 0
    for thread_id in ("one", "two", "three"):
        fill(saver, thread_id)
    saver.copy_thread("one", "copy")
    put(saver, 99, "copy", parent=name(4), values=state(99, "one"))
    saver.prune(["two"])
    saver.delete_thread("three")
    saver.put_writes(config("one", name(77)), [("step", "early " * 60)], "a task before its checkpoint")
    heard = []
    report = call(saver, "fsck", progress=lambda done, total: heard.append((done, total)))
    assert clean(report), str(report)
    assert (report.threads, report.checkpoints) == (3, STEPS + 1 + STEPS + 1)
    assert report.writes == STEPS + STEPS + 1 + 1
    assert report.chunks == saver.stats().chunks
    assert report.notes == ("thread 'two': 1 checkpoint has a parent that is gone, as after a prune",)
    assert heard == [(1, 3), (2, 3), (3, 3)]
    assert str(report).startswith(f"3 threads, {2 * STEPS + 2} checkpoints")
    assert clean(call(connect(**options), "fsck"))


def test_some_threads_are_looked_over_alone(connect, call):
    saver = connect()
    fill(saver, "one")
    fill(saver, "two")
    saver.copy_thread("one", "copy")
    put(saver, 99, "copy", parent=name(4), values=state(99, "one"))
    report = call(saver, "fsck", ["one", "nobody"])
    assert clean(report)
    assert (report.threads, report.checkpoints) == (1, STEPS)
    assert report.notes == ("there is no thread 'nobody'",)
    with pytest.raises(threadline.InvalidRequest):
        call(saver, "fsck", "one")


def test_a_key_that_the_ring_lacks_is_no_damage(tmp_path):
    keys = {key: KeyRing.generate() for key in "ab"}
    with threadline.connect(tmp_path / "agents.db", encryption=KeyRing({"a": keys["a"]})) as saver:
        fill(saver, steps=3)
    with threadline.connect(tmp_path / "agents.db", encryption=KeyRing(keys, current="b")) as saver:
        put(saver, 4)
        saver._engine.run(saver._tools.reseal_digest_key)
        assert saver.fsck().ok
    with (
        threadline.connect(tmp_path / "agents.db", encryption=KeyRing({"b": keys["b"]})) as saver,
        pytest.raises(threadline.NotFound, match="'a' is not in the ring"),
    ):
        saver.fsck()


def test_a_type_that_is_not_allowed_here_is_a_warning(connect, call, caplog):
    put(connect(), 1, values={"messages": [Unloved("no")], "whole": Unloved("never " * 50), "step": 1})
    report = call(connect(allowed_types="strict"), "fsck")
    assert "comes back as plain data" not in caplog.text  # nothing comes back: they are told in the report
    assert report.ok
    assert not report.damaged
    assert places(report.warnings) == [(1, "messages"), (1, "whole")]
    assert all(warning.what.startswith("type not allowed here") for warning in report.warnings)


def test_an_altered_chunk_is_named_with_all_that_needs_it(path, saver, call):
    digest = chunk_of(saver, message(5))
    flip_chunk(path, digest)
    report = call(saver, "fsck")
    assert not report.ok
    # Those writes that brought the message have it too: they stand at checkpoint 4.
    assert sorted(places(report.damaged)) == [(number, "messages") for number in range(4, STEPS + 1)]
    assert all(f"the chunk {digest.hex()} was altered" in damage.what for damage in report.damaged)
    assert [damage.what.startswith("a pending write of task 'task 4'") for damage in report.damaged].count(True) == 1
    assert not report.missing
    assert report.damaged[0].config == config("t", name(STEPS))
    assert f"damaged: thread 't', checkpoint {name(STEPS)}, channel 'messages'" in str(report)
    assert report.chunks == saver.stats().chunks


def test_a_missing_chunk_is_named_with_all_that_needs_it(path, saver, call):
    gone = [chunk_of(saver, message(number)) for number in (3, 11)]
    for digest in gone:
        delete_chunk(path, digest)
    report = call(saver, "fsck")
    assert [chunk.digest for chunk in report.missing] == sorted(digest.hex() for digest in gone)
    needed = {chunk.digest: sorted(places(chunk.needed_by)) for chunk in report.missing}
    assert needed[gone[0].hex()] == [(number, "messages") for number in range(2, STEPS + 1)]
    assert needed[gone[1].hex()] == [(number, "messages") for number in range(10, STEPS + 1)]
    assert set(places(report.damaged)) == {(number, "messages") for number in range(2, STEPS + 1)}
    assert not report.orphaned_chunks


@pytest.mark.parametrize("column", ["data", "links"])
def test_an_altered_node_does_not_make_orphans_of_what_is_below(path, saver, call, column):
    [(digest, stored), *_] = rows(
        path, f"SELECT digest, {column} FROM threadline_chunks WHERE length(links) > 32 ORDER BY digest"
    )
    alter(path, f"UPDATE threadline_chunks SET {column} = ? WHERE digest = ?", (flip(stored), digest))
    report = call(saver, "fsck")
    assert report.damaged
    assert {digest.hex() in damage.what for damage in report.damaged} == {True}
    assert report.orphaned_chunks <= (1 if column == "links" else 0)


def test_a_damaged_piece_of_a_large_value_spoils_that_value_alone(path, saver, call):
    first, *_ = pieces(saver._tools.codec.encode(state(STEPS)["large"]))
    flip_chunk(path, saver._tools.digesters.of(1).item(first))
    report = call(saver, "fsck")
    assert sorted(places(report.damaged)) == [(number, "large") for number in range(3, STEPS + 1)]


@pytest.mark.parametrize(
    ("column", "what"), [("document", "the document is damaged"), ("metadata", "the metadata is damaged")]
)
def test_an_altered_row_is_named(path, saver, call, column, what):
    [(stored,)] = rows(path, f"SELECT {column} FROM threadline_checkpoints WHERE id = ?", (name(5),))
    alter(path, f"UPDATE threadline_checkpoints SET {column} = ? WHERE id = ?", (flip(stored, 3), name(5)))
    report = call(saver, "fsck")
    assert places(report.damaged) == [(5, None)]
    assert report.damaged[0].what.startswith(what)
    assert not report.orphaned_chunks


def test_an_altered_write_is_named(path, saver, call):
    alter(path, "UPDATE threadline_writes SET data = x'00' WHERE checkpoint_id = ?", (name(5),))
    report = call(saver, "fsck")
    assert places(report.damaged) == [(5, "messages")]
    assert report.damaged[0].what.startswith("a pending write of task 'task 5' is damaged")


@pytest.mark.parametrize(
    "statement",
    [
        "UPDATE threadline_chunks SET data = 'text' WHERE rowid % 3 = 0",
        "UPDATE threadline_chunks SET links = 'text'",
        "UPDATE threadline_chunks SET form = 9",
        "UPDATE threadline_chunks SET digest = x'00' WHERE rowid = 3",
        "UPDATE threadline_checkpoints SET document = 7",
        "UPDATE threadline_checkpoints SET links = 'text'",
        "UPDATE threadline_checkpoints SET form = 'text'",
        "UPDATE threadline_writes SET links = 1.5",
        "UPDATE threadline_writes SET data = x''",
        "DELETE FROM threadline_chunks",
    ],
)
def test_whatever_is_in_the_file_fsck_comes_to_its_end(path, saver, call, statement):
    alter(path, statement)
    report = call(saver, "fsck")
    assert not report.ok
    assert "damaged" in str(report)


def test_any_flipped_byte_that_a_read_refuses_is_damage(path, saver):
    """What fsck calls good can be read, and what it calls damaged cannot."""
    dice = random.Random(3)
    chunks = rows(path, "SELECT rowid, data FROM threadline_chunks ORDER BY rowid")
    for rowid, content in dice.sample(chunks, 8):
        changed = flip(content, dice.randrange(len(content)))
        alter(path, "UPDATE threadline_chunks SET data = ? WHERE rowid = ?", (changed, rowid))
        named = {damage.checkpoint_id for damage in saver.fsck().damaged}
        saver.clear_cache()
        refused = set()
        for number in range(1, STEPS + 1):
            try:
                saver.get_tuple(config("t", name(number)))
            except threadline.Corrupt:
                refused.add(name(number))
        assert named == refused
        assert named
        alter(path, "UPDATE threadline_chunks SET data = ? WHERE rowid = ?", (content, rowid))
    assert saver.fsck().ok


def test_a_checkpoint_that_is_its_own_ancestor_is_named(connect, call):
    saver = connect()
    fill(saver, steps=6)
    put(saver, 3, parent=name(5))
    report = call(saver, "fsck")
    assert places(report.damaged) == [(3, None), (4, None), (5, None)]
    assert report.damaged[0].what == f"it is its own ancestor, through {name(5)}"
    put(saver, 3)
    with pytest.raises(threadline.InvalidRequest, match="its own parent"):
        put(saver, 2, "alone", parent=name(2))


def test_a_parent_altered_in_the_file_is_a_moved_row_and_a_circle(path, saver, call):
    alter(path, "UPDATE threadline_checkpoints SET parent = ? WHERE id = ?", (name(4), name(3)))
    said = {
        (int(damage.checkpoint_id), damage.what.split(",")[0].split(" (")[0]) for damage in call(saver, "fsck").damaged
    }
    assert said == {
        (3, "the document is damaged"),
        (3, "the metadata is damaged"),
        (3, "it is its own ancestor"),
        (4, "it is its own ancestor"),
    }


def test_orphaned_chunks_are_counted_and_are_no_error(path, saver, call):
    digest = saver._tools.digesters.of(1).item(b"nobody needs this")
    alter(path, "INSERT INTO threadline_chunks VALUES (1, ?, x'', 0, ?)", (digest, b"nobody needs this"))
    report = call(saver, "fsck")
    assert report.ok
    assert (report.orphaned_chunks, report.orphaned_bytes) == (1, 17)
    assert not report.spoiled_chunks
    assert call(saver, "fsck", ["t"]).orphaned_chunks == 1
    saver.prune(["t"])
    assert clean(call(saver, "fsck"))


def test_a_damaged_orphan_is_an_error_because_a_put_would_rely_on_it(path, saver, call):
    value = "to be put one day " * 20
    digest = chunk_of(saver, value)
    alter(path, "INSERT INTO threadline_chunks VALUES (1, ?, x'', 0, x'00')", (digest,))
    report = call(saver, "fsck")
    assert not report.ok
    assert report.spoiled_chunks == (digest.hex(),)
    assert not report.damaged


def test_an_orphan_that_points_to_no_pack_is_spoiled_unless_it_was_collected_as_well(path, saver):
    digester, digest = saver._tools.digesters.of(1), b"d" * 16
    links, content = pointer_to(digester, digest, b"p" * 16, 3)

    async def look(store):
        return await Walk(store, 1).spoiled([(digest, links, 0, content)])

    assert saver._run(look) == []
    alter(path, "INSERT INTO threadline_chunks VALUES (1, ?, ?, 0, ?)", (digest, links, content))
    assert saver._run(look) == [digest]


def test_a_leaked_pool_is_named(path, saver, call):
    digest = saver._tools.digesters.of(1).item(b"left behind")
    alter(path, "INSERT INTO threadline_chunks VALUES (4711, ?, x'', 0, ?)", (digest, b"left behind"))
    report = call(saver, "fsck")
    assert report.leaked_pools == (4711,)
    assert not report.ok
    assert not report.damaged
    assert not report.orphaned_chunks


def test_names_that_point_nowhere_are_notes(path, saver, call):
    alter(
        path, "UPDATE threadline_threads SET tags = ?", (f'[["good", "", "{name(3)}"], ["stale", "", "{name(33)}"]]',)
    )
    report = call(saver, "fsck")
    assert report.ok
    assert report.notes == (f"thread 't': the name 'stale' points to {name(33)}, which is gone",)


def test_damage_in_one_thread_is_not_seen_in_another(path, saver, call):
    fill(saver, "other")
    flip_chunk(path, chunk_of(saver, message(2)))
    report = call(saver, "fsck")
    assert {damage.thread_id for damage in report.damaged} == {"t"}
    assert call(saver, "fsck", ["other"]).ok


def test_what_fsck_reads_is_the_file_and_not_what_is_remembered(path, saver):
    assert saver.get_tuple(config()).checkpoint["channel_values"] == state(STEPS)
    flip_chunk(path, chunk_of(saver, message(1)))
    assert saver.get_tuple(config()).checkpoint["channel_values"] == state(STEPS)
    assert not saver.fsck().ok


def test_fsck_is_clean_beside_writers_and_prunes(connect):
    saver = connect()
    for thread_id in ("a", "b"):
        fill(saver, thread_id, steps=3)
    stop, failed = threading.Event(), []

    def work(act):
        own = connect()

        def run():
            number = 3
            try:
                while not stop.is_set():
                    number += 1
                    act(own, number)
            except Exception as error:
                failed.append(error)

        return threading.Thread(target=run)

    def write_on(own, number):
        for thread_id in ("a", "b"):
            put(
                own,
                number,
                thread_id,
                values={"messages": state(number % 40, thread_id)["messages"] + [str(number) * 99]},
            )
            write(own, number, thread_id)

    def come_and_go(own, number):
        own.copy_thread("a", "copy")
        put(own, number, "new", parent=None)
        own.delete_thread("copy")
        own.delete_thread("new")

    workers = [work(write_on), work(lambda own, _: own.prune(["a", "b"])), work(come_and_go)]
    for worker in workers:
        worker.start()
    reader = connect()
    try:
        reports = [reader.fsck() for _ in range(25)]
    finally:
        stop.set()
        for worker in workers:
            worker.join()
    assert not failed
    for report in reports:
        assert report.ok, str(report)
    assert sum(report.checkpoints for report in reports)
    assert connect().fsck().ok


@pytest.mark.parametrize("act", ["prune", "delete", "put again"])
def test_what_vanishes_while_it_is_read_is_no_damage(connect, monkeypatch, act):
    """The rows of a page are read, and before their chunks are, another process takes both away."""
    saver, other = connect(), connect()
    fill(saver)
    backend = MemoryBackend if isinstance(saver._engine, MemoryEngine) else SqlBackend
    real, acted = backend.chunks, []

    async def chunks(self, pool, digests):
        if not acted:
            acted.append(True)
            if act == "prune":
                other.prune(["t"])
            else:
                other.delete_thread("t")
                if act == "put again":
                    fill(other)
        return await real(self, pool, digests)

    monkeypatch.setattr(backend, "chunks", chunks)
    report = saver.fsck()
    assert acted
    assert clean(report), str(report)


def test_damage_that_appears_while_fsck_runs_beside_a_writer_is_still_named(path, saver, monkeypatch):
    """A row that is written again and again is judged as it is in the end."""
    flip_chunk(path, chunk_of(saver, message(1)))
    real, count = SqliteBackend.find, []

    async def find(self, *args, **options):
        found = await real(self, *args, **options)
        count.append(found)
        # The head seems to be another row each time until the third.
        return found._replace(row=found.row._replace(created=float(len(count)))) if len(count) < 3 else found

    monkeypatch.setattr(SqliteBackend, "find", find)
    assert {number for number, _ in places(saver.fsck().damaged)} == set(range(1, STEPS + 1))


def test_what_vanishes_while_it_is_read_again_is_no_damage_either(connect, monkeypatch):
    """A first read finds nothing; rows are read again, and only then are they and their chunks taken away."""
    saver, other = connect(), connect()
    fill(saver)
    backend = MemoryBackend if isinstance(saver._engine, MemoryEngine) else SqliteBackend
    real_chunks, real_find, seen = backend.chunks, backend.find, []

    async def find(self, *args, **options):
        seen.append("a row again")
        return await real_find(self, *args, **options)

    async def chunks(self, pool, digests):
        if not seen:
            return []
        if "pruned" not in seen:
            seen.append("pruned")
            other.prune(["t"])
        return await real_chunks(self, pool, digests)

    monkeypatch.setattr(backend, "find", find)
    monkeypatch.setattr(backend, "chunks", chunks)
    report = saver.fsck()
    assert seen.index("pruned") == STEPS
    assert clean(report), str(report)


async def _collect_and_leave_packs(store):
    """As a deletion collects; `collect()` would take the pack apart."""
    [pool] = await store.backend.pools(0, 10)
    await collect_pool(store.backend, pool)


def test_a_pack_that_only_pointers_lead_to_is_judged_as_a_read_judges_it(tmp_path, call):
    path = tmp_path / "agents.db"
    with threadline.connect(path, compression=None, synchronous="OFF") as saver:
        for number in range(1, 31):
            put(saver, number, values={"messages": [message(n) for n in range(1, number + 1)]})
        for number in range(30, 6, -1):
            saver.delete_checkpoint(config("t", name(number)))
        saver.run(_collect_and_leave_packs)
        assert call(saver, "fsck").chunks == saver.stats().chunks
        # The last item of the pack, which the checkpoints that are left do not have.
        [(digest, pack)] = rows(path, "SELECT digest, data FROM threadline_chunks WHERE substr(data, 1, 1) = x'c1'")
        alter(path, "UPDATE threadline_chunks SET data = ? WHERE digest = ?", (flip(pack), digest))
        report = call(saver, "fsck")
        assert sorted(places(report.damaged)) == [(number, "messages") for number in range(1, 7)]
        assert {damage.chunks for damage in report.damaged} == {(digest.hex(),)}
        saver.clear_cache()
        with pytest.raises(threadline.Corrupt):
            saver.get_tuple(config("t", name(6)))


def test_a_fork_has_its_first_parent_in_the_other_thread(connect, call):
    saver = connect()
    thread = saver.thread("a")
    for step in range(4):
        thread.put({"step": step})
    thread.fork(to="b")
    saver.thread("b").put({"step": 9})
    saver.thread("b").fork(to="c")
    assert call(saver, "fsck").notes == ()
    saver.delete_thread("a")
    assert call(saver, "fsck").notes == ()
    for step in range(10, 12):
        saver.thread("c").put({"step": step})
    saver.prune(["c"], strategy="keep_latest")
    [note] = call(saver, "fsck", ["c"]).notes
    assert "1 checkpoint has a parent that is gone" in note


@pytest.mark.parametrize(
    "value",
    [
        ["x" * 20_000] * 60,
        [["x" * 20_000] * 30, ["x" * 20_000] * 31],
        {"a": {"b": [0] * 50_000}, "c": {"b": [0] * 50_000}},
        [bytes(900_000)] * 2,
    ],
    ids=["items", "nested items", "leaves", "pieces"],
)
def test_what_a_read_refuses_for_its_repetition_is_damaged(tmp_path, call, monkeypatch, value):
    path = tmp_path / "agents.db"
    with threadline.connect(path) as saver:
        put(saver, 1, values={"messages": value})
        assert clean(call(saver, "fsck"))
    # The store is as good as one that was forged, for who takes less than it has.
    monkeypatch.setattr("threadline.chunks.cutting._MOST_REPEATED", 50_000)
    monkeypatch.setattr("threadline.chunks.cutting._MOST_TIMES", 8)
    monkeypatch.setattr("threadline.chunks.weigh.FEW_REPEATED", 50_000)
    with threadline.connect(path) as saver:
        with pytest.raises(threadline.Corrupt, match="repeat more than is stored"):
            saver.get_tuple(config("t", name(1)))
        assert places(call(saver, "fsck").damaged) == [(1, "messages")]
