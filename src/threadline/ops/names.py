"""Every metric: its name, kind, unit and labels. docs/metrics.md, the rules and the dashboard are made of these.

Names and units are those of OpenTelemetry's semantic conventions where it has one, and ours below `threadline.`
otherwise. A label never names a thread, a user, a run or anything else that grows with use.
"""

from __future__ import annotations

from dataclasses import dataclass

from ..backends.layers.layer import MARKS
from ..errors import Corrupt, ThreadlineError, Unavailable

__all__ = [
    "CATALOGUE",
    "COUNTER",
    "DURATION",
    "DURATION_BOUNDS",
    "GAUGE",
    "GROUP_BOUNDS",
    "HISTOGRAM",
    "LONG",
    "Metric",
    "REFUSALS",
    "WAIT_BOUNDS",
    "metric",
    "system_of",
]

COUNTER, GAUGE, HISTOGRAM = "counter", "gauge", "histogram"
# The boundaries that the semantic conventions ask for.
DURATION_BOUNDS = (0.001, 0.005, 0.01, 0.05, 0.1, 0.5, 1.0, 5.0, 10.0)
WAIT_BOUNDS = (0.0001, 0.0005, *DURATION_BOUNDS)
GROUP_BOUNDS = (1.0, 2.0, 4.0, 8.0, 16.0, 32.0, 64.0, 128.0)
_SUFFIXES = {"s": "_seconds", "By": "_bytes"}
_SYSTEM = ("db.system.name",)
_POOL = ("db.system.name", "db.client.connection.pool.name")


@dataclass(frozen=True, slots=True, kw_only=True)
class Metric:
    """One metric, as OpenTelemetry and as Prometheus name it."""

    name: str
    kind: str
    unit: str
    about: str
    labels: tuple[str, ...] = ()
    bounds: tuple[float, ...] = ()

    @property
    def prometheus(self) -> str:
        """The name that Prometheus has for it, without the suffixes of a histogram's parts."""
        plain = self.name.replace(".", "_") + _SUFFIXES.get(self.unit, "")
        return plain + "_total" if self.kind == COUNTER else plain


DURATION = "db.client.operation.duration"
CATALOGUE: tuple[Metric, ...] = (
    Metric(
        name=DURATION,
        kind=HISTOGRAM,
        unit="s",
        about="How long a call of the storage took, retries included; `error.type` is the class of its error.",
        labels=("db.system.name", "db.operation.name", "error.type"),
        bounds=DURATION_BOUNDS,
    ),
    Metric(
        name="db.client.connection.count",
        kind=GAUGE,
        unit="{connection}",
        about="The connections of a pool, by state: `idle` or `used`.",
        labels=(*_POOL, "db.client.connection.state"),
    ),
    Metric(
        name="db.client.connection.max",
        kind=GAUGE,
        unit="{connection}",
        about="How many connections a pool may have.",
        labels=_POOL,
    ),
    Metric(
        name="db.client.connection.pending_requests",
        kind=GAUGE,
        unit="{request}",
        about="The tasks and threads that wait for a connection of a pool.",
        labels=_POOL,
    ),
    Metric(
        name="threadline.written.raw",
        kind=COUNTER,
        unit="By",
        about="Bytes that puts wrote, before compression; what is encrypted counts as it is stored.",
    ),
    Metric(
        name="threadline.written.stored",
        kind=COUNTER,
        unit="By",
        about="Bytes that puts wrote, as they are stored.",
    ),
    Metric(
        name="threadline.checkpoints.written", kind=COUNTER, unit="{checkpoint}", about="Checkpoints that were put."
    ),
    Metric(name="threadline.chunks.written", kind=COUNTER, unit="{chunk}", about="Chunks that puts wrote."),
    Metric(
        name="threadline.chunks.known",
        kind=COUNTER,
        unit="{chunk}",
        about="References of puts to chunks that were stored before, and not written again.",
    ),
    Metric(
        name="threadline.puts.stale",
        kind=COUNTER,
        unit="{put}",
        about="Puts that were sent again with all their chunks, because chunks were collected meanwhile.",
    ),
    Metric(
        name="threadline.conflicts",
        kind=COUNTER,
        unit="{put}",
        about="Puts that were refused: another writer was first, the thread was deleted, a lease was lost.",
    ),
    Metric(
        name="threadline.corrupt",
        kind=COUNTER,
        unit="{operation}",
        about="Operations that met damaged bytes.",
    ),
    Metric(
        name="threadline.retries",
        kind=COUNTER,
        unit="{retry}",
        about="Calls that were tried again, because the server did not answer or was busy.",
        labels=_SYSTEM,
    ),
    Metric(
        name="threadline.commit.group.size",
        kind=HISTOGRAM,
        unit="{put}",
        about="How many callers shared a commit, where callers met.",
        labels=_SYSTEM,
        bounds=GROUP_BOUNDS,
    ),
    Metric(
        name="threadline.commit.group.wait",
        kind=HISTOGRAM,
        unit="s",
        about="How long the first caller of a shared commit waited for it to begin.",
        labels=_SYSTEM,
        bounds=WAIT_BOUNDS,
    ),
    Metric(
        name="threadline.sweeps",
        kind=COUNTER,
        unit="{sweep}",
        about="Sweeps of this process, by outcome: `done`, `elsewhere` (another replica swept) or `failed`.",
        labels=("threadline.sweep.outcome",),
    ),
    Metric(
        name="threadline.leases.lost",
        kind=COUNTER,
        unit="{lease}",
        about="Leases that ran out under their holder.",
    ),
    Metric(
        name="threadline.store.up",
        kind=GAUGE,
        unit="1",
        about="1 if the store took, returned and removed a record at the last look; 0 if not.",
        labels=_SYSTEM,
    ),
    Metric(
        name="threadline.probe.duration",
        kind=GAUGE,
        unit="s",
        about="How long that took.",
        labels=_SYSTEM,
    ),
    Metric(name="threadline.store.size", kind=GAUGE, unit="By", about="What the store holds.", labels=_SYSTEM),
    Metric(name="threadline.store.threads", kind=GAUGE, unit="{thread}", about="Threads that live.", labels=_SYSTEM),
    Metric(
        name="threadline.questions.waiting",
        kind=GAUGE,
        unit="{question}",
        about="Questions that wait for an answer.",
        labels=_SYSTEM,
    ),
    Metric(
        name="threadline.questions.oldest.age",
        kind=GAUGE,
        unit="s",
        about="For how long the oldest question waits; 0 without one.",
        labels=_SYSTEM,
    ),
    Metric(
        name="threadline.leases.held",
        kind=GAUGE,
        unit="{lease}",
        about="Threads that a run holds: while there are any, work is expected.",
        labels=_SYSTEM,
    ),
    Metric(
        name="threadline.sweep.last.time",
        kind=GAUGE,
        unit="s",
        about="When the whole store was last swept, in seconds since 1970; missing where it never was.",
        labels=_SYSTEM,
    ),
)
_BY_NAME = {one.name: one for one in CATALOGUE}


def system_of(url: str) -> str:
    """What serves an engine's URL, as the label `db.system.name` has it."""
    scheme = url.partition("://")[0].partition("+")[0]
    return {"rediss": "redis", "valkey": "redis", "valkeys": "redis", "mariadb": "mysql"}.get(scheme, scheme)


def metric(name: str) -> Metric:
    """The metric of a name."""
    return _BY_NAME[name]


def _tree(error: type[ThreadlineError]) -> list[type[ThreadlineError]]:
    return [error, *(found for below in error.__subclasses__() for found in _tree(below))]


# Errors that tell the caller something, and are no fault of the storage.
REFUSALS = frozenset(
    error.__name__ for error in _tree(ThreadlineError) if not issubclass(error, (Unavailable, Corrupt))
) - {"ThreadlineError"}
# Calls that take as long as there are rows: their duration says nothing about latency.
LONG = frozenset(name for name, mark in MARKS.items() if mark.is_long)
