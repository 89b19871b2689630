"""The page inside an application with a login of its own, in both halves, with PostgreSQL behind it."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from typing import Any

import httpx
import pytest
from fastapi import FastAPI, Request
from fastapi.responses import PlainTextResponse
from starlette.testclient import TestClient
from web_store import fill

import threadline
import threadline.web

LOGIN = {"Authorization": "Bearer ann"}
SAME_ORIGIN = {"Sec-Fetch-Site": "same-origin"}


def application(saver: threadline.Saver, **options: Any) -> FastAPI:
    site = FastAPI()

    @site.middleware("http")
    async def login(request: Request, following: Any) -> Any:
        if request.headers.get("authorization") != LOGIN["Authorization"]:
            return PlainTextResponse("who are you?", 401)
        return await following(request)

    @site.get("/hello")
    async def hello() -> str:
        return "hello"

    site.mount("/threads", threadline.web.app(saver, **options))
    return site


@pytest.fixture(params=["async", "sync"])
def half(request: pytest.FixtureRequest) -> str:
    return str(request.param)


def test_it_is_behind_the_login_and_its_links_stay_below_its_place(saver: threadline.Saver, half: str) -> None:
    with TestClient(application(saver, half=half, write=True)) as client:
        assert client.get("/threads/threads").text == "who are you?"
        text = client.get("/threads/", headers=LOGIN).text
        assert "lisbon" in text
        assert 'href="/threads/thread?id=lisbon"' in text
        assert 'src="/threads/static/htmx.min.js?v=' in text
        assert client.get("/threads/static/style.css", headers=LOGIN).status_code == 200
        assert client.get("/hello", headers=LOGIN).json() == "hello"
        act = {"act": "archive", "id": "lisbon"}
        assert client.post("/threads/act", data=act, headers=LOGIN).status_code == 403
        done = client.post("/threads/act", data=act, headers={**LOGIN, **SAME_ORIGIN}, follow_redirects=False)
        assert done.headers["location"].startswith("/threads/thread?id=lisbon&said=")
    assert saver.thread("lisbon").info().status == "archived"


VIEWS = [
    "threads", "threads?sort=size", "threads?status=waits", "threads?filter=user=ann", "thread?id=lisbon",
    "checkpoint?id=lisbon", "value?id=lisbon&channel=messages", "writes?id=essay", "diff?id=lisbon",
    "versions?id=counter&channel=log", "merge?id=lisbon", "inbox", "plan?what=prune&id=counter&keep_last=3",
    "plan?what=sweep&go=1&keep_last=3", "plan?what=gc", "storage", "health", "find?q=lis", "store",
    "store?ns=users/ann&key=likes", "cache",
]  # fmt: skip


@pytest.fixture(params=["postgres", "mysql", "redis_server"])
def on_a_server(request: pytest.FixtureRequest) -> Iterator[threadline.Saver]:
    place = request.getfixturevalue(request.param)
    options = {name: getattr(place, name) for name in ("table_prefix", "key_prefix") if hasattr(place, name)}
    fill(place.url, **options)
    with threadline.connect(place.url, **options) as saver:
        yield saver


async def opened(saver: threadline.Saver, half: str) -> None:
    """Look at every view, then carry a plan out."""
    transport = httpx.ASGITransport(app=application(saver, half=half, write=True))
    async with httpx.AsyncClient(transport=transport, base_url="http://test", headers=LOGIN) as client:
        for view in VIEWS:
            answer = await client.get(f"/threads/{view}")
            assert answer.status_code == 200, f"{half} {view}: {answer.text}"
            assert (await client.get(f"/threads/{view}".replace("?", ".json?", 1))).status_code in (200, 404)
        plan = (await client.get("/threads/plan?what=prune&id=counter&keep_last=3")).text
        name = plan.partition('name="plan" value="')[2].partition('"')[0]
        await client.post("/threads/plan", data={"plan": name}, headers=SAME_ORIGIN)
    if half == "async":
        await saver.aclose()


def test_every_view_opens_on_every_server_in_both_halves(on_a_server: threadline.Saver) -> None:
    asyncio.run(opened(on_a_server, "sync"))
    assert len(on_a_server.thread("counter").log()) == 3
    asyncio.run(opened(on_a_server, "async"))
