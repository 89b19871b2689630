"""After every step of any history of branches, a store holds what the model holds."""

import itertools
import uuid

import pytest
from history_machine import HistoryMachine
from hypothesis import HealthCheck, Phase, settings
from hypothesis.stateful import run_state_machine_as_test

import threadline


def run(connect, examples, steps, *, shrinks=True):
    phases = [Phase.explicit, Phase.reuse, Phase.generate, *([Phase.shrink] if shrinks else [])]
    profile = settings(
        max_examples=examples,
        stateful_step_count=steps,
        deadline=None,
        suppress_health_check=list(HealthCheck),
        phases=phases,
    )
    run_state_machine_as_test(lambda: HistoryMachine(connect()), settings=profile)


def in_memory():
    name = uuid.uuid4()
    return lambda: threadline.connect(f"memory://{name}")


def files(folder):
    def fresh():
        path = folder / f"{uuid.uuid4()}.db"
        return lambda: threadline.connect(path, synchronous="OFF")

    return fresh


@pytest.fixture(params=["postgres", "mysql", "redis_server"])
def fresh_store(request):
    """Makes what opens savers on a store that is empty."""
    place = request.getfixturevalue(request.param)
    numbers = itertools.count(1)

    def fresh():
        name = f"{getattr(place, 'key_prefix', '') or getattr(place, 'table_prefix', 't')}{next(numbers)}"
        option = {"key_prefix": name} if request.param == "redis_server" else {"table_prefix": f"{name}_"}
        return lambda: threadline.connect(place.url, pool_size=3, **option)

    return fresh


def test_any_history_of_branches_in_memory():
    run(in_memory, 150, 40)


def test_any_history_of_branches_in_sqlite(tmp_path):
    run(files(tmp_path), 80, 40)


def test_any_history_of_branches_on_a_server(fresh_store):
    run(fresh_store, 6, 25, shrinks=False)


@pytest.mark.soak
def test_thousands_of_histories_of_branches_in_sqlite(tmp_path):
    run(files(tmp_path), 1500, 60)


@pytest.mark.soak
def test_hundreds_of_histories_of_branches_on_a_server(fresh_store):
    run(fresh_store, 100, 40, shrinks=False)
