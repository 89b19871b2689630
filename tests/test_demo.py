"""The demo is the first thing people run: it must hold what it says, on any terminal and in a pipe."""

from __future__ import annotations

import os
import re
import subprocess
import sys

import pytest

from threadline.show.lanes import Step, draw, fold

pytest.importorskip("langgraph.graph", reason="the demo runs a LangGraph agent")

COLUMNS = 80


class Told:
    """What a run of the demo left behind."""

    def __init__(self, **environment: str) -> None:
        # What rich takes as a wish for colours or another width must not leak in from outside.
        leaks = ("FORCE_COLOR", "NO_COLOR", "COLUMNS", "TTY_COMPATIBLE", "PYTHONIOENCODING", "TERM")
        inherited = {name: value for name, value in os.environ.items() if name not in leaks}
        ended = subprocess.run(
            [sys.executable, "-m", "threadline", "demo"],
            env={**inherited, "PYTHONIOENCODING": "utf-8", **environment},
            stdin=subprocess.DEVNULL,
            capture_output=True,
            timeout=120,
            check=False,
        )
        self.status = ended.returncode
        self.complaint = ended.stderr.decode("utf-8")
        self.text = ended.stdout.decode("utf-8")
        # Sentences, whatever their line breaks.
        self.words = " ".join(self.text.split())


@pytest.fixture(scope="module")
def told() -> Told:
    return Told()


def test_the_demo_ends_well(told: Told) -> None:
    assert told.status == 0, told.text + told.complaint
    assert told.complaint == ""
    assert "FAILED" not in told.text


@pytest.mark.parametrize(
    "claim",
    [
        "The thread remembers all 48 messages of 24 turns.",
        "The task `links` was at work and never finished.",
        "The task `spelling` had finished: its pending write is in the file.",
        "`spelling` ran once: its result was taken from the file.",
        "`links` was started again and finished once.",
        "The thread waited at `approve` with both findings; nothing was published.",
        "Command(resume=...) let it finish: published once.",
        "The first branch ends in a draft and published nothing.",
        "The second knows 20 turns and its own; one page differs from then.",
        "What was published is unchanged, and still there under its id.",
        "The process that resumed loaded no module of LangGraph or LangChain.",
        "`pay` ran twice, and charged the card once: the receipt was in the file.",
        "The trip is confirmed, with the one receipt.",
        "The question has the same id on both engines.",
        "Asked on LangGraph, answered here, read there.",
    ],
)
def test_the_demo_claims_only_after_it_checked(told: Told, claim: str) -> None:
    assert f"✓ {claim}" in told.words


@pytest.mark.skipif(sys.platform == "win32", reason="there are no signals to die of")
def test_the_demo_kills_for_real(told: Told) -> None:
    assert "✓ The process is dead: exit status -9" in told.words


def test_the_demo_crashes_everywhere(told: Told) -> None:
    assert re.search(r"✓ \d+ crashes around \d+ operations: the same end every time\.", told.words)


def test_the_demo_draws_a_tree_with_three_ends(told: Told) -> None:
    assert re.search(r"✓ \d+ checkpoints, one beginning, 3 ends\.", told.words)
    assert "\n| | * " in told.text
    assert "\n| |/\n" in told.text
    assert "\n|/\n" in told.text
    for act in ("publish: Published", "shelve: Kept", "update approve: the answer is no"):
        assert act in told.words


def test_the_demo_weighs_what_is_stored(told: Told) -> None:
    weighed = re.search(r"✓ The file is (\d+) times smaller than the snapshots", told.words)
    assert weighed is not None
    assert int(weighed[1]) >= 5


def test_the_demo_ends_with_the_line_to_change(told: Told) -> None:
    *_, change, compiled = told.text.rstrip().splitlines()
    assert change.strip() == "from threadline.langgraph import Checkpointer"
    assert "checkpointer=Checkpointer(" in compiled


def test_the_demo_is_tidy_text_in_a_pipe(told: Told) -> None:
    assert "\x1b" not in told.text
    for line in told.text.splitlines():
        assert len(line) <= COLUMNS, line
        assert line == line.rstrip(), line


def test_the_demo_needs_no_unicode_and_no_wide_terminal() -> None:
    told = Told(PYTHONIOENCODING="ascii", COLUMNS="200")
    assert told.status == 0, told.text + told.complaint
    assert told.text.isascii()
    assert "ok The process is dead" in told.words
    assert max(map(len, told.text.splitlines())) <= COLUMNS


def test_a_claim_that_does_not_hold_ends_the_demo(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    from threadline import demo
    from threadline.demo import story

    monkeypatch.setattr(story, "_play", lambda screen, folder: screen.claim(False, "Pigs fly."))
    assert demo.run() == 1
    printed = capsys.readouterr().out
    assert "FAILED: this should hold and does not: Pigs fly." in printed
    assert "import Checkpointer" not in printed


def chain(*ids: str, onto: str | None = None) -> list[Step]:
    """Steps in a row, newest first; the oldest of them is a child of `onto`."""
    oldest_first: list[Step] = []
    for number, name in enumerate(ids):
        parent = oldest_first[-1].id if oldest_first else onto
        oldest_first.append(Step(id=name, parent=parent, number=number, source="loop", act=""))
    return oldest_first[::-1]


def rails(steps: list[Step]) -> list[str]:
    return [f"{rail} {step.id if step else ''}".rstrip() for rail, step in draw(steps)]


def test_a_thread_without_branches_is_one_line_down() -> None:
    assert rails(chain("a", "b")) == ["* b", "* a"]


def test_branches_meet_where_they_began() -> None:
    steps = chain("d", onto="b") + chain("c", onto="b") + chain("a", "b")
    assert rails(steps) == ["* d", "| * c", "|/", "* b", "* a"]


def test_a_branch_passes_behind_the_lanes_between() -> None:
    steps = chain("e", onto="b") + chain("d", onto="a") + chain("c", onto="b") + chain("a", "b")
    assert rails(steps) == ["* e", "| * d", "| | * c", "|_|/", "* | b", "|/", "* a"]


def test_a_long_stretch_is_folded_and_keeps_its_ends() -> None:
    steps = list(fold(chain(*"abcdefghijkl")))
    assert [step.folded or step.id for step in steps] == ["l", "k", "j", 6, "c", "b", "a"]
    assert rails(steps)[3] == ": i"


def test_folding_never_hides_where_a_branch_began() -> None:
    steps = list(fold(chain("z", onto="f") + chain(*"abcdefghijkl")))
    assert "f" in [step.id for step in steps if not step.folded]
