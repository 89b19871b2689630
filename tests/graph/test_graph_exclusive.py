"""`compile(exclusive=True)`: two runs of one thread never interleave, also when a lease is lost."""

from __future__ import annotations

import asyncio
import importlib
import pkgutil
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from graph_making import CONFIG, chain, halves, run, writes
from oracle_engines import THREADLINE
from oracle_table import TABLE, Case
from oracle_trial import observe

import threadline
from threadline.errors import Conflict, InvalidRequest
from threadline.graph.compiled import Pregel

for module in pkgutil.iter_modules([str(Path(__file__).parent)]):
    if module.name.startswith("oracle_cases_"):
        importlib.import_module(module.name)

durabilities = pytest.mark.parametrize("durability", ["sync", "async", "exit"])
EXCLUSIVE = {"exclusive": True}


@pytest.fixture(params=["memory", "sqlite"])
def connect(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Callable[[], Any]]:
    """Makes savers of one store: one and the same in memory, several on a file."""
    shared = threadline.connect("memory://")
    made: list[Any] = []

    def connect() -> Any:
        if request.param == "memory":
            return shared
        made.append(threadline.connect(f"sqlite:///{tmp_path}/x.db"))
        return made[-1]

    yield connect
    for saver in made:
        saver.close()


class Gate:
    """A node that waits inside, the first time that it runs."""

    def __init__(self) -> None:
        self.inside, self.go = threading.Event(), threading.Event()

    def __call__(self, state: Any) -> Any:
        if not self.inside.is_set():
            self.inside.set()
            assert self.go.wait(30)
            return {"l": ["late"]}
        return {"l": ["x"]}


class Background:
    """A run on a thread of its own, and how it ended."""

    def __init__(self, graph: Any, is_async: bool, **options: Any) -> None:
        self.result: Any = None

        def work() -> None:
            try:
                self.result = run(graph, is_async, {"l": []}, CONFIG, **options)
            except BaseException as error:
                self.result = error

        self.thread = threading.Thread(target=work)
        self.thread.start()

    def ended(self) -> Any:
        self.thread.join(60)
        return self.result


@halves
def test_a_second_run_is_refused_while_the_first_goes_on(is_async: bool, connect: Callable[[], Any]) -> None:
    gate = Gate()
    graph = chain(connect(), options=EXCLUSIVE, x=gate)
    first = Background(graph, is_async)
    assert gate.inside.wait(30)
    other = chain(connect(), options=EXCLUSIVE, x=gate)
    with pytest.raises(Conflict, match="locked"):
        run(other, is_async, {"l": []}, CONFIG)
    with pytest.raises(Conflict, match="locked"):
        other.update_state(CONFIG, {"l": ["from outside"]}, as_node="x")
    gate.go.set()
    assert first.ended() == {"l": ["late"]}
    assert run(other, is_async, {"l": []}, CONFIG) == {"l": ["late", "x"]}
    assert other.update_state(CONFIG, {"l": ["from outside"]}, as_node="x")
    assert not connect().locks()


@halves
@durabilities
def test_a_run_whose_lease_was_lost_writes_nothing_any_more(
    is_async: bool, durability: str, connect: Callable[[], Any]
) -> None:
    gate = Gate()
    after: list[str] = []
    graph = chain(connect(), options=EXCLUSIVE, x=gate, y=lambda state: after.append("y"))
    late = Background(graph, is_async, durability=durability)
    assert gate.inside.wait(30)
    saver = connect()
    assert saver.unlock("1") is not None  # as if the process had been stopped for longer than the lease lives
    other = chain(saver, options=EXCLUSIVE, x=gate, y=writes("y"))
    assert run(other, is_async, {"l": []}, CONFIG) == {"l": ["x", "y"]}
    gate.go.set()
    error = late.ended()
    assert isinstance(error, Conflict)
    assert "was lost" in str(error) or "moved on" in str(error)
    assert other.get_state(CONFIG).values == {"l": ["x", "y"]}
    assert len(saver.thread("1").log().heads) == 1
    kept = [write for found in saver.list(CONFIG) for write in found.pending_writes or ()]
    assert not any("late" in str(write) for write in kept)
    assert not saver.locks()


@halves
def test_a_lost_lease_does_not_pass_to_the_next_holder_of_the_same_saver(is_async: bool) -> None:
    """Both runs use one saver; the second still holds its lease when the first goes on."""
    saver = threadline.connect("memory://")
    slow, holding = Gate(), Gate()
    first = Background(chain(saver, options=EXCLUSIVE, x=slow), is_async)
    assert slow.inside.wait(30)
    saver.unlock("1")
    second = Background(chain(saver, options=EXCLUSIVE, x=holding), is_async)
    assert holding.inside.wait(30)
    slow.go.set()
    assert isinstance(first.ended(), Conflict)
    holding.go.set()
    assert second.ended() == {"l": ["late"]}
    assert len(saver.thread("1").log().heads) == 1


@halves
@durabilities
def test_a_writer_without_a_lease_is_found_out(is_async: bool, durability: str, connect: Callable[[], Any]) -> None:
    gate = Gate()
    run_of_mine = Background(chain(connect(), options=EXCLUSIVE, x=gate), is_async, durability=durability)
    assert gate.inside.wait(30)
    plain = chain(connect(), x=gate)
    plain.invoke({"l": []}, CONFIG)
    gate.go.set()
    error = run_of_mine.ended()
    assert isinstance(error, Conflict)
    assert "moved on" in str(error)
    assert plain.get_state(CONFIG).values == {"l": ["x"]}


def test_a_run_stops_at_the_next_step_when_its_lease_is_lost() -> None:
    """Under durability exit nothing is put before the end: nodes must not go on with their effects until then."""
    saver = threadline.connect("memory://")
    real, leases, seen = saver.lock, [], []

    def lock(thread_id: str, **options: Any) -> Any:
        leases.append(real(thread_id, ttl=0.03, **options))
        return leases[-1]

    def lose(state: Any) -> None:
        seen.append("x")
        saver.unlock("1")
        while not leases[0].is_lost:  # until the renewal finds out
            time.sleep(0.001)

    saver.lock = lock  # type: ignore[method-assign]
    graph = chain(saver, options=EXCLUSIVE, x=lose, y=lambda state: seen.append("y"))
    with pytest.raises(Conflict, match="lost"):
        graph.invoke({"l": []}, CONFIG, durability="exit")
    assert seen == ["x"]


def test_two_exclusive_runs_under_one_loop_take_turns_or_are_refused() -> None:
    saver = threadline.connect("memory://")
    inside = [0]

    async def act(state: Any) -> Any:
        inside[0] += 1
        assert inside[0] == 1
        await asyncio.sleep(0)
        inside[0] -= 1
        return {"l": ["x"]}

    graph = chain(saver, options=EXCLUSIVE, x=act)

    async def main() -> list[Any]:
        return await asyncio.gather(*(graph.ainvoke({"l": []}, CONFIG) for _ in range(20)), return_exceptions=True)

    ended = asyncio.run(main())
    through = [one for one in ended if not isinstance(one, Conflict)]
    assert graph.get_state(CONFIG).values == {"l": ["x"] * len(through)}
    assert len(saver.thread("1").log().heads) == 1


def test_exclusive_needs_a_saver_with_leases() -> None:
    memory = pytest.importorskip("langgraph.checkpoint.memory")
    graph = chain(memory.InMemorySaver(), options=EXCLUSIVE, x=writes("x"))
    with pytest.raises(InvalidRequest, match="leases"):
        graph.invoke({"l": []}, CONFIG)
    with pytest.raises(InvalidRequest, match="leases"):
        chain(options=EXCLUSIVE, x=writes("x")).invoke({"l": []}, CONFIG)


RUNS = [pytest.param(case, half, id=f"{name}-{half}") for name, case in TABLE.items() for half in case.halves]


@pytest.mark.parametrize(
    ("case", "half"), [one for one in RUNS if one.values[0].section.split(".")[0] in ("4", "9", "11", "13", "14", "15")]
)
def test_an_exclusive_graph_does_what_any_other_does(case: Case, half: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Neither lease nor fence stands in the way of forks, time travel, updates, or graphs inside."""
    plain = observe(case.run, THREADLINE, half == "async")
    original = Pregel.__init__

    def exclusive(self: Any, *args: Any, **options: Any) -> None:
        original(self, *args, **options)
        self.exclusive = callable(getattr(self.checkpointer, "for_run", None))

    monkeypatch.setattr(Pregel, "__init__", exclusive)
    assert observe(case.run, THREADLINE, half == "async") == plain
