"""Rows under a key that the ring lacks, and keys of what was set aside."""

import logging
import sqlite3

import pytest
from codec_stores import in_thread, put, values_at

import threadline
from tests.stores import savers
from threadline import Corrupt, InvalidRequest, KeyRing, NotFound

OLD, NEW = bytes(range(32)), bytes(range(32, 64))
ITEMS = [f"item {at} " * 30 for at in range(120)]
# The records of quarantine, in SQL.
ASIDE = "space = 0 AND CAST(path AS TEXT) LIKE 'quarantine%'"


@pytest.fixture(params=["memory", "sqlite"])
def url(request, tmp_path):
    return f"memory://{tmp_path.name}-{request.node.name}" if request.param == "memory" else tmp_path / "threads.db"


@pytest.fixture
def sealed(url):
    """Opens savers on one store under a ring of these keys, the first of which seals."""
    with savers(url) as opening:
        yield lambda **keys: opening(**({"encryption": KeyRing(keys)} if keys else {}))


@pytest.fixture
def mixed(sealed):
    """A store under the new key, but for what a process wrote late that still sealed with the old one."""
    first = put(sealed(old=OLD), {"items": ITEMS}, thread="early")
    sealed(new=NEW, old=OLD).rotate_keys()
    late = sealed(old=OLD, new=NEW)
    put(late, {"items": [*ITEMS, "late"]}, after=first)
    written = put(late, {"n": 1}, thread="late")
    late.put_writes(written, [("n", ["w" * 300])], "task")
    late.thread("noted").create(metadata={"by": "late"})
    put(sealed(new=NEW), {"n": 2}, thread="new")
    return first


def test_a_row_under_a_missing_key_is_left_out_of_a_list_and_logged(sealed, mixed, half, caplog):
    alone = sealed(new=NEW)
    caplog.set_level(logging.ERROR, "threadline")
    found = half.listed(alone, None)
    assert sorted(
        (one.config["configurable"]["thread_id"], len(one.checkpoint["channel_values"])) for one in found
    ) == [
        ("early", 1),
        ("new", 1),
    ]
    said = [record.getMessage() for record in caplog.records]
    assert sum("'old' is not in the ring" in line and "left out" in line for line in said) == 2
    assert any("'late'" in line for line in said), "the line names the checkpoint"


def test_a_get_under_a_missing_key_names_the_key_and_the_checkpoint(sealed, mixed, half):
    alone = sealed(new=NEW)
    for thread in ("late", "early"):
        with pytest.raises(NotFound, match=rf"thread '{thread}', checkpoint .*'old' is not in the ring"):
            half.call(alone, "get_tuple", in_thread(thread))
    assert half.call(alone, "get_tuple", in_thread("new")).checkpoint["channel_values"] == {"n": 2}


def test_threads_and_interrupts_are_listed_though_a_key_is_missing(sealed, mixed, half, caplog):
    alone = sealed(new=NEW)
    infos = {info.thread_id: info for info in half.listed(alone, verb="threads")}
    assert sorted(infos) == ["early", "late", "new", "noted"]
    assert infos["noted"].metadata == {}
    assert half.listed(alone, verb="interrupts") == []
    assert "'old' is not in the ring" in caplog.text
    assert [entry.step for entry in alone.thread("early").log()] == [1, 1]


def test_a_sweep_says_which_threads_it_could_not_read(sealed, mixed, half, caplog):
    alone = sealed(new=NEW)
    half.call(alone, "sweep", threadline.Policy(keep_last=1))
    for thread in ("late", "early"):
        assert f"thread '{thread}' was not swept: " in caplog.text
    assert len(half.listed(sealed(new=NEW, old=OLD), None)) == 4


def test_a_value_under_a_missing_key_names_the_key_and_is_not_called_damaged(tmp_path, half):
    path = tmp_path / "threads.db"
    with threadline.connect(path, encryption=KeyRing({"old": OLD})) as saver:
        config = put(saver, {"items": ITEMS, "n": 1})
    with sqlite3.connect(path) as connection:
        chunks = connection.execute("SELECT pool, digest, links, form, data FROM threadline_chunks").fetchall()
    with threadline.connect(path, encryption=KeyRing({"new": NEW, "old": OLD})) as saver:
        saver.rotate_keys()
    with sqlite3.connect(path) as connection:
        connection.executemany("INSERT OR REPLACE INTO threadline_chunks VALUES (?, ?, ?, ?, ?)", chunks)
    with threadline.connect(path, encryption=KeyRing({"new": NEW})) as saver:
        with pytest.raises(NotFound, match=r"channel 'items'.*'old' is not in the ring"):
            half.call(saver, "get_tuple", config)
        [listed] = half.listed(saver, None)
        assert listed.checkpoint["channel_values"]["n"] == 1
        with pytest.raises(NotFound, match="'old' is not in the ring"):
            listed.checkpoint["channel_values"]["items"]


# -- what was set aside


@pytest.fixture
def set_aside(tmp_path):
    """A store from which a checkpoint with a sound write was set aside, under the old key."""
    path = tmp_path / "threads.db"
    with threadline.connect(path, encryption=KeyRing({"old": OLD})) as saver:
        first = put(saver, {"n": 1})
        second = put(saver, {"n": 2}, after=first)
        saver.put_writes(second, [("n", "written")], "task")
        with sqlite3.connect(path) as connection:
            connection.execute(
                "UPDATE threadline_checkpoints SET document = x'00' WHERE id = ?",
                [second["configurable"]["checkpoint_id"]],
            )
        saver.clear_cache()
        assert saver.quarantine(saver.fsck().damaged) == 1
    return path, first


def test_the_key_of_what_was_set_aside_is_in_use(set_aside, half, caplog):
    path, first = set_aside
    with threadline.connect(path, encryption=KeyRing({"new": NEW, "old": OLD})) as saver:
        assert half.call(saver, "keys_in_use") == {"old"}
        half.call(saver, "rotate_keys")
        # The document does not open any more: only the old key ever could, once somebody mends its bytes.
        assert half.call(saver, "keys_in_use") == {"new", "old"}
        assert "records of quarantine that cannot be opened: 1" in caplog.text
        assert "'old'" in caplog.text
        assert half.call(saver, "rotate_keys") == 0
        assert values_at(saver, first) == {"n": 1}


def test_rotating_seals_anew_what_opens_of_what_was_set_aside(set_aside, half):
    path, _ = set_aside
    with threadline.connect(path, encryption=KeyRing({"new": NEW, "old": OLD})) as saver:
        half.call(saver, "rotate_keys")
    from threadline.core.rows import place_of_row, write_place
    from threadline.ports.checkpoints import CheckpointRow, WriteRow

    with sqlite3.connect(path) as connection:
        [(stored,)] = connection.execute(f"SELECT value FROM threadline_records WHERE {ASIDE}")
    import ormsgpack

    [[thread, _, why, row, write]] = ormsgpack.unpackb(stored)
    row, write = CheckpointRow(*row), WriteRow(*write)
    assert (thread, row.document, row.form >> 1) == ("thread", b"\0", 1)
    assert why
    with threadline.connect(path, encryption=KeyRing({"new": NEW})) as saver:
        saver.open()
        envelope = saver._tools.envelope
        assert envelope.unwrap_row(row.metadata_form, row.metadata, place_of_row(thread, row, "metadata"))
        assert envelope.unwrap_row(write.form, write.data, write_place(thread, write))


def test_a_store_whose_quarantine_opens_whole_needs_the_old_key_no_more(tmp_path, half):
    path = tmp_path / "threads.db"
    with threadline.connect(path, encryption=KeyRing({"old": OLD})) as saver:
        config = put(saver, {"items": ITEMS})
        with sqlite3.connect(path) as connection:
            connection.execute("DELETE FROM threadline_chunks")
        saver.clear_cache()
        assert saver.quarantine(saver.fsck().damaged) == 1
    with threadline.connect(path, encryption=KeyRing({"new": NEW, "old": OLD})) as saver:
        assert half.call(saver, "rotate_keys") > 0
        assert half.call(saver, "keys_in_use") == {"new"}
        assert half.call(saver, "get_tuple", config) is None


def test_a_damaged_record_of_quarantine_is_named(set_aside, half):
    path, _ = set_aside
    with sqlite3.connect(path) as connection:
        connection.execute(f"UPDATE threadline_records SET value = x'93c0' WHERE {ASIDE}")
    with threadline.connect(path, encryption=KeyRing({"new": NEW, "old": OLD})) as saver:
        for verb in ("keys_in_use", "rotate_keys"):
            with pytest.raises(threadline.Corrupt, match="quarantine:"):
                half.call(saver, verb)


# -- without any key


def test_whoever_opened_a_store_before_it_was_encrypted_is_told_so(sealed, half):
    early = sealed()
    early.open()
    config = put(sealed(old=OLD), {"items": ITEMS, "n": 1}, thread="t")
    sealed(old=OLD).put_writes(config, [("n", 2)], "task")
    sealed(old=OLD).put_writes(config, [("__interrupt__", ["well?"])], "asks")
    sealed(old=OLD).thread("t").create(metadata={"by": "me"})
    for verb, *arguments in (
        ("get_tuple", config),
        ("fsck",),
        ("copy_thread", "t", "u"),
        ("latest", ["t"]),
        ("sweep", threadline.Policy(keep_last=1)),
    ):
        with pytest.raises(InvalidRequest, match="this store is encrypted: open it with encryption="):
            half.call(early, verb, *arguments)
    for verb, *arguments in (("list", None), ("threads",), ("interrupts",)):
        with pytest.raises(InvalidRequest, match="this store is encrypted: open it with encryption="):
            half.listed(early, *arguments, verb=verb)


def test_no_method_of_a_saver_calls_an_encrypted_store_damaged(sealed, half):
    config = put(sealed(old=OLD), {"n": 1}, thread="t")
    checkpoint = threadline.empty_checkpoint()
    calls = {
        "put": (config, checkpoint, {}, {}),
        "put_writes": (config, [("n", 1)], "task"),
        "put_many": ([(config, checkpoint, {}, {})],),
        "get_tuple": (config,),
        "get": (config,),
        "delete_thread": ("t",),
        "delete_checkpoint": (config,),
        "copy_thread": ("t", "u"),
        "prune": (["t"],),
        "count_threads": (),
        "latest": (["t"],),
        "fsck": (),
        "quarantine": ([],),
        "rotate_keys": (),
        "keys_in_use": (),
        "sweep": (threadline.Policy(keep_last=1),),
        "stats": (),
        "collect": (),
    }
    for verb, arguments in calls.items():
        try:
            half.call(sealed(), verb, *arguments)
        except InvalidRequest as refused:
            assert "this store is encrypted: open it with encryption=KeyRing(…)" in str(refused), verb  # noqa: PT017
        else:
            assert verb in ("count_threads", "delete_thread", "delete_checkpoint", "stats", "collect"), verb
    for verb, *arguments in (("list", None), ("threads",), ("interrupts",)):
        with pytest.raises(InvalidRequest, match="this store is encrypted: open it with encryption="):
            half.listed(sealed(), *arguments, verb=verb)


def test_a_ring_that_does_not_open_a_store_adds_no_key_to_it(sealed, half):
    put(sealed(old=OLD), {"items": ITEMS})
    for call in (lambda saver: put(saver, {"n": 1}, thread="other"), lambda saver: saver.fsck()):
        with pytest.raises(NotFound, match="encrypted under 'old'"):
            call(sealed(new=NEW))
    with pytest.raises(Corrupt, match="sealed under another key"):
        put(sealed(new=NEW, old=NEW), {"n": 1}, thread="other")
    known = sealed(old=OLD).keys()
    assert [one.id for one in known] == ["old"]
    # By a ring that has both, it is added; then a third one not without the one that rows are under.
    put(sealed(new=NEW, old=OLD), {"n": 1}, thread="other")
    with pytest.raises(NotFound, match="encrypted under 'new'"):
        put(sealed(third=b"t" * 32, old=OLD), {"n": 2}, thread="other")
    known = sealed(old=OLD, new=NEW).keys()
    assert [one.id for one in known] == ["old", "new"]
