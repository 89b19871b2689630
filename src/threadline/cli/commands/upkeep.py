"""`threadline health` and `setup`: whether a store answers, and making one."""

from __future__ import annotations

import dataclasses
from typing import Annotated

import typer

from ... import connect
from ...connect import make_engine
from ...errors import InvalidRequest
from ...show.figures import readable_latency
from ..open import require_file
from ..output import AsJson, Url, complain, one_line, print_facts, print_json, without_password

__all__ = ["health", "setup"]


def health(url: Url, as_json: AsJson = False) -> None:
    """Check that a store takes, returns and removes a record.

    The exit status is 1 when it does not.
    """
    require_file(url)
    saver = connect(url, setup=False)
    try:
        found = saver.health()
    finally:
        saver.close()
    if as_json:
        print_json(dataclasses.asdict(found))
    elif found.ok:
        print_facts([("ok", f"{without_password(url)} answered in {readable_latency(found.latency_seconds)}")])
    else:
        complain(one_line(Exception(found.error)))
    if not found.ok:
        raise typer.Exit(1)


def setup(
    url: Url,
    printed: Annotated[
        bool, typer.Option("--print", help="Print the statements for an empty database; change nothing.")
    ] = False,
    as_json: AsJson = False,
) -> None:
    """Create the tables of a store, or bring them up to date."""
    if printed:
        return _print_statements(url, as_json)
    saver = connect(url, setup="migrate")
    try:
        saver.setup()
    finally:
        saver.close()
    if as_json:
        print_json({"url": without_password(url), "ready": True})
    else:
        print_facts([("ready", without_password(url))])
    return None


def _print_statements(url: str, as_json: bool) -> None:
    engine = make_engine(url)
    ddl = getattr(engine, "ddl", None)
    engine.close()
    if ddl is None:
        raise InvalidRequest(f"{without_password(url)} has no tables: there is nothing to print")
    if as_json:
        print_json({"url": without_password(url), "statements": ddl()})
    else:
        print(ddl(), end="")
