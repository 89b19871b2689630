"""From the option `metrics` of `connect` to an engine that is counted."""

from __future__ import annotations

import weakref
from collections.abc import Callable, Coroutine, Iterable
from typing import Any, TypeVar

from ..backends.layers.metered import MeteredLayer, metered_put
from ..errors import Corrupt
from ..ports.engine import Engine, Operation
from .meter import Meter, Sample

__all__ = ["metered"]

T = TypeVar("T")


def metered(engine: Any, metrics: Any, system: str) -> Engine:
    """The engine, with a meter that is told of its calls, its shared commits, its pools and its retries.

    An engine of its own is changed and returned. One without metrics has nothing of this, and pays nothing.
    """
    meter = _meter_of(metrics)
    engine.meter = meter
    put = engine.put_usual
    engine.add_layer(lambda backend, _: MeteredLayer(backend, meter, system))
    if put is not None and meter.spans(system, "apply") is None:
        engine.put_usual = metered_put(put, meter, system)
    _count_damage(engine, meter)
    watch = getattr(engine, "watch", None)
    if watch is not None:
        watch(lambda size, waited: _note_group(meter, system, size, waited))
    held = weakref.ref(engine)

    def source() -> Iterable[Sample]:
        found = held()
        return _figures(found, system) if found is not None else ()

    meter.add_source(source)
    made: Engine = engine
    return made


def _count_damage(engine: Any, meter: Meter) -> None:
    """Damage is found by the operations, above the ports: all of them are run by one of these methods."""
    run, arun, awrite = engine.run, engine.arun, engine.awrite

    def counted_run(operation: Operation[T]) -> T:
        try:
            found: T = run(operation)
            return found
        except Corrupt:
            meter.count("threadline.corrupt")
            raise

    def counted(start: Callable[[Operation[Any]], Coroutine[Any, Any, Any]]) -> Any:
        async def counted_start(operation: Operation[T]) -> T:
            try:
                found: T = await start(meter.carried(operation))
                return found
            except Corrupt:
                meter.count("threadline.corrupt")
                raise

        return counted_start

    engine.run, engine.arun, engine.awrite = counted_run, counted(arun), counted(awrite)


def _meter_of(metrics: Any) -> Any:
    if metrics is True:
        return Meter()
    if metrics == "otel":
        from .otel import the_meter

        return the_meter()
    return metrics


def _note_group(meter: Meter, system: str, size: int, waited: float | None) -> None:
    meter.observe("threadline.commit.group.size", size, (system,))
    if waited is not None:
        meter.observe("threadline.commit.group.wait", waited, (system,))


def _figures(engine: Any, system: str) -> Iterable[Sample]:
    if hasattr(engine, "retries"):
        yield Sample("threadline.retries", (system,), engine.retries)
    pools = engine.connections() if hasattr(engine, "connections") else {}
    for half, pool in pools.items():
        yield Sample("db.client.connection.count", (system, half, "idle"), pool.idle)
        yield Sample("db.client.connection.count", (system, half, "used"), pool.used)
        yield Sample("db.client.connection.max", (system, half), pool.most)
        yield Sample("db.client.connection.pending_requests", (system, half), pool.waiting)
