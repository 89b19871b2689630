"""Rules of this folder: memory and SQLite; damage is made in a real file, behind the saver's back."""

import pytest

from tests.stores import savers


@pytest.fixture
def connect(url):
    """Opens savers on the store of this test, each with nothing remembered."""
    with savers(url, synchronous="OFF") as opening:
        yield opening


@pytest.fixture
def call(half):
    """Calls a method of a saver, or its `a` twin on a loop of its own."""
    return half.call
