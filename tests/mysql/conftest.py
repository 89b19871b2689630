"""A database on a real server for each test module, and a table prefix of its own for each test."""

import itertools
import sys
import uuid
from pathlib import Path
from urllib.parse import unquote, urlsplit

import pymysql
import pytest

from tests.servers.plugin import require_server
from tests.servers.shared import shared_url
from tests.stores import savers
from threadline.backends.mysql.schema import tables

# The histories and the crowds of processes of tests/durability serve here too.
sys.path.append(str(Path(__file__).resolve().parents[1] / "durability"))

_numbers = itertools.count(1)


def admin(url):
    """A connection with all rights, beside those of the saver."""
    parts = urlsplit(url)
    query = dict(pair.split("=") for pair in parts.query.split("&") if pair)
    return pymysql.connect(
        host=parts.hostname,
        port=parts.port or 3306,
        user=unquote(parts.username or "root"),
        password=unquote(parts.password or ""),
        unix_socket=query.get("unix_socket"),
        autocommit=True,
    )


@pytest.fixture(scope="session")
def mysql_server():
    """The URL of the session's server, or of the one that THREADLINE_TEST_MYSQL names; without a database."""
    require_server("mysql")
    return urlsplit(shared_url("mysql"))._replace(path="/").geturl()


@pytest.fixture(scope="module")
def mysql_url(mysql_server):
    """An empty database that this module has for itself."""
    name = f"threadline_test_{uuid.uuid4().hex[:12]}"
    connection = admin(mysql_server)
    connection.query(f"CREATE DATABASE {name}")
    parts = urlsplit(mysql_server)
    yield parts._replace(path=f"/{name}").geturl()
    connection.query(f"DROP DATABASE {name}")
    connection.close()


@pytest.fixture
def root(mysql_url):
    """A connection with all rights, in the module's database."""
    connection = admin(mysql_url)
    connection.select_db(urlsplit(mysql_url).path[1:])
    yield connection
    connection.close()


@pytest.fixture
def prefix(mysql_url, root):
    """A table prefix that nobody else uses; its tables are dropped afterwards."""
    made = f"t{next(_numbers)}_{uuid.uuid4().hex[:6]}_"
    yield made
    root.query(f"DROP TABLE IF EXISTS {', '.join(tables(made))}")


@pytest.fixture
def connect(mysql_url, prefix):
    """Opens savers on one store, and closes them."""
    with savers(mysql_url, table_prefix=prefix) as opening:
        yield opening
