"""Threads go back to LangGraph's own tables, and its savers resume them there with the same answer."""

import asyncio
import importlib
import operator
import random
from typing import Annotated, TypedDict

import pytest
from house import config, put

import threadline
from threadline import Conflict, InvalidRequest, KeyRing, NotAllowed, NotSerializable, Unavailable

pytest.importorskip("langgraph.graph")
pytest.importorskip("langgraph.checkpoint.sqlite")
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.checkpoint.sqlite import SqliteSaver
from langgraph.graph import END, START, StateGraph
from langgraph.types import Command, Send, interrupt

from threadline.langgraph import Checkpointer
from threadline.langgraph.way_back import awrite_back, write_back
from threadline.transfer import import_threads


class State(TypedDict):
    words: Annotated[list, operator.add]
    asked: str


def _make(checkpointer):
    inner = StateGraph(State)
    inner.add_node("ask", lambda state: {"words": [f"inner {interrupt('really?')}"], "asked": "yes"})
    inner.add_edge(START, "ask")
    outer = StateGraph(State)
    outer.add_node("first", lambda state: {"words": ["first"]})
    outer.add_node("each", lambda state: {"words": [f"each {state['n']}"]})
    outer.add_node("below", inner.compile())
    outer.add_node("last", lambda state: {"words": [f"last of {len(state['words'])}"]})
    outer.add_edge(START, "first")
    outer.add_conditional_edges("first", lambda state: [Send("each", {"n": 1}), Send("each", {"n": 2}), "below"])
    outer.add_edge("each", "last")
    outer.add_edge("below", "last")
    outer.add_edge("last", END)
    return outer.compile(checkpointer=checkpointer)


AT = {"configurable": {"thread_id": "t"}}


def _asked(checkpointer):
    graph = _make(checkpointer)
    graph.invoke({"words": ["begin"]}, AT)
    assert graph.get_state(AT).next
    return graph


def _answered(checkpointer):
    return _make(checkpointer).invoke(Command(resume="indeed"), AT)


@pytest.fixture
def expected():
    saver = InMemorySaver()
    _asked(saver)
    return _answered(saver)


def test_a_pending_interrupt_travels_through_every_house_and_home_again(
    expected, place, house, tmp_path, postgres, connect
):
    """LangGraph's saver → SQLite → PostgreSQL → encrypted Redis → a file → SQLite → LangGraph's saver.

    In a process that uses the runtime as well, whose Send is another class.
    """
    importlib.import_module("threadline.graph")
    with SqliteSaver.from_conn_string(str(tmp_path / "old.db")) as saver:
        _asked(saver)
    report = import_threads(f"sqlite:///{tmp_path}/old.db", f"sqlite:///{tmp_path}/ours.db")
    assert report.is_complete
    first = connect(f"sqlite:///{tmp_path}/ours.db")
    second, third = house("postgres"), house("sealed redis")
    assert first.copy_to(second).is_complete
    assert second.copy_to(third).is_complete
    third.export(tmp_path / "moved.tla")
    file = connect(f"archive:///{tmp_path}/moved.tla", encryption=third._tools.envelope.ring)
    last = house("sqlite")
    assert file.copy_to(last).is_complete
    assert [one.value for one in last.interrupts()] == ["really?"]
    for url, opened in (
        (f"sqlite:///{tmp_path}/back.db", lambda: SqliteSaver.from_conn_string(str(tmp_path / "back.db"))),
        (postgres.url, lambda: _postgres_saver(postgres.url)),
    ):
        done = write_back(last, url)
        assert (done.threads, done.checkpoints) == (1, report.checkpoints.copied)
        with opened() as saver:
            assert _answered(saver) == expected


def _postgres_saver(url):
    from langgraph.checkpoint.postgres import PostgresSaver

    return PostgresSaver.from_conn_string(url)


def test_a_thread_that_threadline_made_resumes_in_langgraphs_tables(expected, tmp_path):
    with Checkpointer(f"sqlite:///{tmp_path}/ours.db") as saver:
        _asked(saver)
        write_back(saver, f"sqlite:///{tmp_path}/back.db")
        write_back(saver, f"sqlite:///{tmp_path}/back.db")
    with SqliteSaver.from_conn_string(str(tmp_path / "back.db")) as theirs:
        history = [state.values for state in _make(theirs).get_state_history(AT)]
        assert len(history) == 3
        assert _answered(theirs) == expected
    with Checkpointer(f"sqlite:///{tmp_path}/ours.db") as saver, pytest.raises(Conflict, match="has not"):
        write_back(saver, f"sqlite:///{tmp_path}/back.db")


def test_a_value_that_cannot_be_rebuilt_is_told_before_anything_is_written(connect, tmp_path):
    saver = connect(tmp_path / "ours.db")
    made = threadline.empty_checkpoint()
    namespace = {}
    exec("from dataclasses import dataclass\n@dataclass\nclass Gone:\n    x: int\n", namespace)
    import sys
    import types

    module = types.ModuleType("gone_app")
    namespace["Gone"].__module__ = "gone_app"
    module.Gone = namespace["Gone"]
    sys.modules["gone_app"] = module
    made["channel_values"], made["channel_versions"] = {"it": namespace["Gone"](1)}, {"it": 1}
    saver.put(config("t"), made, {"source": "loop", "step": 0}, {"it": 1})
    del sys.modules["gone_app"]
    saver = connect(tmp_path / "ours.db")
    with pytest.raises(NotAllowed, match=r"nothing was written.*gone_app"):
        write_back(saver, f"sqlite:///{tmp_path}/back.db")
    assert not (tmp_path / "back.db").exists()


def test_only_databases_that_langgraph_has_savers_for_are_written(connect, tmp_path):
    saver = connect(tmp_path / "ours.db", encryption=KeyRing({"k": bytes(32)}))
    with pytest.raises(InvalidRequest, match="nothing else"):
        write_back(saver, "redis://localhost")


def test_what_langgraphs_serializer_does_not_take_is_told_before_anything_is_written(connect, tmp_path):
    class Odd:
        def __init__(self, n):
            self.n = n

    threadline.register(Odd, name="way_back:Odd", encode=lambda odd: odd.n, decode=Odd)
    saver = connect(tmp_path / "ours.db")
    for thread, value in (("a", 1), ("b", Odd(2))):
        made = threadline.empty_checkpoint()
        made["channel_values"], made["channel_versions"] = {"it": value}, {"it": 1}
        saver.put(config(thread), made, {"source": "loop", "step": 0}, {"it": 1})
    with pytest.raises(NotSerializable, match=r"nothing was written: thread 'b'.*channel 'it'"):
        write_back(saver, f"sqlite:///{tmp_path}/back.db")
    assert not (tmp_path / "back.db").exists()


def test_what_is_refused_makes_no_tables(connect, run, postgres, tmp_path):
    with connect(tmp_path / "ours.db", cold=f"file://{tmp_path}/cold") as saver:
        words = [random.Random(number).randbytes(150).hex() for number in range(60)]
        put(saver, config("t"), {"messages": words}, 0)
        saver.tier("0s")
    for url in (f"sqlite:///{tmp_path}/back.db", postgres.url):
        _, said = run("export", "--to-langgraph", url, "--url", tmp_path / "ours.db", status=1)
        assert "THREADLINE_COLD" in said
    assert not (tmp_path / "back.db").exists()
    psycopg = pytest.importorskip("psycopg")
    with psycopg.connect(postgres.url) as db:
        assert db.execute("SELECT to_regclass('checkpoints'), to_regclass('checkpoint_migrations')").fetchone() == (
            None,
            None,
        )


def test_a_database_that_cannot_be_written_is_told_as_every_other_is(connect, run, tmp_path):
    saver = connect(tmp_path / "ours.db")
    put(saver, config("t"), {"x": 1}, 0)
    (tmp_path / "junk.db").write_text("no database " * 100)
    for url, error, words in (
        (f"sqlite:///{tmp_path}/nowhere/back.db", Unavailable, "cannot open"),
        (f"sqlite:///{tmp_path}/junk.db", InvalidRequest, "not a SQLite database"),
        ("postgresql://someone:secret@127.0.0.1:1/none", Unavailable, "cannot connect"),
    ):
        with pytest.raises(error, match=words):
            write_back(saver, url)
        _, said = run("export", "--to-langgraph", url, "--url", saver.url, status=1 if error is Unavailable else 2)
        assert words in said
        assert "Traceback" not in said
        assert "secret" not in said


def test_the_way_back_beside_an_event_loop(connect, tmp_path):
    saver, seen = connect(tmp_path / "ours.db"), []
    put(saver, config("t"), {"x": 1}, 0)
    url = f"sqlite:///{tmp_path}/back.db"
    done = asyncio.run(awrite_back(saver, url, threads=["t"], progress=lambda *counts: seen.append(counts)))
    assert (done.threads, done.checkpoints) == (1, 1)
    assert seen[-1] == (2, 2)
