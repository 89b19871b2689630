"""A real PostgreSQL server, and a schema of its own for each test."""

import contextlib
import socket
import sys
import threading
import uuid
from pathlib import Path

import psycopg
import pytest
from psycopg.conninfo import conninfo_to_dict

from tests.servers.plugin import require_server
from tests.servers.shared import shared_url
from tests.stores import savers

# The crowds of processes of tests/durability serve here too.
sys.path.append(str(Path(__file__).resolve().parents[1] / "durability"))


@pytest.fixture(scope="session")
def postgres_url():
    """The session's server, or the one that THREADLINE_TEST_POSTGRES names."""
    require_server("postgres")
    return shared_url("postgres")


@pytest.fixture
def schema(postgres_url):
    name = f"t_{uuid.uuid4().hex}"
    with psycopg.connect(postgres_url, autocommit=True) as admin:
        admin.execute(f'CREATE SCHEMA "{name}"')
        yield name
        admin.execute(f'DROP SCHEMA "{name}" CASCADE')


@pytest.fixture
def admin(postgres_url, schema):
    """A connection that may do everything, and finds the schema's tables without naming it."""
    with psycopg.connect(postgres_url, autocommit=True) as connection:
        connection.execute(f'SET search_path = "{schema}"')
        yield connection


@pytest.fixture
def connect(postgres_url, schema):
    """Opens savers on the schema of this test; all are closed at its end."""
    with savers(postgres_url, schema=schema, pool_size=4) as opening:
        yield opening


class Proxy:
    """Passes a connection on to the server, and counts the times that the client waits for an answer."""

    def __init__(self, host, port):
        self.trips = 0
        self._target = (host, port)
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port = self._listener.getsockname()[1]
        threading.Thread(target=self._serve, daemon=True).start()

    def close(self):
        self._listener.close()

    def _serve(self):
        while True:
            try:
                client, _ = self._listener.accept()
            except OSError:
                return
            server = socket.create_connection(self._target)
            threading.Thread(target=self._pass_on, args=(client, server, self._count()), daemon=True).start()
            threading.Thread(target=self._pass_on, args=(server, client, None), daemon=True).start()

    def _pass_on(self, source, sink, counter):
        try:
            while data := source.recv(65536):
                if counter is not None:
                    counter.send(data)
                sink.sendall(data)
        except OSError:
            pass
        finally:
            for end in (source, sink):
                with contextlib.suppress(OSError):
                    end.shutdown(socket.SHUT_RDWR)

    def _count(self):
        """Reads messages of the client: a Sync, a Flush or a simple query makes the server answer.

        The driver sends a Flush right behind its last Sync, without waiting; that one has nothing to answer.
        """

        def read():
            pending = yield
            typed, last = False, b""
            while True:
                head = 5 if typed else 4
                while len(pending) < head:
                    pending += yield
                length = int.from_bytes(pending[head - 4 : head], "big") + head - 4
                kind = pending[:1] if typed else b""
                while len(pending) < length:
                    pending += yield
                if not typed:
                    # SSL and GSS requests are answered by one byte, and another start follows.
                    code = int.from_bytes(pending[4:8], "big")
                    typed = code not in (80877103, 80877104)
                elif kind in (b"S", b"Q") or (kind == b"H" and last != b"S"):
                    self.trips += 1
                last = kind
                pending = pending[length:]

        counter = read()
        next(counter)
        return counter


@pytest.fixture
def proxy(postgres_url):
    with psycopg.connect(postgres_url) as connection:
        host, port = connection.info.host, connection.info.port
    proxy = Proxy(host if not host.startswith("/") else "127.0.0.1", port)
    yield proxy
    proxy.close()


@pytest.fixture
def proxied_url(postgres_url, proxy):
    parts = conninfo_to_dict(postgres_url)
    user, database = parts.get("user", "postgres"), parts.get("dbname", "postgres")
    password = f":{parts['password']}" if "password" in parts else ""
    return f"postgresql://{user}{password}@127.0.0.1:{proxy.port}/{database}?sslmode=disable"


@pytest.fixture
def role(postgres_url, schema):
    """The name of a new role that may log in and nothing else."""
    name = f"r_{uuid.uuid4().hex[:12]}"
    with psycopg.connect(postgres_url, autocommit=True) as admin:
        admin.execute(f"CREATE ROLE {name} LOGIN PASSWORD 'hunter2'")
        yield name
        admin.execute(f"DROP OWNED BY {name} CASCADE")
        admin.execute(f"DROP ROLE {name}")


@pytest.fixture
def as_role(postgres_url, role):
    """The URL of the server for that role."""
    parts = conninfo_to_dict(postgres_url)
    where = f"{parts.get('host', 'localhost')}:{parts.get('port', 5432)}"
    return f"postgresql://{role}:hunter2@{where}/{parts.get('dbname', 'postgres')}"
