"""For `langgraph.json`: `"checkpointer": {"path": "threadline.langgraph.server:checkpointer"}`.

The store is the one that the environment variable THREADLINE_URL names; LANGGRAPH_AES_KEY, where it is
set, encrypts it.
"""

from __future__ import annotations

import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

from ..codec.seal import KeyRing
from .checkpointer import Checkpointer

__all__ = ["checkpointer"]


@asynccontextmanager
async def checkpointer() -> AsyncIterator[Checkpointer]:
    """The checkpointer of a LangGraph server, open for as long as the server runs."""
    options: dict[str, Any] = {}
    if os.environ.get("LANGGRAPH_AES_KEY"):
        options["encryption"] = KeyRing.from_env("LANGGRAPH_AES_KEY")
    async with Checkpointer.from_env(**options) as saver:
        yield saver
