"""Counts what happens in this process: a fixed number of figures, however long it runs.

`saver.metrics` is a Meter where a saver was opened with `metrics=True`; one Meter may serve several savers. Its lock is
reentrant, because a signal handler may put in the middle of a put, and renewed in a forked child.
"""

from __future__ import annotations

from bisect import bisect_left
from collections import deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, NamedTuple, TypeVar

from ..base.forks import renew_after_fork
from ..errors import ThreadlineError
from ..ports.checkpoints import DIGEST_BYTES, Change
from ..ports.engine import Operation
from .names import CATALOGUE, COUNTER, DURATION, metric

__all__ = ["Calls", "Labels", "Meter", "Sample", "WRITTEN", "Written", "labelled"]

T = TypeVar("T")
Labels = tuple[str, ...]
# What a commit wrote, in this order.
Written = tuple[int, int, int, int, int]
WRITTEN = (
    "threadline.checkpoints.written",
    "threadline.chunks.written",
    "threadline.chunks.known",
    "threadline.written.raw",
    "threadline.written.stored",
)
# Classes of errors that are not ours; the semantic conventions have a word for what does not fit.
_MOST_FOREIGN_ERRORS = 32
_OTHER = "_OTHER"
# So many puts leave their figures before one of them adds all of these up.
_MOST_TOLD = 128


class Sample(NamedTuple):
    """One line of a metric: the values of its labels, and a number or the parts of a histogram."""

    name: str
    labels: Labels
    value: float
    # For a histogram, how many values fell between two boundaries; `value` is their sum then.
    counts: tuple[int, ...] = ()


class Calls(NamedTuple):
    """The calls of one operation that ended alike."""

    operation: str
    error: str
    counts: tuple[int, ...]
    seconds: float


class _Tally:
    __slots__ = ("bounds", "counts", "total")

    def __init__(self, bounds: tuple[float, ...]) -> None:
        self.bounds = bounds
        self.counts = [0] * (len(bounds) + 1)
        self.total = 0.0


class Meter:
    """The figures of one or several stores, as this process sees them."""

    def __init__(self) -> None:
        renew_after_fork(self)
        self._lock: Any
        self._tallies: dict[tuple[str, Labels], _Tally] = {}
        self._sums: dict[tuple[str, Labels], float] = {}
        # What puts wrote, in the order of `WRITTEN`: a list, because every put adds to it.
        self._written = [0] * len(WRITTEN)
        # What was told of puts and not added up yet: the tally, seconds, and what was written.
        self._told: deque[tuple[_Tally, float, Written]] = deque()
        self._gauges: dict[tuple[str, Labels], float] = {}
        self._foreign: set[str] = set()
        # Asked for their figures when somebody looks: pools, retries, the store itself.
        self._sources: list[Callable[[], Iterable[Sample]]] = []

    # -- what the layer tells

    def timing(self, system: str, operation: str) -> Callable[[float, Exception | None], None]:
        """A function that notes how many seconds a call took, and its error."""
        usual = self._tally(DURATION, (system, operation, ""))
        bounds, counts = usual.bounds, usual.counts

        def tell(seconds: float, error: Exception | None) -> None:
            if error is not None:
                self.observe(DURATION, seconds, (system, operation, self._kind(error)))
                return
            place = bisect_left(bounds, seconds)
            with self._lock:
                counts[place] += 1
                usual.total += seconds

        return tell

    def spans(self, system: str, operation: str) -> Callable[..., Any] | None:
        """None: this meter only counts."""
        return None

    def putting(self, system: str) -> Callable[[float, Sequence[Change]], Written]:
        """A function that notes how long a commit took, and what it wrote. All in one: puts are the hot path.

        A put only leaves its figures: they are added up for many at once, or when somebody looks.
        """
        usual, waiting = self._tally(DURATION, (system, "apply", "")), self._told

        def tell(seconds: float, changes: Sequence[Change]) -> Written:
            checkpoints = chunks = links = stored = saved = 0
            for change in changes:
                for _, below, form, data in change.chunks:
                    links += len(below)
                    stored += len(data)
                    if form == _COMPRESSED:
                        saved += _saved_bytes(data)
                for row in change.checkpoints:
                    links += len(row.links)
                    stored += len(row.document) + len(row.metadata)
                    if row.form == _COMPRESSED:
                        saved += _saved_bytes(row.document)
                    if row.metadata_form == _COMPRESSED:
                        saved += _saved_bytes(row.metadata)
                for write in change.writes or change.firsts:
                    links += len(write.links)
                    stored += len(write.data)
                    if write.form == _COMPRESSED:
                        saved += _saved_bytes(write.data)
                chunks += len(change.chunks)
                checkpoints += len(change.checkpoints)
            known = links // DIGEST_BYTES - chunks
            written = (checkpoints, chunks, known if known > 0 else 0, stored + saved, stored)
            waiting.append((usual, seconds, written))
            if len(waiting) >= _MOST_TOLD:
                self._add_up()
            return written

        return tell

    def _add_up(self) -> None:
        """Count what puts left. Each is taken out by itself, so none is counted twice, whoever does this meanwhile."""
        waiting, totals = self._told, self._written
        with self._lock:
            while waiting:
                try:
                    tally, seconds, written = waiting.popleft()
                except IndexError:
                    break
                tally.counts[bisect_left(tally.bounds, seconds)] += 1
                tally.total += seconds
                for place, number in enumerate(written):
                    totals[place] += number

    def carried(self, operation: Operation[T]) -> Operation[T]:
        """The operation as it is: this meter has nothing that follows a call to another thread."""
        return operation

    def count(self, name: str, number: float = 1, labels: Labels = ()) -> None:
        """Add to a counter."""
        with self._lock:
            self._sums[name, labels] = self._sums.get((name, labels), 0) + number

    def observe(self, name: str, value: float, labels: Labels = ()) -> None:
        """Add a value to a histogram."""
        tally = self._tally(name, labels)
        place = bisect_left(tally.bounds, value)
        with self._lock:
            tally.counts[place] += 1
            tally.total += value

    def show(self, name: str, value: float | None, labels: Labels = ()) -> None:
        """Set a gauge; None takes it away."""
        with self._lock:
            if value is None:
                self._gauges.pop((name, labels), None)
            else:
                self._gauges[name, labels] = value

    def add_source(self, source: Callable[[], Iterable[Sample]]) -> None:
        """Ask a function for more figures whenever somebody looks; those of equal names and labels are added up."""
        self._sources.append(source)

    # -- what others read

    def samples(self) -> list[Sample]:
        """All figures at this moment."""
        self._add_up()
        with self._lock:
            # A counter that is missing until its first event hides that event: a rate needs two points.
            numbers: dict[tuple[str, Labels], float] = dict.fromkeys(_UNLABELLED, 0.0)
            numbers |= {**self._sums, **self._gauges}
            numbers |= {(name, ()): number for name, number in zip(WRITTEN, self._written, strict=True)}
            found = [
                Sample(name, labels, one.total, tuple(one.counts))
                for (name, labels), one in self._tallies.items()
                if any(one.counts)
            ]
        for one in self.asked():
            numbers[one.name, one.labels] = numbers.get((one.name, one.labels), 0) + one.value
        return [*(Sample(name, labels, number) for (name, labels), number in numbers.items()), *found]

    def asked(self) -> list[Sample]:
        """The figures of all sources at this moment."""
        return [sample for source in list(self._sources) for sample in source()]

    def gauges(self) -> list[Sample]:
        """The gauges as they were last set."""
        with self._lock:
            return [Sample(name, labels, number) for (name, labels), number in self._gauges.items()]

    def calls(self) -> list[Calls]:
        """The calls of every operation so far."""
        self._add_up()
        with self._lock:
            return [
                Calls(labels[1], labels[2], tuple(one.counts), one.total)
                for (name, labels), one in self._tallies.items()
                if name == DURATION
            ]

    def total(self, name: str, labels: Labels = ()) -> float:
        """A counter so far."""
        if name in WRITTEN:
            self._add_up()
            return self._written[WRITTEN.index(name)]
        return self._sums.get((name, labels), 0)

    def exposition(self) -> str:
        """All figures as Prometheus reads them, for an endpoint of one's own."""
        from .prometheus import prometheus_text

        return prometheus_text(self.samples())

    def serve(self, port: int = 9464, host: str = "127.0.0.1") -> Any:
        """Serve the figures under /metrics from a daemon thread, until `close()` or the end of a `with` block."""
        from .prometheus import MetricsServer

        return MetricsServer(self.exposition, host, port)

    def _tally(self, name: str, labels: Labels) -> _Tally:
        held = self._tallies.get((name, labels))
        if held is None:
            with self._lock:
                held = self._tallies.setdefault((name, labels), _Tally(metric(name).bounds))
        return held

    def _kind(self, error: Exception) -> str:
        """The class of an error, of which there are few."""
        name = type(error).__name__
        if isinstance(error, ThreadlineError) and type(error).__module__ == ThreadlineError.__module__:
            return name
        with self._lock:
            if name not in self._foreign and len(self._foreign) < _MOST_FOREIGN_ERRORS:
                self._foreign.add(name)
        return name if name in self._foreign else _OTHER


def labelled(sample: Sample) -> Mapping[str, str]:
    """The labels of a sample with their names; those without a value are left out."""
    names = metric(sample.name).labels
    return {name: value for name, value in zip(names, sample.labels, strict=True) if value}


def _saved_bytes(stored: bytes) -> int:
    """The bytes that compression saved; a frame says how long its content is."""
    import zstandard

    return max(zstandard.frame_content_size(stored) - len(stored), 0)


# The form of bytes that are compressed and not sealed; what is sealed does not tell its size.
_COMPRESSED = 1
_UNLABELLED: list[tuple[str, Labels]] = [(one.name, ()) for one in CATALOGUE if one.kind == COUNTER and not one.labels]
