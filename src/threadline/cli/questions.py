"""`threadline interrupts` and `answer`: what waits for a person, and what the person says."""

from __future__ import annotations

import json
from typing import Annotated, Any

import typer

from .opening import open_store
from .output import AsJson, ThreadId, Url, print_facts, print_json, print_rows
from .rendering import Reveal, one_line_of, plain

__all__ = ["answer", "interrupts"]


def interrupts(
    url: Url,
    prefix: Annotated[str, typer.Option("--prefix", metavar="TEXT", help="How the threads' ids begin.")] = "",
    reveal: Reveal = False,
    as_json: AsJson = False,
) -> None:
    """List what waits for an answer, over all threads."""
    with open_store(url, read_only=True) as store:
        waiting = list(store.saver.interrupts(prefix=prefix))
    if as_json:
        names = ("thread_id", "checkpoint_id", "task_id", "interrupt_id")
        print_json([{**{name: getattr(one, name) for name in names}, "value": plain(one.value)} for one in waiting])
    elif waiting:
        rows = [[one.thread_id, one.interrupt_id or "(no id)", one_line_of(one.value)] for one in waiting]
        print_rows(rows, ["bold", "yellow"])


def answer(
    url: Url,
    thread: ThreadId,
    interrupt_id: Annotated[str, typer.Argument(metavar="ID", help="The interrupt's id, as `interrupts` lists it.")],
    value: Annotated[str, typer.Argument(metavar="VALUE", help="The answer: JSON, or text where it is none.")],
    as_json: AsJson = False,
) -> None:
    """Store the answer to an interrupt.

    Any worker then goes on with graph.invoke(None, config).
    """
    said = _parsed(value)
    with open_store(url) as store:
        store.saver.thread(thread).answer({interrupt_id: said})
    if as_json:
        print_json({"thread_id": thread, "interrupt_id": interrupt_id, "value": plain(said)})
    else:
        print_facts([("answered", interrupt_id), ("thread", thread), ("value", one_line_of(said))])


def _parsed(text: str) -> Any:
    try:
        return json.loads(text)
    except ValueError:
        return text
