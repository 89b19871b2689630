"""`threadline doctor` and `threadline report`: what is wrong with a store and what to do, and its statistics."""

from __future__ import annotations

import dataclasses
import time
from typing import Annotated

import typer

from ... import __version__
from ...connect import make_engine
from ...errors import InvalidRequest, ThreadlineError
from ...ops.doctor.examine import examine, examine_backend, refused
from ...ops.doctor.findings import NOTE, OK, PROBLEM, WARNING, Finding
from ...ops.report import as_html, as_json, as_text, make_report
from ..open import open_store, require_file
from ..output import AsJson, Url, counted, one_line, print_facts, print_json, print_line, without_password

__all__ = ["doctor", "report"]

_COLOURS = {OK: "green", NOTE: "dim", WARNING: "yellow", PROBLEM: "bold red"}


def doctor(url: Url, as_json: AsJson = False) -> None:
    """Say what is wrong with a store and what to do about it.

    The exit status is 1 when there is a problem. Nothing is changed but a record that is removed again.
    """
    require_file(url)
    found = [_shown(one) for one in _examined(url)]
    problems = sum(one.level == PROBLEM for one in found)
    if as_json:
        print_json({"ok": not problems, "findings": [dataclasses.asdict(one) for one in found]})
    else:
        _print_findings(found)
    if problems:
        raise typer.Exit(1)


def report(
    url: Url,
    html: Annotated[bool, typer.Option("--html", help="Print a page for a browser.")] = False,
    output: Annotated[
        str | None, typer.Option("--output", metavar="FILE", help="Write it to a file.", show_default=False)
    ] = None,
    as_json_text: AsJson = False,
) -> None:
    """Print the statistics of a store on one page."""
    if html and as_json_text:
        raise InvalidRequest("a report is text, --html or --json, not two of them")
    with open_store(url, read_only=True) as store:
        shown = without_password(url)
        made = store.saver.run(make_report, shown, __version__, time.time())
    text = as_html(made) if html else as_json(made) + "\n" if as_json_text else as_text(made)
    if output is None:
        print(text, end="")
        return
    try:
        with open(output, "w", encoding="utf-8") as file:
            file.write(text)
    except OSError as error:
        raise InvalidRequest(f"{output} cannot be written: {error.strerror}") from None
    print_facts([("written", output)])


def _examined(url: str) -> list[Finding]:
    """First what the server or the file says, which a store that cannot be opened does not hide."""
    try:
        engine = make_engine(url, setup=False)
    except ThreadlineError as error:
        if isinstance(error, InvalidRequest):
            raise
        return [refused(error)]
    try:
        found = examine_backend(engine, __version__)
    except ThreadlineError as error:
        return [refused(error)]
    finally:
        engine.close()
    try:
        with open_store(url) as store:
            return [*found, *examine(store.engine, store.tools, time.time())]
    except ThreadlineError as error:
        return [*found, refused(error)]


def _shown(found: Finding) -> Finding:
    """A finding as it is typed and without passwords: messages of errors may name a URL."""
    return dataclasses.replace(found, text=one_line(Exception(found.text)))


def _print_findings(found: list[Finding]) -> None:
    width = max(len(one.subject) for one in found)
    for one in found:
        level = one.level if one.subject else ""
        parts = (f"{level:<8}", _COLOURS[one.level]), (f"{one.subject:<{width}}  ", "bold"), (one.text, "")
        print_line(*parts, is_cut=False)
        if one.advice:
            print_line((" " * (8 + width + 2) + f"-> {one.advice}", _COLOURS[one.level]), is_cut=False)
    problems, warnings = (sum(one.level == level for one in found) for level in (PROBLEM, WARNING))
    print_line((f"{counted(problems, 'problem')}, {counted(warnings, 'warning')}", "bold"))
