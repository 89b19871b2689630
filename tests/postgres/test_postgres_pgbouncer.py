"""Through a real PgBouncer in transaction mode, where each transaction may get another server connection."""

import asyncio
import os
import shutil
import socket
import subprocess
import time
from concurrent.futures import ThreadPoolExecutor

import psycopg
import pytest
from late_flush import LateFlush
from psycopg.conninfo import conninfo_to_dict

import threadline
from threadline.testing import CONTRACT, Store, run_promise
from threadline.testing.making import checkpoint, place

SOME = [
    promise
    for promise in CONTRACT
    if any(word in promise.__name__ for word in ("reader", "deleted", "copy", "prune", "lease", "odd", "together"))
]


@pytest.fixture(scope="module")
def bouncer_url(postgres_url, tmp_path_factory):
    program = shutil.which("pgbouncer") or shutil.which("pgbouncer", path="/usr/sbin")
    if program is None:
        pytest.skip("no pgbouncer")
    parts = conninfo_to_dict(postgres_url)
    host, port = parts.get("host", "127.0.0.1"), parts.get("port", "5432")
    user, database = parts.get("user", "postgres"), parts.get("dbname", "postgres")
    with socket.create_server(("127.0.0.1", 0)) as free:
        own_port = free.getsockname()[1]
    folder = tmp_path_factory.mktemp("pgbouncer")
    users, settings = folder / "users.txt", folder / "pgbouncer.ini"
    users.write_text(f'"{user}" "{parts.get("password", "")}"\n')
    settings.write_text(
        f"[databases]\n{database} = host={host} port={port} dbname={database}\n"
        f"[pgbouncer]\nlisten_addr = 127.0.0.1\nlisten_port = {own_port}\nunix_socket_dir =\nauth_type = trust\n"
        f"auth_file = {users}\npool_mode = transaction\ndefault_pool_size = 3\nmax_client_conn = 200\n"
        f"query_wait_timeout = 10\n"
    )
    for path in (users, settings):
        path.chmod(0o644)
    folder.chmod(0o755)
    command = [program, "-q", str(settings)]
    if os.geteuid() == 0:
        # It refuses to run as root, and must be able to reach its own files.
        for above in folder.parents:
            if str(above).startswith("/tmp/"):
                above.chmod(0o755)
        command[1:1] = ["-u", "nobody"]
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE)
    url = f"postgresql://{user}@127.0.0.1:{own_port}/{database}"
    try:
        for _ in range(100):
            try:
                psycopg.connect(url, connect_timeout=2).close()
                break
            except psycopg.OperationalError:
                if process.poll() is not None:
                    pytest.fail(process.stderr.read().decode()[-2000:])
                time.sleep(0.1)
        yield url
    finally:
        process.terminate()
        process.wait(10)


@pytest.mark.parametrize("half", ["sync", "async"])
@pytest.mark.parametrize("promise", SOME, ids=lambda promise: promise.__name__[5:])
def test_the_contract_is_kept(promise, half, bouncer_url, schema):
    def connect(**options):
        return threadline.connect(bouncer_url, schema=schema, pool_size=4, prepare_threshold=None, **options)

    run_promise(promise, Store(connect=connect), is_async=half == "async")


def arguments(at, step):
    made = checkpoint({"messages": [f"message {n} " * 20 for n in range(step)]}, {"messages": step})
    return at, made, {"source": "loop", "step": step}, {"messages": step}


def test_more_clients_than_server_connections_write_at_once(bouncer_url, schema):
    saver = threadline.connect(bouncer_url, schema=schema, pool_size=8, prepare_threshold=None, tenant="acme")
    saver.setup()

    def write(n):
        at = place(f"t{n}")
        for step in range(1, 15):
            at = saver.put(*arguments(at, step))
        return len(saver.get(place(f"t{n}"))["channel_values"]["messages"])

    with ThreadPoolExecutor(8) as threads:
        assert list(threads.map(write, range(8))) == [14] * 8

    async def awrite(n):
        at = place(f"a{n}")
        for step in range(1, 15):
            at = await saver.aput(*arguments(at, step))
        return len((await saver.aget(place(f"a{n}")))["channel_values"]["messages"])

    async def all_at_once():
        found = await asyncio.gather(*[awrite(n) for n in range(8)])
        await saver.aclose()
        return found

    assert asyncio.run(all_at_once()) == [14] * 8


def test_puts_and_gets_find_out_that_a_pooler_forgets_what_was_prepared(bouncer_url, schema):
    """Their statements are prepared from the first use on; each transaction may be another session's."""
    setting_up = threadline.connect(bouncer_url, schema=schema, prepare_threshold=None)
    setting_up.setup()
    setting_up.close()
    saver = threadline.connect(bouncer_url, schema=schema, pool_size=8, setup=False)

    def write(n):
        at = place(f"t{n}")
        for step in range(1, 10):
            at = saver.put(*arguments(at, step))
            assert len(saver.get(at)["channel_values"]["messages"]) == step
        return len(saver.get(place(f"t{n}"))["channel_values"]["messages"])

    with ThreadPoolExecutor(8) as threads:
        assert list(threads.map(write, range(8))) == [9] * 8
    saver.close()


@pytest.fixture
def late_flush(bouncer_url):
    parts = conninfo_to_dict(bouncer_url)
    proxy = LateFlush(parts["host"], int(parts["port"]))
    yield proxy
    proxy.close()


@pytest.fixture
def late_saver(late_flush, bouncer_url, schema):
    """Its clients are more than the server connections, and nothing is tried again."""
    parts = conninfo_to_dict(bouncer_url)
    url = f"postgresql://{parts['user']}@127.0.0.1:{late_flush.port}/{parts['dbname']}?sslmode=disable"
    saver = threadline.connect(url, schema=schema, pool_size=8, prepare_threshold=None, tenant="acme", retry=None)
    saver.setup()
    yield saver
    saver.close()


def test_no_message_after_the_last_sync_pins_a_server_connection(late_saver, late_flush):
    """PgBouncer gives a client a server connection for a Flush that arrives alone, and never takes it back."""

    def write(n):
        at = place(f"t{n}")
        for step in range(1, 6):
            at = late_saver.put(*arguments(at, step))
        return len(late_saver.get(place(f"t{n}"))["channel_values"]["messages"])

    with ThreadPoolExecutor(8) as threads:
        assert list(threads.map(write, range(8))) == [5] * 8
    assert late_flush.flushes == 0


def test_no_message_after_the_last_sync_of_an_async_put_pins_a_server_connection(late_saver, late_flush):
    async def write(n):
        at = place(f"t{n}")
        for step in range(1, 6):
            at = await late_saver.aput(*arguments(at, step))
        return len((await late_saver.aget(place(f"t{n}")))["channel_values"]["messages"])

    async def all_at_once():
        found = await asyncio.gather(*[write(n) for n in range(8)])
        await late_saver.aclose()
        return found

    assert asyncio.run(all_at_once()) == [5] * 8
    assert late_flush.flushes == 0
