"""Servers, stores and commands for every folder of tests: see tests/servers, tests/stores.py and tests/commands.py."""

import gc
import signal

import pytest

from tests.commands import run  # noqa: F401
from tests.servers.plugin import (  # noqa: F401
    mysql,
    pgbouncer,
    postgres,
    postgres_url,
    private_mysql,
    private_postgres,
    private_redis,
    pytest_configure,
    pytest_terminal_summary,
    pytest_unconfigure,
    redis_cluster,
    redis_server,
)
from tests.stores import connect, database, half, operations, url  # noqa: F401

# What several folders check with: pytest explains the asserts of these modules as it does in test files.
pytest.register_assert_rewrite("crowd", "crowd_checks", "tests.usual_puts")


def pytest_collection_finish() -> None:
    """What was collected stays until the end: the collector of garbage need not go through it again and again."""
    gc.collect()
    gc.freeze()


# A shell that starts a run in the background has it ignore interrupts, and so would every process that is tested.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)
