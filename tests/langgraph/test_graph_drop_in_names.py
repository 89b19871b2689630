"""The drop-in names are constructed as the originals are, and behave as they do."""

import asyncio
import operator
import sqlite3
from typing import Annotated, TypedDict

import aiosqlite
import pytest
from langgraph.checkpoint.base import BaseCheckpointSaver
from langgraph.checkpoint.serde.jsonplus import JsonPlusSerializer
from langgraph.graph import START, StateGraph

from threadline.langgraph import AsyncSqliteSaver, Checkpointer, InMemorySaver, SqliteSaver


class Tally(TypedDict):
    seen: Annotated[list[int], operator.add]


def build():
    builder = StateGraph(Tally)
    builder.add_node("length", lambda state: {"seen": [len(state["seen"])]})
    builder.add_edge(START, "length")
    return builder


def test_a_memory_saver_needs_nothing_and_serves_both_halves(half, thread):
    graph = build().compile(checkpointer=InMemorySaver())

    half.invoke(graph, {"seen": [7]}, thread())

    assert half.invoke(graph, {"seen": [8]}, thread())["seen"] == [7, 1, 8, 3]


def test_two_memory_savers_have_nothing_in_common(half, thread):
    half.invoke(build().compile(checkpointer=InMemorySaver()), {"seen": [7]}, thread())

    empty = half.get_state(build().compile(checkpointer=InMemorySaver()), thread())

    assert empty.values == {}


def test_a_memory_saver_is_a_context_manager_of_both_kinds(thread):
    with InMemorySaver() as saver:
        assert build().compile(checkpointer=saver).invoke({"seen": [7]}, thread())["seen"] == [7, 1]

    async def run():
        async with InMemorySaver() as saver:
            return await build().compile(checkpointer=saver).ainvoke({"seen": [7]}, thread())

    assert asyncio.run(run())["seen"] == [7, 1]


def test_a_sqlite_saver_takes_a_path_and_keeps_the_file(tmp_path, thread):
    path = str(tmp_path / "threads.db")
    for number in range(3):
        with SqliteSaver.from_conn_string(path) as saver:
            final = build().compile(checkpointer=saver).invoke({"seen": [number]}, thread())

    assert final["seen"] == [0, 1, 1, 3, 2, 5]


def test_a_sqlite_saver_takes_the_memory_path(thread):
    with SqliteSaver.from_conn_string(":memory:") as saver:
        graph = build().compile(checkpointer=saver)
        graph.invoke({"seen": [1]}, thread())
        assert graph.invoke({"seen": [2]}, thread())["seen"] == [1, 1, 2, 3]


def test_a_sqlite_saver_uses_the_connection_it_is_given(tmp_path, thread):
    path = tmp_path / "threads.db"
    connection = sqlite3.connect(path, check_same_thread=False)
    connection.execute("CREATE TABLE users (name TEXT)")
    connection.execute("INSERT INTO users VALUES ('ann')")
    connection.commit()

    saver = SqliteSaver(connection)
    graph = build().compile(checkpointer=saver)
    graph.invoke({"seen": [1]}, thread())

    # The connection is still its owner's: open, usable, and with nothing left uncommitted.
    assert connection.execute("SELECT name FROM users").fetchall() == [("ann",)]
    assert not connection.in_transaction
    with sqlite3.connect(path) as other:
        assert other.execute("SELECT name FROM users").fetchall() == [("ann",)]
    other.close()
    assert graph.invoke({"seen": [2]}, thread())["seen"] == [1, 1, 2, 3]
    connection.close()
    with SqliteSaver.from_conn_string(str(path)) as reopened:
        final = build().compile(checkpointer=reopened).get_state(thread()).values
        assert final["seen"] == [1, 1, 2, 3]


def test_setup_may_be_called_as_often_as_one_likes(tmp_path, thread):
    with SqliteSaver.from_conn_string(str(tmp_path / "threads.db")) as saver:
        saver.setup()
        saver.setup()
        assert build().compile(checkpointer=saver).invoke({"seen": [1]}, thread())["seen"] == [1, 1]
        saver.setup()

    async def run():
        async with AsyncSqliteSaver.from_conn_string(str(tmp_path / "threads.db")) as saver:
            await saver.setup()
            await saver.setup()
            return await build().compile(checkpointer=saver).ainvoke({"seen": [2]}, thread())

    assert asyncio.run(run())["seen"] == [1, 1, 2, 3]


def test_an_async_sqlite_saver_takes_a_path_and_keeps_the_file(tmp_path, thread):
    path = str(tmp_path / "threads.db")

    async def run(number):
        async with AsyncSqliteSaver.from_conn_string(path) as saver:
            graph = build().compile(checkpointer=saver)
            return await graph.ainvoke({"seen": [number]}, thread())

    for number in range(3):
        final = asyncio.run(run(number))

    assert final["seen"] == [0, 1, 1, 3, 2, 5]


def test_an_async_sqlite_saver_uses_the_connection_it_is_given(tmp_path, thread):
    async def run():
        async with aiosqlite.connect(tmp_path / "threads.db") as connection:
            await connection.execute("CREATE TABLE users (name TEXT)")
            await connection.commit()
            graph = build().compile(checkpointer=AsyncSqliteSaver(connection))
            await asyncio.gather(*(graph.ainvoke({"seen": [n]}, thread(f"user-{n}")) for n in range(10)))
            await connection.execute("INSERT INTO users VALUES ('ann')")
            await connection.commit()
            states = [await graph.aget_state(thread(f"user-{n}")) for n in range(10)]
            return [state.values["seen"] for state in states]

    assert asyncio.run(run()) == [[number, 1] for number in range(10)]
    with SqliteSaver.from_conn_string(str(tmp_path / "threads.db")) as saver:
        graph = build().compile(checkpointer=saver)
        assert graph.get_state(thread("user-3")).values["seen"] == [3, 1]


def test_an_async_sqlite_saver_answers_sync_calls_of_other_threads(tmp_path, thread):
    async def run():
        async with AsyncSqliteSaver.from_conn_string(str(tmp_path / "threads.db")) as saver:
            graph = build().compile(checkpointer=saver)
            await graph.ainvoke({"seen": [1]}, thread())
            return await asyncio.to_thread(graph.invoke, {"seen": [2]}, thread())

    assert asyncio.run(run())["seen"] == [1, 1, 2, 3]


def test_an_async_sqlite_saver_takes_the_memory_path(thread):
    async def run():
        async with AsyncSqliteSaver.from_conn_string(":memory:") as saver:
            graph = build().compile(checkpointer=saver)
            await graph.ainvoke({"seen": [1]}, thread())
            return await graph.ainvoke({"seen": [2]}, thread())

    assert asyncio.run(run())["seen"] == [1, 1, 2, 3]


def test_the_names_read_each_others_files(tmp_path, thread):
    path = str(tmp_path / "threads.db")
    with SqliteSaver.from_conn_string(path) as saver:
        build().compile(checkpointer=saver).invoke({"seen": [1]}, thread())

    async def run():
        async with AsyncSqliteSaver.from_conn_string(path) as saver:
            graph = build().compile(checkpointer=saver)
            return await graph.ainvoke({"seen": [2]}, thread())

    assert asyncio.run(run())["seen"] == [1, 1, 2, 3]
    with Checkpointer(f"sqlite:///{path}") as saver:
        final = build().compile(checkpointer=saver).invoke({"seen": [3]}, thread())
    assert final["seen"] == [1, 1, 2, 3, 3, 5]


@pytest.mark.parametrize("serde", [None, JsonPlusSerializer()], ids=["default", "json plus"])
def test_every_name_is_a_checkpoint_saver_with_a_serde(tmp_path, serde):
    async def open_async():
        async with aiosqlite.connect(tmp_path / "async.db") as connection:
            return AsyncSqliteSaver(connection, serde=serde)

    connection = sqlite3.connect(tmp_path / "sync.db", check_same_thread=False)
    savers = [
        InMemorySaver(serde=serde),
        SqliteSaver(connection, serde=serde),
        asyncio.run(open_async()),
        Checkpointer("memory://", serde=serde),
    ]

    for saver in savers:
        assert isinstance(saver, BaseCheckpointSaver)
        tag, stored = saver.serde.dumps_typed({"a": [1, "b"]})
        assert saver.serde.loads_typed((tag, stored)) == {"a": [1, "b"]}
        assert saver.config_specs == []
    connection.close()
