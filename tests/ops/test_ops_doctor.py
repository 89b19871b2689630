"""The doctor: on every backend, what it finds where something is wrong, and what it says to do about it."""

from __future__ import annotations

import json
import re
import sqlite3
import time
from pathlib import Path
from typing import Any

import pytest
from ops_stores import Place, ask, put

import threadline
from tests.commands import Run
from tests.servers.postgres import PostgresServer
from tests.servers.redis_server import RedisServer
from threadline.connect import make_engine, make_tools
from threadline.ops.doctor import sqlite as of_sqlite
from threadline.ops.doctor.examine import examine, examine_backend
from threadline.ops.doctor.findings import OK, PROBLEM, WARNING, Finding

DAY = 86_400


def examined(url: str, options: dict[str, Any], later: float = 0) -> dict[str, Finding]:
    """The worst finding of each subject, as the doctor has it some seconds from now."""
    engine = make_engine(url, **options)
    try:
        found = [*examine_backend(engine, "1"), *examine(engine, make_tools(engine), time.time() + later)]
    finally:
        engine.close()
    for one in found:
        assert one.text
        assert one.advice or one.level not in (PROBLEM, WARNING), one
    order = [OK, "note", WARNING, PROBLEM]
    return {one.subject: one for one in sorted(found, key=lambda one: order.index(one.level))}


def test_a_sound_store_has_no_problem_on_any_backend(place: Place) -> None:
    url, options = place
    with threadline.connect(url, **options) as saver:
        for number in range(12):
            put(saver, f"t{number}", ["x" * 100 * number], step=1)
        ask(saver, "asks")
    found = examined(url, options)
    assert not [one for one in found.values() if one.level == PROBLEM and one.subject != "backend"], found
    assert {"version", "backend", "answers", "size", "largest threads", "questions", "sweeps", "runs", "damage"} <= set(
        found
    )
    assert found["questions"].text == "1 question waiting, none for longer than a day"
    assert "13 threads" in found["largest threads"].text


def test_what_is_late_is_told(place: Place) -> None:
    url, options = place
    with threadline.connect(url, **options) as saver:
        ask(saver, "asks")
        put(saver, "goes")
        saver.thread("goes").delete(trash="1h")
        saver.sweep()
        saver.lock("asks", ttl=30 * DAY, holder="worker-7").__enter__()._stop.set()
    found = examined(url, options, later=3 * DAY)
    assert found["questions"].level == WARNING
    assert "'asks' (3 days)" in found["questions"].text
    assert found["sweeps"].level == PROBLEM
    assert "1 entries of the trash" in found["sweeps"].text
    assert found["runs"].level == WARNING
    assert "worker-7" in found["runs"].text


def test_damage_is_found_and_leads_to_fsck(database: Path) -> None:
    with threadline.connect(database) as saver:
        put(saver, "t", ["x" * 9000] * 10)
    with sqlite3.connect(database) as raw:
        raw.execute("UPDATE threadline_chunks SET data = X'00'")
    found = examined(f"sqlite:///{database}", {})
    assert found["damage"].level == PROBLEM
    assert "threadline fsck" in found["damage"].advice


def test_a_damaged_file_is_told(database: Path) -> None:
    with threadline.connect(database) as saver:
        for step in range(200):
            put(saver, "t", "x" * 500, step=step)
    with open(database, "r+b") as file:
        file.seek(8 * 4096)
        file.write(b"\xff" * 4096 * 4)
    engine = make_engine(database, setup=False)
    try:
        found = {one.subject: one for one in examine_backend(engine, "1")}
    finally:
        engine.close()
    assert found["pages"].level == PROBLEM


def test_a_large_log_that_a_reader_keeps_is_told(database: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(of_sqlite, "_LARGE_LOG_BYTES", 10_000)
    with threadline.connect(database) as saver:
        put(saver)
        reader = sqlite3.connect(database, isolation_level=None)
        reader.execute("BEGIN")
        reader.execute("SELECT count(*) FROM threadline_threads").fetchall()
        for step in range(2, 10):
            put(saver, step=step)
        found = examined(f"sqlite:///{database}", {})
        reader.close()
    assert found["log"].level == WARNING
    assert "reader" in found["log"].advice


def test_little_room_is_told(database: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(of_sqlite, "_LEAST_FREE_BYTES", 10**18)
    with threadline.connect(database) as saver:
        put(saver)
    assert examined(f"sqlite:///{database}", {})["room"].level == PROBLEM


def test_locks_that_do_not_lock_are_told(database: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with threadline.connect(database) as saver:
        put(saver)
    assert examined(f"sqlite:///{database}", {})["locks"].level == OK
    # As on a file system where the second process gets the lock as well.
    monkeypatch.setattr(of_sqlite, "_INTRUDER", "print('written')")
    assert examined(f"sqlite:///{database}", {})["locks"].level == PROBLEM
    assert not list(database.parent.glob(".threadline-doctor-*"))


def test_a_network_file_system_is_told(database: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with threadline.connect(database) as saver:
        put(saver)
    monkeypatch.setattr(of_sqlite, "_kind_of_mount", lambda path: "nfs4")
    assert examined(f"sqlite:///{database}", {})["file system"].level == PROBLEM


def test_a_weak_synchronous_is_told(database: Path) -> None:
    with threadline.connect(database) as saver:
        put(saver)
    assert examined(f"sqlite:///{database}", {"synchronous": "NORMAL"})["backend"].level == PROBLEM


def test_postgres_is_asked_for_what_matters(postgres: Any) -> None:
    with threadline.connect(postgres.url) as saver:
        put(saver)
    found = examined(postgres.url, {})
    assert found["pooler"].text == "none: this is the server itself"
    assert found["locks"].level == OK
    assert found["replica"].level == OK
    assert found["log"].level == OK
    assert "oldest transaction" in found
    # The server of all tests does without fsync.
    assert found["backend"].level == PROBLEM
    assert "fsync off" in found["backend"].text


def test_an_old_transaction_is_told(private_postgres: PostgresServer, monkeypatch: pytest.MonkeyPatch) -> None:
    import psycopg

    from threadline.ops.doctor import postgres as of_postgres

    monkeypatch.setattr(of_postgres, "_OLD_TRANSACTION_SECONDS", 0.0)
    with threadline.connect(private_postgres.url) as saver:
        put(saver)
    with psycopg.connect(private_postgres.url) as other:
        pid = other.execute("SELECT pg_backend_pid()").fetchone()[0]
        found = examined(private_postgres.url, {})
        lossy = examined(f"{private_postgres.url}?options=-csynchronous_commit%3Doff", {})
    assert found["backend"].level == OK
    assert found["oldest transaction"].level == WARNING
    assert f"pg_terminate_backend({pid})" in found["oldest transaction"].advice
    assert lossy["backend"].level == PROBLEM


def test_a_pooler_is_told_and_its_mode(pgbouncer: Any) -> None:
    options = {"prepare_threshold": None, "table_prefix": pgbouncer.table_prefix}
    with threadline.connect(pgbouncer.url, **options) as saver:
        put(saver)
    found = examined(pgbouncer.url, options)
    assert "transaction mode" in found["pooler"].text
    assert "prepare_threshold=None" in found["pooler"].advice
    assert found["locks"].level == OK


def test_mysql_is_asked_for_what_matters(mysql: Any) -> None:
    options = {"table_prefix": mysql.table_prefix}
    with threadline.connect(mysql.url, **options) as saver:
        put(saver)
    found = examined(mysql.url, options)
    assert "innodb_flush_log_at_trx_commit" in found["backend"].text
    assert found["primaries"].level == OK
    assert {"connections", "oldest transaction", "packets", "room"} <= set(found)


def test_redis_is_asked_for_what_matters() -> None:
    from tests.servers.plugin import require_programs

    require_programs("redis")
    with RedisServer() as durable:
        with threadline.connect(durable.url) as saver:
            put(saver)
        found = examined(durable.url, {})
        assert found["durability"].level == found["memory"].level == found["replica"].level == OK
        durable.ask("CONFIG", "SET", "appendonly", "no")
        assert examined(durable.url, {})["durability"].level == PROBLEM
        durable.ask("CONFIG", "SET", "appendonly", "yes")
        durable.ask("CONFIG", "SET", "appendfsync", "everysec")
        assert examined(durable.url, {})["durability"].level == WARNING
        durable.ask("CONFIG", "SET", "maxmemory", "100mb")
        durable.ask("CONFIG", "SET", "maxmemory-policy", "allkeys-lru")
        found = examined(durable.url, {})
        assert found["memory"].level == PROBLEM
        # The store itself refuses such a server.
        assert found["store"].level == PROBLEM


def test_a_cluster_is_told(redis_cluster: Any) -> None:
    options = {"key_prefix": redis_cluster.key_prefix}
    with threadline.connect(redis_cluster.url, **options) as saver:
        put(saver)
    found = examined(redis_cluster.url, options)
    assert found["cluster"].level == OK
    assert "3 nodes" in found["cluster"].text
    assert found["durability"].level == OK


# -- the command


def test_the_command_tells_programs_and_people(database: Path, run: Run) -> None:
    with threadline.connect(database) as saver:
        put(saver)
    out, _ = run("doctor", "--url", database)
    assert out.endswith("0 problems, 0 warnings\n")
    told = json.loads(run("doctor", "--url", database, "--json")[0])
    assert told["ok"] is True
    assert {"level", "subject", "text", "advice"} == told["findings"][0].keys()


def test_a_problem_is_the_exit_status(database: Path, run: Run) -> None:
    with threadline.connect(database) as saver:
        put(saver, "t", ["x" * 9000] * 10)
    with sqlite3.connect(database) as raw:
        raw.execute("UPDATE threadline_chunks SET data = X'00'")
    out, _ = run("doctor", "--url", database, status=1)
    assert "-> `threadline fsck`" in out


def test_a_store_that_cannot_be_opened_is_a_finding(database: Path, run: Run, tmp_path: Path) -> None:
    run("doctor", "--url", tmp_path / "nothing.db", status=1)
    with threadline.connect(database) as saver:
        put(saver)
    with sqlite3.connect(database) as raw:
        raw.execute("UPDATE threadline_meta SET value = X'3939' WHERE name = 'format'")
    told = json.loads(run("doctor", "--url", database, "--json", status=1)[0])
    [store] = [one for one in told["findings"] if one["subject"] == "store"]
    assert "NewerFormat" in store["text"]
    assert "upgrade threadline" in store["advice"]


def test_an_encrypted_store_without_its_keys_is_a_finding(database: Path, run: Run) -> None:
    ring = threadline.KeyRing({"2026": b"k" * 32})
    with threadline.connect(database, encryption=ring) as saver:
        put(saver)
    out, _ = run("doctor", "--url", database, status=1)
    assert "this store is encrypted" in out


def test_a_server_that_is_away_is_a_finding(run: Run) -> None:
    from tests.servers.processes import free_port

    url = f"redis://somebody:secret-word@127.0.0.1:{free_port()}/0"
    out, err = run("doctor", "--url", url, status=1)
    assert "Unavailable" in out
    assert "secret-word" not in out + err


def test_a_url_that_nothing_serves_was_asked_wrongly(run: Run) -> None:
    run("doctor", "--url", "mongodb://x", status=2)


def test_the_page_shows_what_the_doctor_says(database: Path, run: Run) -> None:
    """By subject: the rest of a line depends on the machine."""
    with threadline.connect(database) as saver:
        ask(saver, "asks")
    page = (Path(__file__).parents[2] / "docs" / "cli" / "doctor.md").read_text(encoding="utf-8")
    out, _ = run("doctor", "--url", database)
    lines = re.compile(r"^(ok|note|warning|problem) +([a-z ]+?)  ", re.MULTILINE)
    assert lines.findall(page.partition("```console")[2]) == lines.findall(out)
