"""`threadline monitor`: watches a store, and tells people what crosses a limit."""

from __future__ import annotations

import dataclasses
import json
import logging
import os
import re
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import datetime
from typing import Annotated

import typer

from ...errors import InvalidRequest
from ...ops.judging import Event, Thresholds
from ...ops.watch import Turn
from ...show.figures import readable_bytes, readable_latency, readable_span
from ..open import open_store
from ..output import (
    AsJson,
    Url,
    counted,
    iso_time,
    print_facts,
    print_json,
    print_line,
    readable_time,
    remark,
    without_password,
)

__all__ = ["ErrorRate", "LatencyMs", "LeastRate", "monitor", "thresholds_of"]

LatencyMs = Annotated[
    float, typer.Option("--latency-ms", metavar="N", help="The limit for one call in twenty, in milliseconds.")
]
ErrorRate = Annotated[
    float, typer.Option("--error-rate", metavar="PERCENT", help="The limit for calls that fail, of a hundred.")
]
LeastRate = Annotated[
    float, typer.Option("--least-rate", metavar="N", help="How many calls a second there should be at least.")
]
_ALERTS = "THREADLINE_ALERTS"


def monitor(
    url: Url,
    to: Annotated[
        list[str] | None,
        typer.Option("--to", metavar="CHANNEL", help="Where to send, as apprise has it. May be given several times."),
    ] = None,
    to_file: Annotated[
        str | None, typer.Option("--to-file", metavar="FILE", help="A file with a channel a line.", show_default=False)
    ] = None,
    every: Annotated[str, typer.Option("--every", metavar="SPAN", help="How often to look.")] = "30s",
    window: Annotated[str, typer.Option("--window", metavar="SPAN", help="Over how long to judge.")] = "5m",
    repeat: Annotated[str, typer.Option("--repeat", metavar="SPAN", help="How often to tell what lasts.")] = "4h",
    latency_ms: LatencyMs = 1000.0,
    error_rate: ErrorRate = 5.0,
    least_rate: LeastRate = 10.0,
    work: Annotated[
        str,
        typer.Option("--work", metavar="WHEN", help="When there should be work: runs, always, never or 08:00-18:00."),
    ] = "runs",
    once: Annotated[bool, typer.Option("--once", help="Look once; the status is 1 if something is wrong.")] = False,
    as_json: AsJson = False,
) -> None:
    """Watch a store and send alerts.

    Channels are better named in a file or in THREADLINE_ALERTS: other users of a machine see what is typed.
    """
    limits = thresholds_of(latency_ms, error_rate, least_rate)
    show: Callable[[Event], None] = _print_json if as_json else _print_event
    with open_store(url) as store, _printed_once():
        watching = store.saver.monitor(
            every,
            thresholds=limits,
            channels=_channels(to, to_file),
            window=window,
            repeat=repeat,
            work_expected=_expected(work),
            on_event=None if once else show,
        )
        if once:
            return _look_once(watching.turn(), as_json)
        places = f"tells {', '.join(watching.channels.names)}" if len(watching.channels) else "tells nobody else"
        remark(f"watches {without_password(url)} and {places}; Ctrl-C ends it")
        with watching:
            try:
                threading.Event().wait()
            except KeyboardInterrupt:
                return


@contextmanager
def _printed_once() -> Iterator[None]:
    """Keep events out of the log: this command prints them itself, and a log that nobody set up goes to the screen."""
    log = logging.getLogger("threadline")
    level = log.level
    log.setLevel(logging.ERROR)
    try:
        yield
    finally:
        log.setLevel(level)


def thresholds_of(latency_ms: float, error_rate: float, least_rate: float) -> Thresholds:
    """The limits that were typed; failures as a part of a hundred."""
    return Thresholds(latency_ms=latency_ms, error_rate=error_rate / 100, least_per_second=least_rate)


def _channels(typed: list[str] | None, path: str | None) -> list[str]:
    found = [*(typed or ()), *os.environ.get(_ALERTS, "").split()]
    if path is not None:
        try:
            with open(path, encoding="utf-8") as file:
                lines = [line.strip() for line in file]
        except (OSError, UnicodeDecodeError) as error:
            reason = getattr(error, "strerror", None) or "it is no text"
            raise InvalidRequest(f"the file of channels {path} cannot be read: {reason}") from None
        found += [line for line in lines if line and not line.startswith("#")]
    return found


def _expected(work: str) -> bool | Callable[[], bool] | None:
    """When work is expected; hours are those of this machine, and may go over midnight."""
    if work in ("runs", "always", "never"):
        return {"runs": None, "always": True, "never": False}[work]
    hours = re.fullmatch(r"([01]\d|2[0-3]):([0-5]\d)-([01]\d|2[0-3]):([0-5]\d)", work)
    if hours is None:
        raise InvalidRequest(f"--work takes runs, always, never or hours such as 08:00-18:00, not {work!r}")
    begin, end = (int(hours[place]) * 60 + int(hours[place + 1]) for place in (1, 3))

    def is_time() -> bool:
        now = datetime.now()
        minute = now.hour * 60 + now.minute
        return begin <= minute < end if begin <= end else minute >= begin or minute < end

    return is_time


def _look_once(turn: Turn, as_json: bool) -> None:
    seen = turn.survey
    if as_json:
        print_json(
            {
                "ok": not turn.events,
                "survey": {**dataclasses.asdict(seen), "at": iso_time(seen.at), "swept_at": iso_time(seen.swept_at)},
                "firing": [_event_json(event) for event in turn.events],
            }
        )
    else:
        facts = [("answers", f"in {readable_latency(seen.probe_seconds)}" if seen.is_up else f"no ({seen.error})")]
        if seen.size_bytes is not None:
            facts.append(("size", f"{readable_bytes(seen.size_bytes)} in {counted(seen.threads or 0, 'thread')}"))
        if seen.questions is not None:
            oldest = readable_span(seen.oldest_question_seconds or 0)
            facts.append(("questions", f"{seen.questions:,}, the oldest for {oldest}" if seen.questions else "none"))
        facts.append(("runs", f"{counted(seen.leases or 0, 'thread')} held"))
        print_facts(facts)
        for event in turn.events:
            _print_event(event)
    if turn.events:
        raise typer.Exit(1)


def _print_event(event: Event) -> None:
    colour = "green" if event.kind == "resolved" else "bold red"
    told = (readable_time(event.at), "dim"), ("  ", ""), (f"{event.name} {event.kind}", colour), ("  ", "")
    print_line(*told, (f"{event.text}; {event.advice}", ""), is_cut=False)


def _print_json(event: Event) -> None:
    print(json.dumps(_event_json(event)), flush=True)


def _event_json(event: Event) -> dict[str, str | None]:
    return {**dataclasses.asdict(event), "at": iso_time(event.at), "since": iso_time(event.since)}
