"""Connections that threads lend: an interrupt at any line leaves all of them lendable, and none at two places."""

import pytest
from test_durability_places import interrupted_at, lines_of

import redis
from threadline.backends.lending import Pool
from threadline.backends.redis.wire import Link, Turn, TurnDriver, TurnPool
from threadline.backends.server import ServerIdentity
from threadline.base.drive import run_now
from threadline.errors import Unavailable


class Line:
    """A connection that knows whether it is open, and in the middle of something."""

    def __init__(self, **_):
        self.is_open, self.is_busy = True, False

    def connect(self):
        self.is_open = True

    def disconnect(self):
        self.is_open = self.is_busy = False

    def can_read(self):
        return False

    def should_reconnect(self):
        return False


class Driver:
    def __init__(self):
        self.made = []

    async def connect(self):
        self.made.append(Line())
        return self.made[-1]

    def is_good(self, line, idle_seconds):
        return line.is_open

    def is_reusable(self, line, error):
        return error is None

    def close(self, line):
        line.disconnect()

    async def part(self, line):
        line.disconnect()


async def work(line):
    assert line.is_open
    assert not line.is_busy
    line.is_busy = True
    line.is_busy = False


def of_pool(*names):
    return [line for name in names for line in lines_of(getattr(Pool, name))]


POOL_LINES = of_pool("lend", "_take", "_give_back", "_drop", "_removed")
NAMES = [f"{code.co_name}:{text[:40]}" for code, _, text in POOL_LINES]


@pytest.mark.parametrize("is_idle", [False, True], ids=["opened", "idle"])
@pytest.mark.parametrize(("code", "line", "text"), POOL_LINES, ids=NAMES)
def test_an_interrupt_at_any_line_leaves_all_connections_lendable(code, line, text, is_idle):
    driver = Driver()
    pool = Pool(driver, 2, 1.0, lambda: Unavailable("all in use"))
    if is_idle:
        run_now(pool.lend(work))
    interrupted_at(code, line, lambda: run_now(pool.lend(work)))
    assert not pool._places.door.locked()
    assert pool._places._inside == set()
    resting = [resting.connection for resting in pool._idle]
    assert len(resting) == len(set(map(id, resting))) <= 1
    assert all(one.is_open and not one.is_busy for one in resting)

    async def another(line):
        await pool.lend(work)

    run_now(pool.lend(another))


NOW_LINES = of_pool("lend_now", "_take", "_give_back")


@pytest.mark.parametrize("is_idle", [False, True], ids=["opened", "idle"])
@pytest.mark.parametrize(
    ("code", "line", "text"), NOW_LINES, ids=[f"{code.co_name}:{text[:40]}" for code, _, text in NOW_LINES]
)
def test_an_interrupt_at_any_line_without_a_coroutine_leaves_all_connections_lendable(code, line, text, is_idle):
    driver = Driver()
    pool = Pool(driver, 1, 1.0, lambda: Unavailable("all in use"))
    if is_idle:
        run_now(pool.lend(work))
    interrupted_at(code, line, lambda: pool.lend_now(lambda line: run_now(work(line))))
    assert not pool._places.door.locked()
    assert pool._places._inside == set()
    assert all(resting.connection.is_open for resting in pool._idle)
    assert pool.lend_now(lambda line: line.is_open)


def test_a_connection_whose_work_was_interrupted_is_closed():
    driver = Driver()
    pool = Pool(driver, 1, 1.0, lambda: Unavailable("all in use"))

    async def interrupted(line):
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        run_now(pool.lend(interrupted))
    assert [line.is_open for line in driver.made] == [False]
    with pytest.raises(KeyboardInterrupt):
        pool.lend_now(lambda line: run_now(interrupted(line)))
    assert [line.is_open for line in driver.made] == [False, False]
    run_now(pool.lend(work))


def test_nobody_lends_more_than_there_are():
    pool = Pool(Driver(), 1, 0.01, lambda: Unavailable("all in use"))

    async def another(line):
        with pytest.raises(Unavailable, match="all in use"):
            await pool.lend(work)

    run_now(pool.lend(another))
    run_now(pool.lend(work))


TURN_FUNCTIONS = (
    *(Link._in_turn, Turn.close, Turn.client.fget, TurnPool.get_connection, TurnPool.release),
    *(TurnDriver.client.fget, TurnDriver.is_good, TurnDriver.is_reusable),
)
TURN_LINES = [line for function in TURN_FUNCTIONS for line in lines_of(function)] + POOL_LINES


def turns(size):
    """A link over so many turns, and the connections of those that rest."""
    source = Pool(TurnDriver(object), size, 1.0, lambda: Unavailable("all in use"))
    link = Link(source.lend, ServerIdentity(), Unavailable, has_lines=True, is_cluster=False, where="redis://host")
    link.source = source
    return link, lambda: [connection for resting in source._idle for connection in resting.connection.all]


@pytest.mark.parametrize("is_idle", [False, True], ids=["opened", "idle"])
@pytest.mark.parametrize(
    ("code", "line", "text"), TURN_LINES, ids=[f"{code.co_name}:{text[:40]}" for code, _, text in TURN_LINES]
)
def test_an_interrupt_at_any_line_of_a_turn_leaves_all_turns_free(code, line, text, is_idle):
    pool, (link, resting) = TurnPool(connection_class=Line), turns(2)

    async def command(client):
        """As the driver does it; what is sent and not answered must not be lent again."""
        connection = pool.get_connection()
        assert not connection.is_busy
        try:
            connection.is_busy = True
            connection.is_busy = False
        finally:
            pool.release(connection)

    if is_idle:
        run_now(link._in_turn(command))
    interrupted_at(code, line, lambda: run_now(link._in_turn(command)))
    assert not link.source._places.door.locked()
    assert link.source._places._inside == set()
    assert len(resting()) == len(set(map(id, resting()))) <= 1
    assert not any(one.is_busy for one in resting())

    async def within(client):
        await link._in_turn(command)
        await command(client)

    run_now(link._in_turn(within))


def test_a_connection_that_owes_an_answer_is_not_lent_again():
    pool, (link, resting), seen = TurnPool(connection_class=Line), turns(1), []

    async def command(client):
        connection = pool.get_connection()
        seen.append(connection)
        try:
            raise KeyboardInterrupt
        finally:
            pool.release(connection)

    with pytest.raises(KeyboardInterrupt):
        run_now(link._in_turn(command))
    assert not seen[0].is_open
    assert resting() == []


def test_a_connection_on_which_the_server_refused_a_command_is_lent_again():
    pool, (link, resting) = TurnPool(connection_class=Line), turns(1)

    async def command(client):
        connection = pool.get_connection()
        try:
            raise redis.ResponseError("WRONGTYPE")
        finally:
            pool.release(connection)

    with pytest.raises(redis.ResponseError):
        run_now(link._in_turn(command))
    assert len(resting()) == 1
