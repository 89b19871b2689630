"""A handle on one thread: see, compare, branch, repair and shrink its history.

A place (`at=`) is an id or the beginning of one, a tag, `head`, `head~2`, a step, a time or a config.
Everything returned has a `.config`, ready for `graph.invoke`. `a…` twins mean the same. What one method needs and
others do not is loaded when it is first run (core/operations.py): looking at a thread is quick.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Coroutine, Mapping
from typing import TYPE_CHECKING, Any, Concatenate

from .base.checkpoint import OfThread
from .core import operations as ops
from .core.context import Context, Tools, bound
from .core.operations import P, T
from .core.retention.policy import Policy
from .ports.checkpoints import Backend
from .ports.engine import Engine

if TYPE_CHECKING:
    from .core.history.diff import Diff
    from .core.history.log import Log
    from .core.history.merge import Strategy
    from .core.history.revisions import At
    from .core.history.state import Point, State, WriteInfo
    from .core.listing import ChannelVersion
    from .core.retention.plan import Plan
    from .core.standing import Standing
    from .core.threads import ThreadInfo

__all__ = ["Thread"]


_OfContext = Callable[Concatenate[Context, str, P], Coroutine[Any, Any, T]]
_OfBackend = Callable[Concatenate[Backend, str, P], Coroutine[Any, Any, T]]


class Thread(OfThread):
    """One thread of a store; it need not exist yet."""

    def __init__(self, engine: Engine, tools: Tools, thread_id: str) -> None:
        self._engine, self._tools, self.thread_id = engine, tools, thread_id

    def __repr__(self) -> str:
        return f"Thread({self.thread_id!r})"

    # -- seeing

    def at(self, at: At = None, *, namespace: str = "") -> Point:
        """The checkpoint at a place."""
        return self._ask(ops.point_at, at, namespace)

    async def aat(self, at: At = None, *, namespace: str = "") -> Point:
        return await self._aask(ops.point_at, at, namespace)

    def info(self) -> ThreadInfo:
        """Status, times, tags and metadata; the status is `suspended` while an interrupt waits."""
        return self._run(ops.describe)

    async def ainfo(self) -> ThreadInfo:
        return await self._arun(ops.describe)

    def why(self) -> Standing:
        """Where the thread stands: what runs next, waits, failed, holds it or is damaged."""
        return self._run(ops.standing, time.time())

    async def awhy(self) -> Standing:
        return await self._arun(ops.standing, time.time())

    def log(self, *, namespace: str | None = None) -> Log:
        """The tree of checkpoints over all branches, newest first, without reading state."""
        return self._run(ops.read_log, namespace=namespace)

    async def alog(self, *, namespace: str | None = None) -> Log:
        return await self._arun(ops.read_log, namespace=namespace)

    def state(self, at: At = None, *, namespace: str = "") -> State:
        """The values at a place, without the channels that are the engine's own."""
        return self._run(ops.read_state, at, namespace)

    async def astate(self, at: At = None, *, namespace: str = "") -> State:
        return await self._arun(ops.read_state, at, namespace)

    def diff(self, a: At, b: At = None, *, namespace: str = "") -> Diff:
        """The changes from one place to another: per channel, per item."""
        return self._run(ops.diff_between, a, b, namespace)

    async def adiff(self, a: At, b: At = None, *, namespace: str = "") -> Diff:
        return await self._arun(ops.diff_between, a, b, namespace)

    def writes(self, at: At = None, *, namespace: str = "") -> list[WriteInfo]:
        """The writes of tasks towards the next checkpoint, in order."""
        return self._run(ops.writes_at, at, namespace)

    async def awrites(self, at: At = None, *, namespace: str = "") -> list[WriteInfo]:
        return await self._arun(ops.writes_at, at, namespace)

    def versions(self, channel: str, *, limit: int | None = None, namespace: str = "") -> list[ChannelVersion]:
        """The values one channel had, newest first, each at the checkpoint that brought it."""
        return self._run(ops.channel_versions, channel, limit, namespace)

    async def aversions(self, channel: str, *, limit: int | None = None, namespace: str = "") -> list[ChannelVersion]:
        return await self._arun(ops.channel_versions, channel, limit, namespace)

    # -- putting

    def put(
        self,
        values: Mapping[str, Any],
        *,
        step: int | None = None,
        at: At = None,
        metadata: Mapping[str, Any] | None = None,
        namespace: str = "",
    ) -> Point:
        """A new checkpoint on the newest one, or on `at`: these channels replace those before, others are inherited.

        Durable when this returns. What another put made the newest meanwhile is built on instead.
        """
        return self._run(ops.put_update, values, at, namespace, step=step, metadata=metadata)

    async def aput(
        self,
        values: Mapping[str, Any],
        *,
        step: int | None = None,
        at: At = None,
        metadata: Mapping[str, Any] | None = None,
        namespace: str = "",
    ) -> Point:
        return await self._arun(ops.put_update, values, at, namespace, step=step, metadata=metadata)

    # -- naming

    def create(self, *, metadata: Mapping[str, Any] | None = None, ttl: Any = None) -> Thread:
        """Begin the thread before its first checkpoint; sets metadata, and when it expires."""
        self._run(ops.create, metadata, ttl, time.time())
        return self

    async def acreate(self, *, metadata: Mapping[str, Any] | None = None, ttl: Any = None) -> Thread:
        await self._arun(ops.create, metadata, ttl, time.time())
        return self

    def tag(self, name: str, at: At = None, *, namespace: str = "") -> Point:
        """Name a checkpoint; retention keeps it."""
        return self._ask(ops.mark_at, at, namespace, ops.tag, name)

    async def atag(self, name: str, at: At = None, *, namespace: str = "") -> Point:
        return await self._aask(ops.mark_at, at, namespace, ops.tag, name)

    def untag(self, name: str) -> None:
        """Forget a name."""
        self._ask(ops.untag, name)

    async def auntag(self, name: str) -> None:
        await self._aask(ops.untag, name)

    def pin(self, at: At = None, *, namespace: str = "") -> Point:
        """Keep a checkpoint through every retention."""
        return self._ask(ops.mark_at, at, namespace, ops.pin)

    async def apin(self, at: At = None, *, namespace: str = "") -> Point:
        return await self._aask(ops.mark_at, at, namespace, ops.pin)

    def unpin(self, at: At = None, *, namespace: str = "") -> Point:
        """Leave a checkpoint to retention again."""
        return self._ask(ops.mark_at, at, namespace, ops.unpin)

    async def aunpin(self, at: At = None, *, namespace: str = "") -> Point:
        return await self._aask(ops.mark_at, at, namespace, ops.unpin)

    # -- branching

    def fork(self, at: At = None, *, to: str | None = None, namespace: str = "") -> Point:
        """A branch that begins with a checkpoint: in this thread, or as the new thread `to`."""
        return self._run(ops.fork, at, to, namespace, time.time())

    async def afork(self, at: At = None, *, to: str | None = None, namespace: str = "") -> Point:
        return await self._arun(ops.fork, at, to, namespace, time.time())

    def rollback(self, to: At) -> Point:
        """Go on from an earlier checkpoint: a copy of it becomes the head, and nothing is deleted."""
        return self._run(ops.fork, to, None, "", time.time())

    async def arollback(self, to: At) -> Point:
        return await self._arun(ops.fork, to, None, "", time.time())

    def merge(self, *others: Any, strategy: Strategy = None) -> Point:
        """Merge branches (places of this thread, or other threads of one history) into the head."""
        return self._run(ops.merge, others, strategy, time.time())

    async def amerge(self, *others: Any, strategy: Strategy = None) -> Point:
        return await self._arun(ops.merge, others, strategy, time.time())

    def discard(self, branch: At, *, trash: Any = None) -> int:
        """Delete the branch that a checkpoint is on, restorably with `trash`; returns how many checkpoints went."""
        return self._run(ops.discard, branch, trash, time.time())

    async def adiscard(self, branch: At, *, trash: Any = None) -> int:
        return await self._arun(ops.discard, branch, trash, time.time())

    def answer(self, answers: Mapping[str, Any]) -> None:
        """Store answers to interrupts by their ids: any worker goes on with `graph.invoke(None, config)`."""
        self._run(ops.answer, answers, time.time())

    async def aanswer(self, answers: Mapping[str, Any]) -> None:
        await self._arun(ops.answer, answers, time.time())

    # -- keeping and deleting

    def prune(
        self,
        policy: Policy | None = None,
        *,
        dry_run: bool = False,
        progress: Callable[[int, int], None] | None = None,
        **rules: Any,
    ) -> Plan:
        """Delete what a policy (or `keep_last=`, `keep_within=`, …) does not keep; returns the plan."""
        return self._run(ops.prune, Policy.of(policy, rules), time.time(), dry_run=dry_run, progress=progress)

    async def aprune(
        self,
        policy: Policy | None = None,
        *,
        dry_run: bool = False,
        progress: Callable[[int, int], None] | None = None,
        **rules: Any,
    ) -> Plan:
        return await self._arun(ops.prune, Policy.of(policy, rules), time.time(), dry_run=dry_run, progress=progress)

    def archive(self) -> None:
        """Refuse every put until the thread is restored."""
        self._ask(ops.set_status, "archived")

    async def aarchive(self) -> None:
        await self._aask(ops.set_status, "archived")

    def restore(self) -> None:
        """Take an archived thread into use again."""
        self._ask(ops.set_status, "active")

    async def arestore(self) -> None:
        await self._aask(ops.set_status, "active")

    def delete(self, at: At = None, *, namespace: str = "", trash: Any = None) -> None:
        """Delete the thread, or with `at` one checkpoint of it.

        With `trash`, a span of time, it can be restored until then (`saver.trash()`). Without it, what the trash
        has of the thread is deleted as well.
        """
        self._run(ops.delete, at, namespace, trash, time.time())

    async def adelete(self, at: At = None, *, namespace: str = "", trash: Any = None) -> None:
        await self._arun(ops.delete, at, namespace, trash, time.time())

    # -- every operation on a thread takes its id first

    def _run(self, operation: _OfContext[P, T], *args: P.args, **options: P.kwargs) -> T:
        return self._engine.run(bound(self._tools, operation, self.thread_id, *args, **options))

    async def _arun(self, operation: _OfContext[P, T], *args: P.args, **options: P.kwargs) -> T:
        return await self._engine.arun(bound(self._tools, operation, self.thread_id, *args, **options))

    def _ask(self, operation: _OfBackend[P, T], *args: P.args, **options: P.kwargs) -> T:
        return self._engine.run(lambda backend: operation(backend, self.thread_id, *args, **options))

    async def _aask(self, operation: _OfBackend[P, T], *args: P.args, **options: P.kwargs) -> T:
        return await self._engine.arun(lambda backend: operation(backend, self.thread_id, *args, **options))
