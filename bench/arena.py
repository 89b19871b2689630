"""Where one round takes place: the two sides, the size of the work, a directory, a fair order."""

from __future__ import annotations

import gc
import statistics
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from functools import cached_property
from itertools import count
from pathlib import Path
from typing import Any, Generic, TypeVar

from bench.chat import ChatWork, Played, play
from bench.checks import check
from bench.savers import PEER, Side

T = TypeVar("T")

WARM_UP = 30  # steps put before anything is timed, so that nobody pays for first calls


@dataclass(frozen=True, slots=True, kw_only=True)
class Size:
    """How much of everything one round does."""

    chat_steps: int = 1_000
    reads: int = 5
    task_steps: int = 25
    thread_steps: int = 100
    turns: int = 60
    short_threads: int = 40
    short_checkpoints: int = 600
    short_turns: int = 40
    new_threads: int = 1_000
    openings: int = 5
    codec_repeats: int = 15
    history_threads: int = 2_000
    history_steps: int = 100
    moved_checkpoints: int = 100_000
    many_threads: int = 100_000
    long_thread: int = 10_000
    prune_checkpoints: int = 30_000
    runtime_repeats: int = 5
    runtime_turns: int = 1_000
    store_items: int = 100_000


QUICK = Size(
    chat_steps=200,
    reads=3,
    task_steps=10,
    thread_steps=40,
    turns=20,
    short_threads=10,
    short_checkpoints=120,
    short_turns=8,
    new_threads=200,
    openings=3,
    codec_repeats=7,
    history_threads=100,
    history_steps=50,
    moved_checkpoints=5_000,
    many_threads=2_000,
    long_thread=2_000,
    prune_checkpoints=3_000,
    runtime_repeats=2,
    runtime_turns=50,
    store_items=5_000,
)


class Skipped(Exception):
    """A section that cannot be measured here, and why; the page says so."""


@dataclass(frozen=True, slots=True)
class Reading:
    """One row of the table, measured once."""

    key: str
    ours: float
    peer: float | None = None  # where ours alone is measured


@dataclass(frozen=True, slots=True)
class Entrant:
    """A side under the name by which its files and readings go."""

    name: str
    side: Side


@dataclass(frozen=True, slots=True)
class Pair(Generic[T]):
    ours: T
    peer: T


@dataclass(frozen=True, slots=True)
class ChatFile:
    """The long chat as one saver left it in its place, closed."""

    place: Path
    played: Played
    bytes_on_disk: int


@dataclass(frozen=True, slots=True)
class ChatFiles:
    ours: ChatFile
    trusted: ChatFile
    peer: ChatFile

    def of(self, entrant: Entrant) -> ChatFile:
        return self.ours if entrant.name == "ours" else self.peer


@dataclass(kw_only=True)
class Arena:
    """One round. The order of the sides turns round with every comparison made in it."""

    ours: Side
    peer: Side
    size: Size
    work: ChatWork
    directory: Path
    round_number: int
    reloads: bool = True  # whether the long chat is read back on the way
    _numbers: count[int] = field(default_factory=count)

    @property
    def is_calibration(self) -> bool:
        return self.ours is PEER

    def between(self, ours: Side, peer: Side, **changes: Any) -> Arena:
        """The same round between other sides; a calibration stays one."""
        return replace(self, ours=peer if self.is_calibration else ours, peer=peer, **changes)

    def both(self, measure: Callable[[Entrant], T]) -> Pair[T]:
        """Measure the two sides, one right after the other."""
        entrants = [Entrant("ours", self.ours), Entrant("peer", self.peer)]
        if (self.round_number + next(self._numbers)) % 2:
            entrants.reverse()
        found: dict[str, T] = {}
        for entrant in entrants:
            gc.collect()
            found[entrant.name] = measure(entrant)
        return Pair(found["ours"], found["peer"])

    def medians(self, times: int, measure: Callable[[Entrant], float]) -> Pair[float]:
        """Measure the two sides in turns, several times; the median of each."""
        pairs = [self.both(measure) for _ in range(times)]
        return Pair(
            statistics.median(pair.ours for pair in pairs),
            statistics.median(pair.peer for pair in pairs),
        )

    def new_place(self, entrant: Entrant) -> Path:
        return self.directory / f"{entrant.name}-{next(self._numbers)}.db"

    @cached_property
    def chat_files(self) -> ChatFiles:
        """The long chat written by each side, and by ours with `trust_identity`."""

        def write(entrant: Entrant) -> ChatFile:
            return self._write_chat(entrant, self.work, trust_identity=False)

        for entrant in (Entrant("warm-ours", self.ours), Entrant("warm-peer", self.peer)):
            self._write_chat(entrant, self.work.beginning(WARM_UP), trust_identity=False)
        trusted = self._write_chat(Entrant("trusted", self.ours), self.work, trust_identity=True)
        pair = self.both(write)
        return ChatFiles(pair.ours, trusted, pair.peer)

    def _write_chat(self, entrant: Entrant, work: ChatWork, *, trust_identity: bool) -> ChatFile:
        place, side = self.new_place(entrant), entrant.side
        gc.collect()
        with side.open(place, trust_identity=trust_identity) as saver:
            played = play(saver, work, size=side.growth_of(place), reloads=self.reloads)
        check(side.is_durable(place), f"{entrant.name} does not keep what it acknowledges")
        return ChatFile(place, played, side.bytes_of(place))
