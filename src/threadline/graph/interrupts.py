"""Questions: how a node asks, how an answer finds it, and what is shown meanwhile.

Rules: `interrupt` raises until there is an answer. A node starts again from its first line, so its k-th question gets
the k-th answer of its task. An answer without an id is taken by the first question that asks, in whatever graph below.
A question that was asked and swallowed by `except Exception` fails the task: the answer could never arrive.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from ._base import printable, stored_field
from .constants import INTERRUPT, NULL_TASK_ID, RESUME
from .errors import GraphInterrupt, InvalidUpdateError, UnknownInterruptError, mark_invalid_resume
from .running.ids import interrupt_id, is_interrupt_id
from .runtime import current_task
from .types import Interrupt

if TYPE_CHECKING:
    from .running.tasks import Task

__all__ = ["PendingWrites", "answer_map", "interrupt", "interrupt_all", "pending_interrupts"]

log = logging.getLogger("threadline.graph")
# So many pending questions, and so much of each, are told in an error.
_MOST_TOLD = 10
_MOST_SHOWN = 60

PendingWrites = Mapping[str, Sequence[tuple[str, Any]]]


def interrupt(value: Any, *, response_schema: Any = None) -> Any:
    """Ask `value`, and return the answer.

    Without an answer the run stops and gives the question to the caller; `Command(resume=answer)` goes on, running the
    node again from its first line.
    """
    task = current_task("interrupt")
    place, answer = _next_answer(task)
    if answer is not _NONE:
        return _validated(answer, response_schema)
    _check_saver(task)
    question = Interrupt(value, interrupt_id(task.namespace, place), response_schema=_as_json(response_schema))
    task.questions.append(question)
    raise GraphInterrupt((question,))


def interrupt_all(values: Sequence[Any]) -> list[Any]:
    """Ask several questions at once, each with an id of its own, and return their answers in order.

    The run stops until all are answered; answers given so far are kept.
    """
    task = current_task("interrupt_all")
    answers: list[Any] = []
    missing: list[Interrupt[Any]] = []
    for value in values:
        place, answer = _next_answer(task)
        if answer is _NONE:
            missing.append(Interrupt(value, interrupt_id(task.namespace, place)))
        answers.append(answer)
    if missing:
        _check_saver(task)
        task.questions.extend(missing)
        raise GraphInterrupt(tuple(missing))
    return answers


_NONE = object()
# Stands in a task's list of answers for an earlier question that is still open.
OPEN_ANSWER = {"__threadline_open_answer__": True}


def is_open_answer(answer: Any) -> bool:
    """Whether a place in a task's list of answers is still open; answers may be anything, arrays included."""
    return type(answer) is dict and answer == OPEN_ANSWER


def _next_answer(task: Task) -> tuple[int, Any]:
    """The place of the question that is asked now, and its answer: stored, or the one that names no question."""
    # Questions asked side by side, as by tools that run in parallel, have places of their own.
    place = task.asked
    task.asked += 1
    if place < len(task.answers) and not is_open_answer(task.answers[place]):
        _note_answers(task)
        return place, task.answers[place]
    null = task.take_null_answer()
    if null is None:
        return place, _NONE
    task.answers.extend([OPEN_ANSWER] * (place + 1 - len(task.answers)))
    task.answers[place] = null
    _note_answers(task)
    return place, null


def _note_answers(task: Task) -> None:
    """Keep the answers among the task's writes; they replace what was stored before."""
    task.writes[:] = [write for write in task.writes if write[0] != RESUME]
    task.writes.append((RESUME, list(task.answers)))


def _as_json(schema: Any) -> Any:
    if schema is None or isinstance(schema, dict):
        return schema
    return _adapter(schema).json_schema()


def _validated(answer: Any, schema: Any) -> Any:
    if schema is None or isinstance(schema, dict):
        return answer
    try:
        return _adapter(schema).validate_python(answer)
    except Exception as error:
        mark_invalid_resume(error)
        raise


def _adapter(schema: Any) -> Any:
    try:
        from pydantic import TypeAdapter
    except ImportError:
        from ._base import MissingExtra

        raise MissingExtra(
            "response_schema takes types with pydantic: pip install pydantic, or give a JSON schema"
        ) from None
    return TypeAdapter(schema)


def answer_map(resume: Any) -> Mapping[str, Any] | None:
    """The answers by question id, when that is what `resume` is; None for one answer."""
    if isinstance(resume, dict) and resume and all(is_interrupt_id(key) for key in resume):
        return resume
    return None


def pending_interrupts(pending: PendingWrites, finished: Any) -> dict[str, Interrupt[Any]]:
    """The questions that are open, by id: the latest of each unfinished task; copies of one count once."""
    found: dict[str, Interrupt[Any]] = {}
    for task_id, writes in pending.items():
        if task_id == NULL_TASK_ID or finished(task_id):
            continue
        for channel, value in writes:
            if channel == INTERRUPT:
                found.update((one.id, one) for one in stored_questions(value))
    return found


def stored_questions(value: Any) -> list[Any]:
    """The questions in a stored write; what is none is left out: a damaged row must not stop its thread for ever."""
    listed = value if type(value) in (list, tuple) else (value,)
    return [one for one in listed if type(stored_field(one, "id")) is str]


def check_answers(resume: Any, pending: Mapping[str, Interrupt[Any]], *, strict: bool) -> None:
    """Refuse an answer that fits no question, before anything is written."""
    named = answer_map(resume)
    if not pending and not strict:
        log.warning("no question is pending on this thread: the answer is for none of those that were asked")
    if named is None:
        if len(pending) > 1:
            raise RuntimeError(
                "When there are multiple pending interrupts, you must specify the interrupt id when resuming. "
                f"Write Command(resume={{id: answer}}); pending: {_told(pending)}"
            )
        if strict and not pending:
            raise UnknownInterruptError(
                "no question is pending on this thread, so there is nothing to resume", reason="not_pending"
            )
        return
    unknown = [key for key in named if key not in pending]
    if unknown and pending and not strict:
        log.warning("no pending question has the id %r: the answer is not used", unknown[0])
    if strict and unknown:
        raise UnknownInterruptError(
            f"no pending question has the id {', '.join(unknown)}; pending: {_told(pending) or 'none'}",
            reason="not_pending",
            interrupt_ids=unknown,
            pending_ids=tuple(pending),
        )


def _told(pending: Mapping[str, Interrupt[Any]]) -> str:
    """The ids of questions and what they ask, as far as a line has room."""
    shown = [f"{key} ({printable(_beginning(one.value))})" for key, one in list(pending.items())[:_MOST_TOLD]]
    return ", ".join(shown) + (f" and {len(pending) - _MOST_TOLD} more" if len(pending) > _MOST_TOLD else "")


def _beginning(value: Any) -> str:
    text = repr(value) if isinstance(value, (str, int, float, bool, dict, list, tuple)) else type(value).__name__
    return text if len(text) <= _MOST_SHOWN else f"{text[:_MOST_SHOWN]}…"


def _check_saver(task: Task) -> None:
    """A strict graph refuses a question whose answer could never arrive."""
    if task.run.settings.strict and task.run.saver is None:
        raise InvalidUpdateError(
            f"Node {task.name!r} asks a question, and the graph has no saver: no answer can reach it. "
            "Compile it with checkpointer=threadline.connect(url)"
        )
