"""Bad input, on every store and both halves: a clear error of our tree, and nothing changed by it."""

import sqlite3
from contextlib import contextmanager

import pytest

import threadline


@pytest.fixture
def saver(connect, url):
    """A saver with two checkpoints of the thread `kept` and a pending write, which nothing here may harm."""
    made = connect(url, synchronous="OFF")
    for number in (1, 2):
        parent = None if number == 1 else f"{number - 1:08d}"
        made.put(config("kept", parent), checkpoint(number), {"source": "loop", "step": number}, {"text": number})
    made.put_writes(config("kept", "00000002"), [("text", "written " * 50), ("small", 1)], "task")
    return made


@pytest.fixture
def unchanged(url, saver):
    """A block after which the store holds exactly what it held before, row by row."""

    @contextmanager
    def block():
        before = dump(url, saver)
        yield
        assert dump(url, saver) == before

    return block


@pytest.fixture
def refused(half, saver, unchanged):
    """Calls a method that must fail with this error, whose message holds these words, and change nothing."""

    def call(error, words, verb, *args, **kwargs):
        with unchanged(), pytest.raises(error) as caught:
            if verb in ("list", "threads", "interrupts"):
                half.listed(saver, *args, verb=verb, **kwargs)
            else:
                half.call(saver, verb, *args, **kwargs)
        assert isinstance(caught.value, threadline.ThreadlineError)
        for word in [words] if isinstance(words, str) else words:
            assert word in str(caught.value)
        return caught.value

    return call


@pytest.fixture
def each():
    """Checks case after case, and fails with all that went wrong rather than with the first of it."""

    def check_all(cases, check):
        wrong = []
        for case in cases:
            try:
                check(case)
            except (Exception, pytest.fail.Exception) as failure:
                wrong.append(f"{repr(case)[:100]}\n    {type(failure).__name__}: {str(failure)[:300]}")
        assert not wrong, "\n".join(wrong)

    return check_all


def config(thread_id="t", checkpoint_id=None, namespace=""):
    configurable = {"thread_id": thread_id, "checkpoint_ns": namespace}
    if checkpoint_id is not None:
        configurable["checkpoint_id"] = checkpoint_id
    return {"configurable": configurable}


def checkpoint(number=1, **values):
    """A checkpoint with a value in chunks and a small one, or with these values."""
    held = values or {"text": [f"{number}-{n} " * 40 for n in range(60)], "small": number}
    return {
        "v": 4,
        "id": f"{number:08d}",
        "ts": "2026-01-01T00:00:00+00:00",
        "channel_values": held,
        "channel_versions": dict.fromkeys(held, number),
        "versions_seen": {"node": {"text": number}},
        "updated_channels": None,
    }


def dump(url, saver):
    """All that a store holds, as plain data."""
    if not url.startswith("memory:"):
        return dump_file(url.removeprefix("sqlite:///"))
    held = saver._engine._backend
    tables = held._threads, held._rows.checkpoints, held._leases
    nested = held._rows.writes, held._chunks
    return [dict(table) for table in tables] + [{key: dict(inner) for key, inner in t.items() if inner} for t in nested]


def dump_file(path, prefix="threadline_"):
    connection = sqlite3.connect(path)
    try:
        tables = ("threads", "checkpoints", "writes", "chunks", "meta")
        return {table: sorted(connection.execute(f"SELECT * FROM {prefix}{table}"), key=repr) for table in tables}
    finally:
        connection.close()


@pytest.fixture
def make():
    """The config and the checkpoint that every test here starts from."""

    class Make:
        config = staticmethod(config)
        checkpoint = staticmethod(checkpoint)

    return Make
