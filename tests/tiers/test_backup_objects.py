"""Backups in an object store: stored in parts, added to, restored, looked at; what stops one leaves no half of it."""

import logging
import tempfile
import traceback

import ormsgpack
import pytest
from tier_stores import converse, read

import threadline
from tests.servers.s3 import BUCKET, KEY, SECRET
from threadline import Conflict, Corrupt, InvalidRequest, NewerFormat, NotFound, Unavailable
from threadline.backends.objects import parts
from threadline.backends.objects.remote import RemoteObjects


@pytest.fixture
def old(connect, tmp_path, monkeypatch):
    monkeypatch.setattr(parts, "_PART_BYTES", 2000)  # so that there are several
    saver = connect(tmp_path / "old.db", synchronous="OFF")
    converse(saver, turns=5)
    return saver


def test_a_backup_in_s3_is_added_to_restored_and_looked_at(s3, old, connect, half, run, tmp_path):
    half.call(old, "backup", f"{s3.url}/1.tla")
    converse(old, "u", turns=3, seed=1)
    done = half.call(old, "backup", f"{s3.url}/2.tla", base=f"{s3.url}/1.tla")
    assert (done.path, done.base) == (f"{s3.url}/2.tla", f"{s3.url}/1.tla")
    run("restore", f"{s3.url}/2.tla", "--to", tmp_path / "new.db")
    run("import", f"{s3.url}/2.tla", "--to", tmp_path / "again.db")
    for name in ("new.db", "again.db"):
        new = connect(tmp_path / name)
        assert [read(new, thread) for thread in "tu"] == [read(old, thread) for thread in "tu"]
        assert new.fsck().ok
    assert "u  " in run("open", f"{s3.url}/2.tla")[0]
    assert "no backup 3.tla" in run("restore", f"{s3.url}/3.tla", "--to", tmp_path / "none.db", status=1)[1]
    assert not (tmp_path / "none.db").exists()


def test_an_upload_that_was_stopped_is_no_backup_and_its_name_can_be_used(s3, old, connect, half, run, tmp_path):
    stored, puts = RemoteObjects.put, []

    async def failing(self, name, content):
        puts.append(name)
        if len(puts) == 3:
            raise Unavailable("the server is gone")
        await stored(self, name, content)

    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(RemoteObjects, "put", failing)
        with pytest.raises(Unavailable):
            half.call(old, "backup", f"{s3.url}/1.tla")
    assert "no backup 1.tla" in run("restore", f"{s3.url}/1.tla", "--to", tmp_path / "none.db", status=1)[1]
    converse(old, "u", turns=2, seed=1)
    half.call(old, "backup", f"{s3.url}/1.tla")
    run("restore", f"{s3.url}/1.tla", "--to", tmp_path / "new.db")
    assert read(connect(tmp_path / "new.db"), "u") == read(old, "u")


def test_no_such_bucket_and_wrong_keys_are_told_without_the_keys(s3, old, half, monkeypatch, caplog):
    caplog.set_level(logging.DEBUG)
    places = []
    if s3.server.kind != "seaweedfs":  # which makes the buckets that it lacks
        places.append((s3.url.replace(BUCKET, "no-such-bucket"), KEY, SECRET, "no bucket"))
    if s3.server.kind != "moto":  # which lets everybody in
        places.append((s3.url, KEY, "no-such-secret", "keys were refused"))
        places.append((s3.url, "no-such-key", SECRET, "keys were refused"))
    for url, key, secret, words in places:
        monkeypatch.setenv("AWS_ACCESS_KEY_ID", key)
        monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", secret)
        with pytest.raises(Unavailable, match=words) as caught:
            half.call(old, "backup", f"{url}/1.tla")
        told = "".join(traceback.format_exception(caught.value)) + caplog.text
        assert not any(one in told for one in (KEY, SECRET, "no-such-key", "no-such-secret"))


def test_what_is_no_backup_or_was_altered_is_told_by_its_own_name(old, half, run, connect, tmp_path):
    folder = tmp_path / "bucket"
    folder.mkdir()
    place = f"file://{folder}"
    old.backup(f"{place}/1.tla")
    old.thread("more").put({"n": 1})
    old.backup(f"{place}/2.tla", base=f"{place}/1.tla")
    [*numbers] = ormsgpack.unpackb((folder / "1.tla").read_bytes())
    _, count, size = numbers
    first = (folder / "1.tla.00000").read_bytes()

    def told(wrong, header=None, part=None, status=1):
        """What is said of a header and a first part; nothing is made of them."""
        (folder / "1.tla").write_bytes(header if header is not None else ormsgpack.packb(numbers))
        (folder / "1.tla.00000").write_bytes(part if part is not None else first)
        for name in ("1.tla", "2.tla"):
            with pytest.raises(wrong) as caught:
                half.call(old, "backup", f"{place}/3.tla", base=f"{place}/{name}")
            said = str(caught.value)
            assert "1.tla" in said
            assert place in said
            assert tempfile.gettempdir() not in said.replace(str(folder), "")
        _, complaints = run("restore", f"{place}/1.tla", "--to", tmp_path / "none.db", status=status)
        assert place in complaints
        assert not (tmp_path / "none.db").exists()
        return said

    for header in ([2, 1, size], [3]):
        assert "later Threadline" in told(NewerFormat, ormsgpack.packb(header), status=2)
    wrong: list[object] = [
        [1, "x", 5],
        [1, 10**9, 10**15],
        [1, count, size - 3000],
        [1, -1, size],
        [1, count],
        {},
        None,
    ]
    for header in [*map(ormsgpack.packb, wrong), b"hello", b""]:
        assert "is no backup, or was altered" in told(Corrupt, header)
    assert "its part 0 was altered or cut short" in told(Corrupt, part=first[:100])
    altered = bytes([first[20] ^ 1])
    assert "its checksum differs" in told(Corrupt, part=first[:20] + altered + first[21:])
    assert "is no archive" in told(InvalidRequest, part=b"x" * len(first), status=2)


def test_a_base_that_is_another_file_of_its_name_is_told(old, half, tmp_path):
    folder = tmp_path / "bucket"
    folder.mkdir()
    place = f"file://{folder}"
    old.backup(f"{place}/1.tla")
    old.backup(f"{place}/2.tla", base=f"{place}/1.tla")
    for path in folder.glob("1.tla*"):
        path.unlink()
    old.backup(f"{place}/1.tla")
    with pytest.raises(NotFound, match=f"{place}/2.tla adds to another 1.tla"):
        half.call(old, "backup", f"{place}/3.tla", base=f"{place}/2.tla")


def test_what_cannot_be_is_told_by_its_name(old, half, run, tmp_path):
    (tmp_path / "bucket").mkdir()
    place = f"file://{tmp_path}/bucket"
    half.call(old, "backup", f"{place}/1.tla")
    for verb, path, options, error, words in (
        ("backup", f"{place}/1.tla", {}, Conflict, "exists already"),
        ("backup", f"{place}/2.tla", {"base": "1.tla"}, InvalidRequest, "lies beside its base"),
        ("backup", f"{place}/2.tla", {"base": "file:///elsewhere/1.tla"}, InvalidRequest, "lies beside its base"),
        ("backup", "s3://user:secret@bucket/b/1.tla", {}, InvalidRequest, "keys come from the environment"),
        ("backup", "ftp://user:secret@bucket/b/1.tla", {}, InvalidRequest, "no object store is at ftp://"),
        ("export", "s3://bucket/b/1.tla", {}, InvalidRequest, "`backup` goes to an object store"),
    ):
        with pytest.raises(error, match=words) as caught:
            half.call(old, verb, path, **options)
        assert "secret" not in str(caught.value)
    _, said = run("open", "s3://user:secret@bucket/b/1.tla", status=2)
    assert "keys come from the environment" in said
    assert "secret" not in said
    assert threadline.connect(old.url).get_tuple({"configurable": {"thread_id": "t"}}) is not None
