"""An application whose classes the command line does not have; a process of its own writes the store.

The thread `trip` has three steps, a branch that goes on from the second, and a question that waits; `other` is
a thread of its own.
"""

from __future__ import annotations

import datetime
import enum
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from pydantic import BaseModel, ConfigDict

import threadline
from threadline.base.checkpoint import INTERRUPT
from threadline.base.ids import new_id


class Mood(enum.Enum):
    GOOD = "good"
    BAD = "bad"


@dataclass(frozen=True)
class Stop:
    city: str
    nights: int = 0


class Guest(BaseModel):
    model_config = ConfigDict(extra="allow")
    name: str
    stops: list[Stop] = []


class Fare(NamedTuple):
    amount: float
    currency: str


class Money:
    def __init__(self, cents: int) -> None:
        self.cents = cents


@dataclass
class Interrupt:
    """What a graph waits with has these two fields, whichever class it is of."""

    value: Any
    id: str = field(default="q-1")


threadline.register(Money, name="money", encode=lambda money: money.cents, decode=Money)


def values(step: int, **more: Any) -> dict[str, Any]:
    return {
        "notes": [f"note {number}" for number in range(step + 1)],
        "stops": [Stop("Rome", 2), Stop("Bern")][: step + 1],
        "guest": Guest(name="Ann", stops=[Stop("Rome")], seat="12A"),
        "mood": Mood.GOOD,
        "fare": Fare(9.5, "EUR"),
        "budget": Money(100 * step),
        "failure": ValueError("no seat"),
        "when": datetime.datetime(2026, 1, 2, 3, 4, tzinfo=datetime.timezone.utc),
        "branch:to:plan": None,
        **more,
    }


def put(saver: Any, at: Any, step: int, source: str = "loop", **more: Any) -> Any:
    checkpoint = threadline.empty_checkpoint()
    checkpoint["id"] = new_id(step)
    checkpoint["channel_values"] = values(step, **more)
    checkpoint["channel_versions"] = dict.fromkeys(checkpoint["channel_values"], step + 2)
    metadata = {"source": source, "step": step, "parents": {}, "place": Stop("Oslo")}
    return saver.put(at, checkpoint, metadata, checkpoint["channel_versions"])


def write(path: str) -> None:
    with threadline.connect(path) as saver:
        at: Any = {"configurable": {"thread_id": "trip", "checkpoint_ns": ""}}
        places = []
        for step, source in ((-1, "input"), (0, "loop"), (1, "loop")):
            at = put(saver, at, step, source)
            places.append(at)
        saver.put_writes(places[1], [("notes", ["note 1"]), ("budget", Money(5))], "task-1", "~__pregel_pull, plan")
        branch = put(saver, places[1], 1, "update", colour="red")
        saver.put_writes(branch, [(INTERRUPT, [Interrupt(Stop("Graz"))])], "task-2", "~__pregel_pull, ask")
        put(saver, {"configurable": {"thread_id": "other", "checkpoint_ns": ""}}, 0)
