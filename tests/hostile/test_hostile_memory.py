"""Forged rows, and honest ones, that take more memory than a process can have: an error of ours, and no end of it."""

import os
import sqlite3
import subprocess
import sys
import textwrap
from pathlib import Path

import forging
import ormsgpack
import pytest
import zstandard
from forging import OBJECT, add_chunks, forge_channel, write_store

import threadline
from threadline import Corrupt, TooLarge
from threadline.chunks.digest import Digester
from threadline.codec import Codec, Envelope

HERE = Path(__file__).parent
SOURCE = Path(threadline.__file__).resolve().parents[1]
COUNT = 2_500
SIZE = COUNT * 65_536
HEADERS = {
    "text": b"\xdb" + SIZE.to_bytes(4, "big"),
    "wide text": b"\xdb" + (SIZE + 4).to_bytes(4, "big") + "\U0001f600".encode(),
    "bytes": b"\xc6" + SIZE.to_bytes(4, "big"),
    "object": b"\xc9" + (SIZE + 8).to_bytes(4, "big") + bytes((OBJECT,)) + b"\x01t\x91\xdb" + SIZE.to_bytes(4, "big"),
    "bytearray": b"\xc9" + (SIZE + 8).to_bytes(4, "big") + bytes((OBJECT,)) + b"\x02ba\xc6" + SIZE.to_bytes(4, "big"),
}


def child(script, megabytes, *arguments):
    """The lines that a script prints in a process with so much memory."""
    head = f"""
        import logging, resource
        import forging, threadline
        from threadline.cli.app import run
        logging.disable(logging.CRITICAL)
        threadline.connect("memory://").fsck()
        resource.setrlimit(resource.RLIMIT_AS, ({megabytes} << 20, {megabytes} << 20))
    """
    variables = {**os.environ, "PYTHONPATH": os.pathsep.join((str(SOURCE), str(HERE)))}
    command = [sys.executable, "-c", textwrap.dedent(head) + textwrap.dedent(script), *arguments]
    done = subprocess.run(command, env=variables, capture_output=True, text=True, cwd=HERE, timeout=300)
    assert done.returncode == 0, (done.returncode, done.stderr[-2000:])
    return done.stdout.splitlines()


def forge_pieces(path, kind):
    """One item of 160 MB in pieces that differ, and compress as well as they may."""
    digester, envelope = Digester(b""), Envelope()
    contents = [HEADERS[kind], *[b"%06d" % number + b"a" * 65_530 for number in range(COUNT)]]
    digests = [digester.item(content) for content in contents]
    add_chunks(path, [(name, b"", *envelope.wrap(one, b"")) for name, one in zip(digests, contents, strict=True)])
    forge_channel(path, [2, 0, len(digests)], b"".join(digests))


READ = """
    import sys
    found = forging.read_in_every_way(sys.argv[1], **eval(sys.argv[2]))
    print({name: (type(error).__name__, str(error)) for name, error in found.items()})
    import contextlib, io
    for command in (["show", "t"], ["get", "t"], ["fsck"], ["log", "t"]):
        with contextlib.redirect_stdout(io.StringIO()), contextlib.redirect_stderr(io.StringIO()) as said:
            run([*command, "--url", sys.argv[1]])
        assert "Traceback" not in said.getvalue(), said.getvalue()
"""


@pytest.mark.parametrize("rules", [{}, {"allowed_types": "strict"}, {"share_decoded": True}], ids=str)
@pytest.mark.parametrize("megabytes", [250, 400, 520])
def test_what_takes_more_memory_than_there_is_does_not_end_the_process(tmp_path, megabytes, rules):
    for kind in HEADERS if not rules and megabytes == 400 else ["wide text"]:
        path = write_store(tmp_path / f"{kind}.db")
        forge_pieces(path, kind)
        [line] = child(READ, megabytes, str(path), repr(rules))
        found = eval(line)
        for way in ("get_tuple", "latest", "state"):
            assert found[way][0] == "TooLarge", (kind, way, found[way])
            assert f"thread 't', checkpoint {forging.ID}" in found[way][1]
            assert "memory" in found[way][1]
        assert "channel 'a'" in found["get_tuple"][1] or "channel '__interrupt__'" in found["get_tuple"][1]


def test_what_cannot_be_looked_at_for_lack_of_memory_is_no_damage(tmp_path):
    path = tmp_path / "large.db"
    with threadline.connect(path) as saver:
        saver.thread("t").put({"a": bytes(100_000_000)})
        saver.thread("t").put({"a": list(range(1_000_000))})
        assert saver.fsck().ok
    lines = child(
        """
        import sys
        with threadline.connect(sys.argv[1]) as saver:
            report = saver.fsck()
            print(len(report.damaged), "memory" in str(report))
        """,
        200,
        str(path),
    )
    assert lines == ["0 True"]


def test_what_there_is_memory_for_is_read(tmp_path):
    path = tmp_path / "large.db"
    with threadline.connect(path) as saver:
        saver.thread("t").put({"a": bytes(100_000_000)})
    script = """
        import sys
        with threadline.connect(sys.argv[1]) as saver:
            print(len(saver.thread("t").state()["a"]))
    """
    assert child(script, 700, str(path)) == ["100000000"]


@pytest.mark.parametrize("content", [b"\x80", b"\x91\xc0", b"\x81\xa0\xc0", b"\xce\xff\xff\xff\xff"], ids=bytes.hex)
def test_many_small_values_are_counted_before_they_are_unpacked(content):
    script = f"""
        from threadline.codec import Codec
        data = b"\\xdd" + (3_000_000).to_bytes(4, "big") + {content!r} * 3_000_000
        try:
            Codec().decode(data)
        except threadline.TooLarge as error:
            print("too large")
    """
    assert child(script, 190) == ["too large"]


def test_a_record_and_a_row_that_take_too_much_memory_are_named(tmp_path):
    path = tmp_path / "a.db"
    with threadline.Store(path) as store, threadline.connect(path) as saver:
        store.put(("a",), "k", {"v": [{} for _ in range(3_000_000)]})
        saver.put(
            {"configurable": {"thread_id": "t", "checkpoint_ns": ""}},
            threadline.empty_checkpoint(),
            {"m": [{} for _ in range(3_000_000)]},
            {},
        )
    script = """
        import sys
        with threadline.connect(sys.argv[1]) as saver, threadline.Store(sys.argv[1]) as store:
            for read in (lambda: saver.get_tuple({"configurable": {"thread_id": "t"}}), lambda: store.get(("a",), "k")):
                try:
                    read()
                except threadline.TooLarge as error:
                    print(str(error))
    """
    first, second = child(script, 190, str(path))
    assert "thread 't'" in first
    assert "metadata" in first
    assert "'k'" in second


def test_large_objects_within_each_other_are_corrupt():
    content = b"\xc6" + (20_000_000).to_bytes(4, "big") + bytes(20_000_000)
    for _ in range(40):
        content = b"\xc9" + (len(content) + 3).to_bytes(4, "big") + bytes((OBJECT,)) + b"\x01t\x91" + content
    saver = threadline.connect("memory://")
    with pytest.raises(threadline.NotSerializable, match="stand in each other"):
        saver.thread("t").put({"a": Codec().decode(content)})


def test_large_objects_within_each_other_are_corrupt_to_a_reader(tmp_path):
    content = b"\xc6" + (20_000_000).to_bytes(4, "big") + bytes(20_000_000)
    for _ in range(40):
        content = b"\xc9" + (len(content) + 3).to_bytes(4, "big") + bytes((OBJECT,)) + b"\x01t\x91" + content
    path = write_store(tmp_path / "forged.db")
    digester, pieces = Digester(b""), [content[start : start + 60_000] for start in range(0, len(content), 60_000)]
    digests = [digester.item(piece) for piece in pieces]
    add_chunks(path, [(name, b"", *Envelope().wrap(one, b"")) for name, one in zip(digests, pieces, strict=True)])
    forge_channel(path, [2, 0, len(digests)], b"".join(digests))
    found = forging.read_in_every_way(path, ["get_tuple", "latest", "fsck"])
    assert isinstance(found["get_tuple"], Corrupt)
    assert not isinstance(found["get_tuple"], TooLarge)
    assert "repeat" in str(found["get_tuple"]) or "stand in each other" in str(found["get_tuple"])


def test_what_is_stored_becomes_at_most_64_times_what_it_is():
    envelope = Envelope()
    for size in (2_000, 2_001, 65_536, 1 << 20):
        form, stored = envelope.wrap(bytes(size), b"")
        assert form == 1
        assert len(stored) < size / 60
        assert envelope.unwrap(form, stored, b"") == bytes(size)
        assert zstandard.ZstdDecompressor().decompress(stored) == bytes(size)  # by any reader of zstd


def test_pieces_that_compress_better_than_any_that_are_stored_are_corrupt(tmp_path):
    compress = zstandard.ZstdCompressor().compress
    for count, is_refused in ((1_000, False), (1_100, True)):  # 64 MiB are let pass
        path = write_store(tmp_path / f"{count}.db")
        size = count * 65_536
        contents = [b"\xc6" + size.to_bytes(4, "big"), *[b"%06d" % n + bytes(65_530) for n in range(count)]]
        digests = [*map(Digester(b"").item, contents)]
        add_chunks(path, [(name, b"", 1, compress(one)) for name, one in zip(digests, contents, strict=True)])
        forge_channel(path, [2, 0, len(digests)], b"".join(digests))
        found = forging.read_in_every_way(path, ["get_tuple"])["get_tuple"]
        assert isinstance(found, Corrupt) is is_refused
        assert not is_refused or "more than 64 times what is stored" in str(found)
        with threadline.connect(path) as saver:
            assert saver.fsck().ok is not is_refused


def test_an_archive_whose_rows_become_far_more_than_it_holds_is_corrupt():
    from threadline.packs.archive import Block, _check, pack_block, unpack_block

    for packed in (bytes(1 << 26), b"\xdd" + (1 << 26).to_bytes(4, "big") + b"\x80" * (1 << 26)):
        content = zstandard.ZstdCompressor().compress(packed)
        for stored in (content, content + b"\x50\x2a\x4d\x18" + (1 << 20).to_bytes(4, "little") + bytes(1 << 20)):
            with pytest.raises(Corrupt):
                unpack_block(stored, Block(0, len(stored), _check(stored)), "file")
    rows = [[1, "t", "x" * 100, {"a": 1}]] * 2_000
    content, check = pack_block(rows)
    assert unpack_block(content, Block(0, len(content), check), "file") == rows
    assert 64 * len(content) >= len(ormsgpack.packb(rows))


def test_metadata_of_a_thread_that_take_too_much_memory_do_not_end_the_process(tmp_path):
    path = tmp_path / "a.db"
    with threadline.connect(path) as saver:
        saver.thread("t").put({"a": 1})
    forged = b"\xdd" + (3_000_000).to_bytes(4, "big") + b"\x80" * 3_000_000
    with sqlite3.connect(path) as db:
        db.execute("UPDATE threadline_threads SET metadata = ?", (forged,))
    db.close()
    script = """
        import sys
        with threadline.connect(sys.argv[1]) as saver:
            for read in (lambda: saver.thread("t").info(), lambda: list(saver.threads()), saver.fsck, saver.stats):
                try:
                    read()
                except threadline.Corrupt as error:
                    print(str(error))
            print(saver.thread("t").state()["a"])
    """
    lines = child(script, 190, str(path))
    assert lines[-1] == "1"
    assert "thread 't'" in lines[0]
    assert "memory" in lines[0]


@pytest.mark.parametrize("place", [(-5, 10), (8, 2**62), (2**62, 10), (10, -10)], ids=str)
@pytest.mark.parametrize("kind", ["packs", "blocks"])
def test_an_archive_that_names_what_lies_outside_of_it_is_corrupt(tmp_path, kind, place):
    from threadline.packs import archive

    path = tmp_path / "a.tl"
    with threadline.connect(tmp_path / "a.db") as saver:
        saver.thread("t").put({"a": ["x" * 500] * 40})
        saver.export(path)
    stored = path.read_bytes()
    trailer = stored[-archive.ARCHIVE_TRAILER_BYTES :]
    end, _, _ = archive.unpack_trailer(trailer, len(stored), "file")
    held = ormsgpack.unpackb(stored[end : -len(trailer)])
    held[kind] = [[held["packs"][0][0], *place]] if kind == "packs" else [[*place, bytes(16)]]
    whole, packed = archive.Whole(), ormsgpack.packb(held)
    whole.add(stored[:end] + packed)
    path.write_bytes(stored[:end] + packed + archive.trailer_of(end, packed, whole))
    with pytest.raises(Corrupt, match="directory is damaged"), threadline.connect(f"archive:///{path}") as saver:
        saver.thread("t").state()
