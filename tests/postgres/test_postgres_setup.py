"""Tables: who makes them, what is said when they are missing, how they look."""

import logging
import multiprocessing
from concurrent.futures import ThreadPoolExecutor

import psycopg
import pytest

import threadline
from threadline import InvalidRequest, NewerFormat
from threadline.testing.making import checkpoint, place


def put(saver, thread="t", **values):
    made = checkpoint(values or {"messages": ["a"]})
    return saver.put(place(thread), made, {"source": "input", "step": -1}, made["channel_versions"])


def tables_of(admin, schema):
    rows = admin.execute("SELECT tablename FROM pg_tables WHERE schemaname = %s", (schema,)).fetchall()
    return {name for (name,) in rows}


def _open_and_put(url, schema, name, gate, answers):
    gate.wait(60)
    try:
        saver = threadline.connect(url, schema=schema, pool_size=1)
        put(saver, name)
        found = saver.get(place(name))["channel_values"]
        saver.close()
        answers.put(found)
    except BaseException as error:
        answers.put(repr(error))


def test_twenty_processes_set_up_at_once(postgres_url, schema, admin):
    admin.execute(f'DROP SCHEMA "{schema}"')
    spawning = multiprocessing.get_context("fork")
    gate, answers = spawning.Barrier(20), spawning.Queue()
    processes = [
        spawning.Process(target=_open_and_put, args=(postgres_url, schema, f"t{n}", gate, answers)) for n in range(20)
    ]
    for process in processes:
        process.start()
    found = [answers.get(timeout=120) for _ in processes]
    for process in processes:
        process.join(30)
    assert found == [{"messages": ["a"]}] * 20
    assert admin.execute(f'SELECT count(*) FROM "{schema}".threadline_threads').fetchone() == (20,)


def test_who_waited_for_another_to_make_the_tables_finds_them(postgres_url, schema, admin):
    """Nothing but the search path names the schema, so nothing makes the session look at the catalog anew."""
    url = f"{postgres_url}?options=-csearch_path%3D{schema}"
    savers = [threadline.connect(url, pool_size=1) for _ in range(8)]
    with ThreadPoolExecutor(8) as threads:
        for one in [threads.submit(put, saver, f"t{number}") for number, saver in enumerate(savers)]:
            one.result(timeout=60)
    for saver in savers:
        saver.close()
    assert admin.execute(f'SELECT count(*) FROM "{schema}".threadline_threads').fetchone() == (8,)


def test_without_setup_missing_tables_are_named_with_the_fix(connect, admin, schema):
    with pytest.raises(InvalidRequest, match=r"no Threadline tables.*setup\(\)"):
        connect(setup=False).get_tuple(place("t"))
    assert tables_of(admin, schema) == set()
    saver = connect(setup=False)
    saver.setup()
    put(saver)
    saver.setup()
    assert saver.get(place("t")) is not None


def test_a_reader_makes_no_tables(connect, admin, schema):
    with pytest.raises(InvalidRequest):
        connect(read_only=True).get_tuple(place("t"))
    assert tables_of(admin, schema) == set()


def test_a_newer_format_is_refused(connect, admin):
    put(connect())
    admin.execute("UPDATE threadline_meta SET value = '99' WHERE name = 'format'")
    with pytest.raises(NewerFormat, match="99"):
        connect().get_tuple(place("t"))
    with pytest.raises(NewerFormat, match="99"):
        connect().setup()


def test_a_damaged_format_is_said(connect, admin):
    put(connect())
    admin.execute("UPDATE threadline_meta SET value = 'x' WHERE name = 'format'")
    with pytest.raises(threadline.Corrupt):
        connect().get_tuple(place("t"))


def test_tables_dropped_under_a_saver_are_named_with_the_fix(connect, admin):
    saver = connect()
    put(saver)
    admin.execute("DROP TABLE threadline_threads")
    with pytest.raises(InvalidRequest, match=r"setup\(\)"):
        saver.get_tuple(place("t"))


def test_the_printed_statements_make_a_store_that_works(connect, admin, schema):
    text = connect()._engine.ddl()
    for statement in text.split(";\n"):
        if statement:
            admin.execute(statement)
    saver = connect(setup=False)
    put(saver)
    assert saver.get(place("t"))["channel_values"] == {"messages": ["a"]}


def test_a_role_that_may_only_read_and_write_uses_tables_that_are_there(connect, admin, schema, role, as_role):
    put(connect())
    admin.execute(f'GRANT USAGE ON SCHEMA "{schema}" TO {role}')
    admin.execute(f'GRANT SELECT, INSERT, UPDATE, DELETE ON ALL TABLES IN SCHEMA "{schema}" TO {role}')
    saver = threadline.connect(as_role, schema=schema)
    put(saver, "u")
    assert saver.get(place("u")) is not None
    saver.delete_thread("t")
    assert saver.count_threads() == 1
    saver.close()


def test_a_role_without_rights_is_told_which_it_lacks(connect, admin, schema, role, as_role):
    saver = threadline.connect(as_role, schema=schema)
    with pytest.raises(InvalidRequest, match="GRANT") as refused:
        put(saver)
    assert "hunter2" not in str(refused.value)
    put(connect())
    admin.execute(f'GRANT USAGE ON SCHEMA "{schema}" TO {role}')
    with pytest.raises(InvalidRequest, match="GRANT"):
        put(saver)
    admin.execute(f'GRANT SELECT ON ALL TABLES IN SCHEMA "{schema}" TO {role}')
    assert saver.get_tuple(place("t")) is not None
    with pytest.raises(InvalidRequest, match="GRANT"):
        put(saver)
    saver.close()


def test_partitions_hold_everything(connect, admin, schema):
    saver = connect(partitions=4)
    for number in range(12):
        put(saver, f"t{number}", messages=[f"m{n}" * 40 for n in range(30)])
        saver.put_writes(place(f"t{number}", "1"), [("x", 1)], "task")
    assert {f"threadline_chunks_{n}" for n in range(4)} <= tables_of(admin, schema)
    filled = [admin.execute(f"SELECT count(*) > 0 FROM threadline_checkpoints_{n}").fetchone()[0] for n in range(4)]
    assert filled.count(True) >= 2
    assert admin.execute("SELECT count(*) FROM threadline_checkpoints").fetchone() == (12,)
    other = connect()
    assert other.get(place("t7"))["channel_values"]["messages"][29] == "m29" * 40
    assert other.stats().threads == 12
    for number in range(12):
        other.delete_thread(f"t{number}")
    assert admin.execute("SELECT count(*) FROM threadline_chunks").fetchone() == (0,)


def test_stored_bytes_are_not_compressed_again(connect, admin):
    connect().setup()
    kept = admin.execute(
        "SELECT DISTINCT attstorage::text FROM pg_attribute WHERE attrelid = 'threadline_chunks'::regclass "
        "AND attname = 'data'"
    ).fetchall()
    assert kept == [("e",)]


def test_a_schema_and_a_prefix_keep_stores_apart(connect, admin, schema):
    one, two = connect(table_prefix="one_"), connect(table_prefix="Two_")
    put(one, "t", messages=["one"])
    put(two, "t", messages=["two"])
    assert one.get(place("t"))["channel_values"] == {"messages": ["one"]}
    assert two.get(place("t"))["channel_values"] == {"messages": ["two"]}
    assert {name.partition("_")[0] for name in tables_of(admin, schema)} == {"one", "two"}
    public = admin.execute("SELECT count(*) FROM pg_tables WHERE schemaname = 'public' AND tablename LIKE 'one%'")
    assert public.fetchone() == (0,)


def test_without_a_schema_the_search_path_decides(postgres_url, admin, schema):
    saver = threadline.connect(f"{postgres_url}?options=-csearch_path%3D{schema}")
    put(saver)
    saver.close()
    assert "threadline_meta" in tables_of(admin, schema)


@pytest.mark.parametrize("name", ['a"b', "a.b", "a b", "1a", "x" * 64, "a;b", "ä"])
def test_a_schema_that_needs_escapes_is_refused(name, postgres_url):
    with pytest.raises(InvalidRequest, match="schema"):
        threadline.connect(postgres_url, schema=name)


@pytest.mark.parametrize("prefix", ["a b", "x; DROP TABLE y", "1a", "a.b", 'a"'])
def test_a_prefix_that_needs_escapes_is_refused(prefix, postgres_url):
    with pytest.raises(InvalidRequest, match="table_prefix"):
        threadline.connect(postgres_url, table_prefix=prefix)


def test_threads_of_the_other_saver_do_not_seem_lost(postgres_url, admin, schema, caplog):
    for name in ("checkpoints", "checkpoint_blobs", "checkpoint_writes"):
        admin.execute(f"CREATE TABLE {name} (thread_id text)")
    url = f"{postgres_url}?options=-csearch_path%3D{schema}"
    with caplog.at_level(logging.WARNING, "threadline"):
        with threadline.connect(url) as saver:
            assert caplog.records == []
        admin.execute("INSERT INTO checkpoints VALUES ('t')")
        with threadline.connect(url) as saver:
            assert "threadline import" in caplog.text
            put(saver)
        caplog.clear()
        with threadline.connect(url):
            assert caplog.records == []


def test_the_tables_of_somebody_else_are_named(connect, admin):
    admin.execute("CREATE TABLE threadline_meta (id int)")
    with pytest.raises(InvalidRequest, match="table_prefix"):
        connect().get_tuple(place("t"))


def test_a_reader_of_a_store_reads_and_writes_nothing(connect):
    put(connect())
    reader = connect(read_only=True)
    assert reader.get_tuple(place("t")) is not None
    with pytest.raises(threadline.ReadOnly):
        put(reader)
    with pytest.raises(threadline.ReadOnly):
        reader.delete_thread("t")


def test_a_server_that_only_reads_is_named(postgres_url, connect, schema):
    put(connect())
    with psycopg.connect(postgres_url, autocommit=True) as given:
        given.execute("SET default_transaction_read_only = on")
        saver = threadline.connect(connection=given, schema=schema)
        assert saver.get_tuple(place("t")) is not None
        with pytest.raises(threadline.ReadOnly):
            put(saver)


def test_another_default_isolation_changes_nothing(postgres_url, connect, schema):
    at = put(connect())
    with psycopg.connect(postgres_url, autocommit=True) as given:
        given.execute("SET default_transaction_isolation = 'serializable'")
        saver = threadline.connect(connection=given, schema=schema)
        assert saver.get_tuple(place("t")) is not None
        made = checkpoint({"messages": ["a", "b"]}, {"messages": 2})
        saver.put(at, made, {"source": "loop", "step": 0}, {"messages": 2})
    assert connect().get(place("t"))["channel_values"] == {"messages": ["a", "b"]}
