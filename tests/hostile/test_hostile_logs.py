"""Ids and names that would break a log line, or command a terminal: in logs and errors they are escaped."""

import dataclasses
import logging
import sqlite3
import time

import pytest

import threadline
from threadline.cli.app import run as run_command

# A line of its own, a red screen, a turned direction, and what ends a line elsewhere.
HOSTILE = "x\nERROR all is well\r\x1b[31m\u202e\u2028\x85\x00y"


@pytest.fixture
def lines(caplog):
    """Every line that was logged, as a handler writes it."""
    caplog.set_level(logging.DEBUG, "threadline")
    yield lambda: [record.getMessage() for record in caplog.records]
    for record in caplog.records:
        assert record.getMessage().isprintable(), repr(record.getMessage())


@pytest.fixture
def hostile(connect, database, make):
    """A saver whose every name is hostile, with one checkpoint, a write, a tag and metadata of its thread."""
    saver = connect(database, synchronous="OFF")
    checkpoint = {**make.checkpoint(1, **{HOSTILE: ["value " * 40] * 20}), "id": HOSTILE}
    at = saver.put(make.config(HOSTILE, None, HOSTILE), checkpoint, {"step": 1, HOSTILE: 1}, {HOSTILE: 1})
    saver.put_writes(at, [(HOSTILE, "written " * 50)], HOSTILE)
    saver.put(make.config(HOSTILE), {**checkpoint, "channel_values": {}}, {"step": 1}, {})
    saver.thread(HOSTILE).create(metadata={"note": "said"})
    return saver


def damage(database, statement):
    with sqlite3.connect(database) as connection:
        assert connection.execute(statement).rowcount


@pytest.mark.parametrize(
    "statement",
    [
        "UPDATE threadline_checkpoints SET document = x'00'",
        "UPDATE threadline_checkpoints SET metadata = x'00'",
        "UPDATE threadline_threads SET metadata = x'00'",
        "UPDATE threadline_threads SET tags = 'x'",
        "UPDATE threadline_writes SET data = x'00'",
        "UPDATE threadline_chunks SET data = x'00'",
        "DELETE FROM threadline_chunks",
    ],
)
def test_damage_is_logged_on_one_printable_line(hostile, database, half, lines, statement):
    damage(database, statement)
    hostile = threadline.connect(database)
    troubles = []
    for verb, *arguments in (
        ("list", None),
        ("threads",),
        ("interrupts",),
    ):
        try:
            for each in half.listed(hostile, *arguments, verb=verb):
                str(dict(getattr(each, "checkpoint", {}).get("channel_values", {})) if verb == "list" else each)
        except threadline.ThreadlineError as error:
            troubles.append(error)
    calls = [
        ("get_tuple", {"configurable": {"thread_id": HOSTILE, "checkpoint_ns": HOSTILE}}),
        ("fsck",),
        ("sweep", threadline.Policy(keep_last=1)),
        ("prune", [HOSTILE]),
        ("delete_checkpoint", {"configurable": {"thread_id": HOSTILE, "checkpoint_ns": "", "checkpoint_id": HOSTILE}}),
    ]
    for verb, *arguments in calls:
        try:
            half.call(hostile, verb, *arguments)
        except threadline.ThreadlineError as error:
            troubles.append(error)
    hostile.close()
    assert lines() or troubles
    for trouble in troubles:
        assert str(trouble).isprintable(), repr(str(trouble))


def test_a_failed_sweep_is_logged_on_one_printable_line(hostile, monkeypatch, lines):
    def fail(*_):
        raise RuntimeError(HOSTILE)

    monkeypatch.setattr(type(hostile), "sweep", fail)
    with hostile.sweeper(every=3600):
        while not lines():
            time.sleep(0.005)
    assert "all is well" in lines()[0]


def test_a_lost_lease_and_a_large_checkpoint_name_their_thread_on_one_printable_line(hostile, make, lines):
    large = make.checkpoint(1, text="x" * 10_000_001)
    hostile.put(make.config(HOSTILE + "2"), large, {"step": 1}, {"text": 1})
    hostile.lock(HOSTILE)._note(None, False)
    assert len(lines()) == 2


def test_lost_fields_of_a_stored_class_are_named_on_one_printable_line(lines):
    from threadline.codec.data_classes import _fitted

    @dataclasses.dataclass
    class Note:
        text: str = ""

    _fitted(Note, {HOSTILE: 1, "text": "x"}, frozenset(["text"]), lambda name: None)
    assert "all is well" in lines()[0]


def test_settings_of_a_redis_server_are_told_on_one_printable_line(lines):
    from threadline.backends.redis.setup import check_settings

    check_settings(None, HOSTILE, None)
    check_settings({"appendonly": "yes", "appendfsync": HOSTILE}, HOSTILE, None)
    check_settings({"appendonly": "no", "save": HOSTILE}, HOSTILE, None)
    assert len(lines()) == 3


def test_the_path_of_a_file_is_told_on_one_printable_line(tmp_path, lines, connect):
    path = tmp_path / HOSTILE.replace("\0", "")
    with sqlite3.connect(path) as connection:
        connection.execute("CREATE TABLE checkpoints (thread_id, checkpoint_ns, parent_checkpoint_id)")
        connection.execute("INSERT INTO checkpoints VALUES (1, 2, 3)")
    connect(path).open()
    assert "import" in lines()[0]


@pytest.mark.parametrize("error", threadline.errors.__all__)
def test_every_error_is_shown_on_one_printable_line(error):
    made = getattr(threadline, error)(HOSTILE)
    assert str(made).isprintable()
    assert f"{made}".isprintable()
    assert "all is well" in str(made)
    assert str(getattr(threadline, error)("a b … 'ü'")) == "a b … 'ü'", "what can be printed stays as it is"


def test_a_command_shows_hostile_names_without_their_power(hostile, database, capsys):
    hostile.close()
    damage(database, "UPDATE threadline_checkpoints SET metadata = x'00'")
    url = str(database)
    for command in (
        ["threads", "--url", url],
        ["log", "--url", url, HOSTILE.replace("\0", "")],
        ["show", "--url", url, HOSTILE],
        ["diff", "--url", url, HOSTILE, HOSTILE, HOSTILE],
        ["fsck", "--url", url],
        ["tag", "--url", url, HOSTILE, HOSTILE],
        ["rm", "--url", url, HOSTILE],
        ["stats", "--url", url],
        ["interrupts", "--url", url],
        ["threads", "--url", url + HOSTILE],
        ["threads", "--url", HOSTILE],
        ["log", "--url", "sqlite:///" + HOSTILE, "t"],
    ):
        run_command(command)
        told = capsys.readouterr()
        for line in (told.out + told.err).split("\n"):
            assert line.isprintable(), (command, line)
            assert not line.startswith("ERROR"), command
