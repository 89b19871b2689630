"""The loop: load a thread, then step after step decide which tasks run, run them, apply what they wrote, save.

One `async def` over two ports: the saver (through a writer, see writer.py) and the Host that runs tasks. A blocking run
drives it in one go (`run_now`): with blocking ports nothing ever suspends. It yields when there are chunks to show, and
goes on when the consumer asks for more, so nothing runs ahead of a slow consumer.

    begin      load the checkpoint, take the input or the command            (entering.py)
    tick       choose the tasks of the step, give back what is stored        (superstep.py decides)
    run        the tasks, side by side; each commits when it ends            (runner.py)
    end_step   apply the writes, save the checkpoint
    finish     flush what is on its way to the saver, raise or return

Only the loop applies writes and moves versions. A task hands over its outcome through `commit`, which sets one key of
`pending`: tasks never read, filter or rebind what others wrote.
"""

from __future__ import annotations

import threading
import time
from collections.abc import AsyncIterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from ..constants import ERROR, ERROR_SOURCE_NODE, INTERRUPT, PREVIOUS, RESUME, TASKS
from ..errors import GraphBubbleUp, GraphDrained, GraphInterrupt, ParentCommand, is_invalid_resume
from ..showing.stream import emit, note_values, show_checkpoint, show_interrupts, show_task, show_updates
from ..storing.saving import finish, forget_answer, put_writes, save
from .endings import check_joins, recursion_error
from .observing import observer_of
from .runner import for_the_graph_above, perform
from .superstep import GraphState, apply_writes, next_integer, read_channel, read_channels, sends_of, triggered_nodes
from .tasks import Task

if TYPE_CHECKING:
    from ..building.plan import Keys
    from ..channels import BaseChannel
    from ..compiled import Pregel
    from ..reading.replay import Origin
    from ..storing.writer import SaverWriter
    from ..types import Interrupt
    from .calling import RunSettings
    from .exclusive import Hold
    from .hosts import Host

__all__ = ["Run"]


class Run:
    """One run of a graph on one thread, from its input to its output.

    What it does beside its course are functions of a run, by subject: entering.py, preparing.py, storing/saving.py and
    showing/stream.py. Parts that refer back to it would keep it, and its state, until the next garbage collection.
    """

    def __init__(self, graph: Pregel, host: Host, settings: RunSettings) -> None:
        self.graph = graph
        self.plan = graph.plan
        self.host = host
        self.settings = settings
        self.config = settings.config
        self.parent = settings.parent
        self.saver = settings.saver
        self.store = settings.store
        self.context_value = settings.context
        self.control = settings.control
        self.server_info = settings.server_info
        self.thread_id = settings.thread_id
        self.run_id = settings.run_id
        self.namespace = settings.namespace
        # namespace -> checkpoint id, of every graph above.
        self.parents: Mapping[str, str] = settings.parents
        self.next_version = self.saver.get_next_version if self.saver is not None else next_integer
        self.hold: Hold | None = None
        self._begin()
        self._begin_storing()
        self._begin_showing()
        self.observer = observer_of(self)
        host.tells_each = settings.outlet is not None

    def _begin(self) -> None:
        """Nothing is loaded yet."""
        self.state = GraphState({}, {}, {})
        self.step = -1
        self.stop = 0
        self.checkpoint_id = ""
        # Whether the state is that of a checkpoint, stored or to be stored.
        self.has_checkpoint = False
        self.parent_checkpoint_id: str | None = None
        self.format_version = 4
        self.metadata: dict[str, Any] = {}
        self.updated: Sequence[str] | set[str] | None = None
        # Task id -> what is known of that task in this step.
        self.pending: dict[str, list[tuple[str, Any]]] = {}
        self.tasks: list[Task] = []
        # Calls that tasks of this step made, by task id.
        self.called: dict[str, Task] = {}
        # The nodes that ran, for the error at the recursion limit.
        self.ran: list[tuple[str, ...]] = []
        # Whether a task of this run failed, asked or bubbled; whether one shows its question again instead of running.
        self.has_failures = False
        self.waits = False
        # Whether the tasks of this step run one after another without anything between them and its checkpoint.
        self.ends_together = False
        # What ended a run before its end: a breakpoint, or "pending" for a question. None: nothing did.
        self.stopped_by: str | None = None
        self.is_resuming = False
        # Whether answers were given: then tasks whose questions got none show them again instead of running. A run that
        # just goes on (input None) runs them, since what they ask about may have changed, in a graph inside as well.
        self.keeps_questions = False
        # Answers by question id, and the one that names none.
        self.answers: Mapping[str, Any] = {}
        self.null_answer: Any = None
        # Whether the run was started with that answer: else it was found, left by a run that ended before its time.
        self.has_new_answer = False
        # Whether the step that was resumed is over: an answer was meant for that step, never for a question after it.
        self.is_past_answers = False
        self.config_of_tasks: dict[str, Any] | None = None
        # Time travel: where this run was before its fork, the checkpoint that the root replays, the places seen since.
        self.origin: Origin | None = None
        self.forks = False
        self.is_seeded = False
        self.replayed_id: str | None = None
        self.visited: set[str] = set()

    def _begin_storing(self) -> None:
        """Nothing is handed to the saver yet; see storing/saving.py."""
        self.puts_at_exit = self.saver is not None and self.settings.durability == "exit"
        self.writer: SaverWriter | None = None
        self.takes_path = False
        self.putting = threading.Lock()
        # The newest checkpoint that was handed to the saver: the next put names it as its parent.
        self.stored_id: str | None = None
        self.version_note = self.graph.version_note()

    def _begin_showing(self) -> None:
        """Nothing is shown yet; see showing/stream.py."""
        self.output_keys: Keys = self.settings.output_keys
        self.stream_keys: Keys = self.graph.stream_keys
        self.outlets = self.settings.outlets
        self.modes = frozenset(mode for outlet, _ in self.outlets for mode in outlet.modes)
        self.wants_tasks = bool(self.modes & {"tasks", "debug"})
        self.wants_checkpoints = self.saver is not None and bool(self.modes & {"checkpoints", "debug"})
        # Whether a step or the resume made something to return: without it the result is None.
        self.has_output = False
        # The values shown last, in a graph whose output channels empty themselves.
        self.kept_output: Any = None
        self.interrupts: list[Interrupt[Any]] = []
        # The state with what finished siblings of a task that asks have written.
        self.shown: GraphState | None = None
        # Ids of messages that were shown, in this run and in those inside.
        self.shown_messages: set[str] = set()

    # -- the course of a run

    async def chunks(self) -> AsyncIterator[None]:
        """Run to the end; yields whenever there is something to show."""
        from .entering import begin

        own = self.settings.outlet
        failure: BaseException | None = None
        try:
            await begin(self)
            if self.observer is not None:
                self.observer.run_begins(self)
            while True:
                is_going_on = self._tick()
                if own is not None and own.chunks:
                    yield
                if not is_going_on:
                    break
                if self.settings.cache is not None:
                    await self._take_cached()
                if self.observer is not None:
                    self.observer.step_begins(self)
                todo = [task for task in self.tasks if not task.is_done]
                deadline = None if self.graph.step_timeout is None else time.monotonic() + self.graph.step_timeout
                if deadline is not None or self.settings.eager or not self._runs_here(todo):
                    for task in todo:
                        self.host.start(task, perform)
                else:
                    for task in todo:
                        await self.host.run_here(task, perform)
                        if own is not None and own.chunks and task is not todo[-1]:
                            yield
                while not self._is_step_over():
                    await self._wait(deadline)
                    if own is not None and own.chunks:
                        yield
                self._raise_failures()
                await self._end_step()
            check_joins(self)
        except BaseException as error:
            failure = await self._ended_by(error)
            if failure is not None:
                raise failure from failure.__cause__
        finally:
            if self.observer is not None:
                self.observer.run_ends(self, failure)
            await finish(self, failure)
            if self.parent is not None and isinstance(failure, GraphInterrupt):
                # A node that swallows the question of a graph inside it is as wrong as one that swallows its own.
                self.parent.questions.extend(failure.args[0] if failure.args else ())
        if own is not None and own.chunks:
            yield

    def _runs_here(self, todo: Sequence[Task]) -> bool:
        """Whether tasks run one after another where the loop is: one alone, or such as only compute for a moment."""
        if len(todo) <= 1:
            return True
        if self.host.is_async:
            return False
        for task in todo:
            if not task.node.is_quick or task.timeout is not None:
                return False
        # None of them can do anything that must be durable before the next one begins.
        self.ends_together = True
        return True

    async def _wait(self, deadline: float | None) -> None:
        left = None if deadline is None else deadline - time.monotonic()
        if left is not None and left <= 0:
            if self.host.is_async:
                import asyncio

                raise asyncio.TimeoutError("the step took longer than step_timeout")
            raise TimeoutError("the step took longer than step_timeout")
        await self.host.wait(left)

    def _is_step_over(self) -> bool:
        """Whether all tasks ended, or one failed in a run that need not wait for the others."""
        if _are_done(self.tasks) and (not self.called or _are_done(list(self.called.values()))):
            return True
        return self.host.is_async and self.has_failures and any(_is_failed(task) for task in self.tasks)

    # -- choosing tasks

    def _tick(self) -> bool:
        """Prepare the next step; False when the run is over."""
        if self.hold is not None:
            self.hold.check()
        self.tasks = self.prepare_tasks()
        show_checkpoint(self, self.tasks)
        if self.step > self.stop:
            raise recursion_error(self)
        if not self.tasks:
            return False
        has_given_back = bool(self.pending)
        if has_given_back:
            self._give_back()
        if self.settings.interrupt_before and self._should_stop(self.settings.interrupt_before):
            self.stopped_by = "interrupt_before"
            raise GraphInterrupt()
        if self.control is not None and self.control.drain_requested:
            raise GraphDrained(self.control.drain_reason or "shutdown")
        for task in self.tasks if self.wants_tasks else ():
            if not task.node.is_hidden:
                show_task(task)
        for task in self.tasks if has_given_back else ():
            if task.is_given_back:
                show_updates(task, cached=True)
        return True

    def prepare_tasks(self) -> list[Task]:
        """The tasks of the next step: the sends in their order, then the triggered nodes."""
        from .preparing import pulled, pushed

        tasks = pushed(self, sends_of(self.state)) if self.has_sends() else []
        nodes = triggered_nodes(self.plan, self.state, self.updated)
        return tasks + pulled(self, nodes) if nodes else tasks

    def _give_back(self) -> None:
        """Take what is stored of these tasks: outputs, answers, questions."""
        from .entering import recall

        for task in self.tasks:
            recall(self, task)
            self.waits = self.waits or task.waits

    async def _take_cached(self) -> None:
        from .caching import take_cached

        for task in await take_cached(self, self.tasks):
            show_updates(task, cached=True)

    def _should_stop(self, listed: Sequence[str] | str) -> bool:
        """Whether a breakpoint holds: a listed node is next, and something moved since the last stop."""
        seen = self.state.seen.get(INTERRUPT, {})
        if not any(version > seen[name] if name in seen else True for name, version in self.state.versions.items()):
            return False
        if listed == "*":
            return any(not task.node.is_hidden for task in self.tasks)
        return any(task.name in listed for task in self.tasks)

    # -- outcomes

    async def commit(self, task: Task) -> None:
        """Keep the outcome of a task: for this run, in the store, in the streams."""
        if task.interrupts:
            await self._commit_questions(task)
        elif task.error is not None:
            if isinstance(task.error, GraphBubbleUp):
                return  # it goes on to the graph above, which keeps what it means there
            if is_invalid_resume(task.error):
                task.writes = []  # nothing is kept, so that the question can be answered again
            elif task.is_handled:
                task.writes = []
                await put_writes(self, task, [(ERROR, task.error), (ERROR_SOURCE_NODE, task.name)])
            else:
                await put_writes(self, task, [*task.writes, (ERROR, task.error)])
                show_updates(task)
        else:
            await put_writes(self, task, task.writes)
            show_updates(task)
            if task.cache_key is not None:
                from .caching import keep

                await keep(self, task)
        if task.answered_by is not None and task.error is not None:
            await self._answer_is_stored(task)
        if self.wants_tasks and not task.node.is_hidden:
            show_task(task, is_end=True)

    async def _keep_answers_taken(self, parent: Task) -> None:
        """Before the step of a graph inside is saved: its answers are gone, unless nobody can ask after this step."""
        for task in self.all_applied():
            if task.answered_by is None:
                continue
            if task.answered_by is not parent.run or not self.is_node() or self.prepare_tasks():
                await self._answer_is_stored(task)

    async def _answer_is_stored(self, task: Task) -> None:
        """Take the answer from the run above that was given it: the next question must not get it after a crash."""
        source, task.answered_by = task.answered_by, None
        if (
            source is not None
            and self.writer is not None
            and any(name == RESUME for name, _ in self.pending.get(task.id, ()))
        ):
            await self.writer.settle()
            await forget_answer(source, self.host)

    def ends_step(self, task: Task) -> bool:
        """Whether the checkpoint of the step follows at once: all other tasks ended, and this one succeeded."""
        if task.error is not None or task.is_call or self.called:
            return False
        if self.ends_together:
            return True
        # From the last one: that is where those are which run still.
        for other in reversed(self.tasks):
            if other is not task and (not other.is_done or other.error is not None):
                return False
        return True

    async def _commit_questions(self, task: Task) -> None:
        answers = [(RESUME, list(task.answers))] if task.answers else []
        task.writes = []
        await put_writes(self, task, [(INTERRUPT, list(task.interrupts)), *answers])
        self._emit_questions(task)

    def _emit_questions(self, task: Task) -> None:
        if not task.is_call:  # the caller repeats the questions of its calls: they are shown once
            show_interrupts(self, tuple(task.interrupts))

    def _raise_failures(self) -> None:
        """The first failure of the step, or all its questions together."""
        self.ends_together = False
        if not self.has_failures and not self.waits:
            return
        for task in self.tasks:
            if task.waits:
                self._emit_questions(task)
        questions: list[Interrupt[Any]] = []
        bubbling: BaseException | None = None
        for task in self.all_writers():
            if task.interrupts:
                questions += task.interrupts
            elif task.error is not None and not task.is_handled:
                if not isinstance(task.error, GraphBubbleUp):
                    raise task.error
                bubbling = bubbling or task.error
        if bubbling is not None:
            raise bubbling
        if questions or any(task.waits for task in self.tasks):
            raise GraphInterrupt(tuple(questions))

    async def _end_step(self) -> None:
        """Apply what the tasks wrote and save the checkpoint."""
        tasks = self.tasks
        self.ran.append((tasks[0].name,) if len(tasks) == 1 else tuple([task.name for task in tasks]))
        if len(self.ran) > 200:
            del self.ran[:100]
        self.updated = apply_writes(self.plan, self.state, self.all_applied(), self.next_version)
        note_values(self, self.updated)
        if self.observer is not None:
            self.observer.step_ends(self, self.updated)
        if self.parent is not None:
            await self._keep_answers_taken(self.parent)
        self.pending = {}
        self.called = {}
        self.is_past_answers = self.is_past_answers or self.is_resuming or self.parent is None
        self.is_resuming = False
        await save(self, "loop")
        if self.settings.interrupt_after and self._should_stop(self.settings.interrupt_after):
            if self.wants_checkpoints:
                show_checkpoint(self, self.prepare_tasks())
            self.tasks = []
            self.stopped_by = "interrupt_after"
            raise GraphInterrupt()

    def all_writers(self) -> list[Task]:
        """The tasks whose writes count: those of the step, and the error handlers that took over."""
        if not self.called:
            return self.tasks
        return [*self.tasks, *(task for task in self.called.values() if task.node.is_error_handler)]

    def all_applied(self) -> list[Task]:
        """The tasks that count as having run: calls too, whose results are no state."""
        return [*self.tasks, *self.called.values()] if self.called else self.tasks

    # -- the end

    async def _ended_by(self, error: BaseException) -> BaseException | None:
        """What to raise for what ended the run; None for a question of a root graph, which is its result."""
        if isinstance(error, GraphInterrupt):
            if self.parent is not None:
                return error  # the root graph shows that, and where, it stopped
            self._apply_finished()
            if not (error.args and error.args[0]):
                emit(self, "updates", {INTERRUPT: ()})
            self.stopped_by = self.stopped_by or "pending"
            return None
        if isinstance(error, ParentCommand) and self.parent is not None:
            return for_the_graph_above(error, self.parent)
        return error

    def _apply_finished(self) -> None:
        """Show what finished siblings of a task that asks have written; nothing of it is saved."""
        finished = [task for task in self.all_writers() if task.writes and task.is_done and task.error is None]
        if finished:
            # On copies: the state must stay what was saved, or will be.
            self.shown = self.state.copy()
            note_values(self, apply_writes(self.plan, self.shown, finished, self.next_version))

    def output(self) -> Any:
        """What the run returns: the output keys; None when nothing was written to them."""
        if self.graph.output_fades:
            return self.kept_output
        return read_channels(self.shown_channels, self.output_keys) if self.has_output else None

    @property
    def shown_channels(self) -> Mapping[str, BaseChannel[Any, Any, Any]]:
        return self.state.channels if self.shown is None else self.shown.channels

    # -- for tasks

    @property
    def previous(self) -> Any:
        """What the last call of an entrypoint saved."""
        if PREVIOUS not in self.state.channels:
            return None
        return read_channel(self.state.channels, PREVIOUS, None)

    def take_null_answer(self) -> tuple[Any, Run | None]:
        """The answer that names no question, and the run that was given it: this one or one above."""
        if self.is_past_answers:
            return None, None
        if self.null_answer is not None:
            answer, self.null_answer = self.null_answer, None
            return answer, self
        return self.parent.run.take_null_answer() if self.parent is not None else (None, None)

    def root(self) -> Run:
        """The run that was called from outside of any graph."""
        return self if self.parent is None else self.parent.run.root()

    def is_node(self) -> bool:
        """Whether this graph is itself the node that runs it: then nothing of the node comes after it."""
        action = self.parent.node.action if self.parent is not None else None
        return action is not None and action.source is self.graph

    def has_sends(self) -> bool:
        """Whether sends wait for the next step."""
        topic = self.state.channels.get(TASKS)
        return topic is not None and topic.is_available()


def _are_done(tasks: Sequence[Task]) -> bool:
    # A loop: this is asked several times a step. From the last one: that is where those are which run still.
    for task in reversed(tasks):  # noqa: SIM110
        if not task.is_done:
            return False
    return True


def _is_failed(task: Task) -> bool:
    return task.is_done and task.error is not None and not task.interrupts and not task.is_handled
