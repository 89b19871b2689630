"""One node of a graph, run alone on a state of the test's choice."""

from __future__ import annotations

from typing import Any

import threadline

from ..constants import END, INTERRUPT, START
from ..types import Command
from .answering import Answers, taker

__all__ = ["run_node"]

_CONFIG = {"configurable": {"thread_id": "run_node"}}


def run_node(graph: Any, name: str, state: Any, *, answers: Answers = (), **options: Any) -> Any:
    """What one node writes when it runs on this state: its update, or a list of them where it writes a key twice.

    The state goes through the graph's input schema and reducers. The node's questions are answered with `answers`; its
    edges are not followed. Nothing of the graph's own saver is touched.
    """
    if name not in graph.nodes:
        raise ValueError(f"the graph has no node {name!r}; it has {', '.join(sorted(graph.nodes))}")
    alone = graph.copy({"checkpointer": threadline.connect("memory://")})
    alone.update_state(_CONFIG, state, as_node=START)
    alone.update_state(_CONFIG, None, as_node=END)
    take = taker(answers)
    given: Any = Command(goto=name)
    while True:
        chunks = list(alone.stream(given, _CONFIG, stream_mode="updates", interrupt_after=[name], **options))
        found = [chunk[name] for chunk in chunks if name in chunk]
        if found:
            return found[0] if len(found) == 1 else found
        questions = [question for chunk in chunks for question in chunk.get(INTERRUPT, ())]
        if not questions:
            return None
        given = Command(resume={question.id: take(question.value) for question in questions})
