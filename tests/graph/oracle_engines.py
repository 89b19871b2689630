"""The two engines behind one set of names: a graph written against `Engine` runs on LangGraph and on Threadline."""

from __future__ import annotations

import importlib
from dataclasses import dataclass, field
from typing import Any

NAMES = {
    "langgraph": (
        "langgraph.graph",
        "langgraph.graph.message",
        "langgraph.types",
        "langgraph.errors",
        "langgraph.channels",
        "langgraph.func",
        "langgraph.runtime",
        "langgraph.config",
        "langgraph.managed",
        "langgraph.constants",
        "langgraph.pregel",
        "langgraph.warnings",
    ),
    "threadline": ("threadline.graph", "threadline.graph.constants", "threadline.graph.types"),
}


@dataclass(frozen=True)
class Engine:
    """One engine's names, and a saver for it."""

    name: str
    found: dict[str, Any] = field(default_factory=dict)

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        if name not in self.found:
            self.found[name] = self._look_up(name)
        return self.found[name]

    @property
    def is_ours(self) -> bool:
        return self.name == "threadline"

    def saver(self) -> Any:
        """A new saver in memory, the engine's own."""
        if self.is_ours:
            import threadline

            return threadline.connect("memory://")
        from langgraph.checkpoint.memory import InMemorySaver

        return InMemorySaver()

    def cache(self) -> Any:
        """A new cache in memory."""
        if self.is_ours:
            return self._look_up("InMemoryCache")()
        from langgraph.cache.memory import InMemoryCache

        return InMemoryCache()

    def store(self) -> Any:
        """A new store in memory: LangGraph's for both, since a store is the user's."""
        from langgraph.store.memory import InMemoryStore

        return InMemoryStore()

    def human(self, text: str, key: str | None = None) -> Any:
        return self._message("user", "HumanMessage", text, key)

    def ai(self, text: str, key: str | None = None) -> Any:
        return self._message("assistant", "AIMessage", text, key)

    def removal(self, key: str) -> Any:
        if self.is_ours:
            return self._look_up("RemoveMessage")(id=key)
        from langchain_core.messages import RemoveMessage

        return RemoveMessage(id=key)

    def _message(self, role: str, theirs: str, text: str, key: str | None) -> Any:
        if self.is_ours:
            return {"role": role, "content": text} | ({"id": key} if key else {})
        return getattr(importlib.import_module("langchain_core.messages"), theirs)(text, id=key)

    def _look_up(self, name: str) -> Any:
        for module in NAMES[self.name]:
            value = getattr(importlib.import_module(module), name, None)
            if value is not None:
                return value
        raise AttributeError(f"{self.name} has no {name}")


LANGGRAPH = Engine("langgraph")
THREADLINE = Engine("threadline")
