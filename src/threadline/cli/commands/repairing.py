"""`threadline repair`: rebuilding damaged channels from their history."""

from __future__ import annotations

import dataclasses
import importlib
import operator
import os
import sys
from collections.abc import Callable
from typing import Annotated, Any

import typer

from ...errors import InvalidRequest
from ..open import Modules, import_modules, open_store
from ..output import AsJson, Url, Yes, as_typed, clean, print_facts, print_json, print_line, progress_bar
from .checking import spoken_command
from .pruning import ending

__all__ = ["repair"]

Reducer = Callable[[Any, Any], Any]
# Names for the reducers that most graphs have.
_KNOWN: dict[str, str | Reducer] = {
    "add_messages": "langgraph.graph.message:add_messages",
    "append": operator.add,
    "operator.add": operator.add,
    "last": lambda _, write: write,
}


def repair(
    url: Url,
    threads: Annotated[list[str], typer.Argument(metavar="THREAD", help="The threads to repair.")],
    reducers: Annotated[
        list[str] | None,
        typer.Option(
            "--reducer",
            metavar="CHANNEL=FUNCTION",
            help="How a channel takes up writes: module:function, add_messages, append or last.",
        ),
    ] = None,
    inexact: Annotated[
        bool, typer.Option("--inexact", help="Store a rebuilt value also where it is not the very one that was lost.")
    ] = False,
    modules: Modules = None,
    yes: Yes = False,
    as_json: AsJson = False,
) -> None:
    """Rebuild damaged channels from their history.

    The exit status is 1 when something stays damaged.
    """
    import_modules(modules)
    functions = dict(_reducer(text) for text in reducers or [])
    # Values are made and stored again: the classes of the application must be at hand.
    with open_store(url, read_only=not yes, structural=False) as store, progress_bar("checking") as progress:
        report = store.saver.fsck(threads, progress)
        left = store.saver.repair(report.damaged, reducers=functions, exact=not inexact) if yes else []
    known = sorted(functions)
    if as_json:
        told = {"damaged": report.damaged, "left": left}
        named = {name: [dataclasses.asdict(one) for one in some] for name, some in told.items()}
        print_json({**named, "reducers": known, "done": yes})
    else:
        for damage in left if yes else report.damaged:
            print_line((clean(as_typed(str(damage))), ""), is_cut=False)
        _print_ending(url, threads, len(report.damaged), len(left), known, yes)
    if left if yes else report.damaged:
        raise typer.Exit(1)


def _print_ending(url: str, threads: list[str], damaged: int, left: int, known: list[str], yes: bool) -> None:
    if not damaged:
        print_facts([("done", "nothing is damaged")])
    elif not yes:
        facts = [("damaged", f"{damaged:,}"), ("reducers", ", ".join(known) or "none")]
        print_facts([*facts, ending(False, "", "what can be rebuilt would be")])
    else:
        facts = [("repaired", f"{damaged - left:,} of {damaged:,}")]
        if left:
            facts.append(("next", spoken_command(url, "fsck", *threads, "--quarantine")))
        print_facts(facts)


def _reducer(text: str) -> tuple[str, Reducer]:
    channel, found, name = text.rpartition("=")
    if not found or not channel or not name:
        raise InvalidRequest(f"--reducer is CHANNEL=FUNCTION, such as messages=add_messages, not {text!r}")
    known = _KNOWN.get(name, name)
    return channel, known if callable(known) else _imported(known)


def _imported(name: str) -> Reducer:
    """A function by its name, of an installed module or one of this folder."""
    module, found, function = name.partition(":")
    if not found:
        raise InvalidRequest(f"a reducer is module:function, {', '.join(sorted(_KNOWN))}, not {name!r}")
    if os.getcwd() not in sys.path:
        sys.path.insert(0, os.getcwd())
    try:
        reducer: Any = importlib.import_module(module)
        for part in function.split("."):
            reducer = getattr(reducer, part)
    except (ImportError, AttributeError) as error:
        raise InvalidRequest(f"the reducer {name} cannot be imported: {error}") from None
    if not callable(reducer):
        raise InvalidRequest(f"the reducer {name} is no function")
    return reducer  # type: ignore[no-any-return]
