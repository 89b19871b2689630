"""The contract of the saver, on every backend, through both halves."""

import uuid

import pytest

import threadline
from threadline.testing import CONTRACT, Store, promises_for, run_promise


def named_memory(tmp_path):
    """Records in this process, under a name that several savers share."""
    name = uuid.uuid4().hex
    return Store(connect=lambda **options: threadline.connect(f"memory://{name}", **options))


def sqlite_file(tmp_path):
    return Store(connect=lambda **options: threadline.connect(tmp_path / "threads.db", **options))


def sqlite_in_memory(tmp_path):
    return Store(connect=lambda **options: threadline.connect("sqlite://", **options), is_shared=False)


STORES = (named_memory, sqlite_file, sqlite_in_memory)
PRIVATE = Store(connect=threadline.connect, is_shared=False)
TRIED = [
    pytest.param(make, promise, half, id=f"{promise.__name__[5:]}-{make.__name__}-{half}")
    for make in STORES
    for promise in (promises_for(PRIVATE) if make is sqlite_in_memory else CONTRACT)
    for half in ("sync", "async")
]


@pytest.mark.parametrize(("make", "promise", "half"), TRIED)
def test_the_contract_is_kept(make, promise, half, tmp_path):
    run_promise(promise, make(tmp_path), is_async=half == "async")
