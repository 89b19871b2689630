"""The contract of the saver on MySQL and MariaDB, through both halves."""

import pytest

from threadline.testing import CONTRACT, Store, run_promise


@pytest.mark.parametrize("half", ["sync", "async"])
@pytest.mark.parametrize("promise", CONTRACT, ids=lambda promise: promise.__name__[5:])
def test_the_contract_is_kept(promise, half, connect):
    run_promise(promise, Store(connect=connect), is_async=half == "async")
