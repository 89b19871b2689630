"""What savers do at the edges of their contract: LangGraph's own and ours, side by side."""

import asyncio
import enum
import sqlite3

import pytest
from graph_pairs import CLASSES, WHERE, WHOSE, Face, opened
from graph_server_openings import OPENINGS
from langgraph.checkpoint.base import empty_checkpoint
from program_cancellation import cancelled_run

from threadline.base.ids import new_id
from threadline.errors import InvalidRequest


class Word(str, enum.Enum):
    YES = "yes"


class Number(enum.IntEnum):
    TWO = 2


class Ratio(float):
    pass


CONFIG = {"configurable": {"thread_id": "thread-1", "checkpoint_ns": ""}}


@pytest.fixture(params=["sync", "async"])
def half(request):
    return request.param


@pytest.fixture(params=WHOSE)
def whose(request):
    return request.param


@pytest.fixture(params=WHERE)
def where(request):
    return request.param


@pytest.fixture
def at(where, request, tmp_path):
    """Where the test's saver keeps its threads."""
    if where == "postgres":
        return request.getfixturevalue("postgres").url
    return str(tmp_path / "threads.db")


@pytest.fixture(params=WHOSE)
def on_saver(request, where, half, at):
    """Runs a body on a saver, through one half of it."""

    def run(body):
        async def on_one():
            async with opened(request.param, where, half, at) as saver:
                return await body(saver, Face(half))

        return asyncio.run(on_one())

    run.whose = request.param
    return run


def checkpoint(values=None, **fields):
    made = empty_checkpoint()
    versions = dict.fromkeys(values or {}, f"{1:032}.0.5")
    return {**made, "id": new_id(0), "channel_values": values or {}, "channel_versions": versions, **fields}


async def put(face, saver, metadata=None, config=CONFIG, **fields):
    made = checkpoint(**fields)
    return await face.put(saver, config, made, metadata or {"source": "loop", "step": 1}, made["channel_versions"])


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        ((1, ("a", (None,))), [1, ["a", [None]]]),
        ({"tags": ("a", "b")}, {"tags": ["a", "b"]}),
        (Word.YES, "yes"),
        ("a\0b", "ab"),
        ({"a": [1.5, True, None, "x"]}, {"a": [1.5, True, None, "x"]}),
        ([], []),
    ],
)
def test_metadata_comes_back_as_json(on_saver, given, expected):
    async def body(saver, face):
        await put(face, saver, {"source": "loop", "step": 1, "given": given})
        listed = await face.all(saver, "list", CONFIG)
        return [(await face.get_tuple(saver, CONFIG)).metadata["given"], listed[0].metadata["given"]]

    found = on_saver(body)
    assert found == [expected, expected]
    assert [type(one) for one in found] == [type(expected)] * 2


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        ({1: "a", None: "b", 1.5: "c"}, {"1": "a", "null": "b", "1.5": "c"}),
        ({True: {2: (3,)}}, {"true": {"2": [3]}}),
        (Number.TWO, 2),
        (Ratio(0.5), 0.5),
    ],
)
def test_metadata_has_the_keys_and_numbers_of_json(on_saver, where, given, expected):
    """LangGraph's InMemorySaver keeps keys and enums as they are; ours follows the savers that outlive a process."""

    async def body(saver, face):
        await put(face, saver, {"source": "loop", "step": 1, "given": given})
        return (await face.get_tuple(saver, CONFIG)).metadata["given"]

    if (on_saver.whose, where) != ("original", "memory"):
        found = on_saver(body)
        assert found == expected
        assert type(found) is type(expected)


def test_metadata_of_the_config_is_joined_and_has_no_nul(on_saver):
    async def body(saver, face):
        config = {**CONFIG, "metadata": {"user": "an\0n", "flag": True, "many": [1], "__own": 1}}
        await put(face, saver, {"source": "loop", "step": 1}, config)
        return (await face.get_tuple(saver, CONFIG)).metadata

    assert on_saver(body) == {"source": "loop", "step": 1, "user": "ann", "flag": True}


def test_a_checkpoint_may_have_an_empty_time(on_saver):
    async def body(saver, face):
        config = await put(face, saver, values={"a": [1]}, ts="")
        return (await face.get_tuple(saver, config)).checkpoint

    found = on_saver(body)
    assert (found["ts"], found["channel_values"]) == ("", {"a": [1]})


def test_the_history_of_a_delta_channel_needs_no_times(on_saver):
    async def body(saver, face):
        config = await put(face, saver, values={"log": ["seed"]}, ts="")
        for number in range(3):
            await face.put_writes(saver, config, [("log", number), ("other", 0)], f"task-{number}")
            parent = {**config, "configurable": {**config["configurable"]}}
            made = {**checkpoint(ts=""), "channel_versions": {"log": f"{number + 2:032}.0.5"}}
            config = await face.put(saver, parent, made, {"source": "loop", "step": number}, made["channel_versions"])
        return await face.get_delta_channel_history(saver, config=config, channels=["log"])

    history = on_saver(body)
    assert history == {"log": {"seed": ["seed"], "writes": [(f"task-{number}", "log", number) for number in range(3)]}}


def test_a_negative_limit_means_what_it_does_in_the_original(on_saver, where):
    async def body(saver, face):
        for _ in range(3):
            await put(face, saver)
        try:
            return len(await face.all(saver, "list", CONFIG, limit=-1))
        except Exception as error:
            return "ours" if isinstance(error, InvalidRequest) else "the driver's"

    refused = "ours" if on_saver.whose == "ours" else "the driver's"
    assert on_saver(body) == {"memory": 0, "sqlite": 3, "postgres": refused}[where]


def test_a_limit_of_nothing_lists_nothing(on_saver):
    async def body(saver, face):
        await put(face, saver)
        return await face.all(saver, "list", CONFIG, limit=0)

    assert on_saver(body) == []


@pytest.mark.parametrize(
    ("whose", "where"),
    [(whose, where) for whose in WHOSE for where in WHERE if (whose, where) != ("original", "postgres")],
    indirect=True,
)
def test_the_error_of_a_cancelled_run_is_there_when_it_was_awaited(whose, where, at):
    """Only an async run can be cancelled; the read comes at once, on every backend.

    LangGraph's PostgresSaver does not promise as much: mostly the error is there, under load a moment later.
    """

    async def body():
        async with opened(whose, where, "async", at) as saver:
            return await cancelled_run(saver)

    channels, failed = asyncio.run(body())
    assert "__error__" in channels
    assert failed == ["wait"]


@pytest.mark.parametrize("server", ["async mysql", "async redis_server"])
def test_the_error_of_a_cancelled_run_is_there_on_the_other_servers_too(server, request):
    """LangGraph's MySQL saver works as its PostgreSQL saver does, and its Redis saver needs modules of Redis."""
    place = request.getfixturevalue(server.removeprefix("async "))

    async def body():
        async with OPENINGS[server][0](place) as saver:
            return await cancelled_run(saver)

    channels, failed = asyncio.run(body())
    assert "__error__" in channels
    assert failed == ["wait"]


# -- what only one of the savers has


def test_a_memory_saver_is_usable_after_its_block(whose):
    made = CLASSES[whose, "memory", "sync"]
    with made() as saver:
        config = saver.put(CONFIG, checkpoint(), {}, {})
    assert saver.get_tuple(config) is not None

    async def run():
        async with saver:
            pass
        return await saver.aget_tuple(config)

    assert asyncio.run(run()) is not None


@pytest.fixture
def filled(whose):
    saver = CLASSES[whose, "memory", "sync"]()
    made = checkpoint({"words": ["a"], "count": 1}, id="id-1")
    made["channel_versions"]["gone"] = "v1"
    config = saver.put(CONFIG, made, {"source": "input", "step": -1}, made["channel_versions"])
    saver.put_writes(config, [("words", "b"), ("__error__", "oh")], "task-1", "path/1")
    child = checkpoint(id="id-2")
    saver.put(config, child, {"source": "loop", "step": 0}, {})
    return saver


def loaded(saver, pair):
    return saver.serde.loads_typed(pair)


def test_storage_shows_the_checkpoints_of_a_memory_saver(filled):
    storage = filled.storage["thread-1"][""]
    assert {thread: list(namespaces) for thread, namespaces in filled.storage.items()} == {"thread-1": [""]}
    assert list(storage) == ["id-1", "id-2"]
    stored, metadata, parent = storage["id-1"]
    assert loaded(filled, stored)["id"] == "id-1"
    assert "channel_values" not in loaded(filled, stored)
    assert loaded(filled, metadata) == {"source": "input", "step": -1}
    assert (parent, storage["id-2"][2]) == (None, "id-1")


def test_writes_show_the_pending_writes_of_a_memory_saver(filled):
    assert list(filled.writes) == [("thread-1", "", "id-1")]
    shown = filled.writes["thread-1", "", "id-1"]
    told = {key: (task, channel, loaded(filled, value), path) for key, (task, channel, value, path) in shown.items()}
    assert told == {
        ("task-1", 0): ("task-1", "words", "b", "path/1"),
        ("task-1", -1): ("task-1", "__error__", "oh", "path/1"),
    }


def test_blobs_show_the_values_of_a_memory_saver(filled):
    version = f"{1:032}.0.5"
    assert set(filled.blobs) == {
        ("thread-1", "", "words", version),
        ("thread-1", "", "count", version),
        ("thread-1", "", "gone", "v1"),
    }
    assert loaded(filled, filled.blobs["thread-1", "", "words", version]) == ["a"]
    assert filled.blobs["thread-1", "", "gone", "v1"] == ("empty", b"")


def test_a_memory_saver_is_emptied_by_clearing_what_it_shows(filled):
    filled.writes.clear()
    assert len(filled.writes) == 0
    assert filled.get_tuple({"configurable": {"thread_id": "thread-1", "checkpoint_id": "id-1"}}).pending_writes == []
    filled.storage.clear()
    filled.blobs.clear()
    assert (len(filled.storage), len(filled.blobs)) == (0, 0)
    assert filled.get_tuple(CONFIG) is None
    assert filled.put(CONFIG, checkpoint(), {}, {})


@pytest.mark.parametrize("name", ["storage", "writes", "blobs"])
def test_what_our_memory_saver_shows_is_read_only(name):
    saver = CLASSES["ours", "memory", "sync"]()
    with pytest.raises(TypeError):
        getattr(saver, name)["a"] = 1
    assert repr(getattr(saver, name)) == "{}"


@pytest.mark.parametrize("transaction", [True, False])
def test_a_cursor_commits_unless_told_otherwise(whose, transaction, tmp_path):
    made = CLASSES[whose, "sqlite", "sync"]
    connection = sqlite3.connect(tmp_path / "threads.db", check_same_thread=False)
    saver = made(connection)
    saver.put(CONFIG, checkpoint(), {}, {})
    with saver.cursor() as cursor:
        cursor.execute("CREATE TABLE people (name TEXT)")
    with saver.cursor(transaction=transaction) as cursor:
        cursor.execute("INSERT INTO people VALUES ('ann')")
    with pytest.raises(sqlite3.ProgrammingError):
        cursor.execute("SELECT 1")
    assert connection.in_transaction is not transaction
    connection.rollback()
    with saver.cursor(False) as cursor:
        people = cursor.execute("SELECT name FROM people").fetchall()
    assert people == ([("ann",)] if transaction else [])
    assert saver.get_tuple(CONFIG) is not None
    connection.close()


def test_a_cursor_of_a_path_commits_too(whose, tmp_path):
    with CLASSES[whose, "sqlite", "sync"].from_conn_string(str(tmp_path / "threads.db")) as saver:
        with saver.cursor() as cursor:
            cursor.execute("CREATE TABLE people (name TEXT)")
            cursor.execute("INSERT INTO people VALUES ('ann')")
        saver.put(CONFIG, checkpoint(), {}, {})
        assert saver.get_tuple(CONFIG) is not None
    with sqlite3.connect(tmp_path / "threads.db") as other:
        assert other.execute("SELECT name FROM people").fetchall() == [("ann",)]
    other.close()
