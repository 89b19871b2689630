"""`threadline stats`, `health` and `setup`: a store as a whole."""

from __future__ import annotations

import dataclasses
import os

import typer

from .. import connect
from ..connecting import parse_url
from ..core.health import Stats
from ..errors import NotFound
from .output import AsJson, Url, complain, one_line, print_facts, print_json, readable_bytes, without_password

__all__ = ["health", "setup", "stats"]


def stats(url: Url, as_json: AsJson = False) -> None:
    """Show what a store holds, and what sharing saves."""
    _require_file(url)
    with connect(url, read_only=True) as saver:
        figures = saver.stats()
    if as_json:
        print_json({**dataclasses.asdict(figures), "bytes_saved": figures.bytes_saved})
    else:
        print_facts(_facts(figures))


def health(url: Url, as_json: AsJson = False) -> None:
    """Check that a store takes, returns and removes a record.

    The exit status is 1 when it does not.
    """
    _require_file(url)
    saver = connect(url, setup=False)
    try:
        found = saver.health()
    finally:
        saver.close()
    if as_json:
        print_json(dataclasses.asdict(found))
    elif found.ok:
        print_facts([("ok", f"{without_password(url)} answered in {found.latency_seconds * 1000:.1f} ms")])
    else:
        complain(one_line(Exception(found.error)))
    if not found.ok:
        raise typer.Exit(1)


def setup(url: Url, as_json: AsJson = False) -> None:
    """Create the tables of a store, or bring them up to date."""
    with connect(url, setup="migrate") as saver:
        saver.setup()
    if as_json:
        print_json({"url": without_password(url), "ready": True})
    else:
        print_facts([("ready", without_password(url))])


def _require_file(url: str) -> None:
    """Looking at a store must not make an empty one where the name was mistyped."""
    scheme, path = parse_url(url)
    if scheme == "sqlite" and path != ":memory:" and not path.startswith("file:") and not os.path.exists(path):
        raise NotFound(f"there is no database at {path}; `threadline setup` makes one")


def _facts(figures: Stats) -> list[tuple[str, str]]:
    stored, whole = figures.bytes_stored, figures.bytes_without_sharing
    busiest = [f"{thread_id} ({count:,} checkpoints)" for thread_id, count in figures.busiest_threads]
    return [
        ("threads", f"{figures.threads:,}"),
        ("checkpoints", f"{figures.checkpoints:,}, {sum(figures.checkpoints_per_hour):,} of the last 24 hours"),
        ("pending writes", f"{figures.writes:,}"),
        ("chunks", f"{figures.chunks:,}"),
        ("bytes stored", f"{stored:,} ({readable_bytes(stored)})"),
        ("without sharing", f"{whole:,} ({readable_bytes(whole)})"),
        ("mean checkpoint", readable_bytes(figures.mean_checkpoint_bytes)),
        *zip(["busiest threads", *[""] * len(busiest)], busiest, strict=False),
    ]
