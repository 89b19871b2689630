"""MariaDB."""

from __future__ import annotations

import socket
from pathlib import Path

from .processes import run_as
from .server import Server, copy_template, program

__all__ = ["MariadbServer"]

PASSWORD = "threadline-tests"
# Run at every start, before clients are let in.
FIRST = f"""\
CREATE DATABASE IF NOT EXISTS threadline;
CREATE USER IF NOT EXISTS 'threadline'@'%' IDENTIFIED BY '{PASSWORD}';
GRANT ALL PRIVILEGES ON *.* TO 'threadline'@'%' WITH GRANT OPTION;
"""
SMALL = ["--innodb-log-file-size=8M", "--innodb-buffer-pool-size=32M", "--key-buffer-size=1M"]


class MariadbServer(Server):
    """MariaDB with the user `threadline`, who may do everything, and a database of that name.

    Every commit is written to the log. Not `durable`, flushing it is left to the system.
    """

    kind = "mysql"

    def __init__(self, *, durable: bool = True, options: tuple[str, ...] = ()) -> None:
        super().__init__()
        self.options = [*([] if durable else ["--innodb-flush-method=nosync"]), *options]
        self.data = self.folder / "data"

    @property
    def url(self) -> str:
        return self.url_of("threadline")

    def url_of(self, database: str) -> str:
        return f"mysql://threadline:{PASSWORD}@127.0.0.1:{self.port}/{database}"

    def _prepare(self) -> None:
        if not self.data.exists():
            copy_template("mariadb", self.data, _make_tables)
        (self.folder / "first.sql").write_text(FIRST)
        (self.folder / "first.sql").chmod(0o644)

    def _command(self) -> list[str]:
        return [
            program("mariadbd"),
            "--no-defaults",
            f"--datadir={self.data}",
            f"--port={self.port}",
            "--bind-address=127.0.0.1",
            f"--socket={self.folder / 'socket'}",
            f"--pid-file={self.folder / 'mariadbd.pid'}",
            f"--init-file={self.folder / 'first.sql'}",
            f"--tmpdir={self.folder}",
            "--skip-name-resolve",
            "--max-connections=200",
            "--innodb-flush-log-at-trx-commit=1",
            *SMALL,
            *self.options,
        ]

    def _answers(self) -> bool:
        # Clients are greeted when the server is ready, with the number of the protocol behind four bytes of length.
        try:
            with socket.create_connection(("127.0.0.1", self.port), timeout=1) as connection:
                return connection.recv(5)[4:] == b"\x0a"
        except OSError:
            return False


def _make_tables(data: Path) -> None:
    # A folder of its own: a server that starts deletes the temporary tables of all who share it.
    own = f"--tmpdir={data.parent}"
    options = ["--auth-root-authentication-method=normal", "--skip-test-db", "--skip-name-resolve", own, *SMALL]
    command = [program("mariadb-install-db"), "--no-defaults", f"--datadir={data}", "--innodb-flush-method=nosync"]
    run_as(data.parent, *command, *options)
