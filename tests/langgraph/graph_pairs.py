"""LangGraph's own savers and ours, opened alike, and results of both made comparable.

A program is an `async def` of a saver and a face. The face is the half it runs through: `await face.invoke(graph, …)`
calls `graph.invoke` or awaits `graph.ainvoke`. Each saver is used as its own documentation tells.
"""

import contextlib
import dataclasses
import enum
import inspect
import re
import types

import pydantic
from langgraph.checkpoint.memory import InMemorySaver as OriginalInMemorySaver
from langgraph.checkpoint.postgres import PostgresSaver as OriginalPostgresSaver
from langgraph.checkpoint.postgres.aio import AsyncPostgresSaver as OriginalAsyncPostgresSaver
from langgraph.checkpoint.sqlite import SqliteSaver as OriginalSqliteSaver
from langgraph.checkpoint.sqlite.aio import AsyncSqliteSaver as OriginalAsyncSqliteSaver

from threadline.langgraph import AsyncPostgresSaver, AsyncSqliteSaver, InMemorySaver, PostgresSaver, SqliteSaver

WHERE = ("memory", "sqlite", "postgres")
WHOSE = ("original", "ours")
CLASSES = {
    ("original", "memory", "sync"): OriginalInMemorySaver,
    ("original", "memory", "async"): OriginalInMemorySaver,
    ("original", "sqlite", "sync"): OriginalSqliteSaver,
    ("original", "sqlite", "async"): OriginalAsyncSqliteSaver,
    ("original", "postgres", "sync"): OriginalPostgresSaver,
    ("original", "postgres", "async"): OriginalAsyncPostgresSaver,
    ("ours", "memory", "sync"): InMemorySaver,
    ("ours", "memory", "async"): InMemorySaver,
    ("ours", "sqlite", "sync"): SqliteSaver,
    ("ours", "sqlite", "async"): AsyncSqliteSaver,
    ("ours", "postgres", "sync"): PostgresSaver,
    ("ours", "postgres", "async"): AsyncPostgresSaver,
}


class Face:
    """One half of graphs and savers, under the sync names; everything is awaited."""

    def __init__(self, half):
        self.is_async = half == "async"

    def __getattr__(self, verb):
        async def call(owner, *args, **kwargs):
            made = getattr(owner, f"a{verb}" if self.is_async else verb)(*args, **kwargs)
            return await made if inspect.isawaitable(made) else made

        return call

    async def all(self, owner, verb, *args, **kwargs):
        """Everything that an iterating method yields."""
        if self.is_async:
            return [each async for each in getattr(owner, f"a{verb}")(*args, **kwargs)]
        return list(getattr(owner, verb)(*args, **kwargs))


@contextlib.asynccontextmanager
async def opened(whose, where, half, at):
    """A saver of its class, on a path or a URL."""
    made = CLASSES[whose, where, half]
    if where == "memory":
        with made() as saver:
            yield saver
    elif half == "sync":
        with made.from_conn_string(at) as saver:
            saver.setup()
            yield saver
    else:
        async with made.from_conn_string(at) as saver:
            await saver.setup()
            yield saver


ID = re.compile(r"[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}|\b[0-9a-f]{32}\b")
TIME = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(?:\.\d+)?(?:\+00:00|Z)?")


def comparable(result):
    """A result as plain data: ids by the order in which they appear, times left out, instances with their classes."""
    return _Comparable().plain(result)


class _Comparable:
    def __init__(self):
        self._ids = {}

    def plain(self, value):
        if isinstance(value, enum.Enum):
            return (type(value).__name__, value.value)
        if isinstance(value, str):
            return self._text(value)
        if isinstance(value, BaseException):
            # One half of the savers gives an error back, the other its text; both say the same.
            return self._text(_error_text(repr(value)))
        if isinstance(value, pydantic.BaseModel):
            fields = {name: getattr(value, name) for name in type(value).model_fields}
            return (type(value).__name__, self.plain(fields | (value.model_extra or {})))
        if dataclasses.is_dataclass(value) and not isinstance(value, type):
            # Private fields are a cache of others.
            fields = {one.name: getattr(value, one.name) for one in dataclasses.fields(value) if one.name[0] != "_"}
            return (type(value).__name__, self.plain(fields))
        if hasattr(value, "_asdict"):
            return (type(value).__name__, self.plain(value._asdict()))
        if isinstance(value, (dict, types.MappingProxyType)):
            return {self.plain(key): self.plain(value[key]) for key in sorted(value, key=str)}
        if isinstance(value, (list, tuple)):
            return type(value)(self.plain(one) for one in value)
        if isinstance(value, (set, frozenset)):
            return sorted(self.plain(one) for one in value)
        return value

    def _text(self, text):
        text = TIME.sub("<time>", _error_text(text))
        return ID.sub(lambda found: self._ids.setdefault(found[0], f"<id {len(self._ids)}>"), text)


def _error_text(text):
    return "CancelledError()" if text == "CancelledError('')" else text
