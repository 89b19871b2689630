"""How a run gets into the store: what it puts there and when.

Rules: under durability "exit" nothing is put before the end; then the last checkpoint and the writes of unfinished
tasks are. Otherwise every finished task and every step is put, in order (writer.py). A put names the checkpoint that
the store has as its parent. Values of untracked channels never leave the process.
"""

from __future__ import annotations

from collections.abc import Callable, Coroutine, Sequence
from contextlib import nullcontext
from datetime import datetime, timezone
from functools import partial
from typing import TYPE_CHECKING, Any

from .._base import config_of, new_id
from ..constants import MISSING, NULL_TASK_ID, RESUME, TASKS
from ..running.hosts import to_the_end
from ..running.ids import path_text
from ..types import Send
from .writer import BlockingWriter, LoopWriter, SaverWriter, ThreadWriter, takes_task_path

if TYPE_CHECKING:
    from ..running.hosts import Host
    from ..running.loop import Run
    from ..running.tasks import Task

__all__ = [
    "ask",
    "checkpoint_of_now",
    "finish",
    "forget_answer",
    "make_durable",
    "put_config",
    "put_writes",
    "save",
    "start_writer",
    "store_writes",
]


def start_writer(run: Run) -> None:
    """Choose how puts are made; called once, before the first one."""
    if run.saver is None or run.writer is not None:
        return
    background = run.settings.durability == "async"
    if run.host.is_async:
        run.writer = LoopWriter(run.saver, background=background)
    else:
        run.writer = ThreadWriter(run.saver) if background else BlockingWriter(run.saver)
    run.takes_path = takes_task_path(run.saver)


async def put_writes(run: Run, task: Task, writes: Sequence[tuple[str, Any]]) -> None:
    """Keep what a task did, in memory and in the store."""
    run.pending[task.id] = list(writes)
    if run.saver is not None and not run.puts_at_exit:
        await store_writes(run, task.id, writes, path_text(task.path), hold=run.ends_step(task))


async def store_writes(
    run: Run, task_id: str, writes: Sequence[tuple[str, Any]], path: str = "", *, hold: bool = False
) -> None:
    """Hand writes to the saver, under the checkpoint that the step starts from."""
    assert run.writer is not None
    stored = _storable(run, writes)
    if not stored:
        return
    config = config_of(run.thread_id, run.namespace, run.checkpoint_id)
    if run.takes_path:
        await run.writer.add("put_writes", config, stored, task_id, path, hold=hold)
    else:
        await run.writer.add("put_writes", config, stored, task_id, hold=hold)


async def save(run: Run, source: str) -> None:
    """End a step: a new checkpoint of the state, and the count goes on."""
    run.parent_checkpoint_id = run.stored_id if run.saver is not None else None
    run.checkpoint_id = new_id(run.step)
    run.format_version = 4
    run.metadata = {
        "source": source,
        "step": run.step,
        "parents": dict(run.parents),
        **run.version_note,
    }
    run.has_checkpoint = True
    if run.saver is not None and not run.puts_at_exit:
        await _put(run)
    run.step += 1


def checkpoint_of_now(run: Run) -> dict[str, Any]:
    """The state as the saver's contract has it."""
    state = run.state
    channels = state.channels
    values = {}
    for name in state.versions:
        channel = channels.get(name)
        if channel is not None and (value := channel.checkpoint()) is not MISSING:
            values[name] = value
    if run.plan.untracked and TASKS in values:
        values[TASKS] = [_without(run.plan.untracked, send) for send in values[TASKS]]
    return {
        "v": 4,
        "ts": datetime.now(timezone.utc).isoformat(),
        "id": run.checkpoint_id,
        "channel_values": values,
        "channel_versions": dict(state.versions),
        "versions_seen": dict(state.seen),
        "updated_channels": None if run.updated is None else sorted(run.updated),
    }


def put_config(run: Run, checkpoint_id: str | None) -> dict[str, Any]:
    """The config that a put is made with: the user's keys, which savers merge into the metadata."""
    configurable = {**run.config["configurable"], "thread_id": run.thread_id, "checkpoint_ns": run.namespace}
    configurable.pop("checkpoint_id", None)
    if checkpoint_id:
        configurable["checkpoint_id"] = checkpoint_id
    return {"configurable": configurable, "metadata": run.config["metadata"], "tags": run.config["tags"]}


async def ask(saver: Any, is_async: bool, method: str, *args: Any) -> Any:
    """Call the half of the saver that fits."""
    return await getattr(saver, "a" + method)(*args) if is_async else getattr(saver, method)(*args)


async def make_durable(run: Run) -> None:
    """Store the checkpoint that this step starts from, and those of the graphs above, under any durability.

    Without them nobody would find what a task of the step stores: its name comes from them.
    """
    if run.parent is not None:
        above = run.parent.run
        await _for_below(above, run.host, partial(make_durable, above))
    if run.writer is None:
        return
    if run.puts_at_exit and run.has_checkpoint:
        with nullcontext() if run.host.is_async else run.putting:  # tasks of other threads may ask as well
            if run.stored_id != run.checkpoint_id:
                await _put(run)
    await run.writer.settle()


async def forget_answer(run: Run, asking: Host) -> None:
    """The answer that names no question was taken by a graph inside, which has stored it: nobody gets it again."""

    async def store() -> None:
        kept = [write for write in run.pending.get(NULL_TASK_ID, ()) if write[0] != RESUME]
        run.pending[NULL_TASK_ID] = [*kept, (RESUME, None)]
        if run.writer is not None and not run.puts_at_exit:
            await store_writes(run, NULL_TASK_ID, [(RESUME, None)])
            await run.writer.settle()

    await _for_below(run, asking, store)


async def finish(run: Run, failure: BaseException | None) -> None:
    """End what still runs and make what was handed over durable, on every way out."""
    if not run.host.is_async:
        await _leave(run, failure)
        return
    leaving, cancelled = await to_the_end(_leave(run, failure))
    leaving.result()
    if cancelled is not None:
        raise cancelled


def _storable(run: Run, writes: Sequence[tuple[str, Any]]) -> list[tuple[str, Any]]:
    """The writes without untracked values, of which only the last of a special channel counts."""
    untracked = run.plan.untracked
    if not untracked:
        return list(writes)
    stored = []
    for name, value in writes:
        if name in untracked:
            continue
        stored.append((name, _without(untracked, value) if name == TASKS else value))
    return stored


async def _put(run: Run) -> None:
    assert run.writer is not None
    state = run.state
    new_versions = {name: state.versions[name] for name in state.changed}
    state.changed = set()
    config = put_config(run, run.stored_id)
    run.stored_id = run.checkpoint_id
    await run.writer.add("put", config, checkpoint_of_now(run), dict(run.metadata), new_versions)


async def _for_below(run: Run, asking: Host, work: Callable[[], Coroutine[Any, Any, None]]) -> None:
    """Do work of this run for a graph inside it, whose host may be of another kind or on another loop."""
    loop = getattr(run.host, "loop", None)
    if loop is None:
        await work()  # a blocking run: its writer may be called from any thread
        return
    import asyncio

    try:
        is_here = asyncio.get_running_loop() is loop
    except RuntimeError:
        is_here = False
    if not is_here:
        future = asyncio.run_coroutine_threadsafe(work(), loop)
        if asking.is_async:
            await asyncio.wrap_future(future)
        else:
            future.result()
    elif asking.is_async:
        await work()
    # Else the graph inside blocks the loop that the work needs: nothing can be waited for.


async def _leave(run: Run, failure: BaseException | None) -> None:
    try:
        await run.host.stop()
    finally:
        try:
            if run.writer is not None:
                await _flush(run, failure, run.writer)
        finally:
            if run.hold is not None:
                await run.hold.leave()


async def _flush(run: Run, failure: BaseException | None, writer: SaverWriter) -> None:
    try:
        if run.puts_at_exit and _should_put_at_exit(run, failure):
            await _put_at_exit(run)
    finally:
        await writer.close()


async def _put_at_exit(run: Run) -> None:
    """Store the last checkpoint and what unfinished tasks of its step did."""
    if run.stored_id == run.checkpoint_id and not run.pending:
        return
    if run.stored_id != run.checkpoint_id and run.has_checkpoint:
        await _put(run)
    for task_id, writes in run.pending.items():
        path = next((path_text(task.path) for task in run.all_applied() if task.id == task_id), "")
        await store_writes(run, task_id, writes, path)


def _should_put_at_exit(run: Run, failure: BaseException | None) -> bool:
    """Under durability exit: a graph that another one calls is stored only when it fails or asks.

    One that a function resumed is stored as well: the function can ask after it, and then runs again from its first
    line, where the graph must not be found with the question that was answered.
    """
    if run.parent is None or run.graph.checkpointer is True or failure is not None:
        return True
    return run.stored_id is not None and not run.is_node()


def _without(untracked: frozenset[str], send: Any) -> Any:
    """A send without the untracked keys of its argument."""
    if not isinstance(send, Send) or not isinstance(send.arg, dict) or untracked.isdisjoint(send.arg):
        return send
    kept = {key: value for key, value in send.arg.items() if key not in untracked}
    return Send(send.node, kept, timeout=send.timeout)
