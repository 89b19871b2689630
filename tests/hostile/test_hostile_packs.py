"""Forged packs, pointers and roots: each is an error of ours that names its place, within bounds of time and memory."""

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
from forging import add_chunks, forge_channel, read_in_every_way, tree, write_store

import threadline
from threadline import Corrupt
from threadline.chunks.digest import Digester
from threadline.chunks.pack import PACK, pointer_to
from threadline.codec.envelope import Envelope
from threadline.core.rows import checkpoint_place

HERE = Path(__file__).parent
SOURCE = Path(threadline.__file__).resolve().parents[1]
RULES = {"by default": {}, "strict": {"allowed_types": "strict"}, "shared": {"share_decoded": True}}
DIGESTER = Digester(b"")
ITEM = b"\xc4\xc8" + bytes(200)


def node(links, content):
    """The digest of a forged node, and its row, compressed where that pays."""
    digest = DIGESTER.node(links, content)
    if len(content) < 2_000:
        return digest, (digest, links, 0, content)
    return digest, (digest, links, 1, zstandard.ZstdCompressor().compress(content))


def pack(body, sizes, heads=(b"",), which=b"", keys=None):
    header = ormsgpack.packb([list(heads), which, sizes, keys])
    return node(b"", PACK + len(header).to_bytes(4, "big") + header + body)


def roots(count, links=b"", content=(b"\x01",)):
    """Roots that name each other in a chain: the uppermost, and their rows."""
    digest, row = node(links, ormsgpack.packb([0, [], list(content)]))
    rows = [row]
    for _ in range(count):
        digest, row = node(digest, ormsgpack.packb([0, [], [True]]))
        rows.append(row)
    return digest, rows


def pointing(item, to, place):
    digest = DIGESTER.item(item)
    links, content = pointer_to(DIGESTER, digest, to, place)
    return digest, (digest, links, 0, content)


def with_long_heads():
    digest, row = pack(b"\x01" * 128, [1] * 128, [b"\xff" + b"A" * 500_000])
    return [row], tree(0, 1, 4_000), digest * 4_000


def with_long_heads_in_a_tree_within():
    digest, row = pack(b"\x01" * 128, [1] * 128, [b"\xff" + b"A" * 500_000])
    outer, outer_row = node(digest * 4_000, ormsgpack.packb([tree(0, 1, 4_000)]))
    return [row, outer_row], tree(0, 1), outer


def many_that_compress():
    made = [
        pack(ormsgpack.packb(number.to_bytes(4, "big") + bytes(1_000_000)), [1_000_009], [b""])
        for number in range(1_600)
    ]
    return [row for _, row in made], tree(0, 1, len(made)), b"".join([digest for digest, _ in made])


def pointed_to_by_itself():
    digest, row = pointing(ITEM, DIGESTER.item(ITEM), 0)
    return [row], None, digest


def pointed_to_in_a_ring():
    first, row = pointing(ITEM, DIGESTER.item(b"\x01"), 0)
    second, other = pointing(b"\x01", first, 0)
    return [row, other], [0, [], 2], first + second


def pointed_to_out_of_range():
    digest, row = pack(ITEM * 2, [len(ITEM)] * 2)
    pointer, other = pointing(ITEM, digest, 200)
    return [row, other], None, pointer


def pointed_to_at_another_place():
    digest, row = pack(ITEM + b"\x01", [len(ITEM), 1])
    pointer, other = pointing(ITEM, digest, 1)
    return [row, other], None, pointer


def pointed_to_where_it_is_not():
    digest, _ = pack(ITEM, [len(ITEM)])
    pointer, row = pointing(ITEM, digest, 0)
    return [row], None, pointer


def a_pack_for_a_root():
    digest, row = pack(ITEM, [len(ITEM)])
    return [row], True, digest


def a_pack_for_an_item():
    digest, row = pack(ITEM, [len(ITEM)])
    return [row], None, digest


def a_pack_above_leaves():
    digest, row = pack(ITEM, [len(ITEM)])
    return [row], tree(0, 2), digest


def a_pack_of_another_kind():
    digest, row = pack(ITEM, [len(ITEM)], keys=["key"])
    return [row], tree(0, 1), digest


def a_pack_whose_sizes_lie():
    digest, row = pack(b"\x93\x01\x02", [1, 1, 1])
    return [row], tree(0, 1), digest


def a_deep_pack():
    state = b"\x91" * 1_100 + b"\x01"
    digest, row = pack(state, [len(state)])
    return [row], tree(0, 1), digest


def a_root_for_an_item():
    digest, rows = roots(0)
    return rows, None, digest


def a_root_for_a_node():
    digest, rows = roots(0)
    return rows, tree(0, 1), digest


def a_chain_of_roots():
    digest, rows = roots(1_200)
    return rows, True, digest


def a_chain_of_roots_that_ends_in_one():
    first, rows = roots(1_100)
    second, more = roots(1_200, first, (True,))
    return rows + more, [0, [], [True, True]], first + second


def roots_that_name_one_twice_behind_a_chain():
    digest, rows = roots(0)
    for _ in range(40):
        digest, row = node(digest * 2, ormsgpack.packb([0, [], [True, True]]))
        rows.append(row)
    behind, more = roots(50, digest, (True,))
    return rows + more, [0, [], [True, True]], digest + behind


def roots_that_fan_out():
    digest, rows = roots(0)
    for _ in range(40):
        digest, row = node(digest * 128, ormsgpack.packb([0, [], [True] * 128]))
        rows.append(row)
    return rows, True, digest


def leaves_that_fan_out():
    digest, row = pack(b"\x01" * 128, [1] * 128)
    rows = [row]
    for _ in range(5):
        digest, row = node(digest * 128, ormsgpack.packb(128))
        rows.append(row)
    return rows, tree(0, 6), digest


def one_piece_for_a_gigabyte():
    contents = b"\xdb" + (65_000 * 16_000).to_bytes(4, "big"), b"a" * 65_000
    first, piece = map(DIGESTER.item, contents)
    return [(first, b"", 0, contents[0]), (piece, b"", 0, contents[1])], [2, 0, 16_001], first + piece * 16_000


def one_item_for_a_gigabyte():
    content = ormsgpack.packb("a" * 32_000)
    digest = DIGESTER.item(content)
    root, row = node(digest * 33_000, ormsgpack.packb([0, [], 33_000]))
    return [row, (digest, b"", 0, content)], True, root


def one_item_in_leaves_that_differ():
    """Each leaf has an item of its own, so that none stands in the tree twice."""
    content = ormsgpack.packb("a" * 32_000)
    digest = DIGESTER.item(content)
    leaves = [node(digest * 127, ormsgpack.packb([*[None] * 127, bytes((number,))])) for number in range(100)]
    rows = [(digest, b"", 0, content), *[row for _, row in leaves]]
    return rows, tree(0, 1, len(leaves)), b"".join([name for name, _ in leaves])


def a_long_item_many_times():
    content = ormsgpack.packb("a" * 2_000_000)
    digest = DIGESTER.item(content)
    return [(digest, b"", 0, content)], [0, [], 250], digest * 250


def a_count_below_zero():
    return [], [0, [-1], 0], b""


def entries_below_zero():
    return [], [0, [], -1], b""


def pieces_below_zero():
    return [], [2, 0, -1], b""


def a_count_that_is_none():
    return [], [0, [1.5], 0], bytes(16)


FORGED = [
    with_long_heads,
    with_long_heads_in_a_tree_within,
    pointed_to_by_itself,
    pointed_to_in_a_ring,
    pointed_to_out_of_range,
    pointed_to_at_another_place,
    pointed_to_where_it_is_not,
    a_pack_for_a_root,
    a_pack_for_an_item,
    a_pack_above_leaves,
    a_pack_of_another_kind,
    a_pack_whose_sizes_lie,
    a_deep_pack,
    a_root_for_an_item,
    a_root_for_a_node,
    roots_that_fan_out,
    leaves_that_fan_out,
    one_piece_for_a_gigabyte,
    one_item_for_a_gigabyte,
    one_item_in_leaves_that_differ,
    a_long_item_many_times,
    a_chain_of_roots,
    a_chain_of_roots_that_ends_in_one,
    roots_that_name_one_twice_behind_a_chain,
    a_count_below_zero,
    entries_below_zero,
    pieces_below_zero,
    a_count_that_is_none,
]


def child(script):
    """What a child process printed that may have 2 GiB of memory and a minute of the processor."""
    limits = """
        import logging, resource
        logging.disable(logging.CRITICAL)
        resource.setrlimit(resource.RLIMIT_AS, (2 << 30, 2 << 30))
        resource.setrlimit(resource.RLIMIT_CPU, (60, 60))
        import threadline
        from forging import read_in_every_way
    """
    variables = {**os.environ, "PYTHONPATH": os.pathsep.join((str(SOURCE), str(HERE)))}
    script = textwrap.dedent(limits) + textwrap.dedent(script)
    done = subprocess.run([sys.executable, "-c", script], env=variables, capture_output=True, text=True, cwd=HERE)
    assert done.returncode == 0, (done.returncode, done.stdout, done.stderr[-2_000:])
    return done.stdout.splitlines()


def forged(folder, forge):
    rows, reference, links = forge()
    path = write_store(folder / f"{forge.__name__}.db")
    add_chunks(path, rows)
    forge_channel(path, reference, links)
    return str(path)


@pytest.mark.parametrize("rules", RULES)
def test_what_was_forged_is_corrupt_and_does_not_end_the_process(tmp_path, rules):
    lines = child(f"""
        for path in {[forged(tmp_path, forge) for forge in FORGED]!r}:
            found = read_in_every_way(path, **{RULES[rules]!r})
            print({{name: (type(error).__name__, str(error)) for name, error in found.items()}})
    """)
    assert len(lines) == len(FORGED)
    for forge, line in zip(FORGED, lines, strict=True):
        kind, message = eval(line)["get_tuple"]
        assert kind == "Corrupt", (forge, line)
        assert message.startswith("thread 't', checkpoint 00000000"), (forge, message)


def test_fsck_tells_of_what_was_forged(tmp_path):
    lines = child(f"""
        for path in {[forged(tmp_path, forge) for forge in FORGED]!r}:
            with threadline.connect(path) as saver:
                print(saver.fsck().ok)
    """)
    assert dict(zip(FORGED, lines, strict=True)) == dict.fromkeys(FORGED, "False")


REPEATING = [forge for forge in FORGED if forge.__name__.startswith(("one_", "a_long_")) or "fan" in forge.__name__]


@pytest.mark.parametrize("forge", [*REPEATING, a_chain_of_roots])
def test_what_repeats_is_refused_before_it_is_put_together(tmp_path, forge):
    path = forged(tmp_path, forge)
    assert Path(path).stat().st_size < 2_500_000
    said, *statuses, grown = child(f"""
        import contextlib, io
        from threadline.cli.app import run
        read_in_every_way({str(write_store(tmp_path / "small.db"))!r})
        before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        found = read_in_every_way({path!r})
        print({{name: (type(error).__name__, str(error)) for name, error in found.items()}})
        for command in (["show", "t"], ["diff", "t"], ["interrupts"], ["why", "t"]):
            with contextlib.redirect_stdout(io.StringIO()), contextlib.redirect_stderr(io.StringIO()):
                status = run([*command, "--url", {path!r}])
            print(status)
        print((resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) // 1024)
    """)
    found = eval(said)
    for way in ("get_tuple", "latest", "state"):
        kind, message = found[way]
        assert kind == "Corrupt"
        assert any(words in message for words in ("repeat more", "name more", "nested deeper")), message
    assert len(statuses) == 4
    assert int(grown) < 200  # MB, and the modules of the command line are some of them


def test_each_of_many_channels_that_name_one_root_counts(tmp_path):
    rows, reference, links = one_item_for_a_gigabyte()
    path = write_store(tmp_path / "forged.db")
    add_chunks(path, rows)
    channels = {f"c{number}": [1, reference] for number in range(20)}
    content = ormsgpack.packb([4, "2026-01-01T00:00:00+00:00", {}, False, {}, channels])
    forging.forge_document(path, content, links * 20)
    said, damaged = child(f"""
        found = read_in_every_way({str(path)!r}, ["get_tuple"])
        print((type(found["get_tuple"]).__name__, str(found["get_tuple"])))
        with threadline.connect({str(path)!r}) as saver:
            print(sorted(one.channel for one in saver.fsck().damaged))
    """)
    assert eval(said)[0] == "Corrupt"
    assert eval(damaged) == sorted(channels)


def test_tools_of_operators_go_on_over_what_was_forged(tmp_path):
    lines = child(f"""
        import contextlib, io
        from threadline.cli.app import run
        commands = ["stats"], ["stats", "--by", "channel"], ["why", "t"], ["log", "t"], ["rm", "t"]
        for path in {[forged(tmp_path, forge) for forge in FORGED]!r}:
            statuses = {{}}
            for command in commands:
                with contextlib.redirect_stdout(io.StringIO()), contextlib.redirect_stderr(io.StringIO()):
                    statuses[" ".join(command)] = run([*command, "--url", path])
            print({{command for command, status in statuses.items() if status}} or "all")
    """)
    assert dict(zip(FORGED, lines, strict=True)) == dict.fromkeys(FORGED, "all")


def test_a_few_rows_that_compress_well_do_not_fill_the_memory(tmp_path):
    path = forged(tmp_path, many_that_compress)
    assert Path(path).stat().st_size < 1_000_000
    said, is_ok = child(f"""
        found = read_in_every_way({path!r}, ["get_tuple"])
        print((type(found["get_tuple"]).__name__, str(found["get_tuple"])))
        with threadline.connect({path!r}) as saver:
            print(saver.fsck().ok)  # within the same bounds
    """)
    kind, message = eval(said)
    assert kind == "Corrupt"
    assert "channel 'a'" in message
    assert "more than 64 times what is stored" in message
    assert is_ok == "False"


def test_one_document_that_does_not_fit_does_not_end_fsck(tmp_path):
    path = write_store(tmp_path / "forged.db")
    with threadline.connect(path) as saver:
        saver.put(
            {"configurable": {"thread_id": "other", "checkpoint_ns": ""}},
            {**threadline.empty_checkpoint(), "channel_values": {}, "channel_versions": {}},
            {},
            {},
        )
    forge_only(path, [0, [1.5], 0], bytes(16))
    with threadline.connect(path) as saver:
        report = saver.fsck()
    assert not report.ok
    assert {issue.thread_id for issue in report.damaged} == {"t"}
    assert report.checkpoints == 2


def forge_only(path, reference, links):
    """Forge the document of the thread `t` alone."""
    content = ormsgpack.packb([4, "2026-01-01T00:00:00+00:00", {}, False, {}, {"a": [1, reference]}])
    place = [checkpoint_place(part, "t", "", forging.ID, None, links) for part in ("document", "metadata")]
    form, document = Envelope(compression=None).wrap_row(content, place[0])
    _, metadata = Envelope(compression=None).wrap_row(ormsgpack.packb({}), place[1])
    with sqlite3.connect(path) as db:
        db.execute(
            "UPDATE threadline_checkpoints SET form = ?, document = ?, metadata_form = 0, metadata = ?, links = ? "
            "WHERE id = ?",
            (form, document, metadata, links, forging.ID),
        )
    db.close()


def test_a_shared_value_counts_what_its_roots_name(tmp_path):
    path = write_store(tmp_path / "forged.db")
    digest, rows = roots(0)
    for _ in range(40):
        digest, row = node(digest * 2, ormsgpack.packb([0, [], [True, True]]))
        rows.append(row)
    add_chunks(path, rows)
    forge_channel(path, True, digest)
    found = read_in_every_way(path, share_decoded=True)
    assert isinstance(found["get_tuple"], Corrupt)
