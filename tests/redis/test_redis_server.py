"""What a server may do to us: die, forget our scripts, be full, evict, refuse, or hold something else."""

import asyncio
import logging
import os
import stat
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from itertools import chain

import lives
import pytest
from redis_tools import DURABLE, client_of, keys_of

import redis
import threadline
from threadline.errors import Corrupt, InvalidRequest, NewerFormat, StorageFull, Unavailable


@pytest.fixture
def own(servers):
    """A server of the test's own, durable."""
    return servers(*DURABLE)


def test_every_acknowledged_put_survives_kills_of_the_server(own):
    acknowledged = {name: -1 for name in ("alpha", "beta", "gamma")}
    failures, is_over = [], threading.Event()

    def write(name):
        saver = threadline.connect(own.url, retry=(8, 60.0))
        try:
            step = 0
            while not is_over.is_set():
                saver.put(*lives.put_arguments(name, step))
                saver.put_writes(*lives.write_arguments(name, step, "task-a"))
                acknowledged[name] = step
                step += 1
        except BaseException as error:
            failures.append(error)
        saver.close()

    writers = [threading.Thread(target=write, args=(name,)) for name in acknowledged]
    for writer in writers:
        writer.start()
    for _ in range(4):
        time.sleep(0.4)
        own.kill()
        own.start()
    time.sleep(0.5)
    is_over.set()
    for writer in writers:
        writer.join(90)
    assert not failures
    saver = threadline.connect(own.url)
    for name, last in acknowledged.items():
        found = list(saver.list(lives.config(name)))
        assert last > 3
        assert [lives.check(one, name) for one in found] == list(range(last, -1, -1))
        assert all(lives.check_writes(one.pending_writes, name, last - at) for at, one in enumerate(found))
    saver.close()


def test_what_a_server_lost_is_not_relied_on(own):
    """It is started anew from older files: chunks that were acknowledged are gone, the pool's epoch is the same."""
    saver = threadline.connect(own.url)
    saver.put(*lives.put_arguments("thread", 0))
    files = {path: path.read_bytes() for path in own.folder.rglob("*") if path.is_file() and path.name != "log"}
    for step in (1, 2):
        saver.put(*lives.put_arguments("thread", step))
    own.kill()
    for path in own.folder.rglob("*"):
        if path.is_file() and path.name != "log":
            path.unlink()
    for path, content in files.items():
        path.write_bytes(content)
    own.start()
    other = threadline.connect(own.url)  # whoever comes first teaches the server its scripts again
    other.put(*lives.put_arguments("another", 0))

    # The parent is gone, so that what only it held must be put again; what this put encoded itself is sent whole.
    config, made, metadata, _ = lives.put_arguments("thread", 3)
    saver.put(config, made, metadata, made["channel_versions"])

    other.clear_cache()
    assert lives.check(other.get_tuple(lives.config("thread")), "thread") == 3
    saver.close()
    other.close()


def test_scripts_flushed_under_load_are_loaded_again(connect, client, prefix):
    saver = connect()
    for step in range(12):
        client.script_flush()
        saver.put(*lives.put_arguments("thread", step))
        client.script_flush()
        assert lives.check(saver.get_tuple(lives.config("thread")), "thread") == step
    saver.prune(["thread"])
    assert [lives.check(found, "thread") for found in saver.list(lives.config("thread"))] == [11]


def test_a_full_server_says_so_keeps_what_it_has_and_can_be_emptied(servers):
    server = servers("--maxmemory", "3mb", "--maxmemory-policy", "noeviction", "--save", "", "--appendonly", "no")
    saver = threadline.connect(server.url)
    step = 0
    with pytest.raises(StorageFull):
        for step in range(5000):
            saver.put(*lives.put_arguments("thread", step))
    assert [lives.check(found, "thread") for found in saver.list(lives.config("thread"))] == list(
        range(step - 1, -1, -1)
    )
    saver.prune(["thread"])
    saver.put(*lives.put_arguments("thread", step))
    saver.delete_thread("thread")
    assert saver.get_tuple(lives.config("thread")) is None
    saver.close()


@pytest.mark.parametrize(
    ("policy", "options", "is_refused"),
    [
        ("allkeys-lru", {}, True),
        ("allkeys-random", {"ttl": 60}, True),
        ("volatile-lru", {"ttl": 60}, True),
        ("volatile-ttl", {"ttl": 60}, True),
        ("volatile-lru", {}, False),
        ("noeviction", {"ttl": 60}, False),
    ],
)
def test_a_policy_that_can_evict_part_of_a_thread_is_refused(own, policy, options, is_refused):
    client = client_of(own.url)
    client.config_set("maxmemory", "100mb")
    client.config_set("maxmemory-policy", policy)
    saver = threadline.connect(own.url, **options)
    if is_refused:
        with pytest.raises(InvalidRequest, match=rf"maxmemory-policy {policy}.*noeviction"):
            saver.setup()
        assert client.dbsize() == 0
    else:
        saver.setup()
    saver.close()


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        (("--appendonly", "no", "--save", ""), "keeps nothing on disk"),
        (("--appendonly", "no", "--save", "60 1"), "only takes snapshots"),
        (("--appendonly", "yes", "--appendfsync", "everysec"), "may lose the last second"),
    ],
)
def test_a_server_that_may_lose_puts_is_warned_of_once(servers, settings, words, caplog):
    server = servers(*settings)
    with caplog.at_level(logging.WARNING, "threadline"):
        saver = threadline.connect(server.url)
        for step in range(3):
            saver.put(*lives.put_arguments("thread", step))
        saver.close()
    assert [record.getMessage() for record in caplog.records if words in record.getMessage()] == [
        record.getMessage() for record in caplog.records
    ]
    assert len(caplog.records) == 1


def test_a_server_that_hides_its_settings_is_used_and_warned_of(own, caplog):
    client_of(own.url).execute_command(
        "ACL", "SETUSER", "app", "on", ">secret-word", "~threadline:*", "+@all", "-config"
    )
    saver = threadline.connect(own.url.replace("127.0.0.1", "app:secret-word@127.0.0.1"))
    with caplog.at_level(logging.WARNING, "threadline"):
        saver.put(*lives.put_arguments("thread", 0))
    assert "does not tell its settings" in caplog.text
    assert "secret-word" not in caplog.text + repr(saver)
    saver.close()


def test_a_wrong_password_and_a_forbidden_key_are_the_callers_fault_and_show_no_secret(own):
    client_of(own.url).execute_command("ACL", "SETUSER", "app", "on", ">secret-word", "~other:*", "+@all")
    address = own.url.removeprefix("redis://")
    for user, words in (("app:wrong-word", "refuses the user or password"), ("app:secret-word", "forbids")):
        saver = threadline.connect(f"redis://{user}@{address}", retry=None)
        with pytest.raises(InvalidRequest, match=words) as caught:
            saver.put(*lives.put_arguments("thread", 0))
        shown = "".join(map(str, (caught.value, repr(caught.value), saver, caught.value.__cause__)))
        assert "-word" not in shown
        saver.close()


def test_no_server_is_unavailable_after_the_tries():
    saver = threadline.connect("redis://:secret-word@127.0.0.1:1", retry=2)
    with pytest.raises(Unavailable, match=r"cannot reach redis://127\.0\.0\.1:1") as caught:
        saver.get_tuple(lives.config("thread"))
    assert "secret-word" not in str(caught.value)
    saver.close()


@pytest.mark.parametrize("bad", ["redis://host:port", "redis://[::1", "redis://h:99999999/0"])
def test_a_url_that_is_none_is_refused_without_its_password(bad):
    with pytest.raises(InvalidRequest) as caught:
        threadline.connect(bad.replace("://", "://:secret-word@")).get_tuple(lives.config("thread"))
    assert "secret-word" not in str(caught.value)


def test_a_newer_format_damage_and_foreign_keys_are_told_apart(connect, client, prefix):
    connect().setup()
    client.hset(f"{prefix}:meta", "format", "99")
    with pytest.raises(NewerFormat, match="format 99"):
        connect().put(*lives.put_arguments("thread", 0))
    client.hset(f"{prefix}:meta", "format", "many")
    with pytest.raises(Corrupt):
        connect().put(*lives.put_arguments("thread", 0))
    client.delete(f"{prefix}:meta")
    client.set(f"{prefix}:meta", "a string")
    with pytest.raises(InvalidRequest, match="something else"):
        connect().put(*lives.put_arguments("thread", 0))
    client.delete(f"{prefix}:meta")
    client.set(f"{prefix}:threads", "a string")
    with pytest.raises(InvalidRequest, match="something else"):
        connect().put(*lives.put_arguments("thread", 0))


def test_setup_false_creates_nothing(connect, client, prefix):
    for options in ({"setup": False}, {"read_only": True}):
        with pytest.raises(InvalidRequest, match="setup"):
            connect(**options).get_tuple(lives.config("thread"))
    assert keys_of(client, prefix) == []
    connect(setup=False).setup()
    assert connect(setup=False).get_tuple(lives.config("thread")) is None
    with pytest.raises(threadline.ReadOnly):
        connect(read_only=True).put(*lives.put_arguments("thread", 0))


def test_chunks_that_are_gone_are_corrupt_and_never_another_value(connect, client, prefix):
    saver = connect(cache_bytes=0)
    saver.put(*lives.put_arguments("thread", 0))
    [chunks] = [key for key in keys_of(client, prefix) if key.endswith(b":chunks")]
    client.delete(chunks)
    with pytest.raises(Corrupt):
        connect().get_tuple(lives.config("thread"))


def test_a_client_and_a_pool_are_too_much():
    with pytest.raises(InvalidRequest, match="not both"):
        threadline.connect(connection=redis.Redis(), pool=redis.ConnectionPool())


def test_a_given_client_is_used_and_left_open(redis_url):
    client = redis.Redis.from_url(redis_url)
    saver = threadline.connect(connection=client, key_prefix="given")
    saver.put(*lives.put_arguments("thread", 0))
    saver.close()
    assert client.ping()
    for key in keys_of(client, "given"):
        client.delete(key)
    with pytest.raises(InvalidRequest, match="decode_responses"):
        threadline.connect(connection=redis.Redis.from_url(redis_url, decode_responses=True))
    client.close()


def test_a_forked_child_opens_its_own_connections(connect):
    saver = connect()
    saver.put(*lives.put_arguments("thread", 0))
    pid = os.fork()
    if pid == 0:
        try:
            saver.put(*lives.put_arguments("thread", 1))
            os._exit(0)
        except BaseException:
            os._exit(1)
    assert lives.check(saver.get_tuple(lives.config("thread")), "thread") in (0, 1)
    assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0
    assert lives.check(saver.get_tuple(lives.config("thread")), "thread") == 1
    saver.put(*lives.put_arguments("thread", 2))


def test_calls_that_need_several_nodes_never_wait_for_each_other(connect):
    """Each node has one connection: calls that took them in different orders would wait for ever."""
    saver = connect(pool_size=1, timeout=5.0, retry=None)
    letters = "abcdefgh"
    names = {letter: [f"{letter}-{number}" for number in range(4)] for letter in letters}
    for name in chain.from_iterable(names.values()):
        saver.put(*lives.put_arguments(name, 0))

    def look(letter):
        return [[info.thread_id for info in saver.threads(prefix=letter)] for _ in range(20)]

    with ThreadPoolExecutor(8) as threads:
        assert list(threads.map(look, letters)) == [[names[letter]] * 20 for letter in letters]


def test_more_os_threads_than_connections_wait_their_turn(connect):
    saver = connect(pool_size=2)

    def write(number):
        saver.put(*lives.put_arguments(f"thread-{number}", 0))
        return lives.check(saver.get_tuple(lives.config(f"thread-{number}")), f"thread-{number}")

    with ThreadPoolExecutor(24) as threads:
        assert list(threads.map(write, range(24))) == [0] * 24


def test_more_tasks_than_connections_wait_their_turn(connect):
    saver = connect(pool_size=2)

    async def write(number):
        await saver.aput(*lives.put_arguments(f"thread-{number}", 0))
        return lives.check(await saver.aget_tuple(lives.config(f"thread-{number}")), f"thread-{number}")

    async def all_of_them():
        found = await asyncio.gather(*(write(number) for number in range(24)))
        await saver.aclose()
        return found

    assert asyncio.run(all_of_them()) == [0] * 24


def test_no_cluster_is_unavailable_in_both_halves():
    saver = threadline.connect("redis+cluster://:secret-word@127.0.0.1:1", retry=None)
    with pytest.raises(Unavailable) as caught:
        saver.get_tuple(lives.config("thread"))
    assert "secret-word" not in str(caught.value)
    with pytest.raises(Unavailable):
        asyncio.run(saver.aget_tuple(lives.config("thread")))
    saver.close()


def test_a_saver_that_an_ended_loop_has_used_is_closed_on_another_one_without_a_complaint(connect, caplog):
    saver = connect()
    asyncio.run(saver.aput(*lives.put_arguments("thread", 0)))

    async def close():
        saver.close()
        await asyncio.sleep(0.05)

    asyncio.run(close())
    assert not [record for record in caplog.records if record.name == "asyncio"]


def is_socket(descriptor):
    try:
        return stat.S_ISSOCK(os.fstat(descriptor).st_mode)
    except OSError:
        return False


def test_a_saver_that_is_closed_from_another_thread_leaves_no_connection_of_a_running_loop(connect):
    def sockets():
        return {(fd, os.fstat(fd).st_ino) for fd in range(1024) if is_socket(fd)}

    async def use():
        saver, before = connect(), sockets()
        await saver.aput(*lives.put_arguments("thread", 0))
        opened = sockets() - before
        assert opened
        await asyncio.to_thread(saver.close)
        for _ in range(100):
            await asyncio.sleep(0.02)
            if not opened & sockets():
                return
        pytest.fail("connections are still open")

    asyncio.run(use())
