"""`threadline metrics`: figures for Prometheus, its alerting rules, and a dashboard for Grafana."""

from __future__ import annotations

import re
import threading
from typing import Annotated

import typer

from ...errors import InvalidRequest
from ...ops.dashboard import dashboard_json
from ...ops.prometheus import MetricsServer
from ...ops.rules import rules_yaml
from ..open import open_store
from ..output import remark, without_password
from .monitor import ErrorRate, LatencyMs, LeastRate, thresholds_of

__all__ = ["metrics"]

_ACTIONS = ("serve", "print", "rules", "dashboard")


def metrics(
    url: Annotated[
        str | None,
        typer.Option(
            "--url",
            envvar="THREADLINE_URL",
            metavar="URL",
            help="The store, such as sqlite:///agents.db or a path.",
            show_default=False,
        ),
    ] = None,
    action: Annotated[str, typer.Argument(metavar="ACTION", help="serve, print, rules or dashboard.")] = "serve",
    listen: Annotated[
        str, typer.Option("--listen", metavar="HOST:PORT", help="Where to serve; port 0 takes a free one.")
    ] = "127.0.0.1:9464",
    every: Annotated[str, typer.Option("--every", metavar="SPAN", help="How often to look at the store.")] = "30s",
    latency_ms: LatencyMs = 1000.0,
    error_rate: ErrorRate = 5.0,
    least_rate: LeastRate = 10.0,
) -> None:
    """Serve figures to Prometheus; print rules and a dashboard."""
    if action not in _ACTIONS:
        raise InvalidRequest(f"metrics takes no action {action!r}; there are {', '.join(_ACTIONS)}")
    if action == "rules":
        return print(rules_yaml(thresholds_of(latency_ms, error_rate, least_rate)), end="")
    if action == "dashboard":
        return print(dashboard_json())
    if url is None:
        raise InvalidRequest(f"metrics {action} needs --url or THREADLINE_URL")
    if action == "print":
        with open_store(url) as store:
            looking = store.saver.monitor(every)
            looking.turn()
            return print(looking.watch.meter.exposition(), end="")
    return _serve(url, *_address(listen), every)


def _serve(url: str, host: str, port: int, every: str) -> None:
    """Serve until it is interrupted. A store that goes away meanwhile is told by `threadline_store_up`."""
    with open_store(url) as store:
        looking = store.saver.monitor(every)
        looking.turn()
        with looking, MetricsServer(looking.watch.meter.exposition, host, port) as server:
            remark(f"{without_password(url)} is at {server.url}; Ctrl-C ends it")
            try:
                threading.Event().wait()
            except KeyboardInterrupt:
                return


def _address(listen: str) -> tuple[str, int]:
    found = re.fullmatch(r"(?:\[([0-9A-Fa-f:]+)\]|([^:\[\]]*)):(\d{1,5})", listen)
    if found is None:
        raise InvalidRequest(f"--listen takes an address and a port such as 127.0.0.1:9464, not {listen!r}")
    return found[1] or found[2] or "127.0.0.1", int(found[3])
