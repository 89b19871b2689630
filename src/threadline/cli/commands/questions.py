"""`threadline interrupts` and `answer`: what waits for a person, and what the person says."""

from __future__ import annotations

import json
from typing import Annotated, Any

import typer
from rich.cells import cell_len

from ...show.forms import waiting_json
from ...show.values import Damaged, one_line_of, plain
from ..open import open_store
from ..output import (
    AsJson,
    ThreadId,
    Url,
    clean,
    complain,
    print_facts,
    print_json,
    print_line,
    print_none,
    print_rows,
    screen_width,
)
from ..values import Reveal

__all__ = ["answer", "interrupts"]

# Columns in which a question can be read.
_READABLE = 40


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
        print_json([waiting_json(one) for one in waiting])
    elif waiting:
        rows = [[one.thread_id, one.interrupt_id or "(no id)", one_line_of(one.value)] for one in waiting]
        _print_waiting(rows)
    else:
        print_none("nothing waits for an answer")
    if any(isinstance(one.value, Damaged) for one in waiting):
        complain("[damaged] could not be read; `threadline fsck` tells what can be done")
        raise typer.Exit(1)


def _print_waiting(rows: list[list[str]]) -> None:
    """Threads, ids and questions; on a narrow terminal each question is below its thread and id, which stay whole."""
    columns = screen_width()
    taken = sum(max(cell_len(clean(row[place])) for row in rows) + 2 for place in (0, 1))
    if columns is None or columns - taken >= _READABLE:
        return print_rows(rows, ["bold", "yellow"])
    for thread, interrupt_id, question in rows:
        print_line((thread, "bold"), ("  ", ""), (interrupt_id, "yellow"), is_cut=False)
        print_line(("  ", ""), (question, ""))


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
