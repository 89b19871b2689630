"""`threadline locks` and `unlock`: who holds which thread, and ending a lease whose holder is gone."""

from __future__ import annotations

import time
from typing import Annotated

import typer

from ...core.leases import LockInfo
from ...errors import NotFound
from ...show.forms import lock_json
from ..open import open_store
from ..output import (
    AsJson,
    ThreadId,
    Url,
    Yes,
    print_facts,
    print_json,
    print_none,
    print_rows,
    readable_time,
)

__all__ = ["locks", "remaining", "unlock"]


def locks(
    url: Url,
    prefix: Annotated[str, typer.Option("--prefix", metavar="TEXT", help="How the threads' ids begin.")] = "",
    as_json: AsJson = False,
) -> None:
    """List who holds which thread, since when, how long still."""
    with open_store(url, read_only=True) as store:
        held = store.saver.locks(prefix=prefix)
    now = time.time()
    if as_json:
        print_json([lock_json(one, now) for one in held])
    elif held:
        print_rows([[one.thread_id, *_told(one, now)] for one in held], ["bold", "yellow", "dim"])
    else:
        print_none("no thread is locked")


def unlock(url: Url, thread: ThreadId, yes: Yes = False, as_json: AsJson = False) -> None:
    """End the lease on a thread whose holder is gone.

    A holder that is not gone finds its lease lost, and its next put is refused.
    """
    with open_store(url, read_only=not yes) as store:
        if yes:
            ended = store.saver.unlock(thread)
        else:
            ended = next((one for one in store.saver.locks(prefix=thread) if one.thread_id == thread), None)
    if ended is None:
        raise NotFound(f"nobody holds a lease on thread {thread!r}")
    now = time.time()
    if as_json:
        print_json({**lock_json(ended, now), "done": yes})
        return
    holder, since, left = _told(ended, now)
    ending = ("done", "unlocked") if yes else ("not done", "this lease would be ended; --yes does it")
    print_facts([("thread", thread), ("holder", holder), ("since", since), ("left", left), ending])


def remaining(info: LockInfo, now: float) -> str:
    """How long a lease lasts still."""
    return f"{max(info.ends - now, 0.0):.0f} s left"


def _told(info: LockInfo, now: float) -> tuple[str, str, str]:
    since = readable_time(info.since) if info.since is not None else "an unknown time"
    return info.holder or "(unknown)", since, remaining(info, now)
