"""Answers written down before the run: a graph that asks runs to its end in a test."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

__all__ = ["Answers", "UnexpectedQuestion", "answering", "resuming", "taker"]

# By the question's value; or one function for all; or a list in the order of asking.
Answers = Mapping[Any, Any] | Callable[[Any], Any] | Sequence[Any]


class UnexpectedQuestion(AssertionError):
    """A graph asked something that the test has no answer for."""


def answering(graph: Any, given: Any, config: Any, answers: Answers, **options: Any) -> Any:
    """The output of a graph whose questions are answered as they come; the graph needs a saver.

    A mapping is looked up by the question's value (or by its `name` or `type` where the value is a dict); a function is
    called with the value; a list is taken in the order of asking.
    """
    take = taker(answers)
    output = graph.invoke(given, config, **options)
    while questions := _open(graph, config, output):
        resume = {question.id: take(question.value) for question in questions}
        output = graph.invoke(resuming(graph, resume), config, **options)
    return output


def _open(graph: Any, config: Any, output: Any) -> list[Any]:
    if isinstance(output, Mapping):
        return list(output.get("__interrupt__", ()))
    return list(graph.get_state(config).interrupts)


def resuming(graph: Any, resume: Any) -> Any:
    """A Command of the graph's own library."""
    if type(graph).__module__.startswith("langgraph."):
        import importlib

        return importlib.import_module("langgraph.types").Command(resume=resume)
    from ..types import Command

    return Command(resume=resume)


def taker(answers: Answers) -> Callable[[Any], Any]:
    """A function from a question to its answer."""
    if callable(answers):
        return answers
    if isinstance(answers, Mapping):
        return lambda question: _looked_up(answers, question)
    rest: Iterator[Any] = iter(answers)

    def next_of(question: Any) -> Any:
        for answer in rest:
            return answer
        raise UnexpectedQuestion(f"the list of answers is used up, and the graph asks {question!r}")

    return next_of


def _looked_up(answers: Mapping[Any, Any], question: Any) -> Any:
    names = [question.get("name"), question.get("type")] if isinstance(question, Mapping) else [question]
    for name in names:
        try:
            if name is not None and name in answers:
                return answers[name]
        except TypeError:  # a question that cannot be a key
            continue
    raise UnexpectedQuestion(f"the graph asks {question!r}; there are answers for {list(answers)!r}")
