"""A backup that adds to another one shows what its store shows, whatever became of the store since."""

import shutil

import pytest
from house import config, furnish, grow, is_sound, picture, put

import threadline
from threadline import Conflict, KeyRing

RING = {"encryption": KeyRing({"k": bytes(range(32))})}


@pytest.fixture(params=[{}, RING], ids=["plain", "sealed"])
def options(request):
    return {**request.param, "synchronous": "OFF"}


@pytest.fixture
def check(connect, options, tmp_path):
    """Checks that a file shows what a store shows, also after it was restored."""

    def check_file(path, saver):
        ring = {name: value for name, value in options.items() if name == "encryption"}
        file = connect(f"archive:///{path}", **ring)
        assert picture(file) == picture(saver)
        assert is_sound(file)
        restored = connect(tmp_path / f"{path.name}.db", **options)
        assert file.copy_to(restored).is_complete
        assert picture(restored) == picture(saver)
        assert is_sound(restored)

    return check_file


def test_a_backup_of_another_store_is_not_added_to(connect, options, check, half, tmp_path):
    one, other = connect(tmp_path / "one.db", **options), connect(tmp_path / "other.db", **options)
    for number in range(4):
        grow(one, config(f"t{number}"), 0, 3 + 20 * number)
    for number in (2, 5, 0, 9):
        grow(other, config(f"t{number}"), 0, 5 + 10 * number)
    one.backup(tmp_path / "1.tla")
    done = half.call(other, "backup", tmp_path / "2.tla", base=tmp_path / "1.tla")
    assert done.is_complete
    assert done.base is None
    (tmp_path / "1.tla").unlink()
    check(tmp_path / "2.tla", other)


def test_a_restored_store_goes_on_with_its_backups(connect, options, check, tmp_path):
    old, new = connect(tmp_path / "old.db", **options), connect(tmp_path / "new.db", **options)
    for number in range(3):
        grow(old, config(f"t{number}"), 0, 3 + 20 * number)
    old.delete_thread("t0")
    grow(old, config("t3"), 0, 30)
    old.backup(tmp_path / "1.tla")
    old.copy_to(new)
    grow(new, config("t2"), 43, 5)
    grow(new, config("t4"), 0, 30)
    new.backup(tmp_path / "2.tla", base=tmp_path / "1.tla")
    check(tmp_path / "2.tla", new)


def test_a_store_that_was_set_back_goes_on_with_its_backups(connect, options, check, tmp_path):
    """The numbers of threads and pools that came after the state it was set back to are given anew."""
    with threadline.connect(tmp_path / "a.db", **options) as saver:
        furnish(saver, steps=20)
        before = saver.get_tuple(config("b")).config
    shutil.copy(tmp_path / "a.db", tmp_path / "early.db")
    with threadline.connect(tmp_path / "a.db", **options) as saver:
        grow(saver, config("late"), 0, 40)
        saver.put_writes(before, [("count", "as it was"), ("messages", ["x" * 4000])], "task")
        with threadline.Store(tmp_path / "a.db", **options) as items:
            items.put(("users",), "tea", {"cups": 3})
        saver.backup(tmp_path / "1.tla")
    with threadline.Store(tmp_path / "early.db", **options) as items:
        items.put(("users",), "tea", {"cups": 4})
    for name in ("a.db", "a.db-wal", "a.db-shm"):
        (tmp_path / name).unlink(missing_ok=True)
    shutil.copy(tmp_path / "early.db", tmp_path / "a.db")
    saver = connect(tmp_path / "a.db", **options)
    grow(saver, config("other"), 0, 50)
    saver.put_writes(before, [("count", "another"), ("messages", ["y" * 4000])], "task")
    done = saver.backup(tmp_path / "2.tla", base=tmp_path / "1.tla")
    assert done.base is not None
    check(tmp_path / "2.tla", saver)
    ring = {name: value for name, value in options.items() if name == "encryption"}
    with threadline.Store(f"archive:///{tmp_path / '2.tla'}", **ring) as items:
        assert items.get(("users",), "tea").value == {"cups": 4}


def test_a_thread_that_came_back_from_the_trash_is_in_the_next_backup(connect, options, check, tmp_path):
    saver = connect(tmp_path / "a.db", **options)
    grow(saver, config("t"), 0, 50)
    grow(saver, config("u"), 0, 5)
    saver.backup(tmp_path / "1.tla")
    saver.thread("t").delete(trash="7d")
    [entry] = saver.trash()
    saver.restore_trash(entry.id)
    put(saver, saver.get_tuple(config("t")).config, {"messages": ["anew"], "count": 50}, 50)
    saver.backup(tmp_path / "2.tla", base=tmp_path / "1.tla")
    check(tmp_path / "2.tla", saver)


def test_a_plain_backup_does_not_add_to_a_sealed_one(connect, half, tmp_path):
    saver = connect(tmp_path / "a.db", **RING)
    grow(saver, config("t"), 0, 30)
    half.call(saver, "backup", tmp_path / "sealed.tla")
    plain = half.call(saver, "backup", tmp_path / "plain.tla", base=tmp_path / "sealed.tla", plain=True)
    assert plain.base is None
    grow(saver, config("u"), 0, 30)
    more = half.call(saver, "backup", tmp_path / "more.tla", base=tmp_path / "plain.tla", plain=True)
    assert more.base is not None
    assert picture(connect(f"archive:///{tmp_path / 'more.tla'}")) == picture(saver)


def test_keys_that_were_rotated_do_not_spoil_the_next_backup(connect, tmp_path):
    with threadline.connect(tmp_path / "a.db", **RING) as saver:
        furnish(saver, steps=30)
        saver.backup(tmp_path / "1.tla")
    both = KeyRing({"new": bytes(32), "k": bytes(range(32))}, current="new")
    saver = connect(tmp_path / "a.db", encryption=both)
    saver.rotate_keys()
    grow(saver, config("b"), 3, 2)
    saver.backup(tmp_path / "2.tla", base=tmp_path / "1.tla")
    file = connect(f"archive:///{tmp_path / '2.tla'}", encryption=both)
    assert picture(file) == picture(saver)
    assert is_sound(file)


def test_a_backup_with_the_new_key_alone_does_not_add_to_what_needs_the_old_one(connect, half, tmp_path, caplog):
    with threadline.connect(tmp_path / "a.db", **RING) as saver:
        furnish(saver, steps=30)
        saver.backup(tmp_path / "1.tla")
    both = KeyRing({"new": bytes(32), "k": bytes(range(32))}, current="new")
    with threadline.connect(tmp_path / "a.db", encryption=both) as saver:
        saver.rotate_keys()
        assert saver.backup(tmp_path / "2.tla", base=tmp_path / "1.tla").base is not None
    alone = KeyRing({"new": bytes(32)})
    saver = connect(tmp_path / "a.db", encryption=alone)
    grow(saver, config("b"), 3, 2)
    assert half.call(saver, "backup", tmp_path / "3.tla", base=tmp_path / "2.tla").base is None
    assert "'2.tla' holds what is sealed under ['k'], which was not given: '3.tla' is a whole backup" in caplog.text
    grow(saver, config("b"), 5, 2)
    assert half.call(saver, "backup", tmp_path / "4.tla", base=tmp_path / "3.tla").base is not None
    for name in ("1.tla", "2.tla"):
        (tmp_path / name).unlink()
    file = connect(f"archive:///{tmp_path / '4.tla'}", encryption=alone)
    assert picture(file) == picture(saver)
    assert is_sound(file)


def test_a_name_that_is_taken_in_an_object_store_is_told_before_anything_is_read(connect, half, tmp_path):
    saver, place = connect(tmp_path / "a.db"), f"file://{tmp_path}/bucket"
    (tmp_path / "bucket").mkdir()
    grow(saver, config("t"), 0, 3)
    half.call(saver, "backup", f"{place}/1.tla")
    seen = []
    with pytest.raises(Conflict, match="exists already"):
        half.call(saver, "backup", f"{place}/1.tla", progress=lambda done, total: seen.append(done))
    assert seen == []
