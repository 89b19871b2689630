"""A web application that opens one Checkpointer in its lifespan and serves many chats with it."""

import asyncio
import operator
from contextlib import asynccontextmanager
from typing import Annotated, TypedDict

import httpx
import pytest
from fastapi import FastAPI, Request
from langgraph.graph import START, StateGraph
from langgraph.types import Command, interrupt

from threadline.langgraph import Checkpointer


class Chat(TypedDict):
    lines: Annotated[list[str], operator.add]


def build():
    def reply(state):
        asked = state["lines"][-1]
        answer = interrupt("are you sure?") if asked == "delete all" else "fine"
        return {"lines": [f"{answer}: {asked}"]}

    builder = StateGraph(Chat)
    builder.add_node("reply", reply)
    builder.add_edge(START, "reply")
    return builder


def make_app(url):
    @asynccontextmanager
    async def lifespan(app):
        async with Checkpointer(url) as saver:
            app.state.saver = saver
            app.state.graph = build().compile(checkpointer=saver)
            yield

    app = FastAPI(lifespan=lifespan)

    def config(chat):
        return {"configurable": {"thread_id": chat}}

    @app.post("/chats/{chat}")
    async def say(chat: str, text: str, request: Request):
        final = await request.app.state.graph.ainvoke({"lines": [text]}, config(chat))
        return {"lines": final["lines"], "waits": "__interrupt__" in final}

    @app.post("/chats/{chat}/answer")
    async def answer(chat: str, text: str, request: Request):
        return await request.app.state.graph.ainvoke(Command(resume=text), config(chat))

    @app.get("/chats/{chat}")
    def read(chat: str, request: Request):
        # Not `async`: FastAPI runs it in a worker thread, so this is the sync half.
        return request.app.state.graph.get_state(config(chat)).values

    @app.delete("/chats/{chat}")
    async def reset(chat: str, request: Request):
        await request.app.state.saver.adelete_thread(chat)

    return app


@asynccontextmanager
async def serving(url):
    app = make_app(url)
    async with app.router.lifespan_context(app):
        transport = httpx.ASGITransport(app=app)
        async with httpx.AsyncClient(transport=transport, base_url="http://app.test") as client:
            yield client


async def say(client, chat, text):
    response = await client.post(f"/chats/{chat}", params={"text": text})
    response.raise_for_status()
    return response.json()


def spoken(*texts):
    return [line for text in texts for line in (text, f"fine: {text}")]


def test_concurrent_requests_share_one_checkpointer(url):
    async def converse(client, chat):
        for turn in range(4):
            await say(client, chat, f"{chat} {turn}")
        return (await client.get(f"/chats/{chat}")).json()["lines"]

    async def run():
        async with serving(url) as client:
            return await asyncio.gather(*(converse(client, f"chat-{n}") for n in range(20)))

    assert asyncio.run(run()) == [spoken(*(f"chat-{number} {turn}" for turn in range(4))) for number in range(20)]


def test_chats_survive_a_restart_of_the_application(sqlite_url):
    async def visit(text):
        async with serving(sqlite_url) as client:
            return await say(client, "ann", text)

    for text in ("one", "two", "three"):
        final = asyncio.run(visit(text))

    assert final == {"lines": spoken("one", "two", "three"), "waits": False}


def test_a_question_is_answered_after_a_restart(sqlite_url):
    async def ask():
        async with serving(sqlite_url) as client:
            return await say(client, "ann", "delete all")

    async def answer():
        async with serving(sqlite_url) as client:
            response = await client.post("/chats/ann/answer", params={"text": "sure"})
            return response.json()

    assert asyncio.run(ask()) == {"lines": ["delete all"], "waits": True}
    assert asyncio.run(answer())["lines"] == ["delete all", "sure: delete all"]


@pytest.mark.parametrize("resets", [1, 3])
def test_a_chat_is_reset_while_others_go_on(url, resets):
    async def chatter(client, chat):
        for turn in range(8):
            await say(client, chat, f"{turn}")
        return (await client.get(f"/chats/{chat}")).json()["lines"]

    async def start_over(client):
        for _ in range(resets):
            await say(client, "reset", "old")
            (await client.delete("/chats/reset")).raise_for_status()
        return (await say(client, "reset", "new"))["lines"]

    async def run():
        async with serving(url) as client:
            return await asyncio.gather(start_over(client), *(chatter(client, f"chat-{n}") for n in range(4)))

    restarted, *others = asyncio.run(run())

    assert restarted == spoken("new")
    assert others == [spoken(*map(str, range(8)))] * 4
