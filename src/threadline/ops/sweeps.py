"""Sweeps, with a note in the store of when the last one was: whoever watches can tell that none came since."""

from __future__ import annotations

import logging
from typing import Any

from ..base.printable import printable
from ..core.context import Context
from ..core.retention.policy import Policy
from ..core.retention.sweep import Progress, Swept
from ..core.retention.sweep import sweep as sweep_store
from ..core.store_records import change_record, read_record
from ..errors import ThreadlineError
from ..ports.checkpoints import Backend

__all__ = ["last_sweep", "sweep"]

log = logging.getLogger("threadline")
# The record of the store that holds the time.
_SWEPT = "swept"


async def sweep(
    store: Context,
    policy: Policy | None,
    now: float,
    *,
    prefix: str = "",
    trash: Any = None,
    dry_run: bool = False,
    progress: Progress | None = None,
) -> Swept:
    """Sweep; one of the whole store is noted in it, and where metrics are on it is counted."""
    meter = None if dry_run else getattr(store.backend, "meter", None)
    try:
        swept = await sweep_store(store, policy, now, prefix=prefix, trash=trash, dry_run=dry_run, progress=progress)
    except ThreadlineError:
        if meter is not None:
            meter.count("threadline.sweeps", 1, ("failed",))
        raise
    if meter is not None:
        meter.count("threadline.sweeps", 1, ("elsewhere" if swept.is_elsewhere else "done",))
    is_whole = not prefix and not getattr(store.backend, "prefix", "")
    if is_whole and not dry_run and not swept.is_elsewhere:
        await _note(store.backend, now)
    return swept


async def last_sweep(backend: Backend) -> float | None:
    """When the whole store was last swept, in seconds since 1970; None where it never was."""
    stored = await read_record(backend, _SWEPT)
    try:
        return None if stored is None else float(stored)
    except ValueError:
        return None


async def _note(backend: Backend, now: float) -> None:
    try:
        await change_record(backend, _SWEPT, lambda _: b"%.3f" % now, "the note of a sweep")
    except ThreadlineError as error:  # the sweep itself is done, on a full disk too
        log.warning("the time of the sweep could not be noted: %s", printable(error))
