"""One case on one engine in one half: `t.StateGraph` and the engine's other names, and the calls of graphs.

A case calls `t.invoke(graph, …)` where a program calls `graph.invoke` or awaits `graph.ainvoke`; `t.node(f)` makes a
plain function the kind of function that the half calls.
"""

from __future__ import annotations

import asyncio
import functools
import inspect
import logging
import warnings
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from itertools import groupby
from typing import Any

from oracle_engines import Engine
from oracle_normal import as_lists, by_order, described, plain, version_number, without_ids

PARALLEL = ("updates", "tasks", "custom", "messages", "debug")


@dataclass
class Trial:
    """The engine's names, its calls in one half, and what they gave."""

    engine: Engine
    is_async: bool
    loop: asyncio.AbstractEventLoop | None = field(default=None, repr=False)

    def __getattr__(self, name: str) -> Any:
        return getattr(self.engine, name)

    @property
    def is_ours(self) -> bool:
        return self.engine.is_ours

    def config(self, thread: str = "1", **configurable: Any) -> dict[str, Any]:
        return {"configurable": {"thread_id": thread, **configurable}}

    def node(self, function: Callable[..., Any]) -> Callable[..., Any]:
        """The function, async in the async half. Its name and parameters stay."""
        if not self.is_async or inspect.iscoroutinefunction(function):
            return function

        @functools.wraps(function)
        async def awaited(*args: Any, **kwargs: Any) -> Any:
            await asyncio.sleep(0)
            return function(*args, **kwargs)

        return awaited

    def writes(self, **update: Any) -> Callable[..., Any]:
        """A node that always writes the same."""
        return self.node(lambda state: dict(update))

    def graph(self, schema: Any, nodes: dict[str, Any], edges: Iterable[Any] = (), **compiled: Any) -> Any:
        """A compiled graph of plain nodes and edges."""
        return self.builder(schema, nodes, edges).compile(**compiled)

    def builder(self, schema: Any, nodes: dict[str, Any], edges: Iterable[Any] = (), **keywords: Any) -> Any:
        builder = self.StateGraph(schema, **keywords)
        for name, action in nodes.items():
            if isinstance(action, tuple):
                builder.add_node(name, action[0], **action[1])
            else:
                builder.add_node(name, action)
        for source, target in edges:
            builder.add_edge(source, target)
        return builder

    # -- calls of graphs

    def do(self, graph: Any, method: str, *args: Any, **kwargs: Any) -> Any:
        """Call a method of a graph, or await its async twin."""
        if not self.is_async:
            return getattr(graph, method)(*args, **kwargs)
        return self.wait(getattr(graph, f"a{method}")(*args, **kwargs))

    def wait(self, awaitable: Any) -> Any:
        assert self.loop is not None
        return self.loop.run_until_complete(awaitable)

    def invoke(self, graph: Any, given: Any, config: Any = None, **kwargs: Any) -> Any:
        return plain(self.do(graph, "invoke", given, config, **kwargs))

    def raw_stream(self, graph: Any, given: Any, config: Any = None, **kwargs: Any) -> list[Any]:
        if not self.is_async:
            return list(graph.stream(given, config, **kwargs))

        async def all_of() -> list[Any]:
            return [chunk async for chunk in graph.astream(given, config, **kwargs)]

        return self.wait(all_of())  # type: ignore[no-any-return]

    def stream(self, graph: Any, given: Any, config: Any = None, *, unordered: bool = False, **kwargs: Any) -> Any:
        """Every chunk; `unordered` sorts what tasks of one step give, which comes in the order of finishing."""
        chunks = [plain(chunk) for chunk in self.raw_stream(graph, given, config, **kwargs)]
        return settled(chunks, kwargs.get("stream_mode")) if unordered else chunks

    def modes(self, graph: Any, given: Any, config: Any = None, **kwargs: Any) -> Any:
        """The stream in every mode that needs no saver, at once."""
        every = ["values", "updates", "tasks", "custom", "messages"]
        return self.stream(graph, given, config, stream_mode=every, unordered=True, **kwargs)

    def error(self, call: Callable[[], Any], length: int = 24) -> Any:
        """How a call fails; that it does not is shown too."""
        try:
            return {"returned": plain(call())}
        except Exception as error:
            return described(error, length)

    def warned(self, call: Callable[[], Any]) -> Any:
        """What a call gives, and the categories of its warnings."""
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            result = plain(call())
        return {"result": result, "warned": sorted({warning.category.__name__ for warning in caught})}

    # -- state and history

    def state(self, graph: Any, config: Any, **kwargs: Any) -> Any:
        return plain(self.do(graph, "get_state", config, **kwargs))

    def snapshot(self, graph: Any, config: Any, **kwargs: Any) -> Any:
        """The snapshot itself, for a case that goes on with its config."""
        return self.do(graph, "get_state", config, **kwargs)

    def snapshots(self, graph: Any, config: Any, **kwargs: Any) -> list[Any]:
        if not self.is_async:
            return list(graph.get_state_history(config, **kwargs))

        async def all_of() -> list[Any]:
            return [snapshot async for snapshot in graph.aget_state_history(config, **kwargs)]

        return self.wait(all_of())  # type: ignore[no-any-return]

    def history(self, graph: Any, config: Any, **kwargs: Any) -> Any:
        return [plain(snapshot) for snapshot in self.snapshots(graph, config, **kwargs)]

    def update(self, graph: Any, config: Any, values: Any, *args: Any, **kwargs: Any) -> Any:
        return self.do(graph, "update_state", config, values, *args, **kwargs)

    def stored(self, saver: Any, config: Any) -> Any:
        """Every checkpoint as the saver has it, with pending writes; versions by their order."""
        found = list(saver.list({"configurable": {"thread_id": config["configurable"]["thread_id"]}}))
        # Savers list namespaces in no order that means anything: by their names, then by when they began.
        found.sort(key=_checkpoint_id, reverse=True)
        began = {_namespace(item): _checkpoint_id(item) for item in found}
        found.sort(key=lambda item: (without_ids(_namespace(item)), began[_namespace(item)]))

        def seen(versions: dict[str, Any]) -> dict[str, Any]:
            return {channel: version_number(version) for channel, version in sorted(versions.items())}

        return [
            {
                "config": plain(item.config),
                "parent": plain(item.parent_config),
                "metadata": plain(dict(item.metadata)),
                "values": {
                    key: as_lists(plain(value)) for key, value in sorted(item.checkpoint["channel_values"].items())
                },
                "versions": seen(item.checkpoint["channel_versions"]),
                "seen": {node: seen(versions) for node, versions in sorted(item.checkpoint["versions_seen"].items())},
                "updated": plain(item.checkpoint.get("updated_channels")),
                "writes": sorted(
                    (as_lists(plain(list(write))) for write in item.pending_writes or []),
                    key=lambda w: repr(without_ids(w)),
                ),
            }
            for item in found
        ]

    def everything(self, graph: Any, saver: Any, config: Any) -> Any:
        """The head, the history, and what is stored of a thread."""
        return {
            "state": self.state(graph, config),
            "history": self.history(graph, config),
            "stored": self.stored(saver, config),
        }


def _namespace(item: Any) -> str:
    return str(item.config["configurable"]["checkpoint_ns"])


def _checkpoint_id(item: Any) -> str:
    return str(item.config["configurable"]["checkpoint_id"])


def settled(chunks: list[Any], mode: Any) -> list[Any]:
    """Chunks of parallel tasks in an order that does not depend on who finished first."""
    single = mode if isinstance(mode, str) else None

    def mode_of(chunk: Any) -> str:
        if single is not None:
            return single
        if isinstance(chunk, dict):
            return str(chunk["type"])
        return str(chunk[1][-2])

    def kind(chunk: Any) -> str:
        found = mode_of(chunk)
        return "parallel" if found in PARALLEL else found

    result: list[Any] = []
    for found, run in groupby(chunks, kind):
        together = list(run)
        if found == "parallel":
            together.sort(key=lambda chunk: (mode_of(chunk), repr(without_ids(chunk))))
        result += together
    return result


def observe(case: Callable[[Trial], Any], engine: Engine, is_async: bool) -> Any:
    """What a case saw on an engine, ready to compare."""
    logging.disable(logging.WARNING)
    loop = asyncio.new_event_loop() if is_async else None
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            return by_order(plain_observation(case(Trial(engine, is_async, loop))))
    finally:
        logging.disable(logging.NOTSET)
        if loop is not None:
            loop.run_until_complete(loop.shutdown_asyncgens())
            loop.run_until_complete(loop.shutdown_default_executor())
            loop.close()


def plain_observation(observed: Any) -> Any:
    """A case's own dict or list of observations, which are plain already."""
    if isinstance(observed, dict):
        return {key: plain_observation(value) for key, value in observed.items()}
    if isinstance(observed, list):
        return [plain_observation(value) for value in observed]
    if isinstance(observed, tuple) and len(observed) == 2 and observed[0] in ("tuple", "list", "deque"):
        return observed
    return plain(observed)
