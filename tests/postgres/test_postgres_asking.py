"""One prepared statement, asked and answered at once: quick or late, large, refused, lost, interrupted."""

import signal
import time

import psycopg
import pytest

from threadline.backends.postgres.wire import Statement
from threadline.base.drive import run_now
from threadline.errors import InvalidRequest, Unavailable

SLEEP = Statement("SELECT 'slept', pg_sleep($1::float8)::text")
ECHO = Statement("SELECT $1::bytea")
DIVIDE = Statement("SELECT (1 / $1::bigint)::bigint")


class Struck(BaseException):
    pass


@pytest.fixture
def engine(connect):
    return connect(retry=None, pool_size=1)._engine


@pytest.fixture
def ask(engine):
    """Asks a statement that is prepared by now; every use is on one connection, as long as it is kept."""

    def ask(statement, value, first):
        async def act(session):
            if first is not None:
                await session.ask(statement, [first])
            assert first is None or statement.name in session._memory.prepared
            return await session.ask(statement, [value])

        return run_now(engine.lent(engine.blocking, act))

    return ask


def backend_of(engine):
    async def act(session):
        return session.connection.info.backend_pid

    return run_now(engine.lent(engine.blocking, act))


@pytest.mark.parametrize("seconds", [0.0, 0.01, 0.2])
def test_an_answer_comes_however_late_it_is(ask, seconds):
    assert ask(SLEEP, seconds, 0.0) == [("slept", "")]


def test_what_is_larger_than_the_buffers_of_the_way_is_sent_and_read_whole(ask):
    large = bytes(range(256)) * 100_000
    assert ask(ECHO, large, b"") == [(large,)]


def test_what_the_server_refuses_is_raised_and_the_connection_kept(ask, engine):
    before = backend_of(engine)
    with pytest.raises(InvalidRequest, match="division by zero"):
        ask(DIVIDE, 0, 1)
    assert ask(DIVIDE, 1, None) == [(1,)]
    assert backend_of(engine) == before


def test_a_server_that_ends_the_connection_meanwhile_says_why(ask, engine, postgres_url):
    generation = engine.identity.generation
    ending = Statement("SELECT pg_terminate_backend(pg_backend_pid())::text || $1::text")
    with pytest.raises((Unavailable, InvalidRequest)):

        async def act(session):
            session._memory.prepared.add(ending.name)
            session.connection.pgconn.prepare(ending.name, ending.text)
            return await session.ask(ending, [""])

        run_now(engine.lent(engine.blocking, act))
    assert engine.identity.generation > generation
    assert ask(SLEEP, 0.0, 0.0) == [("slept", "")]


@pytest.mark.parametrize("after_seconds", [0.02, 0.3])
def test_an_interrupt_stops_the_statement_at_the_server_and_closes_the_connection(
    ask, engine, postgres_url, after_seconds
):
    before = backend_of(engine)

    def strike(number, frame):
        raise Struck

    former = signal.signal(signal.SIGALRM, strike)
    try:
        with pytest.raises(Struck):
            ask(SLEEP, 0.0, 0.0)
            signal.setitimer(signal.ITIMER_REAL, after_seconds)
            ask(SLEEP, 60.0, None)
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, former)
    with psycopg.connect(postgres_url, autocommit=True) as other:
        deadline = time.monotonic() + 10
        while other.execute("SELECT 1 FROM pg_stat_activity WHERE pid = %s", (before,)).fetchone():
            assert time.monotonic() < deadline, "the server goes on with a statement that nobody waits for"
            time.sleep(0.01)
    assert ask(SLEEP, 0.0, 0.0) == [("slept", "")]
    assert backend_of(engine) != before
