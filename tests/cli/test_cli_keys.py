"""Keys on the command line: from where they come, which a store knows, and rotating them; they are never shown."""

from __future__ import annotations

import base64
import json
import logging
import shutil
from pathlib import Path
from typing import Any

import pytest
from cli_pages import PAGES, examples_of, run_examples, without_chance

import threadline
from tests.commands import Run
from threadline import KeyRing

OLD, NEW = b"\xfb\xef\xbe" + b"o" * 29, b"\xff" * 5 + b"n" * 27
BY_HAND = f"2026-01:{base64.b64encode(OLD).decode()}"
ROTATED = f"2027-01:{base64.b64encode(NEW).decode()},{BY_HAND}"


def is_shown(text: str) -> bool:
    """Whether a key is in a text, in any form it was given in."""
    forms = [part.partition(":")[2].rstrip("=") for part in ROTATED.split(",")]
    forms += [OLD.decode("latin-1"), NEW.decode("latin-1"), OLD.hex(), NEW.hex()]
    return any(form in text for form in forms)


def put(saver: Any, thread: str, step: int) -> None:
    checkpoint = threadline.empty_checkpoint()
    checkpoint["channel_values"], checkpoint["channel_versions"] = {"text": f"{step} a word " * 300}, {"text": step}
    saver.put({"configurable": {"thread_id": thread, "checkpoint_ns": ""}}, checkpoint, {"step": step}, {"text": step})


@pytest.fixture
def sealed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    path = tmp_path / "sealed.db"
    with threadline.connect(path, encryption=KeyRing({"2026-01": OLD})) as saver:
        for step in (1, 2, 3):
            put(saver, "t", step)
        saver.thread("t").create(metadata={"user": "ann"})
    monkeypatch.setenv("THREADLINE_URL", str(path))
    return path


def test_the_environment_holds_keys(run: Run, sealed: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("THREADLINE_KEYS", BY_HAND)
    told, complaints = run("show", "t")
    assert "text  '3 a word" in told
    assert not is_shown(told + complaints)


@pytest.mark.parametrize("form", [ROTATED, ROTATED.replace(",", "\n") + "\n", "# ours\n" + ROTATED + ",\n\n"])
def test_a_file_holds_keys(run: Run, sealed: Path, tmp_path: Path, form: str) -> None:
    keys = tmp_path / "keys.txt"
    keys.write_text(form)
    assert "text  '3 a word" in run("show", "t", "--key-file", keys)[0]
    assert json.loads(run("why", "t", "--json", "--key-file", keys)[0])["checkpoints"] == 3


def test_a_file_goes_before_the_environment(
    run: Run, sealed: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "keys.txt").write_text(BY_HAND)
    monkeypatch.setenv("THREADLINE_KEYS", "another:" + base64.b64encode(NEW).decode())
    run("threads", "--key-file", tmp_path / "keys.txt")
    complaints = run("threads", status=2)[1]
    assert "encrypted under '2026-01', and the keys given are 'another'" in complaints
    assert not is_shown(complaints)


def test_a_store_without_its_key_names_both_ways(run: Run, sealed: Path) -> None:
    complaints = run("threads", status=2)[1]
    assert "this store is encrypted" in complaints
    assert "THREADLINE_KEYS" in complaints
    assert "--key-file" in complaints


BROKEN = [
    (base64.b64encode(OLD).decode(), "has no id before one of its keys"),
    ("2026-01:" + base64.b64encode(OLD).decode()[:-9], "has 26 bytes"),
    ("2026-01:!" + base64.b64encode(OLD).decode(), "'2026-01' is not written in base64"),
    (f"{BY_HAND},{BY_HAND}", "has two keys '2026-01'"),
    (" , \n#", "holds no key"),
    (f"2026-01:{base64.b64encode(NEW).decode()}", "altered, moved, or sealed under another key"),
]


@pytest.mark.parametrize(("text", "said"), BROKEN, ids=[said for _, said in BROKEN])
def test_what_is_wrong_with_keys_is_told_without_them(
    run: Run, sealed: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, text: str, said: str
) -> None:
    monkeypatch.setenv("THREADLINE_KEYS", text)
    caplog.set_level(logging.DEBUG)
    told, complaints = run("show", "t", status=1 if "altered" in said else 2)
    assert said in complaints
    assert not is_shown(told + complaints + caplog.text)
    assert base64.b64encode(OLD).decode()[:12] not in told + complaints + caplog.text


def test_a_key_file_that_is_not_there(run: Run, sealed: Path, tmp_path: Path) -> None:
    assert "cannot be read: No such file" in run("threads", "--key-file", tmp_path / "none", status=2)[1]


def test_keys_are_listed_with_the_rows_under_each(run: Run, sealed: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("THREADLINE_KEYS", ROTATED)
    before = sealed.read_bytes()
    old, new = json.loads(run("keys", "--json")[0])["keys"]
    # Checkpoints, chunks, and the metadata of the thread.
    assert old == {"id": "2026-01", "rows": 3 + 3 + 1, "is_current": False, "is_needed": True}
    assert new == {"id": "2027-01", "rows": 0, "is_current": True, "is_needed": False}
    assert sealed.read_bytes() == before  # looking adds no key to those the store knows
    with threadline.connect(sealed, encryption=KeyRing({"2027-01": NEW, "2026-01": OLD})) as saver:
        put(saver, "t", 4)
    told, complaints = run("keys")
    assert [line.split() for line in told.splitlines()] == [
        ["2026-01", "7", "rows", "needed", "still"],
        ["2027-01", "2", "rows", "current"],
    ]
    assert not is_shown(told + complaints)


def test_rotating_moves_every_row(run: Run, sealed: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("THREADLINE_KEYS", ROTATED)
    told = json.loads(run("keys", "rotate", "--json")[0])
    assert told["rows_changed"] == 7
    assert {one["id"]: one["rows"] for one in told["keys"]} == {"2026-01": 0, "2027-01": 7}
    assert [one["is_needed"] for one in told["keys"]] == [False, True]
    monkeypatch.setenv("THREADLINE_KEYS", ROTATED.partition(",")[0])
    assert "text  '3 a word" in run("show", "t")[0]
    assert json.loads(run("keys", "rotate", "--json")[0])["rows_changed"] == 0


def test_a_rotation_shows_a_bar_on_a_terminal(
    sealed: Path, store: Path, on_terminal: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("THREADLINE_KEYS", ROTATED)
    monkeypatch.setenv("THREADLINE_URL", str(sealed))
    shown = on_terminal("keys", "rotate")
    assert "rotating" in shown
    assert "7 rows sealed anew" in shown
    assert not is_shown(shown)


def test_a_plain_store_has_no_keys(run: Run, store: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("THREADLINE_KEYS", BY_HAND)
    assert "waits" in run("threads")[0]
    assert "not encrypted" in run("keys", status=2)[1]
    assert "there is rotate" in run("keys", "destroy", status=2)[1]


def test_an_import_seals_under_the_keys_that_are_given(run: Run, tmp_path: Path, monkeypatch: Any) -> None:
    sqlite = pytest.importorskip("langgraph.checkpoint.sqlite", reason="the source is written by LangGraph's saver")
    with sqlite.SqliteSaver.from_conn_string(str(tmp_path / "old.db")) as saver:
        place: Any = {"configurable": {"thread_id": "1", "checkpoint_ns": ""}}
        saver.put(place, threadline.empty_checkpoint(), {}, {})
    monkeypatch.setenv("THREADLINE_KEYS", BY_HAND)
    run("import", tmp_path / "old.db", "--to", tmp_path / "new.db")
    assert "2026-01" in run("keys", "--url", tmp_path / "new.db")[0]
    with pytest.raises(threadline.InvalidRequest, match="encrypted"), threadline.connect(tmp_path / "new.db") as saver:
        saver.get_tuple(place)


def test_the_example_of_the_page_shows_what_it_says(
    sealed: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("THREADLINE_KEYS", ROTATED)
    (folder := tmp_path / "page").mkdir()
    shutil.copy(sealed, folder / "agents.db")

    def said() -> str:
        told = capsys.readouterr()
        return told.out + told.err

    page = PAGES / "keys.md"
    shown = run_examples(page, folder, monkeypatch, said)
    for (command, expected), (_, told) in zip(examples_of(page), shown, strict=True):
        assert without_chance(told) == without_chance(expected), command
