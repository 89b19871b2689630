"""The servers of the tests: each answers, survives a crash with what was committed, and ends with its session."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
import textwrap
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.servers import KINDS, MariadbServer, PostgresServer, RedisCluster, RedisServer, Server, binaries
from tests.servers.keeper import ROOT
from tests.servers.places import (
    MysqlPlace,
    PgbouncerPlace,
    PostgresPlace,
    RedisPlace,
    mysql_arguments,
    mysql_place,
    postgres_place,
    redis_place,
)
from tests.servers.plugin import LACK, require_programs, require_server
from tests.servers.processes import is_alive, wait_until
from tests.servers.shared import shared_url

PRIVATE = {"postgres": PostgresServer, "mysql": MariadbServer, "redis": RedisServer}


@contextlib.contextmanager
def connected(url: str) -> Iterator[Any]:
    """A plain connection that commits every statement."""
    if url.startswith("postgresql"):
        import psycopg

        made = psycopg.connect(url, autocommit=True, prepare_threshold=None)
    else:
        import pymysql

        made = pymysql.connect(**mysql_arguments(url), autocommit=True)
    with contextlib.closing(made):
        yield made.cursor()


def ask(url: str, statement: str) -> Any:
    with connected(url) as cursor:
        cursor.execute(statement)
        return [row[0] for row in cursor.fetchall()] if cursor.description else None


def redis_client(url: str) -> Any:
    import redis

    plain = url.replace("+cluster", "")
    return redis.RedisCluster.from_url(plain) if "+cluster" in url else redis.Redis.from_url(plain)


def write(server: Server, word: str) -> None:
    if server.kind == "redis":
        redis_client(server.url).rpush("words", word)
    else:
        ask(server.url, "CREATE TABLE IF NOT EXISTS words (word varchar(20))")
        ask(server.url, f"INSERT INTO words VALUES ('{word}')")


def read(server: Server) -> list[str]:
    if server.kind == "redis":
        return [word.decode() for word in redis_client(server.url).lrange("words", 0, -1)]
    return sorted(ask(server.url, "SELECT word FROM words"))


@pytest.fixture(params=sorted(PRIVATE))
def server(request: pytest.FixtureRequest) -> Iterator[Server]:
    require_programs(request.param)
    with PRIVATE[request.param]() as started:
        yield started


def test_what_was_committed_survives_a_crash_and_a_restart_on_the_same_port(server: Server) -> None:
    url, before = server.url, set(server.pids)
    write(server, "crash")
    with_children = server.pids
    server.stop_hard()
    assert not [pid for pid in with_children if is_alive(pid)]
    assert server.pid is None

    server.start()
    assert not before & set(server.pids)
    write(server, "restart")
    server.restart()

    assert server.url == url
    assert read(server) == ["crash", "restart"]


def test_a_stopped_server_refuses_and_a_removed_one_leaves_no_folder(server: Server) -> None:
    write(server, "word")
    server.stop()
    with pytest.raises(Exception, match=r"refused|111|61"):
        read(server)
    server.remove()
    assert not server.folder.exists()


def test_private_servers_are_durable() -> None:
    require_programs("postgres")
    require_programs("mysql")
    with PostgresServer() as postgres, MariadbServer() as mariadb:
        assert ask(postgres.url, "SHOW fsync") == ["on"]
        assert ask(mariadb.url, "SELECT @@innodb_flush_log_at_trx_commit") == [1]
        assert ask(mariadb.url, "SELECT @@innodb_flush_method") != ["nosync"]


def test_a_node_of_a_cluster_comes_back_with_its_keys() -> None:
    require_programs("redis_cluster")
    with RedisCluster() as cluster:
        client = redis_client(cluster.url)
        for number in range(50):
            client.set(f"key-{number}", number)
        cluster.nodes[1].stop_hard()
        cluster.start()
        client = redis_client(cluster.url)
        assert [int(client.get(f"key-{number}")) for number in range(50)] == list(range(50))
        assert len(cluster.pids) == 3


def test_a_postgres_schema_is_the_tests_own_and_goes_with_it() -> None:
    require_server("postgres")
    import psycopg

    with contextlib.ExitStack() as left_open, postgres_place() as one, postgres_place() as other:
        ask(one.url, "CREATE TABLE words (word text)")
        ask(other.url, "CREATE TABLE words (word text)")
        careless = left_open.enter_context(contextlib.closing(psycopg.connect(one.url)))
        careless.execute("SELECT * FROM words")
        assert ask(one.url, "SELECT current_schema()") == [one.schema]
    assert not ask(one.server_url, f"SELECT 1 FROM pg_namespace WHERE nspname IN ('{one.schema}', '{other.schema}')")


def test_tables_with_a_mysql_prefix_go_with_the_test() -> None:
    require_server("mysql")
    import pymysql

    with mysql_place() as place:
        ask(place.url, f"CREATE TABLE {place.table_prefix}parents (id int PRIMARY KEY)")
        ask(
            place.url,
            f"CREATE TABLE {place.table_prefix}children (parent int REFERENCES {place.table_prefix}parents (id))",
        )
        careless = pymysql.connect(**mysql_arguments(place.url))
        careless.cursor().execute(f"SELECT * FROM {place.table_prefix}children")
    careless.close()
    assert not [table for table in ask(place.url, "SHOW TABLES") if table.startswith(place.table_prefix)]


@pytest.mark.parametrize("kind", ["redis", "redis_cluster"])
def test_keys_with_a_redis_prefix_go_with_the_test(kind: str) -> None:
    require_server(kind)
    with redis_place(kind) as place, redis_place(kind) as other:
        client = redis_client(place.url)
        client.set(f"{other.key_prefix}kept", 1)
        for number in range(40):
            client.set(f"{{{place.key_prefix}{number}}}", number)
        keys = list(client.scan_iter(match=f"*{place.key_prefix}*"))
        assert len(keys) == 40
        with redis_place(kind):
            pass
        assert client.get(f"{other.key_prefix}kept") == b"1"
    assert not list(client.scan_iter(match=f"*{place.key_prefix}*"))


def test_pgbouncer_pools_transactions(pgbouncer: PgbouncerPlace) -> None:
    if pgbouncer.server_url is None:
        pytest.skip("the settings of a PgBouncer that the environment names are its own")
    with contextlib.ExitStack() as stack:
        clients = [stack.enter_context(connected(pgbouncer.url)) for _ in range(8)]
        for client in clients:
            client.execute("SELECT pg_backend_pid()")
        # Eight clients, and never more than one transaction at a time: one connection serves them all.
        assert len({client.fetchone()[0] for client in clients}) == 1
    ask(pgbouncer.url, f"CREATE TABLE {pgbouncer.table_prefix}words (word text)")
    assert ask(pgbouncer.server_url, f"SELECT count(*) FROM {pgbouncer.table_prefix}words") == [0]


def test_the_fixtures_give_places_on_the_sessions_servers(
    postgres: PostgresPlace, postgres_url: str, mysql: MysqlPlace, redis_server: RedisPlace, redis_cluster: RedisPlace
) -> None:
    assert postgres.url == postgres_url
    assert ask(postgres_url, "SELECT 1") == ask(mysql.url, "SELECT 1") == [1]
    assert redis_client(redis_server.url).ping()
    assert redis_client(redis_cluster.url).set(redis_cluster.key_prefix, 1)
    assert redis_server.url == shared_url("redis")


# Sessions of their own, in processes of their own.


@pytest.fixture
def run_session(tmp_path: Path) -> Callable[..., subprocess.Popen[str]]:
    """Starts pytest on a file of tests, in a folder of its own, with the fixtures of the servers."""

    def run(source: str, *arguments: str, **environment: str) -> subprocess.Popen[str]:
        (tmp_path / "test_inner.py").write_text(textwrap.dedent(source))
        (tmp_path / "pytest.ini").write_text("[pytest]\n")
        kept = {name: value for name, value in os.environ.items() if not name.startswith(("PYTEST_", "THREADLINE_"))}
        search = os.pathsep.join([str(ROOT), str(ROOT / "src"), os.environ.get("PYTHONPATH", "")])
        variables = {**kept, "CI": "", "PYTHONPATH": search, "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1", **environment}
        command = [sys.executable, "-m", "pytest", "-q", "-p", "xdist", "-p", "tests.servers.plugin"]
        return subprocess.Popen(
            [*command, *arguments, "test_inner.py"],
            cwd=tmp_path,
            env=variables,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            start_new_session=True,
        )

    return run


# Notes the processes of a private and of the session's server, and where they live.
NOTES = """
    import json, os, time
    from pathlib import Path
    import pytest
    from tests.servers import RedisServer
    from tests.servers.keeper import keeper
    from tests.servers.processes import tree

    @pytest.mark.parametrize("number", [1, 2])
    def test_note(redis_server, private_postgres, number):
        left_running = RedisServer().start()
        folder = keeper().folder
        pids = [int(noted.read_text()) for noted in folder.glob("*/server.pid")]
        note = {"pids": [each for pid in pids for each in tree(pid)], "folder": str(folder), "url": redis_server.url}
        Path(f"partial-{number}").write_text(json.dumps(note))
        os.rename(f"partial-{number}", f"note-{number}")
        while Path("stay").exists():
            time.sleep(0.02)
"""


def notes(folder: Path) -> list[Any]:
    return [json.loads(file.read_text()) for file in sorted(folder.glob("note-*"))]


def nothing_is_left(found: list[Any]) -> bool:
    pids = {pid for note in found for pid in note["pids"]}
    return not [pid for pid in pids if is_alive(pid)] and not [n for n in found if Path(n["folder"]).exists()]


def require_redis_and_postgres() -> None:
    require_programs("redis")
    require_programs("postgres")


def test_workers_share_a_server_and_nothing_is_left_when_the_session_ends(
    run_session: Callable[..., subprocess.Popen[str]], tmp_path: Path
) -> None:
    require_redis_and_postgres()
    session = run_session(NOTES, "-n", "2")
    said, _ = session.communicate(timeout=150)
    assert session.returncode == 0, said
    found = notes(tmp_path)
    assert len(found) == 2
    assert len({note["url"] for note in found}) == len({note["folder"] for note in found}) == 1
    assert all(len(note["pids"]) > 5 for note in found)
    assert nothing_is_left(found)


@pytest.mark.parametrize("how", [signal.SIGINT, signal.SIGTERM, signal.SIGKILL], ids=lambda how: how.name)
def test_nothing_is_left_when_the_session_is_cut_off(
    run_session: Callable[..., subprocess.Popen[str]], tmp_path: Path, how: signal.Signals
) -> None:
    require_redis_and_postgres()
    (tmp_path / "stay").touch()
    session = run_session(NOTES)
    noted = wait_until(lambda: bool(notes(tmp_path)) or session.poll() is not None, seconds=120)
    assert noted
    assert session.poll() is None, session.communicate()[0]
    # As a terminal does: everyone in the group is told.
    os.killpg(session.pid, how)
    session.communicate(timeout=60)
    assert session.returncode != 0
    found = notes(tmp_path)
    assert wait_until(lambda: nothing_is_left(found), seconds=30)


def test_what_a_killed_guard_could_not_clear_the_next_session_does(
    run_session: Callable[..., subprocess.Popen[str]], tmp_path: Path
) -> None:
    require_redis_and_postgres()
    (tmp_path / "stay").touch()
    session = run_session(NOTES)
    assert wait_until(lambda: bool(notes(tmp_path)) or session.poll() is not None, seconds=120)
    found = notes(tmp_path)
    os.kill(int(Path(found[0]["folder"], "guarded").read_text()), signal.SIGKILL)
    os.killpg(session.pid, signal.SIGKILL)
    session.communicate(timeout=60)
    assert not nothing_is_left(found)

    (tmp_path / "stay").unlink()
    following = run_session("def test_nothing(): ...")
    said, _ = following.communicate(timeout=60)
    assert following.returncode == 0, said
    assert nothing_is_left(found)


WANTING = """
    from tests.servers import binaries
    binaries.FOLDERS = ()

    def test_on_postgres(postgres): ...
    def test_on_postgres_again(postgres_url): ...
    def test_on_a_cluster(redis_cluster): ...
    def test_without(): ...
"""


def test_missing_servers_are_one_loud_line(run_session: Callable[..., subprocess.Popen[str]], tmp_path: Path) -> None:
    session = run_session(WANTING, "-n", "2", PATH=str(tmp_path))
    said, _ = session.communicate(timeout=60)
    assert session.returncode == 0, said
    assert [line for line in said.splitlines() if "WANT OF SERVERS" in line] == [
        "3 TESTS SKIPPED FOR WANT OF SERVERS. Install: postgresql redis-server"
    ]
    assert "1 passed, 3 skipped" in said


def test_missing_servers_are_failures_under_ci(
    run_session: Callable[..., subprocess.Popen[str]], tmp_path: Path
) -> None:
    session = run_session(WANTING, PATH=str(tmp_path), CI="true")
    said, _ = session.communicate(timeout=60)
    assert session.returncode == 1, said
    assert "1 passed, 3 errors" in said
    assert f"{LACK}initdb, postgres not found: apt install postgresql" in said


def test_a_server_that_the_environment_names_is_used_and_never_killed(
    run_session: Callable[..., subprocess.Popen[str]], tmp_path: Path
) -> None:
    require_programs("redis")
    source = """
        import redis
        from tests.servers import binaries
        binaries.FOLDERS = ()

        def test_use(redis_server):
            redis.Redis.from_url(redis_server.url).set(redis_server.key_prefix + "a", 1)

        def test_kill(private_redis): ...
    """
    with RedisServer() as server:
        session = run_session(source, "-rs", PATH=str(tmp_path), CI="true", THREADLINE_TEST_REDIS=server.url)
        said, _ = session.communicate(timeout=60)
        assert session.returncode == 0, said
        assert "1 passed, 1 skipped" in said
        assert "THREADLINE_TEST_REDIS must not be killed" in said
        assert server.ask("DBSIZE") == ":0\r\n"


def test_every_kind_has_a_package_and_a_variable() -> None:
    page = (ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8")
    for kind in KINDS.values():
        assert f"`{kind.variable}`" in page
        assert kind.package in page


def test_the_newest_version_is_found_first(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    for version in ("9", "15", "16"):
        program = tmp_path / version / "bin" / "initdb"
        program.parent.mkdir(parents=True)
        program.write_text("#!/bin/sh\n")
        program.chmod(0o755)
    monkeypatch.setenv("PATH", "")
    monkeypatch.setattr(binaries, "FOLDERS", (f"{tmp_path}/*/bin",))
    assert binaries.find("initdb") == str(tmp_path / "16" / "bin" / "initdb")
    assert binaries.missing("postgres") == ["postgres"]
