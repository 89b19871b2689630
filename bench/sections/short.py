"""Short threads on every backend: 1, 10 and 100 small checkpoints, a turn of a real graph, and 1,000 new threads.

Both savers of a backend stay open, and the same few threads are played by the one right after the other.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, ExitStack
from functools import cache, partial
from itertools import pairwise
from statistics import median
from time import perf_counter
from typing import Annotated, Any, TypedDict

from langchain_core.runnables import RunnableConfig
from langgraph.graph import START, StateGraph

from bench import servers
from bench.arena import Arena, Entrant, Reading, Skipped
from bench.checks import check
from bench.savers import Saver
from bench.short import OPERATIONS, ShortThread, Times, play_short, short_thread

LENGTHS = (1, 10, 100)
# How many threads of one side come before the other's turn, so that a turn is long enough to be alike.
THREADS_AT_A_TIME = {1: 10, 10: 2, 100: 1}
GRAPH_STEPS = 5
NEW_THREADS = 1_000
NEW_AT_A_TIME = 100

Opened = Callable[[Entrant], AbstractContextManager[Saver]]


def short(arena: Arena) -> Iterator[Reading]:
    """A server that cannot be had leaves the rest measured."""
    yield from _backend(arena, "memory", lambda entrant: entrant.side.open_memory())
    yield from _backend(arena, "sqlite", _places(arena), new_threads=True)
    missing: list[str] = []
    for measure in (_on_postgres, _on_mysql, _on_redis):
        try:
            yield from measure(arena)
        except Skipped as skipped:
            missing.append(str(skipped))
    if missing:
        raise Skipped("; ".join(missing))


def _on_postgres(arena: Arena) -> Iterator[Reading]:
    with servers.postgres() as server:
        inside = arena.between(servers.OursOnServer(server), servers.PostgresPeer(server))
        yield from _backend(inside, "postgres", _places(inside), new_threads=True)


def _on_mysql(arena: Arena) -> Iterator[Reading]:
    with servers.mariadb() as server:
        inside = arena.between(servers.OursOnServer(server), servers.MysqlPeer(server))
        yield from _backend(inside, "mysql", _places(inside))


def _on_redis(arena: Arena) -> Iterator[Reading]:
    """Ours alone: the official saver needs modules of the server."""
    if arena.is_calibration:
        return
    with servers.redis() as server:
        side = servers.OursOnRedis(server)
        inside = arena.between(side, side)
        for reading in _backend(inside, "redis", _places(inside)):
            yield Reading(reading.key, reading.ours)


def _places(arena: Arena) -> Opened:
    return lambda entrant: entrant.side.open(arena.new_place(entrant))


def _backend(arena: Arena, name: str, opened: Opened, *, new_threads: bool = False) -> Iterator[Reading]:
    with ExitStack() as stack:
        entrants = (Entrant("ours", arena.ours), Entrant("peer", arena.peer))
        savers = {entrant.name: stack.enter_context(opened(entrant)) for entrant in entrants}
        for length in LENGTHS:
            yield from _threads(arena, f"short.{name}", savers, length)
        yield from _turns(arena, f"short.{name}_turn", savers)
        if new_threads:
            yield from _new_threads(arena, f"short.{name}_new", savers)


def _threads(arena: Arena, key: str, savers: dict[str, Saver], length: int) -> Iterator[Reading]:
    times = {name: Times() for name in savers}
    group = THREADS_AT_A_TIME[length]

    def play(turn: int, played: dict[str, Times], entrant: Entrant) -> None:
        for number in range(group):
            play_short(savers[entrant.name], _named(f"{length}-{turn}-{number}", length), played[entrant.name])

    # Neither side pays for first calls.
    arena.both(partial(play, -1, {name: Times() for name in savers}))
    for turn in range(max(arena.size.short_checkpoints // (group * length), 5)):
        arena.both(partial(play, turn, times))
    for operation in OPERATIONS:
        ours, peer = (median(getattr(times[name], operation)) for name in ("ours", "peer"))
        yield Reading(f"{key}_{operation}_{length}", ours, peer)


def _new_threads(arena: Arena, key: str, savers: dict[str, Saver]) -> Iterator[Reading]:
    """The sum of the puts; reading back is not timed. A quick run puts fewer, and says what all would have taken."""
    times = {name: Times() for name in savers}

    def play(turn: int, entrant: Entrant) -> None:
        for number in range(NEW_AT_A_TIME):
            play_short(savers[entrant.name], _named(f"new-{turn}-{number}", 1), times[entrant.name], writes=False)

    for turn in range(arena.size.new_threads // NEW_AT_A_TIME):
        arena.both(partial(play, turn))
    share = NEW_THREADS / arena.size.new_threads
    yield Reading(key, sum(times["ours"].put) * share, sum(times["peer"].put) * share)


class _State(TypedDict):
    steps: Annotated[list[str], operator.add]
    count: int


def _turns(arena: Arena, key: str, savers: dict[str, Saver]) -> Iterator[Reading]:
    """A graph of five steps, two turns in a thread."""
    graphs = {name: _graph(saver) for name, saver in savers.items()}

    def turns(number: int, entrant: Entrant) -> float:
        config: RunnableConfig = {"configurable": {"thread_id": f"turn-{number}"}}
        start = perf_counter()
        for _ in range(2):
            found = graphs[entrant.name].invoke({"steps": [], "count": 0}, config)
        seconds = perf_counter() - start
        check(found["count"] == GRAPH_STEPS and len(found["steps"]) == 2 * GRAPH_STEPS, "a step of the graph is gone")
        return seconds / 2

    pairs = [arena.both(partial(turns, number)) for number in range(arena.size.short_turns + 1)]
    yield Reading(key, *(median(getattr(pair, side) for pair in pairs[1:]) for side in ("ours", "peer")))


def _graph(saver: Saver) -> Any:
    builder: Any = StateGraph(_State)
    names = [START, *(f"step-{number}" for number in range(GRAPH_STEPS))]
    for before, name in pairwise(names):
        builder.add_node(name, lambda state, name=name: {"steps": [name], "count": state["count"] + 1})
        builder.add_edge(before, name)
    return builder.compile(checkpointer=saver)


def _named(thread_id: str, length: int) -> ShortThread:
    work = _work(length)
    return ShortThread(thread_id, work.steps, work.values)


_work = cache(lambda length: short_thread("", length))
