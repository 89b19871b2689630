"""Looking at threads: what is listed, drawn and shown, for people, pipes and programs."""

from __future__ import annotations

import json
import re
import sys
from pathlib import Path
from typing import Any

import pytest

import threadline
from tests.commands import Run
from threadline.show.lanes import Step, draw


def put(path: Path, thread: str, values: dict[str, Any], **more: Any) -> Any:
    with threadline.connect(path) as saver:
        checkpoint = threadline.empty_checkpoint()
        checkpoint["channel_values"] = values
        checkpoint["channel_versions"] = dict.fromkeys(values, 1)
        return saver.put({"configurable": {"thread_id": thread, **more}}, checkpoint, {"step": 1}, {})


def test_this_process_lacks_the_classes_of_the_application(store: Path) -> None:
    assert "cli_app" not in sys.modules
    with threadline.connect(store) as saver, pytest.raises(threadline.NotAllowed):
        saver.get_tuple({"configurable": {"thread_id": "trip"}})


def test_threads_are_listed_one_a_line(run: Run, store: Path) -> None:
    told = run("threads")[0].splitlines()
    assert [line.split()[:2] for line in told] == [["other", "active"], ["trip", "waits"]]
    assert [line.split()[0] for line in run("threads", "--prefix", "tr")[0].splitlines()] == ["trip"]
    assert len(run("threads", "--limit", 1)[0].splitlines()) == 1


def test_threads_are_chosen_by_status_and_tag(run: Run, store: Path) -> None:
    run("tag", "trip", "good")
    run("archive", "other")
    assert [one["thread_id"] for one in json.loads(run("threads", "--tag", "good", "--json")[0])] == ["trip"]
    [archived] = json.loads(run("threads", "--status", "archived", "--json")[0])
    assert (archived["thread_id"], archived["tags"]) == ("other", [])
    assert run("threads", "--tag", "none-has-it") == ("", "")


def test_the_log_draws_branches_heads_and_tags(run: Run, store: Path) -> None:
    run("tag", "trip", "good", "head~1")
    told = run("log", "trip")[0].splitlines()
    assert [line[:3].rstrip() for line in told] == ["*", "| *", "|/", "*", "*"]
    assert "step 1  update" in told[0]
    assert told[0].endswith("notes, stops, budget, colour  [head, interrupt]")
    assert told[1].endswith("[branch]")
    assert told[3].endswith("[tag good]")
    assert re.search(r"step -1  input +\+[\d.]+ (B|KB)  notes, stops, guest", told[4])
    assert "branch:to" not in "".join(told)


def test_the_log_in_a_pipe_has_whole_ids_that_other_commands_take(run: Run, store: Path) -> None:
    told = run("log", "trip")[0]
    ids = re.findall(r"[0-9a-f]{8}-[0-9a-f-]{27}", told)
    assert len(ids) == 4
    for one in ids:
        assert json.loads(run("show", "trip", one, "--json")[0])["checkpoint_id"] == one


def test_the_log_as_json_has_every_fact(run: Run, store: Path) -> None:
    entries = json.loads(run("log", "trip", "--json")[0])
    with threadline.connect(store, read_only=True) as saver:
        expected = saver.thread("trip").log()
    assert [one["id"] for one in entries] == [entry.id for entry in expected]
    assert [one["added_bytes"] for one in entries] == [entry.added_bytes for entry in expected]
    assert [one["is_head"] for one in entries] == [True, True, False, False]
    assert len(json.loads(run("log", "trip", "--limit", 2, "--json")[0])) == 2


def test_namespaces_are_drawn_apart_and_can_be_chosen(run: Run, store: Path) -> None:
    put(store, "trip", {"inner": [1]}, checkpoint_ns="child:1")
    told = run("log", "trip")[0]
    assert "\nnamespace child:1\n* " in told
    assert run("log", "trip", "--ns", "child:1")[0].startswith("namespace child:1\n* ")
    assert "namespace" not in run("log", "trip", "--ns", "")[0]
    assert "inner  list of 1" in run("show", "trip", "--ns", "child:1")[0]


def test_a_lane_ends_where_its_parent_was_pruned(run: Run, store: Path) -> None:
    run("rm", "trip", "step:0", "--yes")
    told = run("log", "trip")[0].splitlines()
    assert [line[:1] for line in told] == ["*", "", "*", "", "*"]
    assert told[0].endswith("[head, parent pruned, interrupt]")
    assert told[2].endswith("[branch, parent pruned]")


def test_lanes_beside_one_that_ended_move_up() -> None:
    steps = [("x", "p"), ("y", "q"), ("p", None), ("q", None), ("z", None)]
    drawn = draw([Step(id=one, parent=parent, number=0, source="", act="") for one, parent in steps])
    assert [rails for rails, _ in drawn] == ["*", "| *", "* |", " /", "*", "", "*"]


def test_show_needs_no_class_of_the_application(run: Run, store: Path) -> None:
    told = run("show", "trip")[0]
    assert "\n  [0] Stop(city='Rome', nights=2)\n" in told
    assert "\nguest  Guest(name='Ann', stops=[Stop(city='Rome', nights=0)], seat='12A')\n" in told
    assert "\nmood  <Mood.GOOD: 'good'>\n" in told
    assert "\nfare  Fare(amount=9.5, currency='EUR')\n" in told
    assert "\nbudget  money(100)\n" in told
    assert "\nfailure  ValueError('no seat')\n" in told
    assert "\nplace       Stop(city='Oslo', nights=0)\n" in told
    assert "branch:to" not in told


def test_show_as_json_names_the_types(run: Run, store: Path) -> None:
    told = json.loads(run("show", "trip", "head~1", "--json")[0])
    assert told["values"]["stops"] == [{"$type": "cli_app:Stop", "fields": {"city": "Rome", "nights": 2}}]
    assert told["values"]["budget"] == {"$type": "money", "value": 0}
    assert told["values"]["failure"] == {"$type": "builtins:ValueError", "value": "no seat"}
    assert told["metadata"]["place"] == {"$type": "cli_app:Stop", "fields": {"city": "Oslo", "nights": 0}}


def test_show_takes_every_name_of_a_place(run: Run, store: Path) -> None:
    run("tag", "trip", "good", "head~1")
    whole = json.loads(run("show", "trip", "good", "--json")[0])["checkpoint_id"]
    for place in ("head~", "good", "good~0", whole, "step:0"):
        assert json.loads(run("show", "trip", place, "--json")[0])["checkpoint_id"] == whole, place


def test_one_channel_alone(run: Run, store: Path) -> None:
    assert run("show", "trip", "--channel", "colour")[0] == "colour  'red'\n"
    assert "there are notes, stops" in run("show", "trip", "--channel", "color", status=2)[1]


def test_writes_tell_who_wrote_what(run: Run, store: Path) -> None:
    told = run("writes", "trip", "step:0")[0].splitlines()
    assert [line.split()[:2] for line in told] == [["plan", "notes"], ["plan", "budget"]]
    assert told[1].endswith("money(5)")
    [asked] = json.loads(run("writes", "trip", "--json")[0])
    assert (asked["task"], asked["channel"], asked["index"]) == ("ask", "__interrupt__", -3)
    assert run("writes", "other") == ("", "")


def test_stats_by_task(run: Run, store: Path) -> None:
    told = run("stats", "--by", "task")[0].splitlines()
    assert [line.split()[0] for line in told[:2]] == ["ask", "plan"]
    assert "1 task  2 writes" in told[1]
    totals = json.loads(run("stats", "--by", "task", "--since", "7d", "--json")[0])
    assert {one["task"]: one["writes"] for one in totals["by_task"]} == {"ask": 1, "plan": 2}
    assert json.loads(run("stats", "--by", "task", "--prefix", "other", "--json")[0])["by_task"] == []


def test_names_cannot_steer_a_terminal(run: Run, store: Path) -> None:
    hostile = "a\x1b[2J\r\nb\u202e"
    put(store, hostile, {"x\x1b]0;y\x07": "z\x1b[0m", "list": ["\x9b31m"]})
    for command in (["threads"], ["log", hostile], ["show", hostile], ["rm", hostile], ["stats"]):
        told = run(*command)[0]
        assert not [char for char in told if char != "\n" and not char.isprintable()], command
    assert "a\\x1b[2J\\r\\nb\\u202e" in run("threads")[0]
    assert not set("\x1b\r\u202e") & set(run("show", hostile + "?", status=1)[1])


def test_the_statements_of_a_store_are_printed_and_make_one(run: Run, tmp_path: Path) -> None:
    import sqlite3

    path = tmp_path / "by-hand.db"
    statements = run("setup", "--url", path, "--print")[0]
    assert not path.exists()
    with sqlite3.connect(path) as connection:
        connection.executescript(statements)
    assert json.loads(run("stats", "--url", path, "--json")[0])["threads"] == 0
    assert "there is nothing to print" in run("setup", "--url", "memory://x", "--print", status=2)[1]


def test_an_encrypted_store_is_opened_with_the_key_of_the_environment(
    run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "sealed.db"
    monkeypatch.setenv("LANGGRAPH_AES_KEY", "0123456789abcdef")
    with threadline.connect(path, encryption=threadline.KeyRing.from_env()) as saver:
        checkpoint = threadline.empty_checkpoint()
        checkpoint["channel_values"], checkpoint["channel_versions"] = {"secret": "a word"}, {"secret": 1}
        saver.put({"configurable": {"thread_id": "t"}}, checkpoint, {"step": 0}, {"secret": 1})
    assert "secret  'a word'" in run("show", "--url", path, "t")[0]
    monkeypatch.delenv("LANGGRAPH_AES_KEY")
    assert "set THREADLINE_KEYS" in run("show", "--url", path, "t", status=2)[1]


@pytest.mark.parametrize("given", [["--url", "{}"], ["--url={}"]], ids=" ".join)
def test_the_url_may_stand_before_the_command(
    run: Run, store: Path, monkeypatch: pytest.MonkeyPatch, given: list[str]
) -> None:
    monkeypatch.delenv("THREADLINE_URL")
    named = [one.format(store) for one in given]
    assert run(*named, "log", "trip") == run("log", "trip", *named)
    assert "--url" in run(*named, status=2)[1]


def test_a_number_that_python_does_not_write_is_told_by_its_length(run: Run, store: Path) -> None:
    long = 10**5000
    values = {"n": long, "many": [long, {"of": -long, "in": (1, frozenset((long,)))}]}
    with threadline.connect(store) as saver:
        first = saver.thread("long").put(values).id
        saver.thread("long").put({"n": long + 1})
    digits = "<a whole number of about 5,001 digits>"
    told = run("show", "long", first)[0]
    assert re.search(rf"^n +{digits}$", told, re.M)
    assert told.count(digits) == 4
    assert f"~ n: {digits} → {digits}" in run("diff", "long")[0]
    shown = json.loads(run("show", "long", first, "--json")[0])["values"]
    assert int(shown["n"]["hex"], 16) == long
    assert int(shown["many"][0]["hex"], 16) == long
