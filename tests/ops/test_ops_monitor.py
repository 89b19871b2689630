"""The monitor: windows, limits with hysteresis, what is told and told again, in both halves and to all channels."""

from __future__ import annotations

import asyncio
import logging
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import Any

import pytest
from ops_places import webhook
from ops_stores import Place, ask, put

import threadline
from tests.servers.processes import free_port, wait_until
from threadline.core.store_records import record_names
from threadline.errors import InvalidRequest
from threadline.ops import Meter, Thresholds
from threadline.ops.alerts import Channels, message_of
from threadline.ops.judging import FIRING, RESOLVED, STILL, Event, Judge, Reading
from threadline.ops.survey import Survey
from threadline.ops.watch import Look, Watch
from threadline.ops.windows import Growth, Window, quantile

pytest.importorskip("apprise")

EVENT = Event(kind=FIRING, name="latency", at=1e9, since=1e9, text="one call in twenty takes 2,000 ms", advice="look")


def survey(at: float, **figures: Any) -> Survey:
    usual: dict[str, Any] = {
        "size_bytes": 1000,
        "threads": 1,
        "questions": 0,
        "oldest_question_seconds": 0.0,
        "leases": 0,
    }
    return Survey(at=at, is_up=True, probe_seconds=0.001, **{**usual, **figures})


def played(watch: Watch, *surveys: Survey) -> list[list[tuple[str, str]]]:
    """What is told at each of these looks."""
    return [[(one.name, one.kind) for one in watch.note(Look(survey=each), each.at).events] for each in surveys]


# -- pure


def test_a_window_forgets_what_is_older_than_it() -> None:
    meter, window = Meter(), Window(60)
    tell = meter.timing("sqlite", "find")
    for moment in range(0, 300, 10):
        tell(0.002 if moment < 150 else 2.0, None)
        figures = window.add(moment, meter.calls())
    assert figures.calls == 6
    assert figures.seconds == 60
    assert figures.latency_ms is not None
    assert figures.latency_ms > 1000


def test_failures_are_faults_of_the_storage_and_refusals_are_not() -> None:
    meter, window = Meter(), Window(60)
    window.add(0, meter.calls())
    tell = meter.timing("sqlite", "apply")
    for error in (threadline.Conflict("x"), threadline.NotFound("x"), threadline.Unavailable("x"), None):
        tell(0.001, error)
    figures = window.add(10, meter.calls())
    assert (figures.calls, figures.failures, figures.error_rate) == (4, 1, 0.25)


def test_calls_that_grow_with_the_rows_say_nothing_about_latency() -> None:
    meter, window = Meter(), Window(60)
    window.add(0, meter.calls())
    meter.timing("sqlite", "compact")(60.0, None)
    assert window.add(10, meter.calls()).latency_ms is None
    meter.timing("sqlite", "find")(0.0005, None)
    latency = window.add(20, meter.calls()).latency_ms
    assert latency is not None
    assert latency <= 1


@pytest.mark.parametrize(("counts", "value"), [([0, 0, 0], None), ([10, 0, 0], 0.95), ([0, 0, 5], 2.0)])
def test_a_quantile_lies_between_its_boundaries(counts: list[int], value: float | None) -> None:
    assert quantile(counts, (1.0, 2.0), 0.95) == value


def test_growth_is_told_after_an_hour_and_for_a_day() -> None:
    growth = Growth()
    assert growth.add(0, 1_000) is None
    assert growth.add(1800, 1_000) is None
    assert growth.add(7200, 3_000) == pytest.approx(3_000 + 1_000 * 24)
    for hour in range(3, 100):
        forecast = growth.add(hour * 3600, 3_000)
    assert forecast == 3_000


def test_a_limit_has_hysteresis_is_repeated_and_is_resolved() -> None:
    judge = Judge(repeat_seconds=100)

    def told(value: float, now: float) -> list[str]:
        return [event.kind for event in judge.judge([Reading.above("x", value, 100, 0.1, "", "")], now)]

    assert told(100, 0) == []
    assert told(101, 1) == [FIRING]
    assert told(500, 50) == []
    assert told(95, 60) == []  # neither over the limit nor clear of it
    assert told(95, 101) == [STILL]
    assert told(90, 110) == [RESOLVED]
    assert told(95, 120) == []
    assert judge.firing == ()


def test_a_figure_that_must_not_fall_has_its_hysteresis_above() -> None:
    judge = Judge(repeat_seconds=1e9)

    def told(value: float) -> list[str]:
        return [event.kind for event in judge.judge([Reading.below("x", value, 10, 0.1, "", "")], 0)]

    assert [told(value) for value in (10, 9, 10.5, 11)] == [[], [FIRING], [], [RESOLVED]]


def test_too_little_work_is_told_only_while_work_is_expected() -> None:
    watch = Watch(Meter(), "sqlite://", window="60s")
    now = time.time()
    busy = [survey(now + second, leases=1) for second in (10, 70, 80)]
    assert played(watch, *busy) == [[], [("rate", FIRING)], []]
    assert played(watch, survey(now + 90)) == [[("rate", RESOLVED)]]
    always = Watch(Meter(), "sqlite://", window="60s", work_expected=True)
    assert played(always, survey(now + 100)) == [[("rate", FIRING)]]
    never = Watch(Meter(), "sqlite://", window="60s", work_expected=lambda: False)
    assert played(never, survey(now + 100, leases=5)) == [[]]


def test_enough_work_is_enough() -> None:
    meter, now = Meter(), time.time()
    watch = Watch(meter, "sqlite://", window="60s", thresholds=Thresholds(least_per_second=1))
    tell = meter.timing("sqlite", "find")
    for _ in range(100):
        tell(0.001, None)
    assert played(watch, survey(now + 60, leases=1)) == [[]]


def test_the_store_itself_is_judged() -> None:
    watch, now = Watch(None, "sqlite://"), time.time()
    day = 86_400
    assert played(watch, survey(now, oldest_question_seconds=2 * day, questions=1)) == [[("question", FIRING)]]
    assert played(watch, survey(now + 1, swept_at=now - 3 * day)) == [[("question", RESOLVED), ("sweep", FIRING)]]
    down = Survey(at=now + 2, is_up=False, probe_seconds=0.0, error="Unavailable")
    assert ("down", FIRING) in played(watch, down)[0]
    assert ("down", RESOLVED) in played(watch, survey(now + 3))[0]


def test_growth_is_judged_for_stores_of_some_size() -> None:
    large = Watch(None, "sqlite://", thresholds=Thresholds(growth_from_bytes=1000, error_rate=1))
    now = time.time()
    sizes = [survey(now + hour * 3600, size_bytes=1000 + hour * 500) for hour in range(3)]
    assert played(large, *sizes)[1] == [("growth", FIRING)]
    assert played(Watch(None, "sqlite://"), *sizes) == [[], [], []]


@pytest.mark.parametrize(
    "wrong",
    [
        {"latency_ms": -1},
        {"error_rate": 5},
        {"least_per_second": "10"},
        {"hysteresis": 1},
        {"latency_ms": float("nan")},
    ],
)
def test_thresholds_are_checked(wrong: dict[str, Any]) -> None:
    with pytest.raises(InvalidRequest, match=next(iter(wrong))):
        Thresholds(**wrong)


@pytest.mark.parametrize(
    "wrong",
    [
        {"every": 0},
        {"window": "0s"},
        {"window": "soon"},
        {"thresholds": {"latency_ms": 1}},
        {"work_expected": "yes"},
        {"channels": "json://x"},
    ],
)
def test_options_of_a_monitor_are_checked(wrong: dict[str, Any]) -> None:
    with pytest.raises(InvalidRequest), threadline.connect("memory://") as saver:
        saver.monitor(**wrong)


# -- with a store


def test_both_halves_look_and_tell(half: Any, place: Place) -> None:
    url, options = place
    saver, told = threadline.connect(url, **options), []
    put(saver)
    ask(saver, "asks", "a question that nobody else may see")
    monitor = saver.monitor("1h", thresholds=Thresholds(question_seconds=0, latency_ms=60_000), on_event=told.append)
    turn = half.call(monitor, "turn")
    assert [(one.name, one.kind) for one in turn.events] == [("question", FIRING)]
    assert turn.survey.questions == 1
    assert "nobody" not in str(told)
    [question] = list(saver.interrupts())
    saver.thread("asks").answer({question.interrupt_id: "yes"})
    assert [(one.name, one.kind) for one in half.call(monitor, "turn").events] == [("question", RESOLVED)]
    assert [one.kind for one in monitor.history] == [FIRING, RESOLVED] == [one.kind for one in told]
    assert saver._engine.run(lambda backend: record_names(backend, "probe")) == []
    saver.close()


def test_a_store_that_goes_away_is_down_and_comes_back(private_redis: Any) -> None:
    with threadline.connect(private_redis.url, retry=3, timeout=5) as saver:
        monitor = saver.monitor("1h")
        assert monitor.turn().survey.is_up
        private_redis.stop()
        events = monitor.turn().events
        assert "down" in {one.name for one in events}
        assert "Unavailable" in next(one.text for one in events if one.name == "down")
        private_redis.start()
        assert ("down", RESOLVED) in {(one.name, one.kind) for one in monitor.turn().events}


def test_a_metered_saver_is_judged_by_its_own_calls(database: Path, connect: Any) -> None:
    saver = connect(database, metrics=True)
    monitor = saver.monitor("1h", thresholds=Thresholds(latency_ms=0.001))
    put(saver)
    assert "latency" in {one.name for one in monitor.turn().events}
    assert monitor.watch.is_metered
    assert "threadline_store_up" in saver.metrics.exposition()


def test_without_metrics_work_is_the_checkpoints_of_anybody(database: Path, connect: Any) -> None:
    saver, other = connect(database), connect(database)
    monitor = saver.monitor("1h", window="0.05s", thresholds=Thresholds(least_per_second=1))
    with other.lock("t", ttl=60):
        put(other, "t")
        assert wait_until(lambda: monitor.turn().work_per_second == 0, seconds=30)
        assert "rate" in monitor.watch.firing
        assert wait_until(lambda: bool(put(other, "t") and monitor.turn().work_per_second), seconds=30)


def test_a_store_that_may_only_be_read_is_up(database: Path, connect: Any) -> None:
    put(connect(database))
    turn = connect(database, read_only=True).monitor("1h").turn()
    assert (turn.survey.is_up, turn.survey.threads, turn.events) == (True, 1, ())


def test_in_the_background_turns_come_by_themselves(half: Any, database: Path, connect: Any) -> None:
    saver = connect(database)
    monitor = saver.monitor(0.01)
    turns = monitor.watch.turns
    if half.name == "sync":
        with monitor:
            assert wait_until(lambda: len(turns) >= 3, seconds=30)
        assert not [one for one in threading.enumerate() if one.name == "threadline-monitor"]
    else:

        async def watched() -> None:
            async with monitor:
                while len(turns) < 3:
                    await asyncio.sleep(0.01)

        asyncio.run(asyncio.wait_for(watched(), 30))
    count = len(turns)
    assert count >= 3


# -- channels


def test_one_failing_channel_keeps_no_other_from_its_message(caplog: pytest.LogCaptureFixture) -> None:
    with webhook() as hook:
        channels = Channels(
            [
                f"json://127.0.0.1:{free_port()}/nobody",
                f"json://127.0.0.1:{hook.port}/hook",
                f"xml://127.0.0.1:{free_port()}/nobody",
            ]
        )
        failed = channels.send(EVENT, "sqlite:///agents.db")
        assert failed == ["json (channel 1)", "xml (channel 3)"]
        [body] = hook.bodies
    assert body["title"] == "Threadline: latency firing"
    assert "one call in twenty takes 2,000 ms" in body["message"]
    assert "What to do: look." in body["message"]
    assert "channel 1" in caplog.text


def test_secrets_of_channels_are_never_shown(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG)
    with webhook() as hook:
        urls = [
            f"json://somebody:pass-of-1@127.0.0.1:{hook.port}/path-of-1?+X-Token=token-of-1",
            f"mailto://somebody:pass-of-3@127.0.0.1:{free_port()}?to=a@example.org&from=b@example.org",
        ]
        channels = Channels(urls)
        channels.send(EVENT, "sqlite:///agents.db")
        assert hook.paths == ["/path-of-1"]
    # A service on the network is named only.
    others = Channels(["slack://T1JJ3T3L2/A1BRTD4JD/TIiajkdnlazkcOXrIdevi7FQ"])
    shown = caplog.text + repr([channels, others]) + str([*channels.names, *others.names])
    for secret in ("pass-of", "path-of", "token-of", "TIiajkd", "T1JJ3T3L2"):
        assert secret not in shown


@pytest.mark.parametrize("url", ["nosuch://secret-word@host", "secret-word", "slack://", "://secret-word", ""])
def test_a_channel_that_nobody_knows_is_refused_without_being_shown(url: str) -> None:
    with pytest.raises(InvalidRequest, match="channel 2") as refused:
        Channels(["json://127.0.0.1", url])
    assert "secret-word" not in str(refused.value)


def test_mail_arrives(database: Path, connect: Any) -> None:
    controller_of = pytest.importorskip("aiosmtpd.controller").Controller
    mails: list[Any] = []

    class Box:
        async def handle_DATA(self, server: Any, session: Any, envelope: Any) -> str:
            mails.append(envelope)
            return "250 taken"

    controller = controller_of(Box(), hostname="127.0.0.1", port=free_port())
    controller.start()
    try:
        channel = f"mailto://127.0.0.1:{controller.port}?from=agents@example.org&to=oncall@example.org&mode=insecure"
        saver = connect(database)
        ask(saver, "asks", "a question that nobody else may see")
        monitor = saver.monitor("1h", thresholds=Thresholds(question_seconds=0), channels=[channel])
        monitor.turn()
        assert wait_until(lambda: bool(mails), seconds=30)
    finally:
        controller.stop()
    [mail] = mails
    text = mail.content.decode(errors="replace")
    assert mail.rcpt_tos == ["oncall@example.org"]
    assert "Threadline: question firing" in text
    assert "nobody" not in text


def test_a_message_names_the_store_and_the_next_step() -> None:
    title, body = message_of(EVENT, "postgresql://app@db.example/agents")
    assert title == "Threadline: latency firing"
    assert "postgresql://app@db.example/agents" in body
    assert "2001-09-09 01:46:40Z" in body
    assert "What to do" not in message_of(Event(**{**_fields(EVENT), "kind": RESOLVED}), "x")[1]


def _fields(event: Event) -> dict[str, Any]:
    return {name: getattr(event, name) for name in ("kind", "name", "at", "since", "text", "advice")}


def test_without_apprise_the_extra_is_named() -> None:
    script = (
        "import sys; sys.modules['apprise'] = None\nimport threadline\n"
        "saver = threadline.connect('memory://'); saver.monitor('1h').turn()\n"
        "try:\n    saver.monitor('1h', channels=['json://127.0.0.1'])\n"
        "except threadline.MissingExtra as error:\n    print(error)\n"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, timeout=60)
    assert "threadline[alerts]" in done.stdout, done.stderr
