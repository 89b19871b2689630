"""Tables of LangGraph's PostgreSQL saver of every age and kind: older, shallow, encrypted, damaged, or none at all."""

from __future__ import annotations

import re
import uuid
from collections.abc import Callable
from pathlib import Path
from typing import Any

import psycopg
import pytest
from import_cases import tuples_of
from langgraph.checkpoint.serde.encrypted import EncryptedSerializer
from langgraph.checkpoint.serde.jsonplus import JsonPlusSerializer
from langgraph.types import Send

pytest.importorskip("langgraph.checkpoint.postgres", reason="the sources are written by LangGraph's own saver")
from langgraph.checkpoint.postgres import PostgresSaver
from postgres_cases import execute, original, write_thread

import threadline
from tests.servers import places
from threadline.langgraph import Checkpointer
from threadline.transfer import Counts, import_postgres
from threadline.transfer import langgraph_postgres as postgres_source
from threadline.transfer.langgraph_postgres import PostgresSource

KEY = b"0123456789abcdef"
SERDE = JsonPlusSerializer()


@pytest.fixture
def url(postgres: Any) -> str:
    return str(postgres.url)


def found_in(target: Path) -> Any:
    with Checkpointer(target) as saver:
        return tuples_of(saver)


def test_values_in_documents_and_in_blobs_are_one_state(url: str, target: Path) -> None:
    write_thread(url, text="gruß", n=2**70, half=0.5, yes=True, no=None, raw=b"\x00\xff", gone={1, 2}, l=[1, None])
    inline = execute(url, "SELECT checkpoint -> 'channel_values' FROM checkpoints")[0][0]
    assert inline.keys() == {"text", "n", "half", "yes", "no"}
    assert import_postgres(url, target).is_complete
    assert found_in(target) == original(url)


def test_tables_from_before_values_were_in_documents_are_read(url: str, target: Path) -> None:
    write_thread(url, n=1, text="x")
    tag, packed = SERDE.dumps_typed(7)
    add = (
        "INSERT INTO checkpoint_blobs "
        "SELECT thread_id, '', %s, checkpoint -> 'channel_versions' ->> %s, %s, %s FROM checkpoints"
    )
    execute(
        url,
        (add, ("n", "n", tag, packed)),
        (add, ("text", "text", "empty", None)),
        "UPDATE checkpoints SET checkpoint = checkpoint - 'channel_values'",
    )
    assert import_postgres(url, target).is_complete
    found = found_in(target)
    [only] = found.values()
    assert only.checkpoint["channel_values"].keys() == {"messages", "n"}
    assert only.checkpoint["channel_values"]["n"] == 7
    assert found == original(url)


def test_tables_from_before_task_path_are_read_as_langgraph_reads_them(url: str, target: Path) -> None:
    write_thread(url)
    execute(url, "ALTER TABLE checkpoint_writes DROP COLUMN task_path", "DELETE FROM checkpoint_migrations WHERE v = 9")
    assert import_postgres(url, target).writes == Counts(copied=2)
    found = found_in(target)
    with PostgresSaver.from_conn_string(url) as saver:
        saver.setup()  # brings the column back, so it comes last
    assert found == original(url)


def test_versions_that_are_numbers_find_their_blobs(url: str, target: Path) -> None:
    write_thread(url)
    for number in ("3", "2.50"):
        execute(
            url,
            (
                "UPDATE checkpoints SET checkpoint = jsonb_set(checkpoint, '{channel_versions,messages}', %s::jsonb)",
                (number,),
            ),
            ("UPDATE checkpoint_blobs SET version = %s", (number,)),
        )
        assert import_postgres(url, target).is_complete
        assert found_in(target) == original(url)


@pytest.mark.parametrize("is_parent_there", [True, False])
def test_sends_of_older_formats_come_over(url: str, target: Path, is_parent_there: bool) -> None:
    first = write_thread(url)
    with PostgresSaver.from_conn_string(url) as saver:
        for task, path, node in (("b", "~1", "late"), ("a", "~2", "last"), ("c", "~0", "early")):
            saver.put_writes(first, [("__pregel_tasks", Send(node, {"n": 1}))], task, path)
    second = write_thread(url, parent=first)
    execute(url, 'UPDATE checkpoints SET checkpoint = checkpoint || \'{"v": 3, "pending_sends": []}\'')
    if not is_parent_there:
        execute(url, "DELETE FROM checkpoints WHERE parent_checkpoint_id IS NULL")
    report = import_postgres(url, target)
    assert report.problems == []
    assert import_postgres(url, target).checkpoints == Counts(present=report.checkpoints.copied)
    assert report.orphan_writes == (0 if is_parent_there else 5)
    with Checkpointer(target) as saver, PostgresSaver.from_conn_string(url) as theirs:
        found, wanted = saver.get_tuple(second).checkpoint, theirs.get_tuple(second).checkpoint
    assert [send.node for send in found["channel_values"]["__pregel_tasks"]] == ["early", "late", "last"]
    assert dict(found["channel_values"]) == wanted["channel_values"]
    assert found["channel_versions"] == wanted["channel_versions"]


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_the_shallow_savers_tables_are_read(url: str, target: Path) -> None:
    from langgraph.checkpoint.postgres import ShallowPostgresSaver

    with ShallowPostgresSaver.from_conn_string(url) as saver:
        saver.setup()
        place: Any = {"configurable": {"thread_id": "t", "checkpoint_ns": ""}}
        for step in (1, 2):
            checkpoint: Any = {**threadline.empty_checkpoint(), "v": 3, "channel_values": {"n": step, "l": [step]}}
            checkpoint["channel_versions"] = {"n": f"{step}.0", "l": f"{step}.0"}
            place = saver.put(place, checkpoint, {"step": step}, checkpoint["channel_versions"])
            saver.put_writes(place, [("l", [step])], "task")
            if step == 1:
                saver.put_writes(place, [("__pregel_tasks", Send("node", step))], "sender")
        wanted = saver.get_tuple(place)
    report = import_postgres(url, target)
    assert report.problems == []
    assert (report.checkpoints.copied, report.writes.copied, report.orphan_writes) == (1, 1, 2)
    with Checkpointer(target) as ours:
        found = ours.get_tuple(place)
    assert found.pending_writes == wanted.pending_writes
    assert found.checkpoint["pending_sends"] == wanted.checkpoint["pending_sends"] == [Send("node", 1)]
    assert {"n": 2, "l": [2]}.items() <= dict(found.checkpoint["channel_values"]).items()
    assert found.checkpoint["id"] == wanted.checkpoint["id"]


def test_the_schema_is_the_one_that_the_url_says(url: str, target: Path) -> None:
    write_thread(url, thread_id="here")
    with places.postgres_place() as other:
        write_thread(other.url, thread_id="there")
        assert import_postgres(other.url, target).threads == 1
    assert {thread for thread, _, _ in found_in(target)} == {"there"}


def test_many_threads_with_odd_ids_in_batches(url: str, target: Path) -> None:
    for name in ("a/b:{c}*%", "ñ" * 300, "7", "O'Brien; --", "\x01"):
        write_thread(url, thread_id=name, note=name)
    assert import_postgres(url, target).is_complete
    found = found_in(target)
    assert len(found) == 5
    assert found == original(url)


def test_an_encrypted_source_needs_its_cipher(url: str, target: Path, import_here: Callable[..., Any]) -> None:
    serde = EncryptedSerializer.from_pycryptodome_aes(key=KEY)
    write_thread(url, serde, note={"a": "secret"})
    told = import_here(url, "--to", target, status=2).stderr
    assert "'msgpack+aes'" in told
    assert "cipher=" in told
    assert not target.exists()
    report = import_postgres(url, target, cipher=serde.cipher, encryption=threadline.KeyRing({"1": bytes(range(32))}))
    assert report.is_complete
    with Checkpointer(target, encryption=threadline.KeyRing({"1": bytes(range(32))})) as saver:
        assert tuples_of(saver) == original(url, serde)


def test_pickles_are_refused_unread(url: str, target: Path, import_here: Callable[..., Any]) -> None:
    write_thread(url, JsonPlusSerializer(pickle_fallback=True), odd=object)
    assert "pickle" in import_here(url, "--to", target, status=1).stderr
    assert not target.exists()


@pytest.mark.parametrize(
    ("damage", "words"),
    [
        ("UPDATE checkpoint_blobs SET blob = substr(blob, 1, 40) WHERE thread_id = 'bad'", "undecodable bytes"),
        ("UPDATE checkpoint_writes SET type = NULL WHERE thread_id = 'bad'", "tagged None"),
        ("UPDATE checkpoints SET checkpoint = '[1]' WHERE thread_id = 'bad'", "hold no checkpoint"),
        (
            "UPDATE checkpoints SET checkpoint = checkpoint || '{\"channel_versions\": 5}' WHERE thread_id = 'bad'",
            "channel_versions",
        ),
        (
            "UPDATE checkpoints SET checkpoint = checkpoint || '{\"channel_values\": [1]}' WHERE thread_id = 'bad'",
            "channel_values",
        ),
        ("UPDATE checkpoints SET metadata = '7' WHERE thread_id = 'bad'", "its metadata is no JSON object"),
    ],
)
def test_a_damaged_row_is_named_and_the_rest_is_imported(
    url: str, target: Path, import_here: Callable[..., Any], damage: str, words: str
) -> None:
    for name in ("before", "bad", "later"):
        write_thread(url, thread_id=name)
    execute(url, damage)
    told = import_here(url, "--to", target, status=1)
    [line] = told.stderr.splitlines()
    assert "thread 'bad', checkpoint" in line
    assert words in line
    assert {thread for thread, _, _ in found_in(target)} == {"before", "later"}


@pytest.mark.parametrize(
    ("make", "words"),
    [
        ((), "holds no threads of langgraph-checkpoint-postgres"),
        (("CREATE TABLE checkpoints (id int)",), "search_path"),
        (("CREATE TABLE checkpoints (thread_id text, thread_ts text, checkpoint bytea)",), "from before"),
        (None, "is a Threadline store and holds no tables of LangGraph"),
    ],
)
def test_what_is_no_source_is_named_and_nothing_is_made(
    url: str, target: Path, import_here: Callable[..., Any], make: tuple[str, ...] | None, words: str
) -> None:
    if make is None:
        with threadline.connect(url) as saver:
            saver.setup()
    else:
        execute(url, *make)
    told = import_here(url, "--to", target, status=2)
    assert words in told.stderr
    assert (told.stdout, len(told.stderr.splitlines())) == ("", 1)
    assert not target.exists()


def test_a_role_that_may_not_read_is_told_which_rights_it_needs(postgres: Any, target: Path) -> None:
    write_thread(postgres.url)
    role = f"r_{uuid.uuid4().hex[:12]}"
    as_role = re.sub(r"//[^@]*@", f"//{role}:hunter2@", postgres.url)
    execute(
        postgres.url,
        f"CREATE ROLE {role} LOGIN PASSWORD 'hunter2'",
        f"GRANT USAGE ON SCHEMA {postgres.schema} TO {role}",
    )
    try:
        with pytest.raises(threadline.InvalidRequest, match="GRANT SELECT on checkpoints"):
            import_postgres(as_role, target)
        # A role that may only read is enough.
        execute(postgres.url, f"GRANT SELECT ON ALL TABLES IN SCHEMA {postgres.schema} TO {role}")
        assert import_postgres(as_role, target).checkpoints == Counts(copied=1)
    finally:
        execute(postgres.url, f"DROP OWNED BY {role}", f"DROP ROLE {role}")


def test_only_postgresql_is_read_by_that_name(tmp_path: Path) -> None:
    with pytest.raises(threadline.InvalidRequest, match="langgraph-checkpoint-postgres"):
        import_postgres(str(tmp_path / "old.db"), tmp_path / "new.db")


def test_a_source_cannot_be_written_to_and_holds_no_transaction_between_calls(url: str) -> None:
    write_thread(url)
    source = PostgresSource(url)
    try:
        [thread_id] = source.threads()
        source.checkpoints(thread_id, source.keys(thread_id))
        pid = source._connection.info.backend_pid
        [(state, snapshot)] = execute(
            url, ("SELECT state, backend_xmin::text FROM pg_stat_activity WHERE pid = %s", (pid,))
        )
        assert (state, snapshot) == ("idle", None)
        with pytest.raises(threadline.ReadOnly):
            source._rows("DELETE FROM checkpoints RETURNING 1")
    finally:
        source.close()
    assert execute(url, "SELECT count(*) FROM checkpoints") == [(1,)]


def test_a_batch_is_read_as_it_was_at_one_moment(url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    write_thread(url)
    source = PostgresSource(url)
    read = postgres_source._all
    statements: list[str] = []

    def read_and_delete(cursor: Any, statement: str, values: Any = ()) -> list[Any]:
        rows = read(cursor, statement, values)
        if not statements:
            with PostgresSaver.from_conn_string(url) as saver:
                saver.delete_thread("t")
        statements.append(statement)
        return rows

    keys = source.keys("t")
    monkeypatch.setattr(postgres_source, "_all", read_and_delete)
    [found] = source.checkpoints("t", keys)
    assert len(statements) > 1
    assert [blob.channel for blob in found.blobs or ()] == ["messages"]
    assert len(found.writes) == 2
    assert source.checkpoints("t", keys) == []
    source.close()


def test_a_blob_that_many_checkpoints_have_is_fetched_once(url: str) -> None:
    config = write_thread(url)
    with PostgresSaver.from_conn_string(url) as saver:
        head = saver.get_tuple(config)
        for step in range(4):
            checkpoint: Any = {**head.checkpoint, "id": threadline.empty_checkpoint()["id"]}
            config = saver.put(config, checkpoint, {"step": step}, {})
    source = PostgresSource(url)
    found = source.checkpoints("t", source.keys("t"))
    source.close()
    assert len(found) == 5
    assert len({id(blob) for one in found for blob in one.blobs or ()}) == 1
    assert all(len(one.blobs or ()) == 1 for one in found)


def test_a_row_that_was_damaged_after_its_import_is_named(url: str, target: Path) -> None:
    write_thread(url)
    assert import_postgres(url, target).is_complete
    execute(url, "UPDATE checkpoints SET checkpoint = checkpoint || '{\"channel_versions\": 5}'")
    [problem] = import_postgres(url, target).problems
    assert "channel_versions are no mapping" in problem
    assert len(found_in(target)) == 1


def test_a_pooler_in_transaction_mode_is_a_source_too(pgbouncer: Any, target: Path) -> None:
    if pgbouncer.server_url is None:
        pytest.skip("the tables are written past the pooler")
    write_thread(pgbouncer.server_url)
    assert import_postgres(pgbouncer.url, target).is_complete
    assert found_in(target) == original(pgbouncer.server_url)


def test_a_broken_connection_is_replaced(url: str) -> None:
    write_thread(url)
    source = PostgresSource(url)
    first = source._connection.info.backend_pid
    execute(url, ("SELECT pg_terminate_backend(%s, 10000)", (first,)))
    assert source.threads() == ["t"]
    assert source._connection.info.backend_pid != first
    source.close()


def test_a_source_without_its_driver_names_the_extra(target: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    import importlib.util

    find = importlib.util.find_spec
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None if name == "psycopg" else find(name))
    with pytest.raises(threadline.MissingExtra, match=r"threadline\[postgres\]"):
        import_postgres("postgresql://nobody@127.0.0.1:1/x", target)
    assert psycopg is not None
