"""What is typed wrong, or asked for in vain: one line that helps, a status that says which, nothing changed."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

import threadline
from tests.commands import Run

Contents = Callable[[], list[str]]

NOT_THERE = 1
TYPED_WRONG = 2

THREAD = "there is no thread 'nobody'"
NAMING_A_THREAD: list[list[str]] = [
    ["log", "nobody"],
    ["show", "nobody"],
    ["writes", "nobody"],
    ["fork", "nobody"],
    ["fork", "nobody", "--to", "new"],
    ["rollback", "nobody", "head"],
    ["merge", "nobody", "head"],
    ["tag", "nobody", "good"],
    ["tag", "nobody"],
    ["tag", "nobody", "good", "--delete"],
    ["pin", "nobody"],
    ["unpin", "nobody"],
    ["rm", "nobody"],
    ["rm", "nobody", "--yes"],
    ["rm", "nobody", "head", "--yes"],
    ["prune", "nobody", "--keep-last", "1"],
    ["prune", "nobody", "--keep-last", "1", "--yes"],
    ["answer", "nobody", "q-1", "yes"],
    ["archive", "nobody"],
    ["restore", "nobody"],
]


@pytest.mark.parametrize("command", NAMING_A_THREAD, ids=" ".join)
def test_an_unknown_thread(run: Run, store: Path, contents: Contents, command: list[str]) -> None:
    before = contents()
    told, complaints = run(*command, status=NOT_THERE)
    assert told == ""
    assert THREAD in complaints
    assert len(complaints.splitlines()) == 1
    assert contents() == before


def test_an_unknown_thread_leads_to_the_list_of_threads(run: Run, store: Path) -> None:
    assert run("log", "nobody", status=NOT_THERE)[1].rstrip().endswith("`threadline threads` lists those there are")


IN_VAIN: list[tuple[list[str], int, str]] = [
    (["show", "trip", "9999"], NOT_THERE, "no checkpoint, tag or time '9999'"),
    (["show", "trip", "nice"], NOT_THERE, "`threadline log`"),
    (["show", "trip", "step:9"], NOT_THERE, "no checkpoint of step 9"),
    (["show", "trip", "head~9"], NOT_THERE, "only 2 of 9 checkpoints"),
    (["show", "trip", "--ns", "child:9"], NOT_THERE, "in namespace 'child:9'"),
    (["show", "trip", "1"], TYPED_WRONG, "the beginning of several checkpoints"),
    (["writes", "trip", "1"], TYPED_WRONG, "the beginning of several checkpoints"),
    (["fork", "trip", "1"], TYPED_WRONG, "the beginning of several checkpoints"),
    (["fork", "trip", "nice"], NOT_THERE, "no checkpoint, tag or time 'nice'"),
    (["fork", "trip", "--to", "other"], NOT_THERE, "'other'"),
    (["fork", "trip", "--to", "trip"], TYPED_WRONG, "onto itself"),
    (["rollback", "trip", "nice"], NOT_THERE, "'nice'"),
    (["rollback", "trip"], TYPED_WRONG, "AT"),
    (["merge", "trip", "nobody"], NOT_THERE, "nor is there a thread 'nobody'"),
    (["merge", "trip", "thread:nobody"], NOT_THERE, "there is no thread 'nobody'"),
    (["merge", "trip"], TYPED_WRONG, "OTHER"),
    (["merge", "trip", "head", "--strategy", "mine"], TYPED_WRONG, "--strategy is ours, theirs or latest"),
    (["merge", "trip", "head", "--import", "no.such.module"], TYPED_WRONG, "no.such.module cannot be imported"),
    (["tag", "trip", "head"], TYPED_WRONG, "no name for a tag"),
    (["tag", "trip", "1st"], TYPED_WRONG, "no name for a tag"),
    (["tag", "trip", "good", "nice"], NOT_THERE, "'nice'"),
    (["tag", "trip", "good", "--delete"], NOT_THERE, "has no tag 'good'"),
    (["tag", "trip", "good", "head", "--delete"], TYPED_WRONG, "the name of the tag alone"),
    (["rm", "trip", "nice", "--yes"], NOT_THERE, "'nice'"),
    (["prune", "trip"], TYPED_WRONG, "keeps nothing"),
    (["prune", "trip", "--yes"], TYPED_WRONG, "keeps nothing"),
    (["prune", "trip", "--drop-branches-older-than", "1d", "--yes"], TYPED_WRONG, "keeps nothing"),
    (["prune", "trip", "--keep-last", "0", "--yes"], TYPED_WRONG, "1 or more"),
    (["prune", "trip", "--keep-within", "a while", "--yes"], TYPED_WRONG, "such as 36h or 30d"),
    (["sweep", "--drop-branches-older-than", "1d", "--yes"], TYPED_WRONG, "keeps nothing"),
    (["sweep", "--every", "1h"], TYPED_WRONG, "--every needs --yes"),
    (["sweep", "--every", "0s", "--yes"], TYPED_WRONG, "above 0"),
    (["sweep", "--every", "often", "--yes"], TYPED_WRONG, "such as 36h or 30d"),
    (["answer", "trip", "q-9", "yes"], NOT_THERE, "it waits for q-1"),
    (["stats", "--by", "node"], TYPED_WRONG, "--by is thread, channel, type or task"),
    (["stats", "--since", "7d"], TYPED_WRONG, "go with --by"),
    (["threads", "--status", "asleep"], TYPED_WRONG, "'suspended' or 'archived'"),
    (["threads", "--limit", "-1"], TYPED_WRONG, "limit"),
    (["log", "trip", "--limit", "0"], TYPED_WRONG, "--limit"),
    (["log"], TYPED_WRONG, "THREAD"),
    (["log", ""], TYPED_WRONG, "thread_id"),
]


def name_of(part: object) -> str:
    return " ".join(part) if isinstance(part, list) else ""


@pytest.mark.parametrize(("command", "status", "said"), IN_VAIN, ids=name_of)
def test_what_cannot_be_done(
    run: Run, store: Path, contents: Contents, command: list[str], status: int, said: str
) -> None:
    before = contents()
    told, complaints = run(*command, status=status)
    assert told == ""
    assert said in " ".join(complaints.split())
    assert contents() == before


def test_threads_without_a_common_history_are_not_merged(run: Run, tmp_path: Path) -> None:
    path = tmp_path / "two.db"
    with threadline.connect(path) as saver:
        for name in ("one", "two"):
            checkpoint = threadline.empty_checkpoint()
            saver.put({"configurable": {"thread_id": name}}, checkpoint, {"step": 0}, {})
    complaints = run("merge", "--url", path, "one", "two", status=2)[1]
    assert "no common ancestor" in complaints
    assert len(complaints.splitlines()) == 1


def test_no_command_makes_a_store_by_looking(run: Run, tmp_path: Path) -> None:
    missing = tmp_path / "mistyped.db"
    for command in (["threads"], ["log", "t"], ["fork", "t"], ["rm", "t", "--yes"], ["gc", "--yes"], ["compact"]):
        assert "there is no database at" in run(*command, "--url", missing, status=1)[1]
        assert not missing.exists()


def test_no_command_adds_tables_to_a_database_of_others(run: Run, tmp_path: Path) -> None:
    import sqlite3

    other = tmp_path / "other.db"
    with sqlite3.connect(other) as connection:
        connection.execute("CREATE TABLE recipes (name TEXT)")
    for command in (["threads"], ["fork", "t"], ["tag", "t", "x"], ["sweep", "--yes"], ["gc", "--yes"]):
        run(*command, "--url", other, status=2)
        assert sqlite3.connect(other).execute("SELECT name FROM sqlite_master").fetchall() == [("recipes",)]


def test_passwords_are_never_shown(run: Run) -> None:
    for command in (["threads"], ["setup", "--print"], ["health"], ["sweep", "--yes"]):
        told, complaints = run(*command, "--url", "oracle://me:secret@host/db", status=2)
        assert "secret" not in told + complaints


def test_an_address_that_is_no_url_is_refused_and_not_shown(run: Run, tmp_path: Path, monkeypatch) -> None:
    monkeypatch.chdir(tmp_path)
    for address in ("host=db user=me password=secret", "me:secret@db/agents", "sqlite://me:secret@db"):
        for command in (["threads"], ["setup"], ["health"], ["sweep", "--yes"], ["import", address, "--to"]):
            told, complaints = run(*command, *([] if command[-1] == "--to" else ["--url"]), address, status=2)
            assert "postgresql://" in complaints
            assert "secret" not in told + complaints
    assert list(tmp_path.iterdir()) == []


def test_every_command_says_that_a_store_is_encrypted_and_calls_nothing_damaged(
    run: Run, tmp_path: Path, monkeypatch
) -> None:
    from threadline.cli.app import COMMANDS

    monkeypatch.delenv("LANGGRAPH_AES_KEY", raising=False)
    path = tmp_path / "sealed.db"
    with threadline.connect(path, encryption=threadline.KeyRing({"env": b"k" * 32})) as saver:
        checkpoint = threadline.empty_checkpoint()
        saver.put({"configurable": {"thread_id": "t", "checkpoint_ns": ""}}, checkpoint, {"step": 0}, {})
    arguments = {
        "answer": ["t", "id", "yes"],
        "merge": ["t", "a", "b"],
        "tag": ["t", "name"],
        "diff": ["t", "head"],
        **{
            name: ["t"]
            for name in ("log", "show", "writes", "fork", "pin", "unpin", "archive", "restore", "why", "unlock")
        },
        "prune": ["t", "--keep-last", "1"],
        "rollback": ["t", "head"],
        "rm": ["t", "--yes"],
        "repair": ["t"],
        "sweep": ["--yes"],
        "gc": ["--yes"],
        "backup": ["-o", tmp_path / "backup.tla"],
        "export": ["-o", tmp_path / "export.tla"],
        "tier": ["status", "--cold", f"file://{tmp_path}/cold"],
    }
    # The doctor tells it as what it found.
    assert "this store is encrypted" in run("doctor", "--url", path, status=1)[0]
    told, complaints = run("copy", path, "--to", tmp_path / "copy.db", status=2)
    assert "this store is encrypted: set THREADLINE_KEYS to its keys" in complaints
    for command in sorted(COMMANDS.keys() - {"copy", "demo", "doctor", "health", "import", "open", "setup"}):
        told, complaints = run(command, "--url", path, *arguments.get(command, []), status=2)
        assert "this store is encrypted: set THREADLINE_KEYS to its keys" in complaints, command
        assert "--key-file" in complaints, command
        assert "amaged" not in told + complaints
