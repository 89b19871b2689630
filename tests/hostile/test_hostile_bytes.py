"""Forged bytes: what somebody who can write to the database gains by it, which is nothing but an error."""

import contextlib
import json
import os
import random
import subprocess
import sys
import textwrap
from pathlib import Path

import forging
import ormsgpack
import pytest
import spying
from forging import (
    add_chunks,
    extension,
    fan_out,
    forge_channel,
    kept,
    langgraphs,
    named,
    read_in_every_way,
    write_store,
)

import threadline
from threadline import Corrupt, NotAllowed, Serializer, ThreadlineError
from threadline.codec import Codec, Envelope

HERE = Path(__file__).parent
SOURCE = Path(threadline.__file__).resolve().parents[1]
RULES = {"by default": {}, "strict": {"allowed_types": "strict"}}


def child(*arguments):
    variables = {
        **os.environ,
        "PYTHONPATH": os.pathsep.join((str(SOURCE), str(HERE))),
        "THREADLINE_TEST_SECRET": "s3cret",
    }
    return subprocess.run([sys.executable, *arguments], env=variables, capture_output=True, text=True, cwd=HERE)


def deep(wrap, arrays=1000, times=60):
    content = b"\x01"
    for _ in range(times):
        content = wrap(b"\x91" * arrays + content)
    return content


WRAPPED = {
    "object": lambda inner: named("t", inner),
    "group": lambda inner: named("*", inner),
    "langgraph": lambda inner: extension(0, inner),
    "pydantic": lambda inner: extension(5, inner),
    "foreign": lambda inner: extension(forging.FOREIGN, b"\x07msgpack" + inner),
    "kept": lambda inner: extension(forging.KEPT, b"\x05" + inner),
    "kept foreign": lambda inner: extension(forging.KEPT, b"\x21\x07msgpack" + inner),
}


@pytest.mark.parametrize("wrap", WRAPPED)
def test_nesting_through_extensions_is_corrupt_and_does_not_end_the_process(tmp_path, wrap):
    path = write_store(tmp_path / "forged.db", deep(WRAPPED[wrap]))
    script = f"""
        import threading
        from forging import read_in_every_way
        def read():
            for options in ({{}}, {{"allowed_types": "strict"}}):
                found = read_in_every_way({str(path)!r}, **options)
                print({{name: type(error).__name__ for name, error in found.items()}})
        read()
        threading.stack_size(512 * 1024)
        worker = threading.Thread(target=read)
        worker.start()
        worker.join()
    """
    done = child("-c", textwrap.dedent(script))
    assert done.returncode == 0, done.stderr
    outcomes = [eval(line) for line in done.stdout.splitlines()]
    assert len(outcomes) == 4
    for found in outcomes:
        assert found["get_tuple"] == found["latest"] == found["state"] == "Corrupt", found


def test_asking_for_the_stack_leaves_what_the_program_chose(tmp_path):
    script = """
        import threading
        from threadline.codec import Codec
        codec, content = Codec(), Codec().encode([1])
        threading.stack_size(512 * 1024)
        worker = threading.Thread(target=codec.decode, args=(content,))
        worker.start()
        worker.join()
        print(threading.stack_size())
    """
    assert child("-c", textwrap.dedent(script)).stdout.strip() == str(512 * 1024)


@pytest.mark.parametrize("rules", RULES)
def test_a_few_chunks_that_name_each_other_often_are_corrupt_before_they_are_listed(tmp_path, rules):
    path = write_store(tmp_path / "forged.db")
    digest, rows = fan_out(128, 5)
    add_chunks(path, rows)
    forge_channel(path, forging.tree(0, 5), digest)
    for options in (RULES[rules], {**RULES[rules], "share_decoded": True}):
        found = read_in_every_way(path, **options)
        for way in ("get_tuple", "latest"):
            assert isinstance(found[way], Corrupt), (way, found[way])
        assert "thread 't'" in str(found["get_tuple"])
        assert "channel 'a'" in str(found["get_tuple"])


def test_a_tree_whose_levels_lie_is_corrupt(tmp_path):
    path = write_store(tmp_path / "forged.db")
    digest, rows = fan_out(9, 2)
    add_chunks(path, rows)
    for reference in map(forging.tree, (0, 0, 1, 1, 0), (3, 1, 2, 1, 24)):
        forge_channel(path, reference, digest)
        found = read_in_every_way(path)
        assert isinstance(found["get_tuple"], Corrupt), reference


@pytest.mark.parametrize("times", [800, 1_500])
def test_what_repeats_is_stored_however_often(times):
    saver = threadline.connect("memory://")
    checkpoint = {**threadline.empty_checkpoint(), "channel_values": {"a": ["x" * 20_000] * times}}
    checkpoint["channel_versions"] = {"a": 1}
    config = {"configurable": {"thread_id": "t", "checkpoint_ns": ""}}
    stored = saver.put(config, checkpoint, {}, {"a": 1})
    saver.clear_cache()
    assert saver.get_tuple(stored).checkpoint["channel_values"] == checkpoint["channel_values"]


def test_what_repeats_and_is_stored_can_be_read():
    saver = threadline.connect("memory://")
    thread = saver.thread("t")
    text = "".join(random.Random(1).choices("abcdefgh ", k=500_000))
    drafts = [f"{text[: 5_000 * number]} edited {text[5_000 * number :]}" for number in range(80)]
    for value in (bytes(40_000_000), drafts, [{"text": draft} for draft in drafts], [bytes(3_000_000)] * 8):
        thread.put({"a": value})
        saver.clear_cache()
        assert thread.state()["a"] == value
    for value in (
        [[0] * 1_000_000, [0] * 1_000_000],
        [text] * 200,
        {"b": [text] * 100, "c": [text] * 100},
        [["x" * 20_000] * 600, ["x" * 20_000] * 601],
    ):
        thread.put({"a": value, "b": 1})
        saver.clear_cache()
        assert thread.state()["a"] == value
    assert saver.fsck().ok


def test_a_value_that_repeats_leaves_nothing_of_another_form_behind(tmp_path):
    with threadline.connect(tmp_path / "a.db") as saver:
        thread, zeros = saver.thread("t"), [0] * 700_000
        thread.put({"a": [zeros]})  # in chunks that name each other
        for value in ([zeros, zeros, zeros], [zeros, zeros, zeros, "more"], {"a": [zeros] * 3}):
            thread.put({"a": value, "b": zeros})
            saver.clear_cache()
            state = thread.state()
            assert state["a"] == value
            assert state["b"] == zeros
        assert saver.fsck().ok
        assert saver.collect() == 0


@pytest.mark.parametrize("levels", [21, 23])
def test_what_a_few_bytes_repeat_counts_by_its_entries(tmp_path, levels):
    path = write_store(tmp_path / "forged.db")
    digest, rows = fan_out(2, levels, b"\x80")
    add_chunks(path, rows)
    forge_channel(path, forging.tree(0, levels), digest)
    for options in ({}, {"share_decoded": True}):
        with threadline.connect(path, **options) as saver, pytest.raises(Corrupt, match="repeat"):
            saver.get_tuple(forging.CONFIG)


@pytest.mark.parametrize("kind", [0, 1], ids=["lists", "dicts"])
def test_trees_within_trees_are_joined_once_and_counted_each_time(tmp_path, kind, monkeypatch):
    from threadline.chunks.read import Reader

    path = write_store(tmp_path / "forged.db")
    digest, rows = forging.trees_in_trees(kind, 8, 21)
    add_chunks(path, rows)
    forge_channel(path, forging.tree(kind, 1), digest)
    joined, content = [], Reader.content
    monkeypatch.setattr(Reader, "content", lambda *given: joined.append(1) or content(*given))
    for options in ({}, {"share_decoded": True}, {"share_decoded": True, "cache_bytes": 0}):
        for _ in range(2):
            with (
                threadline.connect(path, **options) as saver,
                pytest.raises(Corrupt, match="name more than 16,777,216"),
            ):
                saver.get_tuple(forging.CONFIG)
    assert len(joined) < 1_000
    # What is shared, and not too much, comes back each time as it is.
    digest, rows = forging.trees_in_trees(kind, 8, 3)
    add_chunks(path, rows)
    forge_channel(path, forging.tree(kind, 1), digest)
    inner = {f"key {number}": {} for number in range(8)} if kind else [{}] * 8
    for _ in range(2):
        inner = {f"key {number}": inner for number in range(8)} if kind else [inner] * 8
    for options in ({}, {"share_decoded": True}):
        with threadline.connect(path, **options) as saver:
            for _ in range(2):
                assert saver.get_tuple(forging.CONFIG).checkpoint["channel_values"]["a"] == inner


@pytest.mark.parametrize("kind", ["list", "tuple"])
@pytest.mark.parametrize("is_repeated", [True, False], ids=["one piece", "many pieces"])
def test_entries_within_pieces_are_counted_before_they_are_unpacked(tmp_path, kind, is_repeated):
    path = write_store(tmp_path / "forged.db")
    links, rows = forging.in_pieces(kind, 1024, is_repeated=is_repeated)
    add_chunks(path, rows)
    forge_channel(path, [2, 0, len(links) // 16], links)
    assert path.stat().st_size < 1_000_000
    script = f"""
        import resource
        resource.setrlimit(resource.RLIMIT_AS, (3 << 30, 3 << 30))
        from forging import read_in_every_way
        for options in ({{}}, {{"share_decoded": True}}):
            print({{name: str(error) for name, error in read_in_every_way({str(path)!r}, **options).items()}})
    """
    done = child("-c", textwrap.dedent(script))
    assert done.returncode == 0, done.stderr[-2000:]
    for line in done.stdout.splitlines():
        found = eval(line)
        what = "repeat more than is stored" if is_repeated else "hold more than 16,777,216 entries"
        assert f"channel 'a': its chunks {what}" in found["get_tuple"], found
        assert what in found["latest"]


def test_more_entries_than_are_read_are_not_stored():
    saver = threadline.connect("memory://")
    config = {"configurable": {"thread_id": "t", "checkpoint_ns": ""}}

    def put(value):
        checkpoint = {**threadline.empty_checkpoint(), "channel_values": {"a": value}, "channel_versions": {"a": 1}}
        return saver.put(config, checkpoint, {}, {"a": 1})

    most = (0,) * ((1 << 24) - 10)
    stored = put(most)
    saver.clear_cache()
    assert saver.get_tuple(stored).checkpoint["channel_values"]["a"] == most
    for value in (most + (0,) * 20, [most, most]):
        with pytest.raises(threadline.NotSerializable, match="entries"):
            put(value)
    # What is large, and not many, is no matter.
    stored = put([bytes(20_000_000), ["text" * 1_000_000] * 3])
    saver.clear_cache()
    assert len(saver.get_tuple(stored).checkpoint["channel_values"]["a"][0]) == 20_000_000


def test_a_small_frame_does_not_become_a_gigabyte_and_what_is_larger_is_stored_as_it_is():
    import zstandard

    frame = zstandard.ZstdCompressor().compress(bytes((1 << 20) + 1))
    with pytest.raises(Corrupt, match="absurd"):
        Envelope().unwrap(1, frame, b"")
    with pytest.raises(Corrupt, match="absurd"):
        Envelope().unwrap(1, zstandard.ZstdCompressor().compress(bytes(70_000)), b"", 65_536)
    large = bytes((1 << 20) + 1)
    assert Envelope().wrap(large, b"") == (0, large)


@pytest.mark.parametrize("mark", [lambda packed: packed, kept], ids=["bare", "marked"])
@pytest.mark.parametrize("kind", ["Settings", "KeyedModel", "Model"])
def test_secrets_of_the_process_do_not_get_into_the_store(tmp_path, monkeypatch, mark, kind):
    monkeypatch.setenv("API_KEY", "s3cret")
    monkeypatch.setenv("THREADLINE_TEST_SECRET", "s3cret")
    spying.CALLS.clear()
    for code in (4, 5):
        path = write_store(tmp_path / f"{kind}{code}.db", mark(langgraphs(code, "spying", kind, {})))
        with threadline.connect(path) as saver:
            try:
                found = saver.get_tuple(forging.CONFIG)
            except (Corrupt, NotAllowed):
                continue
            value = found.checkpoint["channel_values"]["a"]
            assert "s3cret" not in str(value.__dict__)
            saver.put(forging.CONFIG, {**found.checkpoint, "id": "1" + forging.ID[1:]}, {}, {"a": 2})
        assert b"s3cret" not in path.read_bytes()
    assert not spying.CALLS


def test_langgraphs_types_are_read_only_where_they_are_marked_or_asked_for():
    packed = langgraphs(2, "spying", "Pair", {"first": 1, "second": 2}, None)
    with pytest.raises(Corrupt, match="extension type 2"):
        Codec().decode(packed)
    with pytest.raises(Corrupt, match="extension type 2"):
        Serializer().loads(packed)
    assert Codec().decode(kept(packed)) == Serializer().loads_typed(("msgpack", packed)) == spying.Pair(1, 2)


LARGE = ormsgpack.packb
BOMBS = {
    "fraction of a text": named("frac", LARGE("1e100000000")),
    "bytearray of a number": named("ba", LARGE(5_000_000_000)),
    "set of a range": named("s", named("range", LARGE([0, 30_000_000, 1]))),
    "tuple of a range": named("t", named("range", LARGE([0, 30_000_000, 1]))),
    "deque of a range": named("dq", b"\x92\xc0" + named("range", LARGE([0, 30_000_000, 1]))),
    "counter of a range": named("ct", named("range", LARGE([0, 30_000_000, 1]))),
    "uuid of bytes": named("uuid", LARGE(bytes(16))),
    "address of a number": named("IPv4Address", LARGE(1)),
    "flag that prints": named("re", LARGE(["a", 128])),
    "long pattern": named("re", LARGE(["(" * 100_000, 0])),
    "zone out of its folder": named("zi", LARGE("../../etc/passwd")),
    "timedelta of texts": named("td", LARGE(["1", 0, 0])),
    "array of huge elements": named("nd", LARGE(["<U1000000000", [0], "C", b""])),
    "array of no elements": named("nd", LARGE(["|V0", [2**40], "C", b""])),
    "array of objects in bytes": named("nd", LARGE(["|O", [1], "C", bytes(8)])),
    "frame of no stream": named("pandas.DataFrame", LARGE([b"", None])),
    "json": extension(forging.FOREIGN, b"\x04json" + b"[" * 100_000),
}


@pytest.mark.parametrize("bomb", BOMBS)
@pytest.mark.parametrize("rules", RULES)
def test_a_small_bomb_is_corrupt(tmp_path, bomb, rules):
    import numpy  # noqa: F401
    import pandas  # noqa: F401

    path = write_store(tmp_path / "forged.db", BOMBS[bomb])
    found = read_in_every_way(path, **RULES[rules])
    assert isinstance(found["get_tuple"], Corrupt), found["get_tuple"]
    assert "channel 'a'" in str(found["get_tuple"])


def _spies():
    spy = named("spying:Spy", b"\x81\xa4keep\xc0")
    slotted = named("spying:SlottedSpy", b"\x81\xa4keep\xc0")
    color = named("spying:Color", LARGE(["RED"]))
    return [
        spy,
        slotted,
        color,
        named("spying:Setting", b"\x81\xa5value\x01"),
        named("spying:Model", b"\x81\xa5value\x01"),
    ]


def test_no_method_of_a_stored_class_runs_when_its_instance_is_the_state_of_another_type():
    import hostile_bytes

    codec, ran = Codec(), {}
    for name in hostile_bytes.NAMES:
        for spy in _spies():
            for state in (
                spy,
                b"\x91" + spy,
                b"\x92" + spy * 2,
                b"\x93" + spy * 3,
                b"\x94" + spy * 4,
                b"\x81\xa4keep" + spy,
            ):
                spying.CALLS.clear()
                with contextlib.suppress(ThreadlineError):
                    codec.decode(named(name, state))
                called = spying.CALLS.keys() - ({"__hash__", "__eq__"} if name in ("s", "fs", "m") else set())
                if called:
                    ran[name] = called
    assert not ran


@pytest.mark.parametrize("code", range(8))
def test_no_method_of_a_stored_class_runs_when_its_instance_is_a_state_of_langgraphs(code):
    from threadline.codec.langgraph_format import _STANDARD

    ran = {}
    for module, name in [*_STANDARD, ("spying", "Pair"), ("spying", "Model"), ("langgraph.types", "Send")]:
        for spy in _spies():
            for state in (spy, b"\x91" + spy, b"\x81\xa4keep" + spy):
                spying.CALLS.clear()
                content = b"\x94" + LARGE(module) + LARGE(name) + state + b"\xc0"
                with contextlib.suppress(ThreadlineError):
                    Codec().decode(extension(forging.KEPT, bytes((code,)) + content))
                called = spying.CALLS.keys() - ({"__hash__", "__eq__"} if name in ("set", "frozenset") else set())
                if called:
                    ran[module, name] = called
    assert not ran


def test_no_method_of_a_stored_class_runs_when_its_instance_is_a_question(tmp_path):
    asking = [named("spying:Propertied", b"\x81\xa5value\x05"), named("spying:Watching", b"\x81\xa4keep\xc0")]
    for number, spy in enumerate([*_spies(), *asking]):
        for name, content in (("one", spy), ("list", b"\x91" + spy)):
            path = write_store(tmp_path / f"{name} {number}.db", content)
            with threadline.connect(path) as saver:
                spying.CALLS.clear()
                [question] = saver.interrupts()
                assert saver.thread("t").info().status == "suspended"
                assert not spying.CALLS, type(question.value)
                assert question.interrupt_id is None


def test_the_id_and_the_value_of_a_question_are_stored_fields_of_any_class(tmp_path):
    for cls in ("Asked", "SlottedAsked"):
        path = write_store(
            tmp_path / f"{cls}.db", named(f"spying:{cls}", ormsgpack.packb({"id": "a1", "value": "ok?"}))
        )
        with threadline.connect(path) as saver:
            [question] = saver.interrupts()
        assert (question.interrupt_id, question.value) == ("a1", "ok?")


def test_setting_fields_passes_by_setters_and_properties():
    spying.CALLS.clear()
    made = Codec().decode(named("spying:Setting", b"\x81\xa5value\x05"))
    assert made.__dict__ == {"value": 5}
    made = Codec().decode(named("spying:Propertied", b"\x81\xa5value\x05"))
    assert made.__dict__ == {"value": 5}
    assert not spying.CALLS


class OddError(Exception):
    def __str__(self):
        raise BaseException("no text")


OddError.__module__ = 5


@pytest.mark.parametrize(
    "value",
    [memoryview(b"abc"), OddError(1), ValueError(object()), KeyError()],
    ids=["memoryview", "odd error", "odd argument", "no argument"],
)
def test_odd_values_are_stored_or_refused_by_an_error_of_ours(value):
    try:
        packed = Codec().encode([value])
    except ThreadlineError:
        return
    Codec().decode(packed)


def _run_generator(seed, count):
    done = child("hostile_bytes.py", str(seed), str(count))
    assert done.returncode == 0, (done.returncode, done.stderr[-3000:])
    found = json.loads(done.stdout.splitlines()[-1])
    assert found["count"] == 0, found
    assert not found["calls"].keys() - {"__hash__", "__eq__"}, found["calls"]


def test_made_up_bytes_end_in_a_value_or_an_error_of_ours():
    _run_generator(20260101, 2_000)


@pytest.mark.soak
@pytest.mark.parametrize("seed", range(20))
def test_a_great_many_made_up_bytes_end_in_a_value_or_an_error_of_ours(seed):
    _run_generator(seed, 10_000)
