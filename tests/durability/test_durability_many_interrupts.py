"""Interrupts and cancellations at random moments, on every backend: nothing is lent for ever, nobody is harmed."""

import json

import pytest

BACKENDS = ["memory", "sqlite", "postgres", "mysql", "redis_server", "redis_cluster"]
# Few enough for every run of the tests; the soak has them all.
FEW, MANY = 100, 1000


@pytest.fixture(params=BACKENDS)
def place(request, database):
    """A URL, and options for a store of the test's own there."""
    if request.param == "memory":
        return "memory://many-interrupts", {}
    if request.param == "sqlite":
        return str(database), {}
    server = request.getfixturevalue(request.param)
    return server.url, {name: getattr(server, name) for name in ("table_prefix", "key_prefix") if hasattr(server, name)}


def run(run_script, kind, place, count):
    url, options = place
    run_script("many_interrupts.py", kind, url, count, json.dumps(options), seconds=120 + count)


@pytest.mark.parametrize("kind", ["signals", "cancels"])
def test_interrupts_at_random_moments_lose_no_connection_and_disturb_nobody(run_script, place, kind):
    run(run_script, kind, place, FEW)


@pytest.mark.parametrize("place", ["postgres", "redis_server"], indirect=True)
def test_interrupts_at_random_moments_lose_no_connection_of_a_given_pool(run_script, place):
    run(run_script, "given", place, FEW)


@pytest.mark.soak
@pytest.mark.parametrize("kind", ["signals", "cancels"])
def test_a_thousand_interrupts_lose_no_connection_and_disturb_nobody(run_script, place, kind):
    run(run_script, kind, place, MANY)
