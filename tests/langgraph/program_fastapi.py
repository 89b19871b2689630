"""A web application that is sent 64 posts at once, to eight chats."""

import asyncio
import operator
from typing import Annotated, TypedDict

import httpx
from fastapi import FastAPI
from langgraph.graph import START, StateGraph

CHATS, POSTS = 8, 64


class Chat(TypedDict):
    lines: Annotated[list[str], operator.add]


def build():
    builder = StateGraph(Chat)
    builder.add_node("reply", lambda state: {"lines": [f"re: {state['lines'][-1]}"]})
    builder.add_edge(START, "reply")
    return builder


def make_app(graph, face):
    app = FastAPI()
    turns = [asyncio.Lock() for _ in range(CHATS)]

    @app.post("/chats/{chat}")
    async def say(chat: int, text: str):
        config = {"configurable": {"thread_id": f"chat-{chat}"}}
        async with turns[chat]:
            if face.is_async:
                return await graph.ainvoke({"lines": [text]}, config)
            return await asyncio.to_thread(graph.invoke, {"lines": [text]}, config)

    return app


async def program(saver, face):
    graph = build().compile(checkpointer=saver)
    transport = httpx.ASGITransport(app=make_app(graph, face))
    async with httpx.AsyncClient(transport=transport, base_url="http://test") as client:
        posts = [client.post(f"/chats/{at % CHATS}", params={"text": f"text {at}"}) for at in range(POSTS)]
        answers = await asyncio.gather(*posts)
    chats = []
    for chat in range(CHATS):
        config = {"configurable": {"thread_id": f"chat-{chat}"}}
        state = await face.get_state(graph, config)
        history = await face.all(graph, "get_state_history", config)
        # Posts to one chat come in an order of their own; none is lost, and each is answered next.
        lines = state.values["lines"]
        pairs = sorted(zip(lines[::2], lines[1::2], strict=True))
        chats.append((pairs, [(len(one.values.get("lines", [])), one.metadata["step"]) for one in history]))
    return [[answer.status_code for answer in answers], chats]
