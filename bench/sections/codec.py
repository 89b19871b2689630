"""The codecs alone: messages, dataclasses, pydantic models and plain data, there and back."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import datetime, timedelta, timezone
from enum import Enum
from time import perf_counter
from typing import Any

from pydantic import BaseModel

from bench.arena import Arena, Entrant, Pair, Reading
from bench.chat import make_message
from bench.checks import check
from bench.text import Writer

COUNT = 500


class Status(Enum):
    OPEN = "open"
    VERIFIED = "verified"


@dataclass
class Finding:
    """What an agent noted, as people put such things into their state."""

    title: str
    score: float
    tags: list[str]
    page: int
    status: Status
    found_at: datetime
    source: str | None = None


class FindingModel(BaseModel):
    """The same as a pydantic model."""

    title: str
    score: float
    tags: list[str]
    page: int
    status: Status
    found_at: datetime
    source: str | None = None


TYPES = (Status, Finding, FindingModel)


def codec(arena: Arena) -> Iterator[Reading]:
    writer = Writer(seed=7)
    for name, value in {
        "messages": [make_message(writer, n) for n in range(COUNT)],
        "dataclasses": [_finding(writer, n) for n in range(COUNT)],
        "models": [FindingModel(**vars(_finding(writer, n))) for n in range(COUNT)],
        "plain": _plain(writer),
    }.items():
        dumps, loads = _there_and_back(arena, value)
        yield Reading(f"codec.{name}_dumps", dumps.ours, dumps.peer)
        yield Reading(f"codec.{name}_loads", loads.ours, loads.peer)


def _there_and_back(arena: Arena, value: Any) -> tuple[Pair[float], Pair[float]]:
    serializers = {
        "ours": arena.ours.serializer(TYPES),
        "peer": arena.peer.serializer(TYPES),
    }
    encoded = {name: each.dumps_typed(value) for name, each in serializers.items()}
    for name, each in serializers.items():
        check(each.loads_typed(encoded[name]) == value, f"{name}: the codec changed a value")

    def dump(entrant: Entrant) -> float:
        return _seconds(lambda: serializers[entrant.name].dumps_typed(value))

    def load(entrant: Entrant) -> float:
        return _seconds(lambda: serializers[entrant.name].loads_typed(encoded[entrant.name]))

    repeats = arena.size.codec_repeats
    return arena.medians(repeats, dump), arena.medians(repeats, load)


def _seconds(act: Callable[[], object]) -> float:
    start = perf_counter()
    act()
    return perf_counter() - start


def _finding(writer: Writer, number: int) -> Finding:
    return Finding(
        title=writer.text(60),
        score=number / 7,
        tags=[writer.text(8) for _ in range(3)],
        page=number,
        status=Status.VERIFIED if number % 3 else Status.OPEN,
        found_at=datetime(2025, 1, 1, tzinfo=timezone.utc) + timedelta(minutes=number),
        source=writer.text(40),
    )


def _plain(writer: Writer) -> dict[str, Any]:
    """Nested dicts and lists of plain values, about 180 KB."""
    return {
        f"document-{n}": {
            "title": writer.text(60),
            "scores": [writer.number(1_000) / 10 for _ in range(20)],
            "pages": [{"number": p, "text": writer.text(100), "seen": p % 2 == 0} for p in range(5)],
            "parent": None,
        }
        for n in range(200)
    }
