"""Compacting gathers older items and packs in larger packs: every checkpoint stays what it was."""

import os
import random
import signal
import sqlite3
import threading
import time
from contextlib import closing

import ormsgpack
import pytest

import threadline
from threadline import Corrupt, KeyRing
from threadline.chunks.digest import Digester
from threadline.chunks.pack import PACK, pointer_to
from threadline.core.paging import chunk_weights
from threadline.core.retention import gathering
from threadline.core.retention.prune import in_order

STEPS = 90
KEY = KeyRing.generate()
WORDS = ["".join(random.Random(n).choices("abcdefghij", k=7)) for n in range(2_000)]


def text(dice, length):
    return " ".join(dice.choices(WORDS, k=length // 8))


def config(thread_id="t", checkpoint_id=None):
    configurable = {"thread_id": thread_id, "checkpoint_ns": ""}
    return {"configurable": {**configurable, **({"checkpoint_id": checkpoint_id} if checkpoint_id else {})}}


def put(saver, number, values, thread_id="t"):
    checkpoint = {
        "v": 4,
        "id": f"{number:08d}",
        "ts": "2026-01-01T00:00:00+00:00",
        "channel_values": values,
        "channel_versions": dict.fromkeys(values, number),
        "versions_seen": {},
    }
    saver.put(config(thread_id, f"{number - 1:08d}" if number > 1 else None), checkpoint, {"step": number}, {})


def states(steps=STEPS, seed=1):
    """What a chat with some files holds after each step; every seventh step an earlier message changes."""
    dice, messages, files = random.Random(seed), [], {}
    for number in range(steps):
        messages = [*messages, {"id": number, "text": text(dice, 900)}]
        if number % 7 == 6:
            at = dice.randrange(len(messages))
            messages = [*messages[:at], {"id": at, "text": text(dice, 900)}, *messages[at + 1 :]]
        if number % 3 == 0:
            files = {**files, f"file {dice.randrange(12)}": text(dice, 1_500)}
        yield {"messages": messages, "files": files}


def fill(saver, steps=STEPS, thread_id="t"):
    expected = {}
    for number, values in enumerate(states(steps), 1):
        put(saver, number, values, thread_id)
        expected[f"{number:08d}"] = values
    return expected


def check(saver, expected, thread_id="t"):
    """Every checkpoint, alone and in a list, with nothing remembered."""
    saver.clear_cache()
    listed = {one.checkpoint["id"]: dict(one.checkpoint["channel_values"]) for one in saver.list(config(thread_id))}
    assert listed == expected
    for name in list(expected)[::9]:
        saver.clear_cache()
        assert saver.get_tuple(config(thread_id, name)).checkpoint["channel_values"] == expected[name]
    report = saver.fsck()
    assert report.ok, report


def chunk_bytes(path):
    with sqlite3.connect(path) as database:
        return database.execute("SELECT sum(length(data) + length(links)) FROM threadline_chunks").fetchone()[0]


def outer_packs(path):
    """The digests of the packs that rows of packs point into."""
    packs = "SELECT links FROM threadline_chunks WHERE length(links) = 16 AND length(data) = 9"
    with sqlite3.connect(path) as database:
        return [one for (one,) in database.execute(f"{packs} GROUP BY links ORDER BY count(*) DESC")]


@pytest.fixture(params=["plain", "encrypted"])
def options(request):
    return {"synchronous": "OFF", **({"encryption": KeyRing({"a": KEY})} if request.param == "encrypted" else {})}


@pytest.fixture
def path(tmp_path):
    return tmp_path / "agents.db"


@pytest.fixture
def saver(path, options):
    with threadline.connect(path, **options) as opened:
        yield opened


def test_compacting_leaves_every_checkpoint_what_it_was(saver, path, tmp_path, options):
    expected = fill(saver)
    before = chunk_bytes(path)
    saver.compact()
    assert chunk_bytes(path) < 0.85 * before
    check(saver, expected)
    after = chunk_bytes(path)
    saver.compact()
    assert chunk_bytes(path) <= after
    put(saver, STEPS + 1, {"messages": expected[f"{STEPS:08d}"]["messages"][5:], "files": {}})
    expected[f"{STEPS + 1:08d}"] = saver.get_tuple(config()).checkpoint["channel_values"]
    check(saver, expected)
    with threadline.connect(tmp_path / "copy.db", synchronous="OFF", encryption=KeyRing({"b": KEY})) as copy:
        saver.copy_to(copy)
        check(copy, expected)
    saver.copy_thread("t", "fork")
    check(saver, expected, "fork")


def test_what_was_pruned_leaves_the_larger_packs(saver, path):
    expected = fill(saver)
    saver.compact()
    gathered = chunk_bytes(path)
    saver.thread("t").prune(keep_last=2)
    expected = dict(list(expected.items())[-2:])
    check(saver, expected)
    saver.collect()
    assert saver.collect() == 0
    check(saver, expected)
    assert chunk_bytes(path) < gathered
    saver.compact()
    check(saver, expected)


def test_keys_rotate_through_larger_packs(path):
    with threadline.connect(path, encryption=KeyRing({"a": KEY})) as saver:
        expected = fill(saver, 40)
        saver.compact()
    ring = KeyRing({"a": KEY, "b": KeyRing.generate()}, current="b")
    with threadline.connect(path, encryption=ring) as saver:
        saver.rotate_keys()
        assert saver.keys_in_use() == {"b"}
        check(saver, expected)


def test_damage_of_a_larger_pack_is_found(path):
    with threadline.connect(path, synchronous="OFF") as saver:
        fill(saver)
        saver.compact()
    [outer, *_] = outer_packs(path)
    with sqlite3.connect(path) as database:
        [(data,)] = database.execute("SELECT data FROM threadline_chunks WHERE digest = ?", (outer,))
        database.execute(
            "UPDATE threadline_chunks SET data = ? WHERE digest = ?", (data[:-40] + bytes(8) + data[-32:], outer)
        )
    with threadline.connect(path, synchronous="OFF") as saver:
        with pytest.raises(Corrupt, match=outer.hex()):
            saver.get_tuple(config())
        assert not saver.fsck().ok
    with sqlite3.connect(path) as database:
        database.execute("DELETE FROM threadline_chunks WHERE digest = ?", (outer,))
    with threadline.connect(path, synchronous="OFF") as saver:
        with pytest.raises(Corrupt, match="is missing"):
            saver.get_tuple(config())
        assert not saver.fsck().ok


def forged_packs(count):
    """Packs whose rows point into one another in a circle, and the name of the first."""
    digester = Digester()
    header = ormsgpack.packb([[b""], b"", [200], None])
    packs = [PACK + len(header).to_bytes(4, "big") + header + b"\xc4\xc6" + bytes([n]) * 198 for n in range(count)]
    names = [digester.node(b"", pack) for pack in packs]
    rows = []
    for at, name in enumerate(names):
        links, content = pointer_to(digester, name, names[(at + 1) % count], 0)
        rows.append((name, links, 0, content))
    return names, rows


@pytest.mark.parametrize("count", [1, 2, 3])
def test_pointers_of_packs_that_lead_in_circles_are_corrupt(path, count):
    """Whatever a leaf of the tree is replaced by: reading ends."""
    with threadline.connect(path, synchronous="OFF") as saver:
        dice, messages = random.Random(3), []
        for number in range(1, 60):
            messages = [*messages, text(dice, 900)]
            put(saver, number, {"messages": messages})
    names, rows = forged_packs(count)
    digester = Digester()
    with sqlite3.connect(path) as database:
        assert database.execute("SELECT DISTINCT pool FROM threadline_chunks").fetchall() == [(1,)]
        leaves = [
            row for (row,) in database.execute("SELECT digest FROM threadline_chunks WHERE links = x'' AND form = 1")
        ]
        for row in rows:
            database.execute(
                "INSERT INTO threadline_chunks (pool, digest, links, form, data) VALUES (1, ?, ?, ?, ?)", row
            )
        for leaf in leaves:
            links, content = pointer_to(digester, leaf, names[0], 0)
            database.execute(
                "UPDATE threadline_chunks SET links = ?, form = 0, data = ? WHERE digest = ?", (links, content, leaf)
            )
    with threadline.connect(path, synchronous="OFF") as saver:
        with pytest.raises(Corrupt):
            saver.get_tuple(config())
        assert not saver.fsck().ok
        saver.collect()
        saver.compact()


def test_puts_beside_compacting_lose_nothing(path, monkeypatch):
    monkeypatch.setattr(gathering, "_LEAST_BYTES", 1)
    monkeypatch.setattr(gathering, "_MOST_SHARE", 1_000)
    monkeypatch.setattr(gathering, "_LEVEL", 1)
    monkeypatch.setattr(gathering, "MOST_ITEMS", 9)
    expected, failures, done = {}, [], threading.Event()

    def write(thread_id):
        with threadline.connect(path, synchronous="OFF") as saver:
            try:
                expected[thread_id] = fill(saver, 60, thread_id)
            except Exception as error:
                failures.append(error)

    def tidy():
        with threadline.connect(path, synchronous="OFF") as saver:
            while not done.is_set():
                saver.compact()
                saver.collect()

    threads = [threading.Thread(target=write, args=(f"t{n}",)) for n in range(3)]
    beside = threading.Thread(target=tidy)
    for one in (*threads, beside):
        one.start()
    for one in threads:
        one.join()
    done.set()
    beside.join()
    assert not failures
    with threadline.connect(path, synchronous="OFF") as saver:
        saver.compact()
        for thread_id, states_put in expected.items():
            check(saver, states_put, thread_id)


def kill_packers(path, monkeypatch, kills):
    """Processes that compact, and put what closes runs, are killed at random moments; all is read after each."""
    monkeypatch.setattr(gathering, "_LEAST_BYTES", 1)
    monkeypatch.setattr(gathering, "_MOST_SHARE", 1_000)
    monkeypatch.setattr(gathering, "_LEVEL", 1)
    monkeypatch.setattr(gathering, "MOST_ITEMS", 4)
    dice, whole = random.Random(5), {f"{number:08d}": values for number, values in enumerate(states(200), 1)}
    with threadline.connect(path) as saver:
        expected = fill(saver, 60)
    gathered = begun = 0
    for kill in range(kills):
        child = os.fork()
        if child == 0:
            try:
                with threadline.connect(path) as saver:
                    if kill % 2:
                        fill(saver, 200, f"child-{kill}")
                    saver.compact()
                    time.sleep(30)
            finally:
                os._exit(3)
        time.sleep(dice.uniform(0.005, 0.12))
        os.kill(child, signal.SIGKILL)
        assert os.WIFSIGNALED(os.waitpid(child, 0)[1])
        gathered += bool(outer_packs(path))
        with threadline.connect(path) as saver:
            check(saver, expected)
            left = list(saver.list(config(f"child-{kill}")))
            begun += bool(left)
            assert all(dict(one.checkpoint["channel_values"]) == whole[one.checkpoint["id"]] for one in left)
            if kill % 5 == 4:  # begin anew: what was gathered is taken apart
                assert saver.fsck().ok
                saver.thread("t").prune(keep_last=1)
                saver.collect()
                for info in list(saver.threads()):
                    saver.delete_thread(info.thread_id)
                expected = fill(saver, 60)
    assert gathered
    assert begun


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
def test_a_kill_while_compacting_leaves_everything_readable(path, monkeypatch):
    kill_packers(path, monkeypatch, 25)


@pytest.mark.soak
@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
def test_three_hundred_kills_while_packing_leave_everything_readable(path, monkeypatch):
    kill_packers(path, monkeypatch, 300)


def rows_of(path):
    with closing(sqlite3.connect(path)) as database:
        found = database.execute("SELECT digest, links, form, data FROM threadline_chunks").fetchall()
    return {digest: rest for digest, *rest in found}


def test_a_damaged_pack_of_the_same_name_is_replaced_before_anything_points_to_it(saver, path):
    expected = fill(saver)
    before = rows_of(path)
    saver.compact()
    after = rows_of(path)
    with closing(sqlite3.connect(path)) as database, database:
        for digest, (_, _, data) in after.items():
            if digest not in before:
                damaged = data[:-9] + bytes(9)
                database.execute("UPDATE threadline_chunks SET data = ? WHERE digest = ?", (damaged, digest))
        for digest, row in before.items():
            values = (*row, digest)
            database.execute("UPDATE threadline_chunks SET links = ?, form = ?, data = ? WHERE digest = ?", values)
    saver.compact()
    check(saver, expected)


def test_what_is_deleted_after_compacting_is_erased_by_the_next(saver, path):
    fill(saver)
    put(saver, STEPS + 1, {"secret": "the password is swordfish " * 40, "messages": []})
    put(saver, STEPS + 2, {"secret": "", "messages": []})
    saver.compact()
    saver.delete_checkpoint(config(checkpoint_id=f"{STEPS + 1:08d}"))
    saver.compact()
    text = saver._tools.codec.encode("the password is swordfish " * 40)

    async def weights(backend):
        return await chunk_weights(backend, 1)

    assert saver._tools.digesters.of(1).item(text) not in saver._engine.run(weights)


def test_pointers_are_deleted_before_what_they_point_to(saver, path):
    fill(saver)
    saver.compact()

    async def weights(backend):
        return await chunk_weights(backend, 1)

    chunks = saver._engine.run(weights)
    order = in_order(chunks, sorted(chunks))
    assert sorted(order) == sorted(chunks)
    place = {digest: at for at, digest in enumerate(order)}
    pointing = [one for one, (links, _) in chunks.items() if len(links) == 16 and not chunks[links][0]]
    inner = [one for one, (links, _) in chunks.items() if len(links) == 16 and links in pointing]
    assert pointing
    assert inner
    assert all(place[one] < place[chunks[one][0]] for one in (*pointing, *inner))


def test_a_full_disk_keeps_compacting_from_nothing_but_gathering(saver, path, monkeypatch):
    expected = fill(saver)
    fill(saver, thread_id="u")
    saver.compact()
    size = os.path.getsize(path)
    saver.delete_thread("u")
    put(saver, STEPS + 1, {"messages": [], "files": {}})
    expected[f"{STEPS + 1:08d}"] = {"messages": [], "files": {}}

    async def full(*_):
        raise threadline.StorageFull("the disk is full")

    monkeypatch.setattr(gathering, "_move", full)
    saver.compact()
    assert os.path.getsize(path) < size
    check(saver, expected)


@pytest.mark.parametrize("options", [{}], ids=["plain"])
def test_a_pointer_to_a_root_is_corrupt_and_ends(saver, path):
    """Forged: reading went on for ever."""
    fill(saver)
    digester, rows = Digester(), rows_of(path)
    root = next(one for one, (links, form, data) in rows.items() if links and digester.node(links, data) == one)
    items = {one for one, (links, form, data) in rows.items() if not links and digester.item(data) == one}
    with closing(sqlite3.connect(path)) as database, database:
        for item in items:
            links, content = pointer_to(digester, item, root, 0)
            values = links, content, item
            database.execute("UPDATE threadline_chunks SET links = ?, form = 0, data = ? WHERE digest = ?", values)
    saver.clear_cache()
    for number in (1, 20, STEPS):
        with pytest.raises(Corrupt):
            saver.get_tuple(config(checkpoint_id=f"{number:08d}"))
