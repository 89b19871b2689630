"""Figures for Prometheus: its text format, version 0.0.4, written here and without a library, and `GET /metrics`.

The endpoint is a daemon thread. It reads nothing of the store and changes nothing.
"""

from __future__ import annotations

import logging
import socket
import threading
from collections.abc import Callable, Iterable, Mapping
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

from ..base.printable import printable
from ..errors import InvalidRequest, ThreadlineError, Unavailable
from .meter import Sample, labelled
from .names import CATALOGUE, HISTOGRAM

__all__ = ["MetricsServer", "prometheus_text"]

log = logging.getLogger("threadline")
_CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"


def prometheus_text(samples: Iterable[Sample]) -> str:
    """All samples, those of one metric together, in the order of the catalogue."""
    by_name: dict[str, list[Sample]] = {}
    for sample in samples:
        by_name.setdefault(sample.name, []).append(sample)
    lines: list[str] = []
    for metric in CATALOGUE:
        found = by_name.get(metric.name)
        if not found:
            continue
        name = metric.prometheus
        lines += [f"# HELP {name} {_escaped(metric.about)}", f"# TYPE {name} {metric.kind}"]
        for sample in sorted(found, key=lambda one: one.labels):
            labels = {key.replace(".", "_"): value for key, value in labelled(sample).items()}
            if metric.kind == HISTOGRAM:
                lines += _histogram(name, labels, metric.bounds, sample)
            else:
                lines.append(f"{name}{_shown(labels)} {_number(sample.value)}")
    return "".join(f"{line}\n" for line in lines)


def _histogram(name: str, labels: Mapping[str, str], bounds: tuple[float, ...], sample: Sample) -> list[str]:
    lines, below = [], 0
    for bound, count in zip((*bounds, None), sample.counts, strict=True):
        below += count
        upto = "+Inf" if bound is None else _number(bound)
        lines.append(f"{name}_bucket{_shown({**labels, 'le': upto})} {below}")
    return [*lines, f"{name}_sum{_shown(labels)} {_number(sample.value)}", f"{name}_count{_shown(labels)} {below}"]


def _shown(labels: Mapping[str, str]) -> str:
    if not labels:
        return ""
    inside = ",".join(f'{name}="{_escaped(value, quoted=True)}"' for name, value in labels.items())
    return "{" + inside + "}"


def _escaped(text: str, *, quoted: bool = False) -> str:
    text = text.replace("\\", "\\\\").replace("\n", "\\n")
    return text.replace('"', '\\"') if quoted else text


def _number(value: float) -> str:
    return str(int(value)) if value == int(value) and abs(value) < 1e15 else repr(float(value))


class MetricsServer:
    """Serves what a function returns, until it is closed. Port 0 takes a free one."""

    def __init__(self, text: Callable[[], str], host: str = "127.0.0.1", port: int = 9464) -> None:
        if type(port) is not int or not 0 <= port <= 65535:
            raise InvalidRequest(f"a port is a number from 0 to 65535, not {port!r}")
        try:
            self._server = (_Server6 if ":" in host else _Server)((host, port), _handler(text))
        except OSError as error:
            raise Unavailable(
                f"cannot listen on {host}:{port} ({error.strerror or error}): choose another port, or end what uses it"
            ) from None
        self.host, self.port = host, int(self._server.server_address[1])
        self._thread = threading.Thread(target=self._server.serve_forever, name="threadline-metrics", daemon=True)
        self._thread.start()

    @property
    def url(self) -> str:
        """Where the figures are."""
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"http://{host}:{self.port}/metrics"

    def close(self) -> None:
        """Stop serving, and free the port."""
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()

    def __enter__(self) -> MetricsServer:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


class _Server(ThreadingHTTPServer):
    daemon_threads = True


class _Server6(_Server):
    address_family = socket.AF_INET6


def _handler(text: Callable[[], str]) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        # A client that sends nothing keeps its thread for no longer than this.
        timeout = 10
        server_version, sys_version = "threadline", ""

        def do_GET(self) -> None:
            if self.path.partition("?")[0] != "/metrics":
                return self._answer(404, "text/plain; charset=utf-8", "the figures are at /metrics\n")
            try:
                return self._answer(200, _CONTENT_TYPE, text())
            except ThreadlineError as error:
                log.error("the figures could not be made: %s", printable(error))
                return self._answer(503, "text/plain; charset=utf-8", f"{type(error).__name__}\n")

        def _answer(self, status: int, kind: str, body: str) -> None:
            sent = body.encode()
            self.send_response(status)
            self.send_header("Content-Type", kind)
            self.send_header("Content-Length", str(len(sent)))
            self.send_header("X-Content-Type-Options", "nosniff")
            self.end_headers()
            self.wfile.write(sent)

        def log_message(self, format: str, *args: object) -> None:
            """Scrapes are no news."""

    return Handler
