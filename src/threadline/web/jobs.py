"""Work that takes longer than a page may: it goes on by itself, tells how far it is, and keeps its result a while."""

from __future__ import annotations

import asyncio
import logging
import secrets
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from typing import Any

from ..base.printable import printable
from ..errors import InvalidRequest, NotFound, ThreadlineError

__all__ = ["Job", "Jobs"]

log = logging.getLogger("threadline.web")
_KEPT_SECONDS = 1800.0
_MOST = 16


@dataclass(slots=True)
class Job:
    """One piece of work."""

    id: str
    title: str
    key: str
    done: int = 0
    total: int = 0
    result: Any = None
    error: str | None = None
    ended: float | None = None
    # The same as a command and as Python.
    command: str = ""
    python: str = ""
    task: Any = field(default=None, repr=False)

    @property
    def is_over(self) -> bool:
        return self.ended is not None

    def progress(self, done: int, total: int) -> None:
        """Called by the work itself, from whichever thread it is on."""
        self.done, self.total = done, total


class Jobs:
    """The jobs of one page."""

    def __init__(self) -> None:
        self._jobs: dict[str, Job] = {}

    def get(self, job_id: str) -> Job:
        """A job by its id; NotFound without it."""
        job = self._jobs.get(job_id)
        if job is None:
            raise NotFound("this job is not known any more: its page was closed for too long, or the server restarted")
        return job

    def begin(self, title: str, key: str, work: Callable[[Job], Awaitable[Any]], *, fresh_seconds: float = 0.0) -> Job:
        """A job of this key: one that is under way, or ended so recently; else a new one."""
        self._forget()
        for job in self._jobs.values():
            if job.key == key and (job.ended is None or time.monotonic() - job.ended < fresh_seconds):
                return job
        if len(self._jobs) >= _MOST:
            raise InvalidRequest("too much is under way: wait until some of it has ended")
        job = Job(secrets.token_urlsafe(12), title, key)
        self._jobs[job.id] = job
        job.task = asyncio.get_running_loop().create_task(self._carry(job, work))
        return job

    async def waited(self, job: Job, seconds: float) -> Job:
        """The job, after its end or so much time."""
        if not job.is_over:
            await asyncio.wait([job.task], timeout=seconds)
        return job

    async def _carry(self, job: Job, work: Callable[[Job], Awaitable[Any]]) -> None:
        try:
            job.result = await work(job)
        except ThreadlineError as error:
            job.error = str(error)
        except Exception as error:
            log.error("a job of the page failed: %s", printable(repr(error)))
            job.error = "it failed unexpectedly; the log of the server says more"
        finally:
            job.ended = time.monotonic()

    def _forget(self) -> None:
        now = time.monotonic()
        old = [job for job in self._jobs.values() if job.ended is not None and now - job.ended > _KEPT_SECONDS]
        ended = sorted((job for job in self._jobs.values() if job.ended is not None), key=lambda job: job.ended or 0)
        for job in (*old, *ended[: max(0, len(self._jobs) - _MOST + 1)]):
            self._jobs.pop(job.id, None)
