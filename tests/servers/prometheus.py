"""Prometheus and its Alertmanager, which look every second so that tests need not wait long."""

from __future__ import annotations

import json
import urllib.request
from pathlib import Path
from typing import Any
from urllib.parse import urlencode

from .server import Server, program

__all__ = ["AlertmanagerServer", "PrometheusServer", "fetched"]

SCRAPES = """\
global:
  scrape_interval: 1s
  evaluation_interval: 1s
rule_files: [{rules}]
scrape_configs:
  - job_name: threadline
    static_configs:
      - targets: {targets}
alerting:
  alertmanagers:
    - static_configs:
        - targets: {managers}
"""
ROUTES = """\
route:
  receiver: hook
  group_wait: 0s
  group_interval: 1s
  repeat_interval: 1h
receivers:
  - name: hook
    webhook_configs:
      - url: {hook}
"""


def fetched(url: str) -> Any:
    """What an address answers, as JSON."""
    with urllib.request.urlopen(url, timeout=10) as answer:
        return json.load(answer)


class PrometheusServer(Server):
    """Prometheus over these targets, with the rules of a text, and perhaps an Alertmanager."""

    kind = "prometheus"

    def __init__(self, targets: list[str], rules: str = "", managers: tuple[str, ...] = ()) -> None:
        super().__init__()
        self.targets, self.rules, self.managers = targets, rules, managers

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    def query(self, expression: str) -> list[Any]:
        """The series that an expression gives now; an error of it raises."""
        answer = fetched(f"{self.url}/api/v1/query?{urlencode({'query': expression})}")
        assert answer["status"] == "success", answer
        found: list[Any] = answer["data"]["result"]
        return found

    def _prepare(self) -> None:
        put(self.folder / "rules.yml", self.rules)
        settings = SCRAPES.format(
            rules="rules.yml", targets=json.dumps(self.targets), managers=json.dumps(list(self.managers))
        )
        put(self.folder / "prometheus.yml", settings)

    def _command(self) -> list[str]:
        return [
            program("prometheus"),
            f"--config.file={self.folder}/prometheus.yml",
            f"--storage.tsdb.path={self.folder}/data",
            f"--web.listen-address=127.0.0.1:{self.port}",
        ]

    def _answers(self) -> bool:
        return is_ready(self.url)


class AlertmanagerServer(Server):
    """An Alertmanager that tells a webhook."""

    kind = "alertmanager"

    def __init__(self, hook: str) -> None:
        super().__init__()
        self.hook = hook

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    def _prepare(self) -> None:
        put(self.folder / "alertmanager.yml", ROUTES.format(hook=self.hook))

    def _command(self) -> list[str]:
        return [
            program("prometheus-alertmanager"),
            f"--config.file={self.folder}/alertmanager.yml",
            f"--storage.path={self.folder}/data",
            f"--web.listen-address=127.0.0.1:{self.port}",
            "--cluster.listen-address=",
        ]

    def _answers(self) -> bool:
        return is_ready(self.url)


def is_ready(url: str) -> bool:
    try:
        with urllib.request.urlopen(f"{url}/-/ready", timeout=5) as answer:
            return bool(answer.status == 200)
    except OSError:
        return False


def put(path: Path, text: str) -> None:
    path.write_text(text)
    path.chmod(0o644)
