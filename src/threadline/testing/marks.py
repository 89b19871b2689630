"""What a promise may ask of the store it is tried on."""

from __future__ import annotations

from .half import Promise, Store

__all__ = ["can_be_tried", "two_savers"]

_TWO_SAVERS: set[Promise] = set()


def two_savers(promise: Promise) -> Promise:
    """Marks a promise about several savers that see the same records."""
    _TWO_SAVERS.add(promise)
    return promise


def can_be_tried(promise: Promise, store: Store) -> bool:
    """Whether a store has what the promise asks for."""
    return store.is_shared or promise not in _TWO_SAVERS
