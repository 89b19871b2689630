"""A stream as its consumer sees it: the shape of chunks, printing, backpressure."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

from ..building.schema import is_model
from ..constants import INTERRUPT, START
from .stream import Chunk, Outlet

if TYPE_CHECKING:
    from ..compiled import Pregel

__all__ = ["Presenter", "as_output"]


class Presenter:
    """Takes chunks from an outlet and gives them the shape that was asked for."""

    def __init__(self, graph: Pregel, mode: Any, print_mode: Any, subgraphs: bool, version: str) -> None:
        self._graph = graph
        self._is_one = isinstance(mode, str)
        self._modes = frozenset((mode,) if isinstance(mode, str) else mode)
        self._printed = frozenset((print_mode,) if isinstance(print_mode, str) else print_mode)
        self._subgraphs = subgraphs
        self._version = version
        self.outlet = Outlet(self._modes | self._printed, subgraphs=subgraphs)

    def listen(self, buffer: int | None) -> None:
        """Bound the chunks that wait, if asked: writers then wait for the consumer."""
        if buffer is not None:
            if buffer < 1:
                raise ValueError("buffer is a number of chunks, at least 1")
            self.outlet.limit(buffer)

    def release(self) -> None:
        """The consumer is gone: nobody waits for it any more."""
        self.outlet.open()

    def take(self) -> Iterator[Any]:
        """The chunks that wait, in their shape."""
        chunks = self.outlet.chunks
        while chunks:
            chunk = self.outlet.take()
            if chunk[1] in self._printed:
                print(_labelled(chunk))
            if chunk[1] in self._modes:
                yield self._shaped(chunk)

    def _shaped(self, chunk: Chunk) -> Any:
        namespace, mode, payload = chunk
        if self._version == "v2":
            return self._part(namespace, mode, payload)
        if self._is_one:
            return (namespace, payload) if self._subgraphs else payload
        return (namespace, mode, payload) if self._subgraphs else (mode, payload)

    def _part(self, namespace: tuple[str, ...], mode: str, payload: Any) -> dict[str, Any]:
        part: dict[str, Any] = {"type": mode, "ns": namespace, "data": payload}
        if mode == "values":
            interrupts: Sequence[Any] = ()
            if isinstance(payload, dict) and INTERRUPT in payload:
                interrupts = payload[INTERRUPT]
                payload = {key: value for key, value in payload.items() if key != INTERRUPT}
            part["interrupts"] = tuple(interrupts)
            part["data"] = as_output(self._graph, payload) if not namespace else payload
        elif mode == "checkpoints":
            part["data"] = self._checkpoint(payload)
        elif mode == "debug" and payload["type"] == "checkpoint":
            part["data"] = {**payload, "payload": self._checkpoint(payload["payload"])}
        return part

    def _checkpoint(self, payload: dict[str, Any]) -> dict[str, Any]:
        builder = self._graph.builder
        if builder is None or START in payload["next"] or not is_model(builder.state_schema):
            return payload
        return {**payload, "values": builder.state_schema(**payload["values"])}


def as_output(graph: Pregel, values: Any) -> Any:
    """Values as the output schema's class, when it has one."""
    builder = graph.builder
    if builder is None or not isinstance(values, dict) or not is_model(builder.output_schema):
        return values
    return builder.output_schema(**values)


def _labelled(chunk: Chunk) -> str:
    namespace, mode, payload = chunk
    where = f"[{'|'.join(namespace)}] " if namespace else ""
    return f"{where}[{mode}] {payload}"
