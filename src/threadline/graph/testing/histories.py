"""Whether two threads have the same history: what is compared is what happened, not the ids and times of it."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

__all__ = ["assert_same_history"]


def assert_same_history(one: Any, other: Any) -> None:
    """Fail with the first step at which two histories differ.

    Each is a list of snapshots, or a pair of a graph and the config of a thread. Compared are values, what is next, the
    source and step, and of each task its name, result, error and questions.
    """
    left, right = _steps(one), _steps(other)
    for number, (here, there) in enumerate(zip(left, right, strict=False)):
        for part, value in here.items():
            where = f"checkpoint {number} (step {here['step']}, oldest first)"
            assert value == there[part], f"{where} differs in {part}: {value!r} and {there[part]!r}"
    assert len(left) == len(right), f"one history has {len(left)} checkpoints, the other {len(right)}"


def _steps(given: Any) -> list[dict[str, Any]]:
    snapshots: Iterable[Any] = given
    if isinstance(given, tuple) and len(given) == 2 and hasattr(given[0], "get_state_history"):
        graph, config = given
        snapshots = graph.get_state_history(config)
    return [_step(snapshot) for snapshot in reversed(list(snapshots))]


def _step(snapshot: Any) -> dict[str, Any]:
    metadata = snapshot.metadata or {}
    return {
        "step": metadata.get("step"),
        "source": metadata.get("source"),
        "values": snapshot.values,
        "next": sorted(snapshot.next),
        "tasks": sorted((_task(task) for task in snapshot.tasks), key=repr),
    }


def _task(task: Any) -> dict[str, Any]:
    return {
        "name": task.name,
        "result": task.result,
        "error": None if task.error is None else str(task.error),
        "questions": [question.value for question in task.interrupts],
    }
