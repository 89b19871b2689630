"""A handle on one thread: see, compare, branch, repair and shrink its history.

A place (`at=`) is an id or the beginning of one, a tag, `head`, `head~2`, a step, a time or a config.
Everything returned has a `.config`, ready for `graph.invoke`. `a…` twins mean the same. What one method needs and
others do not is imported where it is used: looking at a thread is quick.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

from .backends.engine import Engine, Operation
from .core import words
from .core.places import At, find, resolve
from .core.policy import Policy, seconds_of
from .core.requests import Place, check_limit, place_of, plain_text, text_id
from .core.states import Point, State, read_state
from .core.survey import ThreadInfo, describe
from .core.timeline import Log, read_log
from .core.tools import Tools
from .core.trash import Bin, trash_thread
from .core.updates import check_update, put_update
from .errors import InvalidRequest

if TYPE_CHECKING:
    from .core import merging
    from .core.audit import WriteInfo
    from .core.difference import Diff
    from .core.history import ChannelVersion
    from .core.policies import Plan
    from .core.standing import Standing

__all__ = ["Thread"]


class Thread:
    """One thread of a store; it need not exist yet."""

    def __init__(self, engine: Engine, tools: Tools, thread_id: str) -> None:
        self._engine = engine
        self._tools = tools
        self.thread_id = thread_id

    def __repr__(self) -> str:
        return f"Thread({self.thread_id!r})"

    @property
    def config(self) -> dict[str, Any]:
        """The config that runs a graph on this thread."""
        return {"configurable": {"thread_id": self.thread_id}}

    # -- seeing

    def at(self, at: At = None, *, namespace: str = "") -> Point:
        """The checkpoint at a place."""
        return self._engine.run(self._at(at, namespace))

    async def aat(self, at: At = None, *, namespace: str = "") -> Point:
        return await self._engine.arun(self._at(at, namespace))

    def info(self) -> ThreadInfo:
        """Status, times, tags and metadata; the status is `suspended` while an interrupt waits."""
        return self._engine.run(lambda backend: describe(backend, self._tools, self.thread_id))

    async def ainfo(self) -> ThreadInfo:
        return await self._engine.arun(lambda backend: describe(backend, self._tools, self.thread_id))

    def why(self) -> Standing:
        """Where the thread stands: what runs next, waits, failed, holds it or is damaged."""
        return self._engine.run(self._standing())

    async def awhy(self) -> Standing:
        return await self._engine.arun(self._standing())

    def log(self, *, namespace: str | None = None) -> Log:
        """The tree of checkpoints over all branches, newest first, without reading state."""
        return self._engine.run(self._log(namespace))

    async def alog(self, *, namespace: str | None = None) -> Log:
        return await self._engine.arun(self._log(namespace))

    def state(self, at: At = None, *, namespace: str = "") -> State:
        """The values at a place, without the channels that are the engine's own."""
        return self._engine.run(self._state(at, namespace))

    async def astate(self, at: At = None, *, namespace: str = "") -> State:
        return await self._engine.arun(self._state(at, namespace))

    def diff(self, a: At, b: At = None, *, namespace: str = "") -> Diff:
        """What changed from one place to another: per channel, per item."""
        return self._engine.run(self._diff(a, b, namespace))

    async def adiff(self, a: At, b: At = None, *, namespace: str = "") -> Diff:
        return await self._engine.arun(self._diff(a, b, namespace))

    def writes(self, at: At = None, *, namespace: str = "") -> list[WriteInfo]:
        """Who wrote what towards the next checkpoint, in order."""
        return self._engine.run(self._writes(at, namespace))

    async def awrites(self, at: At = None, *, namespace: str = "") -> list[WriteInfo]:
        return await self._engine.arun(self._writes(at, namespace))

    def versions(self, channel: str, *, limit: int | None = None, namespace: str = "") -> list[ChannelVersion]:
        """The values one channel had, newest first, each at the checkpoint that brought it."""
        return self._engine.run(self._versions(channel, limit, namespace))

    async def aversions(self, channel: str, *, limit: int | None = None, namespace: str = "") -> list[ChannelVersion]:
        return await self._engine.arun(self._versions(channel, limit, namespace))

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
        return self._engine.run(self._put(values, step, at, metadata, namespace))

    async def aput(
        self,
        values: Mapping[str, Any],
        *,
        step: int | None = None,
        at: At = None,
        metadata: Mapping[str, Any] | None = None,
        namespace: str = "",
    ) -> Point:
        return await self._engine.arun(self._put(values, step, at, metadata, namespace))

    # -- naming

    def create(self, *, metadata: Mapping[str, Any] | None = None, ttl: Any = None) -> Thread:
        """Begin the thread before its first checkpoint; sets metadata, and when it expires."""
        self._engine.run(self._create(metadata, ttl))
        return self

    async def acreate(self, *, metadata: Mapping[str, Any] | None = None, ttl: Any = None) -> Thread:
        await self._engine.arun(self._create(metadata, ttl))
        return self

    def tag(self, name: str, at: At = None, *, namespace: str = "") -> Point:
        """Name a checkpoint; retention keeps it."""
        return self._engine.run(self._mark(at, namespace, lambda b, key: words.tag(b, self.thread_id, name, key)))

    async def atag(self, name: str, at: At = None, *, namespace: str = "") -> Point:
        marking = self._mark(at, namespace, lambda b, key: words.tag(b, self.thread_id, name, key))
        return await self._engine.arun(marking)

    def untag(self, name: str) -> None:
        """Forget a name."""
        self._engine.run(lambda backend: words.untag(backend, self.thread_id, name))

    async def auntag(self, name: str) -> None:
        await self._engine.arun(lambda backend: words.untag(backend, self.thread_id, name))

    def pin(self, at: At = None, *, namespace: str = "") -> Point:
        """Keep a checkpoint through every retention."""
        return self._engine.run(self._mark(at, namespace, lambda b, key: words.pin(b, self.thread_id, key)))

    async def apin(self, at: At = None, *, namespace: str = "") -> Point:
        return await self._engine.arun(self._mark(at, namespace, lambda b, key: words.pin(b, self.thread_id, key)))

    def unpin(self, at: At = None, *, namespace: str = "") -> Point:
        """Leave a checkpoint to retention again."""
        return self._engine.run(self._mark(at, namespace, lambda b, key: words.unpin(b, self.thread_id, key)))

    async def aunpin(self, at: At = None, *, namespace: str = "") -> Point:
        return await self._engine.arun(self._mark(at, namespace, lambda b, key: words.unpin(b, self.thread_id, key)))

    # -- branching

    def fork(self, at: At = None, *, to: str | None = None, namespace: str = "") -> Point:
        """A branch that begins with a checkpoint: in this thread, or as the new thread `to`."""
        return self._engine.run(self._fork(at, to, namespace))

    async def afork(self, at: At = None, *, to: str | None = None, namespace: str = "") -> Point:
        return await self._engine.arun(self._fork(at, to, namespace))

    def rollback(self, to: At) -> Point:
        """Go on from an earlier checkpoint: a copy of it becomes the head, and nothing is deleted."""
        return self._engine.run(self._fork(to, None, ""))

    async def arollback(self, to: At) -> Point:
        return await self._engine.arun(self._fork(to, None, ""))

    def merge(self, *others: Any, strategy: merging.Strategy = None) -> Point:
        """Merge branches (places of this thread, or other threads of one history) into the head."""
        return self._engine.run(self._merge(others, strategy))

    async def amerge(self, *others: Any, strategy: merging.Strategy = None) -> Point:
        return await self._engine.arun(self._merge(others, strategy))

    def discard(self, branch: At) -> int:
        """Delete the branch that a checkpoint is on; returns how many checkpoints went."""
        return self._engine.run(self._discard(branch))

    async def adiscard(self, branch: At) -> int:
        return await self._engine.arun(self._discard(branch))

    def answer(self, answers: Mapping[str, Any]) -> None:
        """Store answers to interrupts by their ids: any worker goes on with `graph.invoke(None, config)`."""
        self._engine.run(self._answer(answers))

    async def aanswer(self, answers: Mapping[str, Any]) -> None:
        await self._engine.arun(self._answer(answers))

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
        return self._engine.run(self._prune(policy, rules, dry_run, progress))

    async def aprune(
        self,
        policy: Policy | None = None,
        *,
        dry_run: bool = False,
        progress: Callable[[int, int], None] | None = None,
        **rules: Any,
    ) -> Plan:
        return await self._engine.arun(self._prune(policy, rules, dry_run, progress))

    def archive(self) -> None:
        """Refuse every put until the thread is restored."""
        self._engine.run(lambda backend: words.set_status(backend, self.thread_id, "archived"))

    async def aarchive(self) -> None:
        await self._engine.arun(lambda backend: words.set_status(backend, self.thread_id, "archived"))

    def restore(self) -> None:
        """Take an archived thread into use again."""
        self._engine.run(lambda backend: words.set_status(backend, self.thread_id, "active"))

    async def arestore(self) -> None:
        await self._engine.arun(lambda backend: words.set_status(backend, self.thread_id, "active"))

    def delete(self, at: At = None, *, namespace: str = "", trash: Any = None) -> None:
        """Delete the thread, or with `at` one checkpoint of it.

        With `trash`, a span of time, it can be restored until then (`saver.trash()`). Without it, what the trash
        has of the thread is deleted as well.
        """
        self._engine.run(self._delete(at, namespace, trash))

    async def adelete(self, at: At = None, *, namespace: str = "", trash: Any = None) -> None:
        await self._engine.arun(self._delete(at, namespace, trash))

    # -- how the above is put together

    def _at(self, at: At, namespace: str) -> Operation[Point]:
        async def operation(backend: Any) -> Point:
            return Point(self.thread_id, await resolve(backend, self.thread_id, at, namespace))

        return operation

    def _standing(self) -> Operation[Standing]:
        from .core.standing import standing

        return lambda backend: standing(backend, self._tools, self.thread_id, time.time())

    def _log(self, namespace: str | None) -> Operation[Log]:
        return lambda backend: read_log(backend, self._tools, self.thread_id, namespace=namespace)

    def _state(self, at: At, namespace: str) -> Operation[State]:
        return lambda backend: read_state(backend, self._tools, self.thread_id, at, namespace)

    def _diff(self, a: At, b: At, namespace: str) -> Operation[Diff]:
        from .core.difference import diff

        async def operation(backend: Any) -> Diff:
            await self._tools.open(backend)
            sides = [await find(backend, self.thread_id, at, namespace) for at in (a, b)]
            return await diff(backend, self._tools, *sides)

        return operation

    def _writes(self, at: At, namespace: str) -> Operation[list[WriteInfo]]:
        from .core.audit import writes_at

        return lambda backend: writes_at(backend, self._tools, self.thread_id, at, namespace)

    def _versions(self, channel: str, limit: int | None, namespace: str) -> Operation[list[ChannelVersion]]:
        from .core.history import channel_versions

        check_limit(limit)
        if limit is not None and limit < 1:
            raise InvalidRequest(f"limit is at least 1, not {limit}")
        plain_text(channel, "channel")
        place = Place(self.thread_id, namespace, None)
        return lambda backend: channel_versions(backend, self._tools, place, channel, limit)

    def _put(self, values: Any, step: Any, at: At, metadata: Any, namespace: str) -> Operation[Point]:
        update = check_update(values, step, metadata)

        async def operation(backend: Any) -> Point:
            return Point(self.thread_id, await put_update(backend, self._tools, self.thread_id, update, at, namespace))

        return operation

    def _create(self, metadata: Mapping[str, Any] | None, ttl: Any) -> Operation[None]:
        seconds = seconds_of(ttl, "ttl")
        return lambda b: words.create(b, self._tools, self.thread_id, metadata, seconds, time.time())

    def _mark(self, at: At, namespace: str, marking: Callable[..., Any]) -> Operation[Point]:
        async def operation(backend: Any) -> Point:
            key = await resolve(backend, self.thread_id, at, namespace)
            await marking(backend, key)
            return Point(self.thread_id, key)

        return operation

    def _fork(self, at: At, to: str | None, namespace: str) -> Operation[Point]:
        from .core import branching

        target = None if to is None else text_id(to, "to")

        async def operation(backend: Any) -> Point:
            now = time.time()
            if target is None:
                key = await branching.fork(backend, self._tools, self.thread_id, at, namespace, now)
                return Point(self.thread_id, key)
            key = await branching.fork_to(backend, self._tools, self.thread_id, at, target, namespace, now)
            return Point(target, key)

        return operation

    def _discard(self, branch: At) -> Operation[int]:
        from .core import branching

        return lambda backend: branching.discard(backend, self._tools, self.thread_id, branch)

    def _answer(self, answers: Mapping[str, Any]) -> Operation[None]:
        from .core.answers import answer

        return lambda backend: answer(backend, self._tools, self.thread_id, answers, time.time())

    def _merge(self, others: tuple[Any, ...], strategy: merging.Strategy) -> Operation[Point]:
        from .core import merging

        if not others:
            raise InvalidRequest("merge takes the branches to merge: places of this thread, or other threads")

        async def operation(backend: Any) -> Point:
            await self._tools.open(backend)
            found = [await self._other(backend, other) for other in others]
            key = await merging.merge(backend, self._tools, self.thread_id, found, strategy, time.time())
            return Point(self.thread_id, key)

        return operation

    async def _other(self, backend: Any, other: Any) -> Any:
        """A branch to merge: a thread, a config of any thread, or a place of this one."""
        if isinstance(other, Thread):
            return await find(backend, other.thread_id, None)
        config = getattr(other, "config", other)
        if isinstance(config, Mapping):
            return await find(backend, place_of(config).thread_id, config)
        return await find(backend, self.thread_id, other)

    def _prune(self, policy: Policy | None, rules: dict[str, Any], dry_run: bool, progress: Any) -> Operation[Plan]:
        if policy is not None and (rules or not isinstance(policy, Policy)):
            raise InvalidRequest("prune takes a Policy, or rules such as keep_last=10, and not both")
        try:
            wanted = policy or Policy(**rules)
        except TypeError:
            raise InvalidRequest(f"unknown rule: {', '.join(sorted(rules))} (docs/retention.md lists them)") from None
        from .core import sweeping

        return lambda backend: sweeping.prune(
            backend, self._tools, self.thread_id, wanted, time.time(), dry_run=dry_run, progress=progress
        )

    def _delete(self, at: At, namespace: str, trash: Any) -> Operation[None]:
        from .core import retention

        plain_text(namespace, "namespace")
        seconds = seconds_of(trash, "trash")

        async def operation(backend: Any) -> None:
            now = time.time()
            if at is None:
                await words.living(backend, self.thread_id)
                if seconds:
                    return await trash_thread(backend, self._tools, self.thread_id, seconds, now)
                return await retention.delete_thread(backend, self._tools, self.thread_id, now)
            key = await resolve(backend, self.thread_id, at, namespace)
            into = Bin(backend, self.thread_id, seconds, now) if seconds else None
            await retention.delete_checkpoint(backend, self._tools, Place(self.thread_id, *key), into)
            return await words.forget_checkpoint(backend, self.thread_id, key)

        return operation
