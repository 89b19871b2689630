"""The rules and the dashboard, before Prometheus itself: its checker, its player of series, and the server."""

from __future__ import annotations

import json
import re
import shutil
import sqlite3
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from ops_places import webhook
from ops_stores import ask, put

from tests.servers.plugin import require_programs
from tests.servers.processes import wait_until
from tests.servers.prometheus import AlertmanagerServer, PrometheusServer
from threadline.ops import Meter, Thresholds
from threadline.ops.dashboard import PANELS, dashboard_json
from threadline.ops.names import CATALOGUE
from threadline.ops.rules import rules, rules_yaml

HERE = Path(__file__).parent
CALLS = "db_client_operation_duration_seconds"
# For each alert, series that cross its limit, and from which minute on it fires.
CROSSING: dict[str, tuple[dict[str, str], str]] = {
    "ThreadlineDown": ({'threadline_store_up{db_system_name="sqlite"}': "1x10 0x20"}, "15m"),
    "ThreadlineSlow": (
        {
            f'{CALLS}_bucket{{db_system_name="sqlite",db_operation_name="apply",le="1"}}': "0x30",
            f'{CALLS}_bucket{{db_system_name="sqlite",db_operation_name="apply",le="5"}}': "0+60x30",
            f'{CALLS}_bucket{{db_system_name="sqlite",db_operation_name="apply",le="+Inf"}}': "0+60x30",
        },
        "12m",
    ),
    "ThreadlineFailing": (
        {
            f'{CALLS}_count{{db_system_name="sqlite",db_operation_name="apply"}}': "0+90x30",
            f'{CALLS}_count{{db_system_name="sqlite",db_operation_name="apply",error_type="Unavailable"}}': "0+10x30",
        },
        "12m",
    ),
    "ThreadlineIdle": (
        {
            f'{CALLS}_count{{db_system_name="sqlite",db_operation_name="apply"}}': "0+6x40",
            'threadline_leases_held{db_system_name="sqlite"}': "2x40",
        },
        "20m",
    ),
    "ThreadlineGrowing": ({'threadline_store_size_bytes{db_system_name="sqlite"}': "2e9+2e7x500"}, "405m"),
    "ThreadlineQuestionWaits": (
        {'threadline_questions_oldest_age_seconds{db_system_name="sqlite"}': "86300+60x30"},
        "20m",
    ),
    "ThreadlineSweepOverdue": ({'threadline_sweep_last_time_seconds{db_system_name="sqlite"}': "-172800x60"}, "20m"),
    "ThreadlineDamaged": ({"threadline_corrupt_total": "0x5 1x30"}, "10m"),
    "ThreadlineLeaseLost": ({"threadline_leases_lost_total": "0x5 3x30"}, "10m"),
}
# Series of a store that is well, on which nothing fires: refusals are no failures, and idle is no fault without runs.
WELL = {
    'threadline_store_up{db_system_name="sqlite"}': "1x500",
    f'{CALLS}_bucket{{db_system_name="sqlite",db_operation_name="apply",le="1"}}': "0+60x500",
    f'{CALLS}_bucket{{db_system_name="sqlite",db_operation_name="apply",le="+Inf"}}': "0+60x500",
    f'{CALLS}_bucket{{db_system_name="sqlite",db_operation_name="compact",le="1"}}': "0x500",
    f'{CALLS}_bucket{{db_system_name="sqlite",db_operation_name="compact",le="+Inf"}}': "0+60x500",
    f'{CALLS}_count{{db_system_name="sqlite",db_operation_name="apply"}}': "0+60x500",
    f'{CALLS}_count{{db_system_name="sqlite",db_operation_name="apply",error_type="Conflict"}}': "0+60x500",
    'threadline_leases_held{db_system_name="sqlite"}': "0x500",
    'threadline_store_size_bytes{db_system_name="sqlite"}': "2e9+1e5x500",
    'threadline_questions_oldest_age_seconds{db_system_name="sqlite"}': "0+60x500",
    "threadline_corrupt_total": "0x500",
    "threadline_leases_lost_total": "0x500",
}


def promtool(*arguments: str, folder: Path) -> str:
    require_programs("prometheus")
    program = shutil.which("promtool")
    assert program is not None
    done = subprocess.run([program, *arguments], cwd=folder, capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout + done.stderr


@pytest.mark.parametrize("thresholds", [None, Thresholds(latency_ms=1.5, error_rate=0, least_per_second=0.001)])
def test_promtool_accepts_the_rules(thresholds: Thresholds | None, tmp_path: Path) -> None:
    (tmp_path / "rules.yml").write_text(rules_yaml(thresholds), encoding="utf-8")
    assert f"{len(rules())} rules found" in promtool("check", "rules", "rules.yml", folder=tmp_path)


def test_each_alert_fires_when_its_limit_is_crossed_and_none_otherwise(tmp_path: Path) -> None:
    (tmp_path / "rules.yml").write_text(rules_yaml(), encoding="utf-8")
    assert CROSSING.keys() == {rule.name for rule in rules()}
    quick, slow = [], []
    for rule in rules():
        series, moment = CROSSING[rule.name]
        test = played(series, [(rule.name, moment, True), (rule.name, "1m", False)])
        (slow if rule.name == "ThreadlineGrowing" else quick).append(test)
    quick.append(played(WELL, [(rule.name, "30m", False) for rule in rules()]))
    slow.append(played(WELL, [(rule.name, "450m", False) for rule in rules()]))
    for name, tests, interval in (("quick", quick, "1m"), ("slow", slow, "15m")):
        # YAML has JSON in it.
        text = json.dumps({"rule_files": ["rules.yml"], "evaluation_interval": interval, "tests": tests})
        (tmp_path / f"{name}.yml").write_text(text)
        promtool("test", "rules", f"{name}.yml", folder=tmp_path)


def played(series: dict[str, str], expected: list[tuple[str, str, bool]]) -> dict[str, Any]:
    """A test of promtool's: series, and whether an alert fires at a moment. What it says is not compared."""
    expressions = [
        {
            "expr": f'count(ALERTS{{alertname="{name}",alertstate="firing"}}) or vector(0)',
            "eval_time": moment,
            "exp_samples": [{"labels": "{}", "value": int(fires)}],
        }
        for name, moment, fires in expected
    ]
    shown = [{"series": name, "values": values} for name, values in series.items()]
    return {"interval": "1m", "input_series": shown, "promql_expr_test": expressions}


def test_every_name_in_rules_and_dashboard_is_a_metric_of_ours() -> None:
    known = {one.prometheus for one in CATALOGUE}
    known |= {f"{one.prometheus}{part}" for one in CATALOGUE for part in ("_bucket", "_count", "_sum")}
    texts = [rule.expression for rule in rules()] + [curve for panel in PANELS for curve, _ in panel.curves]
    for text in texts:
        named = set(re.findall(r"\b(?:threadline|db_client)_\w+", re.sub(r"(?:by|ignoring) \([^)]*\)", "", text)))
        assert named <= known, text


def test_the_dashboard_is_one_that_grafana_imports() -> None:
    made = json.loads(dashboard_json())
    assert made["uid"] == "threadline"
    assert len({panel["id"] for panel in made["panels"]}) == len(PANELS)
    places = {(panel["gridPos"]["x"], panel["gridPos"]["y"]) for panel in made["panels"]}
    assert len(places) == len(PANELS)
    for panel in made["panels"]:
        assert panel["datasource"]["uid"] == "${datasource}"
        assert all(target["expr"] for target in panel["targets"])


def test_prometheus_answers_every_expression_of_the_dashboard(database: Path, connect: Any) -> None:
    require_programs("prometheus")
    meter = Meter()
    saver = connect(database, metrics=meter)
    put(saver)
    ask(saver, "asks")
    saver.sweep()
    saver.monitor("1h").turn()
    complete(meter)
    with meter.serve(0) as endpoint, PrometheusServer([f"127.0.0.1:{endpoint.port}"], rules_yaml()) as prometheus:
        scrapes = 'count_over_time(up{job="threadline"}[1h])'
        # A rate needs two scrapes.
        assert wait_until(
            lambda: bool(found := prometheus.query(scrapes)) and float(found[0]["value"][1]) >= 3, seconds=60
        )
        for panel in PANELS:
            for expression, _ in panel.curves:
                answered = prometheus.query(expression.replace("$__rate_interval", "1m"))
                assert answered, f"{panel.title}: {expression}"
        for rule in rules():
            prometheus.query(rule.expression)


def complete(meter: Meter) -> None:
    """Show what only servers, failures and shared commits bring about."""
    for name, labels in (
        ("db.client.connection.count", ("postgresql", "sync", "idle")),
        ("db.client.connection.max", ("postgresql", "sync")),
        ("db.client.connection.pending_requests", ("postgresql", "sync")),
    ):
        meter.show(name, 1, labels)
    meter.observe("threadline.commit.group.size", 3, ("sqlite",))
    meter.observe("threadline.commit.group.wait", 0.001, ("sqlite",))
    meter.observe("db.client.operation.duration", 0.1, ("sqlite", "find", "Unavailable"))
    meter.count("threadline.retries", 1, ("postgresql",))


PROCESS = """
import sys, threading, time
sys.path.insert(0, {here!r})
import threadline
from ops_stores import put
saver = threadline.connect({path!r}, metrics=True, timeout=0.05)
put(saver)
with saver.metrics.serve(0) as server:
    print(server.port, flush=True)
    while True:
        try:
            put(saver)
        except threadline.Unavailable:
            pass
        time.sleep(0.02)
"""


@pytest.mark.soak
def test_a_threshold_that_is_crossed_reaches_a_webhook(database: Path) -> None:
    """A process puts; somebody else locks its file, so that its puts fail: Prometheus, Alertmanager, webhook."""
    require_programs("prometheus")
    require_programs("alertmanager")
    # The rules as they are, without the minutes of patience.
    hasty = re.sub(r"\bfor: \d+m", "for: 0s", rules_yaml()).replace("[5m]", "[10s]")
    script = PROCESS.format(here=str(HERE), path=str(database))
    with (
        subprocess.Popen([sys.executable, "-c", script], stdout=subprocess.PIPE, text=True) as process,
        webhook() as hook,
    ):
        try:
            assert process.stdout is not None
            target = f"127.0.0.1:{int(process.stdout.readline())}"
            with (
                AlertmanagerServer(hook.url) as manager,
                PrometheusServer([target], hasty, (f"127.0.0.1:{manager.port}",)) as prometheus,
            ):
                count = 'sum(db_client_operation_duration_seconds_count{db_operation_name="apply"})'
                assert wait_until(lambda: bool(prometheus.query(count)), seconds=60)
                assert not prometheus.query('ALERTS{alertname="ThreadlineFailing"}')
                locker = sqlite3.connect(database, isolation_level=None)
                assert wait_until(lambda: locked(locker), seconds=60)
                assert wait_until(lambda: "ThreadlineFailing" in named(hook.bodies), seconds=90), prometheus.log[-3000:]
                locker.close()
                assert wait_until(lambda: "resolved" in states(hook.bodies, "ThreadlineFailing"), seconds=90)
        finally:
            process.kill()


def locked(connection: sqlite3.Connection) -> bool:
    try:
        connection.execute("BEGIN IMMEDIATE")
    except sqlite3.OperationalError:
        return False
    return True


def alerts(bodies: list[Any]) -> list[Any]:
    return [alert for body in bodies for alert in body["alerts"]]


def named(bodies: list[Any]) -> set[str]:
    return {alert["labels"]["alertname"] for alert in alerts(bodies)}


def states(bodies: list[Any], name: str) -> set[str]:
    return {alert["status"] for alert in alerts(bodies) if alert["labels"]["alertname"] == name}
