"""Every promise of the saver's contract, by subject; `CONTRACT` has them all."""

from __future__ import annotations

import traceback
from collections.abc import Sequence
from dataclasses import dataclass
from types import ModuleType

from ..half import Promise, Store, run_promise
from ..marks import can_be_tried
from . import (
    batches,
    branches,
    copying,
    deletion,
    delta,
    figures,
    filters,
    formats,
    keeping,
    lazy,
    leases,
    listing,
    objects,
    places,
    puts,
    sequences,
    service,
    sharing,
    surveys,
    together,
    trash,
    updates,
    waiting,
    writes,
)
from .stores import asking, cached, items, meaning, past, records

__all__ = ["Broken", "CONTRACT", "promises_for", "run_contract"]


def _promises(subject: ModuleType) -> list[Promise]:
    return [value for name, value in vars(subject).items() if name.startswith("test_")]


_SUBJECTS = (
    puts,
    writes,
    listing,
    filters,
    formats,
    lazy,
    deletion,
    copying,
    delta,
    batches,
    surveys,
    figures,
    objects,
    sequences,
    sharing,
    together,
    leases,
    places,
    branches,
    updates,
    keeping,
    waiting,
    trash,
    service,
    records,
    items,
    meaning,
    past,
    asking,
    cached,
)
CONTRACT: tuple[Promise, ...] = tuple(promise for subject in _SUBJECTS for promise in _promises(subject))


@dataclass(frozen=True, slots=True)
class Broken:
    """A promise that a store does not keep."""

    promise: str
    half: str
    why: str


def promises_for(store: Store) -> tuple[Promise, ...]:
    """The promises that can be tried on a store."""
    return tuple(promise for promise in CONTRACT if can_be_tried(promise, store))


def run_contract(store: Store, promises: Sequence[Promise] = CONTRACT) -> list[Broken]:
    """Try what can be tried on a store, through both halves; gives what is broken."""
    broken: list[Broken] = []
    for promise in promises:
        if not can_be_tried(promise, store):
            continue
        for is_async in (False, True):
            try:
                run_promise(promise, store, is_async=is_async)
            except Exception:
                half = "async" if is_async else "sync"
                broken.append(Broken(promise.__name__, half, traceback.format_exc()))
    return broken
