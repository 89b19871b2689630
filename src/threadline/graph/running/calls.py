"""Calls: tasks that a running task starts, such as `@task` functions and the handlers of its errors.

Rules: a call is a task of the same step, named by its caller and the number of the call. Its result is stored before
the caller goes on, and is given back on resume and on a retry of the caller, in the order of calls. A failed call
fails whoever asks for its result, and nobody else.
"""

from __future__ import annotations

import concurrent.futures
import threading
from collections.abc import Callable, Generator
from typing import TYPE_CHECKING, Any

from ..building.actions import Action, injected_parameters, is_async_callable
from ..building.plan import Node
from ..constants import NS_END, NS_SEP, PUSH, RETURN
from ..errors import GraphInterrupt, NodeError
from ..showing.stream import show_task, show_updates
from .preparing import task_ids
from .runner import perform
from .tasks import Task

if TYPE_CHECKING:
    from .hosts import LoopHost

__all__ = ["CallFuture", "call", "called_node", "handle_error"]


class ReturnWriter:
    """Keeps what a call returned."""

    is_async = False
    is_blocking = False

    def write(self, output: Any, task: Task) -> None:
        task.writes.append((RETURN, output))

    async def write_async(self, output: Any, task: Task) -> None:
        self.write(output, task)


def called_node(function: Callable[..., Any], name: str, **policies: Any) -> Node:
    """The node that a function is when tasks call it: its input is (args, kwargs)."""
    injected = injected_parameters(function)

    def given(kwargs: dict[str, Any], task: Task) -> dict[str, Any]:
        return {**{name: source(task) for name, source in injected if name not in kwargs}, **kwargs}

    def run_now(value: Any, task: Task) -> Any:
        args, kwargs = value
        return function(*args, **given(kwargs, task))

    async def run_async(value: Any, task: Task) -> Any:
        args, kwargs = value
        return await function(*args, **given(kwargs, task))

    is_async = is_async_callable(function)
    action = Action(name, function, None if is_async else run_now, run_async if is_async else None)
    return Node(name=name, triggers=(), channels=(), action=action, writers=(ReturnWriter(),), **policies)


class CallFuture(concurrent.futures.Future[Any]):
    """The result of a call: to wait for, or to await."""

    def __init__(self, host: Any) -> None:
        super().__init__()
        self._host = host

    def result(self, timeout: float | None = None) -> Any:
        if self.done() or not threading.current_thread().name.startswith("threadline-task"):
            return super().result(timeout)
        # A thread of the pool that waits for another job of the pool must not take up room in it.
        with self._host.waiting():
            return super().result(timeout)

    def __await__(self) -> Generator[Any, None, Any]:
        import asyncio

        return asyncio.wrap_future(self).__await__()


def call(caller: Task, node: Node, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """Start a call, or find its result; gives a future of the kind that the caller can use."""
    run = caller.run
    index = caller.calls
    caller.calls += 1
    caller.heartbeat_auto()
    task_id = task_ids(run).call(node.name, caller.namespace, caller.path, index)
    known = run.called.get(task_id)
    if known is not None and (not known.is_done or known.error is None):
        return _future_for(known)
    if run.host.is_async is False and node.action is not None and node.action.call is None:
        raise RuntimeError("In an sync context async tasks cannot be called")
    namespace = f"{caller.namespace}{NS_SEP}{node.name}{NS_END}{task_id}"
    task = Task(run, node, task_id, (PUSH, caller.path, index, True), (PUSH,), (args, kwargs), namespace)
    task.is_call = True
    task.caller = caller
    run.called[task_id] = task
    future = _start(task)
    return future


def _start(task: Task) -> Any:
    from .entering import note_taken

    run = task.run
    task.future = CallFuture(run.host)
    note_taken(task, run.pending.get(task.id, ()))
    if run.pending and task.id in run.pending and _given_back(task):
        show_task(task)
        return _future_for(task)
    _recall_answers(task)
    if task.waits:
        task.future.set_exception(GraphInterrupt(tuple(task.interrupts)))
        return _future_for(task)
    show_task(task)
    if run.host.is_async:
        if task.caller is not None:
            run.host.calls_begin(task.caller)  # type: ignore[attr-defined]
        _start_on_loop(run.host, task)  # type: ignore[arg-type]
    else:
        run.host.start(task, perform_call)
    return _future_for(task)


def _given_back(task: Task) -> bool:
    for name, value in task.run.pending[task.id]:
        if name == RETURN:
            task.writes = [(RETURN, value)]
            task.is_done = task.is_given_back = True
            task.future.set_result(value)
            return True
    return False


def _recall_answers(task: Task) -> None:
    from .entering import take_answers

    take_answers(task.run, task, task.run.pending.get(task.id, ()))


def _start_on_loop(host: LoopHost, task: Task) -> None:
    if _is_on(host):
        host.start(task, perform_call)
    else:
        host.loop.call_soon_threadsafe(host.start, task, perform_call)


def _is_on(host: Any) -> bool:
    import asyncio

    try:
        return asyncio.get_running_loop() is host.loop
    except RuntimeError:
        return False


def _future_for(task: Task) -> Any:
    """The future as the caller can use it: an asyncio one on the loop, else one to block on."""
    host = task.run.host
    if host.is_async and _is_on(host):
        import asyncio

        return asyncio.wrap_future(task.future, loop=host.loop)  # type: ignore[attr-defined]
    return task.future


async def perform_call(task: Task) -> None:
    """Run a call and settle its future."""
    try:
        if task.node.cache is not None and task.run.settings.cache is not None:
            await _take_cached(task)
        if not task.is_done:
            await perform(task)
    except BaseException as error:
        _settle(task.future, None, error)
        raise
    if task.error is not None:
        _settle(task.future, None, task.error)
        return
    _settle(task.future, next((value for name, value in task.writes if name == RETURN), None), None)


async def _take_cached(task: Task) -> None:
    from .caching import take_cached

    for hit in await take_cached(task.run, [task]):
        show_updates(hit, cached=True)


def _settle(future: CallFuture, result: Any, error: BaseException | None) -> None:
    if future.done():
        return
    if error is None:
        future.set_result(result)
    else:
        future.set_exception(error)


# -- error handlers


async def handle_error(task: Task) -> None:
    """Run the handler of a failed task in the same step; its writes take the place of the task's."""
    from .entering import recall

    run = task.run
    name = task.node.error_handler
    assert name is not None
    assert task.error is not None
    handler = handler_task(task, run.plan.nodes[name])
    handler.node_error = NodeError(task.name, task.error)
    run.called[handler.id] = handler
    if run.pending:
        recall(run, handler)
    if not handler.is_done:
        if task.earlier_failure is not None:
            show_task(handler)
        await perform(handler)


def handler_task(task: Task, node: Node) -> Task:
    """The task of an error handler."""
    run = task.run
    path = (*task.path, "node_error_handler", False)
    task_id = task_ids(run).handler(node.name, task.namespace, task.id)
    namespace = f"{task.namespace}{NS_SEP}{node.name}{NS_END}{task_id}"
    handler = Task(run, node, task_id, path, (PUSH,), task.input, namespace)
    handler.caller = task
    return handler
