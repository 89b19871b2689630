"""`diff` and `fsck` on the command line."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Callable
from pathlib import Path

import pytest
from cli_pages import PAGES, examples_of, make_the_store, run_examples, without_chance

from tests.commands import Run

OnTerminal = Callable[..., str]


def test_diff_tells_items_without_any_class(run: Run, store: Path) -> None:
    told = run("diff", "trip", "head~1", "head")[0].splitlines()
    assert "~ stops" in told
    assert "  + [1] Stop(city='Bern', nights=0)" in told
    assert "~ budget: money(0) → money(100)" in told
    assert "+ colour: 'red'" in told
    assert not [line for line in told if "branch:to" in line]


def test_diff_is_against_the_head_unless_told(run: Run, store: Path) -> None:
    assert run("diff", "trip", "head~1")[0] == run("diff", "trip", "head~1", "head")[0]
    assert run("diff", "trip", "head")[0] == "nothing differs\n"


def test_diff_as_json(run: Run, store: Path) -> None:
    channels = {one["channel"]: one for one in json.loads(run("diff", "trip", "head~1", "head", "--json")[0])}
    assert channels["colour"] == {"channel": "colour", "kind": "added", "before": None, "after": "red"}
    [item] = channels["stops"]["items"]
    assert (item["kind"], item["key"]) == ("added", 1)
    assert item["after"] == {"$type": "cli_app:Stop", "fields": {"city": "Bern", "nights": 0}}


def test_diff_fits_a_terminal(on_terminal: OnTerminal) -> None:
    assert max(map(len, on_terminal("diff", "trip", "step:-1").splitlines())) <= 80


@pytest.mark.parametrize(("places", "status"), [(("nice", "head"), 1), (("head", "nice"), 1), (("1", "head"), 2)])
def test_diff_of_places_that_are_not_there(run: Run, store: Path, places: tuple[str, str], status: int) -> None:
    told, complaints = run("diff", "trip", *places, status=status)
    assert told == ""
    assert len(complaints.splitlines()) == 1
    assert "there is no thread" in run("diff", "nobody", "head", status=1)[1]


def test_fsck_of_a_sound_store(run: Run, store: Path) -> None:
    told, complaints = run("fsck")
    assert complaints == ""
    assert "ok" in told
    report = json.loads(run("fsck", "--json")[0])
    assert (report["ok"], report["damaged"]) == (True, [])
    assert json.loads(run("fsck", "trip", "--json")[0])["ok"] is True


def test_fsck_finds_damage_and_quarantine_makes_the_thread_usable(run: Run, store: Path) -> None:
    newest = json.loads(run("show", "trip", "--json")[0])["checkpoint_id"]
    with sqlite3.connect(store) as connection:
        [(document,)] = connection.execute("SELECT document FROM threadline_checkpoints WHERE id = ?", (newest,))
        connection.execute("UPDATE threadline_checkpoints SET document = ? WHERE id = ?", (document[::-1], newest))
    told = run("fsck", status=1)[0]
    assert newest in told
    report = json.loads(run("fsck", "--json", status=1)[0])
    assert report["ok"] is False
    assert {one["checkpoint_id"] for one in report["damaged"]} == {newest}
    assert told.splitlines()[-1] == "next  threadline fsck --quarantine"
    planned = run("fsck", "--quarantine", status=1)[0].splitlines()
    assert planned[-2:] == [
        "not done  1 checkpoint would be set aside; --yes does it",
        "next  threadline fsck --quarantine --yes",
    ]
    assert run("fsck", status=1)[0] == told
    assert "quarantined  1 checkpoint" in run("fsck", "--quarantine", "--yes", status=1)[0]
    assert json.loads(run("fsck", "--json")[0])["ok"] is True
    assert json.loads(run("show", "trip", "--json")[0])["checkpoint_id"] != newest
    [aside] = json.loads(run("quarantine", "list", "--json")[0])
    assert (aside["thread_id"], aside["checkpoint_id"]) == ("trip", newest)
    assert aside["quarantined"].endswith("+00:00")
    assert aside["why"][0] in run("quarantine")[0]
    assert run("quarantine", "restore", "trip")[0].splitlines()[-1].startswith("not done")
    assert run("quarantine", "restore", "trip", "--yes")[0].splitlines()[-1] == "done  put back"
    assert json.loads(run("quarantine", "--json")[0]) == []
    assert run("fsck", status=1)[0] == told
    assert "is in quarantine" in run("quarantine", "restore", "trip", status=1)[1]


@pytest.mark.parametrize("name", ["diff", "fsck"])
def test_the_example_shows_what_the_page_says(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    pytest.importorskip("langgraph.graph", reason="the store of the examples is a graph's")
    make_the_store(tmp_path)
    page = PAGES / f"{name}.md"
    shown = run_examples(page, tmp_path, monkeypatch, lambda: capsys.readouterr().out)
    for (command, expected), (_, told) in zip(examples_of(page), shown, strict=True):
        assert without_chance(told) == without_chance(expected), command
