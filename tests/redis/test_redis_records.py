"""Records on a server that lost everything: the format of the store is there again before the first record is."""

import asyncio

import lives
import pytest
from redis_tools import client_of

import threadline
from tests.servers import RedisCluster, RedisServer
from tests.servers.plugin import require_programs
from threadline.base.drive import run_now
from threadline.ports.records import Record, RecordChange, RecordSpace

NAMES = [b"one\0", b"two\0"]


def flush(nodes):
    """Connections stay open, and the server keeps its scripts."""
    for node in nodes:
        assert node.ask("FLUSHDB").startswith("+OK")


def restart(nodes):
    """Without an append-only file nothing is left."""
    for node in nodes:
        node.stop_hard()
    for node in nodes:
        node.start()


@pytest.fixture(scope="module", params=["single", "cluster"])
def forgetful(request):
    """A server or cluster that keeps nothing on disk, with its nodes."""
    require_programs("redis")
    server = RedisServer() if request.param == "single" else RedisCluster()
    nodes = [server] if request.param == "single" else server.nodes
    for node in nodes:
        node.settings["appendonly"] = "no"
    with server:
        yield server, nodes


@pytest.fixture
def saver(forgetful):
    with threadline.connect(forgetful[0].url, retry=(8, 60.0)) as opened:
        yield opened
    flush(forgetful[1])


@pytest.fixture(params=["sync", "async"])
def run(request):
    """Runs an operation of a saver's engine through one half."""
    if request.param == "sync":
        yield lambda saver, operation: saver._engine.run(operation)
        return
    loop = asyncio.new_event_loop()
    yield lambda saver, operation: loop.run_until_complete(saver._engine.arun(operation))
    loop.close()


def writing(value, names=NAMES, if_version=None):
    changes = [
        RecordChange(RecordSpace.ITEM, name, Record(name, 0, value, None, 1.0, 1.0, None, 0), if_version=if_version)
        for name in names
    ]
    return lambda backend: backend.write_records(changes)


def values(backend):
    async def read():
        return [one and (one.value, one.version) for one in await backend.read_records(RecordSpace.ITEM, NAMES)]

    return read()


@pytest.mark.parametrize("lose", [restart, flush])
def test_a_record_written_after_a_loss_is_in_a_store_that_others_can_open(saver, forgetful, run, lose):
    server, nodes = forgetful
    assert run(saver, writing(b"before")) is None
    assert run(saver, writing(b"again", if_version=1)) is None
    lose(nodes)
    assert run(saver, values) == [None, None]
    assert run(saver, writing(b"after")) is None
    with threadline.connect(server.url, setup=False) as other:
        assert run(other, values) == [(b"after", 1), (b"after", 1)]
        other.put(*lives.put_arguments("thread", 0))
        assert lives.check(saver.get_tuple(lives.config("thread")), "thread") == 0
    client = client_of(server.url)
    assert int(client.hget("threadline:meta", "format")) == 1
    client.close()


@pytest.mark.parametrize("lose", [restart, flush])
def test_a_condition_that_a_loss_has_broken_refuses_all(saver, forgetful, run, lose):
    assert run(saver, writing(b"before")) is None
    lose(forgetful[1])
    assert run(saver, writing(b"after", if_version=1)) == 0
    assert run(saver, values) == [None, None]
    assert run(saver, writing(b"first", if_version=0)) is None
    assert run(saver, values) == [(b"first", 1), (b"first", 1)]


@pytest.mark.parametrize("lose", [restart, flush])
def test_a_lost_store_that_must_not_be_created_gets_no_record(saver, forgetful, run, lose):
    server, nodes = forgetful
    saver.setup()
    with threadline.connect(server.url, setup=False, retry=(8, 60.0)) as strict:
        assert run(strict, writing(b"before")) is None
        lose(nodes)
        with pytest.raises(threadline.InvalidRequest, match="setup"):
            run(strict, writing(b"after"))
    client = client_of(server.url)
    assert list(client.scan_iter(match="*")) == []
    client.close()


def test_a_newer_format_that_took_the_place_of_a_lost_store_is_refused(saver, forgetful, run):
    server, nodes = forgetful
    assert run(saver, writing(b"before")) is None
    flush(nodes)
    client = client_of(server.url)
    client.hset("threadline:meta", "format", "99")
    with pytest.raises(threadline.NewerFormat, match="format 99"):
        run(saver, writing(b"after"))
    assert run(saver, values) == [None, None]
    client.close()


def test_one_record_is_one_way_to_a_server(saver, forgetful):
    trips = []
    run_on = saver._engine.run
    assert run_on(writing(b"value")) is None
    link = saver._engine.blocking_half().link

    def noting(name, inner):
        def noted(*args, **options):
            trips.append(name)
            return inner(*args, **options)

        return noted

    for name in ("call", "calls", "command", "batch", "exchange"):
        setattr(link, name, noting(name, getattr(link, name)))
    [found] = run_on(lambda backend: backend.read_records(RecordSpace.ITEM, NAMES[:1]))
    assert (found.value, found.version) == (b"value", 1)
    assert run_on(writing(b"again", NAMES[:1])) is None
    assert trips == ["call" if link.is_cluster else "exchange", "call"]


def test_an_error_among_answers_leaves_none_of_them_unread(forgetful):
    server, nodes = forgetful
    if len(nodes) > 1:
        pytest.skip("a cluster is asked by its client")
    with threadline.connect(server.url) as saver:
        saver.setup()
        link = saver._engine.blocking_half().link
        wrong, right = (b"ZSCORE", b"threadline:meta", b"x"), (b"HGET", b"threadline:meta", b"format")
        for commands in ((wrong, right), (right, wrong)):
            with pytest.raises(threadline.ThreadlineError, match="holds something else"):
                run_now(link.exchange(*commands))
            assert run_now(link.exchange(right, right)) == [b"1", b"1"]
