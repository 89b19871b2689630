"""Time travel: what a run does that starts at a checkpoint which its config names.

    input None, or a Command without an answer
        A replay: stored outputs and answers of that step are left out, and a fork of the checkpoint is saved first, so
        that all that follows belongs to a branch of its own. A fork or an update that is still the head is not forked.
    a Command with an answer
        A resume on that checkpoint; if it was superseded, its finished tasks run again.
    anything else
        A new input, on a branch from there.

Graphs inside follow: one that keeps its state per thread begins with the newest state from before the replayed
checkpoint. One whose own checkpoint the config names begins there, under the namespace that its task has in the new
branch: the fork renames tasks, so the place is found by the names that the tasks had before.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from .._base import config_of
from ..constants import INTERRUPT, NULL_TASK_ID, PUSH, RESUME
from ..running.ids import TaskIds, child_namespace, without_task_ids
from ..showing.stream import is_finished
from ..storing.saving import ask

if TYPE_CHECKING:
    from ..running.loop import Run
    from ..running.tasks import Task

__all__ = ["Origin", "begin_replay", "seed_of", "travels"]


class Origin:
    """Where a replaying run was before its fork: the names that its tasks had there."""

    __slots__ = ("checkpoint_id", "namespace", "step")

    def __init__(self, checkpoint_id: str, namespace: str, step: int) -> None:
        self.checkpoint_id = checkpoint_id
        self.namespace = namespace
        self.step = step

    def namespace_of(self, task: Task) -> str:
        """The namespace that a task of the new branch had in the old one."""
        ids = TaskIds(self.checkpoint_id, self.namespace, self.step)
        if task.path[0] == PUSH:
            return child_namespace(self.namespace, task.name, ids.push(task.name, task.path[1]))
        return child_namespace(self.namespace, task.name, ids.pull(task.name, task.triggers))


def travels(run: Run) -> bool:
    """Whether the run starts at a checkpoint that its caller, or the caller of a graph above, named."""
    return run.settings.checkpoint_id is not None and run.has_checkpoint


async def begin_replay(run: Run, *, answers: bool) -> None:
    """Prepare what was loaded for a replay, or for an answer; called before the step is prepared."""
    is_head = await _is_head(run)
    if answers:
        if not is_head:
            _forget_outputs(run)
        return
    null = [write for write in run.pending.get(NULL_TASK_ID, ()) if write[0] != RESUME]
    run.pending = {NULL_TASK_ID: null} if null else {}
    run.origin = Origin(run.checkpoint_id, run.namespace, run.step)
    run.forks = not (is_head and run.metadata.get("source") in ("update", "fork"))
    root = run.root()
    root.replayed_id = root.replayed_id or run.checkpoint_id


def _forget_outputs(run: Run) -> None:
    kept = (RESUME, INTERRUPT)
    run.pending = {
        task_id: [write for write in writes if write[0] in kept] if is_finished(writes) else writes
        for task_id, writes in run.pending.items()
    }


async def _is_head(run: Run) -> bool:
    newest = await ask(run.saver, run.host.is_async, "get_tuple", config_of(run.thread_id, run.namespace))
    return newest is None or newest.checkpoint["id"] == run.checkpoint_id


async def seed_of(run: Run) -> tuple[Any, bool]:
    """What a graph inside a replaying one begins with, and whether it is a checkpoint that the caller named.

    (None, False) leaves it to the newest checkpoint of its namespace.
    """
    parent = run.parent
    assert parent is not None
    above = parent.run
    root = run.root()
    if root.replayed_id is None:
        return None, False
    if above.origin is not None:
        old = above.origin.namespace_of(parent)
        named = root.settings.checkpoint_map.get(old)
        if named is not None:
            saved = await ask(run.saver, run.host.is_async, "get_tuple", config_of(run.thread_id, old, named))
            if saved is not None:
                return saved, True
    if run.graph.checkpointer is not True and above.forks:
        return None, False  # the task has a new name, so its namespace is empty
    place = without_task_ids(run.namespace)
    if place in root.visited:
        return None, False
    root.visited.add(place)
    return await _newest_before(run, root.replayed_id), False


async def _newest_before(run: Run, checkpoint_id: str) -> Any:
    config = config_of(run.thread_id, run.namespace)
    before = config_of(run.thread_id, run.namespace, checkpoint_id)
    if run.host.is_async:
        found = [saved async for saved in run.saver.alist(config, before=before, limit=1)]
    else:
        found = list(run.saver.list(config, before=before, limit=1))
    # Read by its id: a saver that fences puts lets those branch that read what they branch from.
    return await ask(run.saver, run.host.is_async, "get_tuple", found[0].config) if found else _NOTHING


class _Nothing:
    """There was no state then."""


_NOTHING = _Nothing()


def is_nothing(seed: Any) -> bool:
    """Whether a graph inside had no state yet at the replayed checkpoint."""
    return seed is _NOTHING
