"""Places to move between: a store of each kind, empty, some of them encrypted."""

import itertools
import sys
import uuid
from pathlib import Path

import pytest

import threadline
from tests.stores import savers
from threadline import KeyRing

sys.path.append(str(Path(__file__).parent))
pytest.register_assert_rewrite("house")

KEY, OTHER = bytes(range(32)), bytes(range(1, 33))
_numbers = itertools.count(1)


@pytest.fixture
def place(request, tmp_path):
    """Gives the URL and the options of an empty store, by its kind: `sqlite`, `sealed postgres` and so on."""

    def of(kind):
        kind, is_sealed = kind.removeprefix("sealed "), kind.startswith("sealed ")
        number = next(_numbers)
        options = {"encryption": KeyRing({f"k{number}": KEY if number % 2 else OTHER})} if is_sealed else {}
        if kind == "memory":
            return f"memory://{uuid.uuid4()}", options
        if kind == "sqlite":
            return str(tmp_path / f"house{number}.db"), {"synchronous": "OFF", **options}
        if kind == "redis":
            server = request.getfixturevalue("redis_server")
            return server.url, {"key_prefix": f"{server.key_prefix}{number}", "pool_size": 2, **options}
        server = request.getfixturevalue(kind)
        prefix = getattr(server, "table_prefix", "")
        return server.url, {"table_prefix": f"{prefix}m{number}_", "pool_size": 2, **options}

    return of


@pytest.fixture
def house(place):
    """Opens an empty store of a kind."""
    with savers() as opening:

        def open_at(kind, **more):
            url, options = place(kind)
            return opening(url, **options, **more)

        yield open_at


@pytest.fixture
def furnished(house):
    from house import furnish

    return lambda kind, **options: furnish(house(kind), **options)


__all__ = ["threadline"]
