"""Real graphs through the drop-in names of the servers, however the saver was made."""

import asyncio
import itertools
import operator
from typing import Annotated, TypedDict

import psycopg
import pymysql
import pytest
from graph_server_openings import OPENINGS
from langchain_core.messages import AIMessage, HumanMessage
from langgraph.channels import DeltaChannel
from langgraph.checkpoint.serde.jsonplus import JsonPlusSerializer
from langgraph.graph import END, START, StateGraph
from langgraph.graph.message import add_messages
from langgraph.types import Command, interrupt

from tests.servers.places import mysql_arguments
from threadline.base.drive import run_now
from threadline.langgraph import PostgresSaver, PyMySQLSaver


class Face:
    """One half of graphs, savers and threads, under the sync names, to be awaited."""

    def __init__(self, opening, place, is_async):
        self._opening = opening
        self._place = place
        self.is_async = is_async

    def open(self):
        """A further saver on the same store, with nothing remembered in it."""
        return self._opening(self._place)

    async def call(self, owner, verb, *args, **kwargs):
        if self.is_async:
            return await getattr(owner, f"a{verb}")(*args, **kwargs)
        return getattr(owner, verb)(*args, **kwargs)

    async def setup(self, saver):
        """`setup` of an async name is awaited, as in the originals."""
        made = saver.setup()
        if self.is_async:
            await made

    async def invoke(self, graph, *args, **kwargs):
        return await self.call(graph, "invoke", *args, **kwargs)

    async def state(self, graph, config):
        return await self.call(graph, "get_state", config)

    async def history(self, graph, config):
        if self.is_async:
            return [one async for one in graph.aget_state_history(config)]
        return list(graph.get_state_history(config))


WAYS = [pytest.param((kind, opening), id=opening.__name__) for kind, ways in OPENINGS.items() for opening in ways]


@pytest.fixture(params=WAYS)
def on_server(request):
    """Runs a test body with a face of each way to make a saver."""
    kind, opening = request.param
    is_async = kind.startswith("async ")
    face = Face(opening, request.getfixturevalue(kind.removeprefix("async ")), is_async)
    return lambda body: asyncio.run(body(face)) if is_async else run_now(body(face))


class Chat(TypedDict):
    messages: Annotated[list, add_messages]
    turn: int


def chat():
    """Three answers to every message: a loop."""

    def answer(state):
        turn = state.get("turn", 0) + 1
        return {"messages": [AIMessage(f"answer {turn}", id=f"ai-{turn}")], "turn": turn}

    builder = StateGraph(Chat)
    builder.add_node("answer", answer)
    builder.add_edge(START, "answer")
    builder.add_conditional_edges("answer", lambda state: END if state["turn"] % 3 == 0 else "answer")
    return builder


def said(number):
    return {"messages": [HumanMessage(f"message {number}", id=f"human-{number}")]}


def ids_after(turns):
    return [name for n in range(turns) for name in (f"human-{n}", *(f"ai-{3 * n + k}" for k in (1, 2, 3)))]


def ids(values):
    return [message.id for message in values["messages"]]


THREAD = {"configurable": {"thread_id": "thread-1"}}


def test_a_loop_goes_on_in_another_saver(on_server):
    async def body(face):
        async with face.open() as saver:
            await face.setup(saver)
            graph = chat().compile(checkpointer=saver)
            for number in range(3):
                final = await face.invoke(graph, said(number), THREAD)
            assert ids(final) == ids_after(3)
        async with face.open() as saver:
            graph = chat().compile(checkpointer=saver)
            final = await face.invoke(graph, said(3), THREAD)
            assert ids(final) == ids_after(4)
            assert [len(ids(one.values)) for one in await face.history(graph, THREAD) if one.next == ()] == [
                16,
                12,
                8,
                4,
            ]

    on_server(body)


def test_a_pruned_thread_resumes_forks_and_travels(on_server):
    async def body(face):
        async with face.open() as saver:
            graph = chat().compile(checkpointer=saver)
            for number in range(4):
                await face.invoke(graph, said(number), THREAD)
            thread = saver.thread("thread-1")
            plan = await face.call(thread, "prune", keep_last=2)
            assert len(plan.removes) > 10
        async with face.open() as saver:
            graph, thread = chat().compile(checkpointer=saver), saver.thread("thread-1")
            head, before = await face.history(graph, THREAD)
            assert ids(head.values) == ids_after(4)
            assert before.next == ("answer",)
            # Back in time: the last answer is given again.
            again = await face.invoke(graph, None, before.config)
            assert ids(again) == ids_after(4)
            # A branch in the thread, and one that is a thread of its own.
            branch = await face.call(thread, "fork", before.config)
            assert (await face.state(graph, branch.config)).values == before.values
            assert ids(await face.invoke(graph, None, branch.config)) == ids_after(4)
            other = await face.call(thread, "fork", head.config, to="thread-2")
            assert ids(await face.invoke(graph, said(4), other.config)) == ids_after(5)
            assert ids(await face.invoke(graph, said(4), THREAD)) == ids_after(5)
            assert ids((await face.state(graph, head.config)).values) == ids_after(4)
            assert (await face.call(saver, "fsck")).ok

    on_server(body)


class Order(TypedDict):
    trail: Annotated[list[str], operator.add]


def asking(inside):
    """Asks twice, the second time in a subgraph if `inside`."""

    def ask(name):
        return lambda state: {"trail": [f"{name} {interrupt(name)}"]}

    inner = StateGraph(Order)
    inner.add_node("check", lambda state: {"trail": ["checked"]})
    inner.add_node("approve", ask("approve?"))
    inner.add_edge(START, "check")
    inner.add_edge("check", "approve")
    outer = StateGraph(Order)
    outer.add_node("first", ask("first?"))
    outer.add_node("second", inner.compile() if inside else ask("second?"))
    outer.add_node("last", lambda state: {"trail": ["done"]})
    outer.add_edge(START, "first")
    outer.add_edge("first", "second")
    outer.add_edge("second", "last")
    return outer


def test_a_question_is_answered_in_another_saver(on_server):
    async def body(face):
        async with face.open() as saver:
            asked = await face.invoke(asking(False).compile(checkpointer=saver), {"trail": []}, THREAD)
            assert [one.value for one in asked["__interrupt__"]] == ["first?"]
        async with face.open() as saver:
            await face.invoke(asking(False).compile(checkpointer=saver), Command(resume="yes"), THREAD)
        async with face.open() as saver:
            final = await face.invoke(asking(False).compile(checkpointer=saver), Command(resume="no"), THREAD)
            assert final["trail"] == ["first? yes", "second? no", "done"]

    on_server(body)


@pytest.mark.parametrize("inside", [False, True], ids=["root", "subgraph"])
def test_a_stored_answer_lets_any_worker_go_on(on_server, inside):
    async def body(face):
        async with face.open() as saver:
            graph, thread = asking(inside).compile(checkpointer=saver), saver.thread("thread-1")
            [question] = (await face.invoke(graph, {"trail": []}, THREAD))["__interrupt__"]
            await face.call(thread, "answer", {question.id: "yes"})
            await face.call(thread, "prune", keep_last=1)
        async with face.open() as saver:
            graph, thread = asking(inside).compile(checkpointer=saver), saver.thread("thread-1")
            [question] = (await face.invoke(graph, None, THREAD))["__interrupt__"]
            await face.call(thread, "prune", keep_last=1)
            await face.call(thread, "answer", {question.id: "no"})
        async with face.open() as saver:
            final = await face.invoke(asking(inside).compile(checkpointer=saver), None, THREAD)
            # The trail of a subgraph starts with what it was given, and its parent adds all of it.
            second = ["first? yes", "checked", "approve? no"] if inside else ["second? no"]
            assert final["trail"] == ["first? yes", *second, "done"]
            assert not (await face.state(asking(inside).compile(checkpointer=saver), THREAD)).next

    on_server(body)


def delta(frequency):
    def extend(state, writes):
        return list(itertools.chain(state, *writes))

    words = Annotated[list, DeltaChannel(extend, snapshot_frequency=frequency)]
    builder = StateGraph(TypedDict("Words", {"words": words}))
    builder.add_node("echo", lambda state: {"words": [f"echo {state['words'][-1]}"]})
    builder.add_edge(START, "echo")
    return builder


@pytest.mark.parametrize("frequency", [3, 1000])
def test_a_delta_channel_outlives_a_prune(on_server, frequency):
    def expected(turns):
        return [word for turn in range(turns) for word in (f"word {turn}", f"echo word {turn}")]

    async def body(face):
        async with face.open() as saver:
            graph = delta(frequency).compile(checkpointer=saver)
            for turn in range(5):
                await face.invoke(graph, {"words": [f"word {turn}"]}, THREAD)
            await face.call(saver.thread("thread-1"), "prune", keep_last=2)
        async with face.open() as saver:
            graph, thread = delta(frequency).compile(checkpointer=saver), saver.thread("thread-1")
            head, before, *_ = await face.history(graph, THREAD)
            assert head.values["words"] == expected(5)
            assert (await face.invoke(graph, None, before.config))["words"] == expected(5)
            await face.call(thread, "fork", head.config, to="thread-2")
            other = {"configurable": {"thread_id": "thread-2"}}
            await face.call(thread, "delete")
            assert (await face.invoke(graph, {"words": ["word 5"]}, other))["words"] == expected(6)

    on_server(body)


def test_a_serializer_may_be_given_where_the_originals_take_it(postgres, mysql):
    """Second for MySQL, third for PostgreSQL; by its name for both."""
    serde = JsonPlusSerializer()
    with psycopg.connect(postgres.url, autocommit=True) as connection:
        for saver in (PostgresSaver(connection, None, serde), PostgresSaver(connection, serde=serde)):
            assert saver.serde is serde
    with pymysql.connect(**mysql_arguments(mysql.url), autocommit=True) as connection:
        for saver in (PyMySQLSaver(connection, serde), PyMySQLSaver(connection, serde=serde)):
            assert saver.serde is serde
