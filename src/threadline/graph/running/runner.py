"""One task from its start to its end: attempts, timeouts, what it leaves behind.

Rules: every attempt starts with empty writes. A question, a command for the graph above and a drain are no failures:
they are never retried and never reach an error handler. A task always ends with an outcome on itself (writes, questions
or an error) that the run commits; only a cancellation from outside passes through.
"""

from __future__ import annotations

import logging
import random
import time
from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from ..building.actions import foreign
from ..constants import NO_WRITES, PARENT
from ..errors import (
    GraphBubbleUp,
    GraphInterrupt,
    InterruptSwallowed,
    NodeCancelledError,
    NodeTimeoutError,
    ParentCommand,
)
from ..policies import RetryPolicy
from ..runtime import CURRENT_TASK

if TYPE_CHECKING:
    from .hosts import Host
    from .tasks import Task

__all__ = ["attempts", "perform"]

log = logging.getLogger("threadline.graph")


async def perform(task: Task) -> None:
    """Run a task and commit its outcome to its run."""
    CURRENT_TASK.set(task)
    run = task.run
    if run.observer is not None:
        run.observer.task_begins(task)
    try:
        if task.earlier_failure is not None:
            raise Exception(task.earlier_failure)  # its handler was still to run when the process ended
        await attempts(task, run.host)
        if not task.writes:
            task.writes.append((NO_WRITES, None))
    except GraphInterrupt as stop:
        task.interrupts = _all_questions(task, stop)
        task.error = stop
    except Exception as error:
        task.error = error
        if not isinstance(error, GraphBubbleUp):
            _note(task, error)
    except BaseException as error:
        if not _is_cancellation(error):
            task.error = error
        elif run.host.is_stopping:
            raise
        else:
            task.error = NodeCancelledError(task.name)
            task.error.__cause__ = error
            _note(task, task.error)
    try:
        task.is_handled = _has_handler(task)
        if task.earlier_failure is None:
            await run.commit(task)
        if task.is_handled:
            from .calls import handle_error

            await handle_error(task)
    except Exception as error:
        task.error = error  # the saver failed: the run cannot go on
        task.interrupts = ()
        task.is_handled = False
    finally:
        if run.observer is not None:
            run.observer.task_ends(task)
        if task.error is not None:
            run.has_failures = True
        # Only now: the step ends when all its tasks are done, and what they show must come before that.
        task.is_done = True


def _all_questions(task: Task, stop: GraphInterrupt) -> tuple[Any, ...]:
    """The questions that stopped a task: those that were raised, and those that others asked side by side."""
    raised = stop.args[0] if stop.args and stop.args[0] else ()
    found = {one.id: one for one in (*task.questions, *raised)}
    return tuple(found.values()) if len(found) == len({*map(id, task.questions), *map(id, raised)}) else tuple(raised)


def _has_handler(task: Task) -> bool:
    """Whether a failed task has an error handler; what bubbles up is no failure."""
    return (
        task.node.error_handler is not None
        and isinstance(task.error, Exception)
        and not isinstance(task.error, GraphBubbleUp)
    )


async def attempts(task: Task, host: Host) -> None:
    """Run the task's action until it succeeds, or until no policy allows another attempt."""
    policies = task.retry
    attempt = 1
    while True:
        if attempt > 1 or policies:
            task.begin_attempt(attempt)
        elif task.first_attempt_time is None:
            task.first_attempt_time = time.time()
        try:
            await _attempt(task, host)
            return
        except ParentCommand as bubbling:
            command = bubbling.args[0]
            if command.graph == task.namespace:
                await _returned(task, command)
                return
            raise
        except GraphBubbleUp:
            raise
        except Exception as error:
            policy = matching_policy(policies, error) if policies else None
            if policy is None or attempt >= policy.max_attempts:
                raise
            await host.sleep(_pause(policy, attempt))
            attempt += 1
            log.info("Retrying task %r, attempt %d, after %r", task.name, attempt, type(error).__name__)


async def _returned(task: Task, command: Any) -> None:
    """What a graph inside the task sends up counts as what the task's node returned."""
    task.writes = []
    output = replace(command, graph=None)
    for writer in task.node.writers:
        if writer.is_async:
            await writer.write_async(output, task)
        else:
            writer.write(output, task)


async def _attempt(task: Task, host: Host) -> None:
    try:
        if task.timeout is None:
            await host.call(task)
        else:
            await _call_timed(task, host)
    except GraphBubbleUp:
        raise
    except Exception as error:
        if (bridge := foreign()) is not None and (bubbling := bridge.raised(error, task)) is not None:
            raise bubbling from error
        if task.questions and not isinstance(error, InterruptSwallowed):
            raise InterruptSwallowed(task.name) from error
        raise
    if task.questions:
        raise InterruptSwallowed(task.name)


async def _call_timed(task: Task, host: Host) -> None:
    """One attempt under the task's timeouts; late writes of an attempt that was cut go nowhere."""
    import asyncio

    policy = task.timeout
    assert policy is not None
    run_seconds = policy.run_timeout
    idle_seconds = policy.idle_timeout
    begun = last = time.monotonic()

    def beat() -> None:
        nonlocal last
        last = time.monotonic()

    task.beat = beat
    attempt = asyncio.ensure_future(host.call(task))
    try:
        while True:
            now = time.monotonic()
            limits = []
            if run_seconds is not None:
                limits.append((begun + float(run_seconds) - now, "run"))  # type: ignore[arg-type]
            if idle_seconds is not None:
                limits.append((last + float(idle_seconds) - now, "idle"))  # type: ignore[arg-type]
            left, kind = min(limits)
            if left <= 0:
                raise _timed_out(task, kind, now - begun if kind == "run" else now - last)
            done, _ = await asyncio.wait({attempt}, timeout=left)
            if done:
                attempt.result()
                return
    finally:
        task.beat = None
        if not attempt.done():
            task.writes = []
            attempt.cancel()
            await asyncio.gather(attempt, return_exceptions=True)
            task.writes = []


def _timed_out(task: Task, kind: Any, elapsed: float) -> NodeTimeoutError:
    policy = task.timeout
    assert policy is not None
    return NodeTimeoutError(
        task.name,
        elapsed,
        kind=kind,
        idle_timeout=policy.idle_timeout,  # type: ignore[arg-type]
        run_timeout=policy.run_timeout,  # type: ignore[arg-type]
    )


def matching_policy(policies: Sequence[RetryPolicy], error: Exception) -> RetryPolicy | None:
    """The first policy that takes this error."""
    return next((policy for policy in policies if _takes(policy, error)), None)


def _takes(policy: RetryPolicy, error: Exception) -> bool:
    wanted: Any = policy.retry_on
    if isinstance(wanted, type) and issubclass(wanted, Exception):
        return isinstance(error, wanted)
    if isinstance(wanted, Sequence):
        return isinstance(error, tuple(wanted))
    if callable(wanted):
        return bool(wanted(error))
    raise TypeError("retry_on must be an Exception class, a list or tuple of Exception classes, or a callable")


def _pause(policy: RetryPolicy, attempt: int) -> float:
    seconds = min(policy.max_interval, policy.initial_interval * policy.backoff_factor ** (attempt - 1))
    return seconds + random.random() if policy.jitter else seconds


def _is_cancellation(error: BaseException) -> bool:
    # By name: asyncio takes longer to load than the whole engine, and a blocking run has no use for it.
    return type(error).__name__ == "CancelledError"


def _note(task: Task, error: BaseException) -> None:
    if hasattr(error, "add_note"):
        error.add_note(f"During task with name '{task.name}' and id '{task.id}'")
        read = error.obj if isinstance(error, AttributeError) else None
        if isinstance(read, dict) and {"role", "content"} <= read.keys():
            error.add_note(
                "Messages are dicts here: message['content'], not message.content. "
                "`import threadline.langgraph.bridge` makes them LangChain's classes."
            )
        if type(error).__module__ == "langgraph.errors" or "outside of a runnable context" in str(error):
            error.add_note("LangGraph's own `interrupt` works in its graphs: import it from threadline.graph.")


def for_the_graph_above(command: ParentCommand, parent: Task) -> ParentCommand:
    """A command that leaves its graph, addressed to the task that runs that graph."""
    carried = command.args[0]
    if carried.graph != PARENT:
        return command
    return ParentCommand(replace(carried, graph=parent.namespace))
