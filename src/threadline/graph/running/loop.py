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

import logging
import time
from collections.abc import AsyncIterator, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from ..constants import ERROR, ERROR_SOURCE_NODE, INTERRUPT, PREVIOUS, RESUME, TASKS
from ..errors import GraphBubbleUp, GraphDrained, GraphInterrupt, ParentCommand, is_invalid_resume
from ..showing.stream import checkpoint_payload, debug_chunk, task_payload, task_result_payload, updates_of
from ..storing.saving import Saving
from .endings import check_joins, recursion_error
from .observing import observer_of
from .runner import for_the_graph_above, perform
from .superstep import apply_writes, read_channel, read_channels, sends_of, triggered_nodes
from .tasks import Task

if TYPE_CHECKING:
    from ..channels import BaseChannel
    from ..compiled import Pregel
    from ..types import Interrupt
    from .hosts import Host
    from .settings import RunSettings
    from .superstep import GraphState

__all__ = ["Run"]

log = logging.getLogger("threadline.graph")


class Run(Saving):
    """One run of a graph on one thread, from its input to its output."""

    def __init__(self, graph: Pregel, host: Host, settings: RunSettings) -> None:
        super().__init__(graph, host, settings)
        self.observer = observer_of(self)
        host.tells_each = settings.outlet is not None
        self.tasks: list[Task] = []
        # Calls that tasks of this step made, by task id.
        self.called: dict[str, Task] = {}
        # Whether a step or the resume made something to return: without it the result is None.
        self.has_output = False
        # What ended a run before its end: a breakpoint, or "pending" for a question. None: nothing did.
        self.stopped_by: str | None = None
        # The values shown last, in a graph whose output channels empty themselves.
        self.kept_output: Any = None
        self.interrupts: list[Interrupt[Any]] = []
        # The state with what finished siblings of a task that asks have written.
        self.shown: GraphState | None = None
        # Ids of messages that were shown, in this run and in those inside.
        self.shown_messages: set[str] = set()
        # The nodes that ran, for the error at the recursion limit.
        self.ran: list[tuple[str, ...]] = []
        # Whether a task of this run failed, asked or bubbled; whether one shows its question again instead of running.
        self.has_failures = False
        self.waits = False
        # Whether the tasks of this step run one after another without anything between them and its checkpoint.
        self.ends_together = False

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
            self._check_end()
        except BaseException as error:
            failure = await self._ended_by(error)
            if failure is not None:
                raise failure from failure.__cause__
        finally:
            if self.observer is not None:
                self.observer.run_ends(self, failure)
            await self._finish(failure)
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
        if self.wants_checkpoints:
            self.emit_checkpoint(self.tasks)
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
        if self.wants_tasks:
            for task in self.tasks:
                if not task.node.is_hidden:
                    self.show_task(task, task_payload(task))
        if has_given_back:
            self._show_given_back()
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

    def _show_given_back(self) -> None:
        for task in self.tasks:
            if task.is_given_back:
                self._emit_updates(task, cached=True)

    async def _take_cached(self) -> None:
        from .caching import take_cached

        for task in await take_cached(self, self.tasks):
            self._emit_updates(task, cached=True)

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
                await self.put_writes(task, [(ERROR, task.error), (ERROR_SOURCE_NODE, task.name)])
            else:
                await self.put_writes(task, [*task.writes, (ERROR, task.error)])
                self._emit_updates(task)
        else:
            await self.put_writes(task, task.writes)
            self._emit_updates(task)
            if task.cache_key is not None:
                from .caching import keep

                await keep(self, task)
        if task.answered_by is not None and task.error is not None:
            await self._answer_is_stored(task)
        if self.wants_tasks and not task.node.is_hidden:
            self.show_task(task, task_result_payload(task, self.stream_keys), is_end=True)

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
            await source.forget_answer(self.host)

    def ends_step(self, task: Task) -> bool:
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
        await self.put_writes(task, [(INTERRUPT, list(task.interrupts)), *answers])
        self._emit_questions(task)

    def _emit_questions(self, task: Task) -> None:
        if not task.is_call:  # the caller repeats the questions of its calls: they are shown once
            self._show_interrupts(tuple(task.interrupts))

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
        self._note_values(self.updated)
        if self.observer is not None:
            self.observer.step_ends(self, self.updated)
        if self.parent is not None:
            await self._keep_answers_taken(self.parent)
        self.pending = {}
        self.called = {}
        self.is_past_answers = self.is_past_answers or self.is_resuming or self.parent is None
        self.is_resuming = False
        await self.save("loop")
        if self.settings.interrupt_after and self._should_stop(self.settings.interrupt_after):
            if self.wants_checkpoints:
                self.emit_checkpoint(self.prepare_tasks())
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

    def _check_end(self) -> None:
        check_joins(self)

    async def _ended_by(self, error: BaseException) -> BaseException | None:
        """What to raise for what ended the run; None for a question of a root graph, which is its result."""
        if isinstance(error, GraphInterrupt):
            if self.parent is not None:
                return error  # the root graph shows that, and where, it stopped
            self._apply_finished()
            if not (error.args and error.args[0]):
                self._emit("updates", {INTERRUPT: ()})
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
            self._note_values(apply_writes(self.plan, self.shown, finished, self.next_version))

    def output(self) -> Any:
        """What the run returns: the output keys; None when nothing was written to them."""
        if self.graph.output_fades:
            return self.kept_output
        return read_channels(self.shown_channels, self.output_keys) if self.has_output else None

    @property
    def shown_channels(self) -> Mapping[str, BaseChannel[Any, Any, Any]]:
        return self.state.channels if self.shown is None else self.shown.channels

    # -- showing

    def _note_values(self, updated: Iterable[str]) -> None:
        keys = self.output_keys
        written = keys in updated if isinstance(keys, str) else not set(keys).isdisjoint(updated)
        if written:
            self.show_values()

    def show_values(self) -> None:
        """The state is worth showing: after a step that wrote an output key, and when a run resumes."""
        self.has_output = True
        if self.graph.output_fades:
            self.kept_output = read_channels(self.shown_channels, self.output_keys)
        if "values" in self.modes:
            self._emit("values", read_channels(self.shown_channels, self.output_keys))

    def _show_interrupts(self, interrupts: tuple[Interrupt[Any], ...]) -> None:
        self.interrupts += interrupts
        self.has_output = True
        if "updates" in self.modes:
            self._emit("updates", {INTERRUPT: interrupts})
        if "values" in self.modes:
            values = read_channels(self.state.channels, self.output_keys)
            if isinstance(self.output_keys, str):
                self._emit("values", {INTERRUPT: interrupts})
            else:
                self._emit("values", {**values, INTERRUPT: interrupts})

    def _emit_updates(self, task: Task, *, cached: bool = False) -> None:
        if "messages" in self.modes and not cached:
            from ..showing.message_stream import finished_messages

            finished_messages(self, task)
        if "updates" in self.modes and (chunk := updates_of(task, self.output_keys, cached=cached)) is not None:
            self._emit("updates", chunk)

    def show_task(self, task: Task, payload: dict[str, Any], *, is_end: bool = False) -> None:
        """A task starts, or ended."""
        self._emit("tasks", payload)
        if "debug" in self.modes:
            self._emit("debug", debug_chunk(task.step, "task_result" if is_end else "task", payload))

    def show_given_back(self, task: Task) -> None:
        """A task does not run, because its result is known."""
        self._emit_updates(task, cached=True)

    def emit_checkpoint(self, tasks: Sequence[Task]) -> None:
        payload = checkpoint_payload(self, tasks)
        self._emit("checkpoints", payload)
        if "debug" in self.modes:
            self._emit("debug", debug_chunk(self.step - 1, "checkpoint", payload))

    def emit(self, mode: str, payload: Any) -> None:
        """Show a chunk to everybody who listens to its mode."""
        if mode in self.modes:
            self._emit(mode, payload)

    def _emit(self, mode: str, payload: Any) -> None:
        for outlet, namespace in self.outlets:
            if mode in outlet.modes:
                outlet.put(namespace, mode, payload)

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

    def has_null_answer(self) -> bool:
        """Whether an answer that names no question waits here or above."""
        if self.is_past_answers:
            return False
        return self.null_answer is not None or (self.parent is not None and self.parent.run.has_null_answer())

    def all_answers(self) -> Mapping[str, Any]:
        """The answers by question id that this run, or the one at the root, was resumed with."""
        return self.answers if self.parent is None else self.parent.run.all_answers()

    def asks_only_again(self) -> bool:
        """Whether tasks whose questions got no answer wait instead of running: in a resume, not after a goto."""
        return self.keeps_questions if self.parent is None else self.parent.run.asks_only_again()

    def has_sends(self) -> bool:
        """Whether sends wait for the next step."""
        topic = self.state.channels.get(TASKS)
        return topic is not None and topic.is_available()

    def all_tasks(self) -> Sequence[Task]:
        return [*self.tasks, *self.called.values()]

    def log_retry(self, task: Task, attempt: int, error: BaseException) -> None:
        log.info("Retrying task %r, attempt %d, after %r", task.name, attempt, type(error).__name__)


def _are_done(tasks: Sequence[Task]) -> bool:
    # A loop: this is asked several times a step. From the last one: that is where those are which run still.
    for task in reversed(tasks):  # noqa: SIM110
        if not task.is_done:
            return False
    return True


def _is_failed(task: Task) -> bool:
    return task.is_done and task.error is not None and not task.interrupts and not task.is_handled
