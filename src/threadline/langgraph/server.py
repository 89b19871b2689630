"""For `langgraph.json`: `"checkpointer": {"path": "threadline.langgraph.server:checkpointer"}`; likewise `store`.

The store is the one that the environment variable THREADLINE_URL names; LANGGRAPH_AES_KEY, where it is
set, encrypts it.
"""

from __future__ import annotations

import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

from ..codec.seal import KeyRing
from ..errors import InvalidRequest
from .checkpointer import Checkpointer
from .store import Store

__all__ = ["checkpointer", "store"]


@asynccontextmanager
async def checkpointer() -> AsyncIterator[Checkpointer]:
    """The checkpointer of a LangGraph server, open for as long as the server runs."""
    async with Checkpointer.from_env(**_options()) as saver:
        yield saver


@asynccontextmanager
async def store() -> AsyncIterator[Store]:
    """The store of a LangGraph server, open for as long as the server runs."""
    url = os.environ.get("THREADLINE_URL", "").strip()
    if not url:
        raise InvalidRequest("the environment variable THREADLINE_URL is not set; it names the store")
    async with Store(url, **_options()) as opened:
        yield opened


def _options() -> dict[str, Any]:
    if os.environ.get("LANGGRAPH_AES_KEY"):
        return {"encryption": KeyRing.from_env("LANGGRAPH_AES_KEY")}
    return {}
