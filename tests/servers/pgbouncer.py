"""PgBouncer in transaction mode: between two transactions a client may be moved to another connection."""

from __future__ import annotations

import re
import subprocess
from urllib.parse import urlsplit

from .processes import listens
from .server import Server, program

__all__ = ["PgbouncerServer"]

SETTINGS = """\
[databases]
* = host={host} port={port} user={user}

[pgbouncer]
listen_addr = 127.0.0.1
listen_port = {own_port}
unix_socket_dir =
pool_mode = transaction
auth_type = any
max_client_conn = 400
default_pool_size = 5
server_reset_query_always = 0
ignore_startup_parameters = extra_float_digits
"""


class PgbouncerServer(Server):
    """PgBouncer in front of the PostgreSQL of this URL; every database of it can be reached."""

    kind = "pgbouncer"

    def __init__(self, postgres_url: str) -> None:
        super().__init__()
        self.behind = urlsplit(postgres_url)

    @property
    def url(self) -> str:
        return self.url_of(self.behind.path.lstrip("/"))

    def url_of(self, database: str) -> str:
        return f"postgresql://{self.behind.username}@127.0.0.1:{self.port}/{database}"

    def _prepare(self) -> None:
        behind = self.behind
        text = SETTINGS.format(host=behind.hostname, port=behind.port, user=behind.username, own_port=self.port)
        if _can_prepare():
            # Tests want the hard case: statements that are not prepared where the client finds itself next.
            text += "max_prepared_statements = 0\n"
        (self.folder / "pgbouncer.ini").write_text(text)
        (self.folder / "pgbouncer.ini").chmod(0o644)

    def _command(self) -> list[str]:
        return [program("pgbouncer"), str(self.folder / "pgbouncer.ini")]

    def _answers(self) -> bool:
        return listens(self.port)


def _can_prepare() -> bool:
    said = subprocess.run([program("pgbouncer"), "--version"], capture_output=True, text=True, check=True).stdout
    version = re.search(r"(\d+)\.(\d+)", said)
    return version is not None and (int(version[1]), int(version[2])) >= (1, 21)
