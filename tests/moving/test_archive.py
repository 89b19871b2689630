"""Files of threads: what is exported or backed up is in the file, and in the store that it is brought to."""

import os
import stat

import pytest
from house import ROOT, config, grow, is_sound, picture, put

import threadline
from threadline import Conflict, Corrupt, InvalidRequest, KeyRing, NewerFormat, NotFound, ReadOnly


@pytest.fixture
def opened(connect):
    """Opens an archive as a store."""
    return lambda path, **options: connect(f"archive:///{path}", **options)


@pytest.mark.parametrize("source", ["sqlite", "memory", "sealed sqlite", "redis"])
def test_an_opened_archive_shows_what_the_store_shows(furnished, opened, half, tmp_path, source):
    old, path = furnished(source, steps=50), tmp_path / "all.tla"
    done = half.call(old, "backup", path)
    assert done.is_complete, done.report.problems
    assert done.size_bytes == path.stat().st_size
    ring = old._tools.envelope.ring
    file = opened(path, **({"encryption": ring} if ring else {}))
    assert picture(file) == picture(old)
    assert is_sound(file)
    with pytest.raises(ReadOnly):
        put(file, ROOT, {"x": 1}, 0)


@pytest.mark.parametrize("target", ["sqlite", "postgres", "sealed sqlite"])
def test_a_backup_is_restored_to_any_store(furnished, opened, house, half, tmp_path, target):
    old, new = furnished("sealed sqlite", steps=40), house(target)
    old.backup(tmp_path / "b.tla")
    file = opened(tmp_path / "b.tla", encryption=old._tools.envelope.ring)
    assert half.call(file, "copy_to", new).is_complete
    assert picture(new) == picture(old)
    assert is_sound(new)


def test_an_export_has_the_threads_that_were_named(furnished, opened, half, tmp_path):
    old = furnished("sqlite", steps=20)
    half.call(old, "export", tmp_path / "two.tla", threads=["a-fork", "b"])
    file = opened(tmp_path / "two.tla")
    assert [info.thread_id for info in file.threads()] == ["a-fork", "b"]
    whole, part = picture(old)[0], picture(file)[0]
    assert part == {name: whole[name] for name in ("a-fork", "b")}
    assert is_sound(file)


def test_what_was_sealed_stays_sealed_unless_plain_is_asked_for(furnished, opened, tmp_path):
    old = furnished("sealed sqlite", steps=20)
    put(old, config("secret"), {"word": "a very secret word " * 40}, 0)
    old.export(tmp_path / "sealed.tla")
    old.export(tmp_path / "plain.tla", plain=True)
    with pytest.raises(InvalidRequest, match="encrypted"):
        opened(tmp_path / "sealed.tla").get_tuple(ROOT)
    with pytest.raises(threadline.ThreadlineError):
        opened(tmp_path / "sealed.tla", encryption=KeyRing({"other": bytes(32)})).get_tuple(ROOT)
    sealed = opened(tmp_path / "sealed.tla", encryption=old._tools.envelope.ring)
    plain = opened(tmp_path / "plain.tla")
    assert picture(sealed) == picture(plain) == picture(old)
    assert is_sound(plain)


def test_an_increment_has_only_what_is_new_and_shows_all(furnished, opened, half, tmp_path):
    old = furnished("sqlite", steps=90)
    with threadline.Store(old.url) as items:
        items.put(("users",), "tea", {"cups": 3})
        items.put(("users",), "gone", {"cups": 0})
    first = half.call(old, "backup", tmp_path / "1.tla")
    before = picture(old)
    grow(old, config("b"), 3, 4)
    old.put_writes(config("b", "", old.get_tuple(config("b")).checkpoint["id"]), [("count", 1)], "later")
    old.delete_thread("org-1/c")
    old.thread("a").prune(threadline.Policy(keep_last=3))
    put(old, config("new"), {"x": "y" * 4000}, 0)
    with threadline.Store(old.url) as items:
        items.put(("users",), "tea", {"cups": 4})
        items.delete(("users",), "gone")
    second = half.call(old, "backup", tmp_path / "2.tla", base=tmp_path / "1.tla")
    assert second.size_bytes < first.size_bytes / 4
    assert picture(opened(tmp_path / "2.tla")) == picture(old)
    assert picture(opened(tmp_path / "1.tla")) == before
    assert is_sound(opened(tmp_path / "2.tla"))
    third = old.backup(tmp_path / "3.tla", base=tmp_path / "2.tla")
    assert third.report.checkpoints.copied == third.report.chunks == 0
    assert picture(opened(tmp_path / "3.tla")) == picture(old)
    with threadline.Store(f"archive:///{tmp_path / '3.tla'}") as items:
        assert items.get(("users",), "tea").value == {"cups": 4}
        assert items.get(("users",), "tea").version == 2
        assert items.get(("users",), "gone") is None
    (tmp_path / "1.tla").unlink()
    with pytest.raises(NotFound, match=r"1\.tla"):
        opened(tmp_path / "3.tla")


def test_a_thread_that_was_deleted_and_begun_anew_is_the_new_one(furnished, opened, tmp_path):
    old = furnished("sqlite", steps=5)
    old.backup(tmp_path / "1.tla")
    old.delete_thread("b")
    put(old, config("b"), {"anew": 1}, 0)
    old.backup(tmp_path / "2.tla", base=tmp_path / "1.tla")
    assert picture(opened(tmp_path / "2.tla")) == picture(old)
    assert is_sound(opened(tmp_path / "2.tla"))


def test_an_archive_is_its_owners_and_never_written_over(furnished, tmp_path):
    old, path = furnished("memory", steps=4), tmp_path / "x.tla"
    old.export(path)
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    content = path.read_bytes()
    with pytest.raises(Conflict, match="exists already"):
        old.export(path)
    assert path.read_bytes() == content
    assert os.listdir(tmp_path) == ["x.tla"]
    with pytest.raises(NotFound, match="no such file or folder"):
        old.export(tmp_path / "nowhere" / "x.tla")


def test_what_is_no_archive_or_a_newer_one_is_told(opened, tmp_path):
    for content, error, words in (
        (b"", InvalidRequest, "no archive"),
        (b"SQLite format 3\0" * 99, InvalidRequest, "no archive"),
        (b"TLARCH2\n" + b"?" * 999, NewerFormat, "later Threadline"),
        (b"TLARCH1\n", Corrupt, "cut short"),
        (b"TLARCH1\n" + b"?" * 999, Corrupt, "cut short"),
    ):
        (tmp_path / "x.tla").write_bytes(content)
        with pytest.raises(error, match=words):
            opened(tmp_path / "x.tla")
    with pytest.raises(NotFound, match="there is no file"):
        opened(tmp_path / "none.tla")


def test_a_file_that_was_cut_or_altered_anywhere_is_never_silently_wrong(furnished, connect, house, tmp_path):
    old, path = furnished("sqlite", steps=12), tmp_path / "x.tla"
    old.backup(path)
    content, expected = path.read_bytes(), picture(old)
    places = [*range(8, len(content), len(content) // 60), len(content) - 1, len(content) - 50, len(content) - 90]
    told = 0
    for number, place in enumerate(places):
        damaged = tmp_path / f"{number}.tla"
        cut = number % 3 == 0
        damaged.write_bytes(
            content[:place] if cut else content[:place] + bytes([content[place] ^ 16]) + content[place + 1 :]
        )
        try:
            file, new = connect(f"archive:///{damaged}"), house("memory")
            report = file.copy_to(new)
        except (Corrupt, InvalidRequest):
            told += 1
            continue
        assert not cut
        if report.is_complete:
            # What was altered is of no use to a reader: an index inside a pack, or the checksum of the whole.
            assert picture(new) == expected
            told += 1
        else:
            assert "damaged" in str(report.problems) or "altered" in str(report.problems)
            assert is_sound(new)
            told += 1
    assert told == len(places)


def test_a_backup_in_an_object_store_is_restored_with_its_base(furnished, half, run, connect, tmp_path):
    """A folder stands for the bucket: both are reached by the same port."""
    old, place = furnished("sqlite", steps=20), f"file://{tmp_path}/bucket"
    (tmp_path / "bucket").mkdir()
    half.call(old, "backup", f"{place}/1.tla")
    grow(old, config("b"), 3, 2)
    done = half.call(old, "backup", f"{place}/2.tla", base=f"{place}/1.tla")
    assert done.path == f"{place}/2.tla"
    with pytest.raises(Conflict, match="exists already"):
        half.call(old, "backup", f"{place}/1.tla")
    run("restore", f"{place}/2.tla", "--to", tmp_path / "new.db")
    assert picture(connect(tmp_path / "new.db")) == picture(old)
    (tmp_path / "bucket" / "1.tla.00000").write_bytes(b"TLARCH1\n" + b"x" * 200)
    _, said = run("restore", f"{place}/2.tla", "--to", tmp_path / "other.db", status=1)
    assert "altered" in said
    assert not (tmp_path / "other.db").exists()
    assert "no backup" in run("restore", f"{place}/3.tla", "--to", tmp_path / "other.db", status=1)[1]
