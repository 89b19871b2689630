"""Locks that survive a fork: a child must not wait for a thread that exists only in its parent."""

from __future__ import annotations

import os
import threading
import weakref
from typing import Any

__all__ = ["renew_after_fork"]

_owners: weakref.WeakSet[Any] = weakref.WeakSet()


def renew_after_fork(owner: Any) -> None:
    """Give the owner a `_lock`, and a new one in every forked child."""
    owner._lock = threading.RLock()
    _owners.add(owner)


def _renew() -> None:
    for owner in list(_owners):
        owner._lock = threading.RLock()


os.register_at_fork(after_in_child=_renew)
