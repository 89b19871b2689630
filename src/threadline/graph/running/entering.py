"""How a run begins: what it loads, and what its input means for what it loaded.

input None            go on: finished tasks are given back, the others run
input a Command       go on, after its writes (and answers) were made by the null task
anything else         a new input: unfinished tasks are discarded, by being applied without writes
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from .._base import new_id
from ..building.actions import foreign
from ..constants import ERROR, ERROR_SOURCE_NODE, INPUT, INTERRUPT, MISSING, NULL_TASK_ID, RESUME
from ..errors import EmptyInputError
from ..interrupts import answer_map, check_answers, pending_interrupts, stored_questions
from ..reading.replay import Origin, begin_replay, is_nothing, seed_of, travels
from ..showing.stream import is_finished, show_values
from ..storing.deltas import complete_deltas
from ..storing.migrate import migrate
from ..storing.saving import ask, put_config, save, start_writer, store_writes
from ..storing.versions import adapted, refuse_lost_nodes
from ..types import Command
from .exclusive import take as take_hold
from .ids import interrupt_id, is_interrupt_id
from .inputs import command_writes, input_writes
from .superstep import GraphState, apply_writes
from .tasks import NullTask

if TYPE_CHECKING:
    from .loop import Run
    from .tasks import Task

__all__ = ["begin", "load", "recall"]


async def begin(run: Run) -> None:
    """Load the thread and take the input."""
    if (bridge := foreign()) is not None:
        run.settings.given = bridge.taken(run.settings.given)
    if run.graph.exclusive and run.parent is None:
        branches = run.settings.checkpoint_id is not None
        run.hold = await take_hold(run.saver, run.thread_id or "", branches=branches, is_async=run.host.is_async)
        run.saver = run.hold.saver
    start_writer(run)
    await load(run)
    await _take_input(run)


async def load(run: Run) -> None:
    """Take the state of the checkpoint that the config names, or of the newest one, or none."""
    saved, is_seed = await _saved(run)
    settings = run.settings
    if saved is None:
        run.state = GraphState(run.plan.start_channels({}, MISSING), {}, {})
        run.step = -1
        run.checkpoint_id = new_id(-2)
    else:
        checkpoint = adapted(run.graph, migrate(run.plan, saved.checkpoint), saved.metadata or {})
        if run.settings.given is None or isinstance(run.settings.given, Command):
            refuse_lost_nodes(run, checkpoint)
        restore(run, checkpoint, dict(saved.metadata or {}), saved.pending_writes or ())
        run.parent_checkpoint_id = (
            saved.parent_config["configurable"].get("checkpoint_id") if saved.parent_config else None
        )
        if run.plan.deltas:
            await complete_deltas(run, run.saver, saved.config, is_async=run.host.is_async)
        if is_seed:
            _begin_from_seed(run)
    run.stop = run.step + settings.recursion_limit + 1


def restore(run: Run, checkpoint: Mapping[str, Any], metadata: dict[str, Any], pending: Sequence[Any]) -> None:
    """Make a stored checkpoint the state of the run."""
    channels = run.plan.start_channels(checkpoint["channel_values"], MISSING)
    run.state = GraphState(
        channels,
        dict(checkpoint["channel_versions"]),
        {name: dict(seen) for name, seen in checkpoint["versions_seen"].items()},
    )
    run.format_version = checkpoint.get("v", 4)
    run.checkpoint_id = run.stored_id = checkpoint["id"]
    run.has_checkpoint = True
    run.updated = checkpoint.get("updated_channels")
    run.metadata = metadata
    run.step = int(metadata.get("step", -2)) + 1
    run.pending = {}
    for task_id, name, value in pending:
        run.pending.setdefault(task_id, []).append((name, value))


async def _saved(run: Run) -> tuple[Any, bool]:
    """The checkpoint to begin with, and whether it comes from another namespace."""
    if run.saver is None:
        return None, False
    if run.parent is not None:
        seed, is_named = await seed_of(run)
        if seed is not None:
            return (None if is_nothing(seed) else seed), is_named
        if _cannot_have_begun(run):
            return None, False
    config = put_config(run, run.settings.checkpoint_id)
    return await ask(run.saver, run.host.is_async, "get_tuple", config), False


def _cannot_have_begun(run: Run) -> bool:
    """Whether the namespace is of a task that runs for the first time: then there is nothing to read."""
    assert run.parent is not None
    is_per_call = run.graph.checkpointer is not True
    return is_per_call and not run.parent.is_repeated and not run.parent.run.is_resuming


def _begin_from_seed(run: Run) -> None:
    """Go on from a checkpoint that another namespace has: all of its state is new here."""
    run.origin = Origin(run.checkpoint_id, _namespace_before(run), run.step)
    run.forks = run.is_seeded = True
    run.pending = {}
    run.stored_id = run.parent_checkpoint_id = None
    run.state.changed = set(run.state.versions)


def _namespace_before(run: Run) -> str:
    assert run.parent is not None
    assert run.parent.run.origin is not None
    return run.parent.run.origin.namespace_of(run.parent)


async def _take_input(run: Run) -> None:
    given = run.settings.given
    has_state = bool(run.state.versions)
    is_command = isinstance(given, Command)
    run.is_resuming = has_state and (given is None or is_command or _is_same_run(run) or _parent_resumes(run))
    if run.is_resuming and travels(run):
        await begin_replay(run, answers=is_command and given.resume is not None)
    if is_command:
        await _take_command(run, given)
    _take_stored_answer(run, given)
    null_writes = [write for write in run.pending.get(NULL_TASK_ID, ()) if write[0] != RESUME]
    if null_writes:
        apply_writes(run.plan, run.state, [NullTask(INPUT, null_writes)], run.next_version)
        # What these writes trigger is not among the nodes that the stored checkpoint names.
        run.updated = None
    if run.is_resuming:
        run.state.seen[INTERRUPT] = dict(run.state.versions)
        show_values(run)
        if run.forks:
            await _fork(run)
        return
    writes = input_writes(run.graph.input_keys, given) if given is not None else []
    if not writes:
        hint = "" if has_state else ": the thread has no checkpoint to go on from; give it an input"
        raise EmptyInputError(f"Received no input for {run.graph.input_keys}{hint}")
    await _take_new(run, writes)


async def _fork(run: Run) -> None:
    """Save the replayed checkpoint again, as the first one of a branch."""
    run.updated = None
    run.pending = {}
    await save(run, "fork")


async def _take_new(run: Run, writes: list[tuple[str, Any]]) -> None:
    discarded = run.prepare_tasks() if run.state.versions else []
    run.graph.note_discarded(run)
    run.updated = apply_writes(run.plan, run.state, [*discarded, NullTask(INPUT, writes)], run.next_version)
    run.pending = {}
    await save(run, "input")


def _is_same_run(run: Run) -> bool:
    """Whether this input was taken before: a retry by the caller under the same run id."""
    mine = run.config["metadata"].get("run_id") if run.parent is None else None
    return mine is not None and run.metadata.get("run_id") == mine


def _parent_resumes(run: Run) -> bool:
    """Whether this graph was begun before by the step that the graph above resumes.

    Its newest checkpoint may also be of an earlier call, when its state is kept per thread: then the input is new.
    """
    if run.parent is None:
        return False
    above = run.parent.run
    if not above.is_resuming and not run.parent.is_repeated:
        return False
    begun_by: Mapping[str, Any] = run.metadata.get("parents") or {}
    return run.is_seeded or begun_by.get(above.namespace) == above.checkpoint_id


async def _take_command(run: Run, command: Command[Any]) -> None:
    resume = command.resume
    if resume is not None:
        if run.saver is None:
            raise RuntimeError(
                "Cannot use Command(resume=...) without checkpointer: "
                "compile the graph with checkpointer=threadline.connect(url)"
            )
        named = answer_map(resume)
        asked = pending_interrupts(run.pending, lambda task_id: is_finished(run.pending[task_id]))
        check_answers(resume, asked, strict=run.settings.strict)
        run.keeps_questions = True
        if named is not None:
            run.answers = named
    writes = command_writes(command)
    if not writes:
        if resume is None:
            raise EmptyInputError("Received empty Command input")
        return
    await _keep_null_writes(run, writes)


async def _keep_null_writes(run: Run, writes: list[tuple[str, Any]]) -> None:
    """Add to what the null task wrote before; special channels replace."""
    before = [write for write in run.pending.get(NULL_TASK_ID, ()) if write[0] != RESUME]
    fresh = [write for write in writes if write[0] != RESUME]
    answer = [write for write in writes if write[0] == RESUME]
    run.pending[NULL_TASK_ID] = [*before, *fresh, *answer]
    if run.saver is not None and not run.puts_at_exit and not run.forks:
        # Earlier ones are put again with their indexes, so that new ones get the next.
        await store_writes(run, NULL_TASK_ID, run.pending[NULL_TASK_ID])


def _take_stored_answer(run: Run, given: Any) -> None:
    """The answer that names no question: of this command, or of a run that ended before a task took it.

    A command without such an answer leaves an earlier one unused: it was meant for a question that was asked then.
    """
    gives = isinstance(given, Command) and given.resume is not None and answer_map(given.resume) is None
    run.has_new_answer = gives
    if isinstance(given, Command) and not gives:
        return
    for name, value in run.pending.get(NULL_TASK_ID, ()):
        if name == RESUME and value is not None:
            taken = not gives and any(_ends_with(writes, value) for writes in run.pending.values())
            run.null_answer = None if taken else value


def _ends_with(writes: Sequence[tuple[str, Any]], answer: Any) -> bool:
    return any(
        name == RESUME and isinstance(given, list) and bool(given) and _is_equal(given[-1], answer)
        for name, given in writes
    )


def _is_equal(one: Any, other: Any) -> bool:
    """Whether two answers are the same; arrays and the like compare by parts, and both were stored."""
    try:
        return bool(one == other)
    except Exception:
        return True  # rather ask again than give an answer twice


# -- giving back


def recall(run: Run, task: Task) -> None:
    """Take what the store has of a task: its output, or its questions and answers."""
    writes = run.pending.get(task.id)
    if writes is None:
        take_answers(run, task, ())
        return
    note_taken(task, writes)
    if any(name == ERROR_SOURCE_NODE for name, _ in writes) and task.node.error_handler is not None:
        task.earlier_failure = next((str(value) for name, value in writes if name == ERROR), "")
        return
    if is_finished(writes):
        task.writes = [write for write in writes if write[0] not in (INTERRUPT, RESUME)]
        task.is_done = task.is_given_back = True
        return
    take_answers(run, task, writes)


def note_taken(task: Task, writes: Sequence[tuple[str, Any]]) -> None:
    """A crash can come between an answer that a graph inside stored and its withdrawal above: it is withdrawn now."""
    above = task.run.parent
    while above is not None:
        run = above.run
        if run.null_answer is not None and not run.has_new_answer and _ends_with(writes, run.null_answer):
            run.null_answer = None
            task.answered_by = run
        above = run.parent


def take_answers(run: Run, task: Task, writes: Sequence[tuple[str, Any]]) -> None:
    """Give a task the answers to its questions, stored and new; without a new one its questions stand."""
    asked: Sequence[Any] = ()
    for name, value in writes:
        if name == RESUME:
            task.answers = list(value) if isinstance(value, list) else [value]
        elif name == INTERRUPT:
            asked = stored_questions(value)
    root = run.root()
    has_new = add_named_answers(task, root.answers, asked)
    ids = {one.id for one in asked}
    if asked and root.keeps_questions and not has_new and not _has_null_answer(run) and ids.isdisjoint(root.answers):
        if not all(is_interrupt_id(one.id) for one in asked):
            return  # an interrupt that was raised by hand cannot be answered: its task runs again
        task.interrupts = tuple(asked)
        task.waits = task.is_done = True


def _has_null_answer(run: Run) -> bool:
    """Whether an answer that names no question waits here or above."""
    if run.is_past_answers:
        return False
    return run.null_answer is not None or (run.parent is not None and _has_null_answer(run.parent.run))


def add_named_answers(task: Task, answers: Mapping[str, Any], asked: Sequence[Any]) -> bool:
    """Put the answers that name this task's questions in their places; whether there was one."""
    from ..interrupts import OPEN_ANSWER, is_open_answer

    if not answers:
        return False
    found = False
    # A question of an older engine has the bare id of its task, whatever was answered before.
    place = len(task.answers)
    bare = interrupt_id(task.namespace)
    for position in range(place + max(1, len(asked))):
        is_open = position >= len(task.answers) or is_open_answer(task.answers[position])
        key = interrupt_id(task.namespace, position)
        if position == place and key not in answers and bare in answers and any(one.id == bare for one in asked):
            key = bare
        if is_open and key in answers:
            task.answers.extend([OPEN_ANSWER] * (position + 1 - len(task.answers)))
            task.answers[position] = answers[key]
            found = True
    return found


def open_questions(run: Run) -> list[Any]:
    """The questions that the loaded checkpoint left open."""
    return list(pending_interrupts(run.pending, lambda task_id: is_finished(run.pending[task_id])).values())
