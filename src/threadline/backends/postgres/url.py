"""From a URL or a connection string of PostgreSQL to what libpq takes, and to names without a password."""

from __future__ import annotations

from typing import Any, NamedTuple
from urllib.parse import quote

import psycopg
from psycopg.conninfo import conninfo_to_dict

from ...errors import InvalidRequest

__all__ = ["Whereabouts", "read_given", "read_url", "url_of_keywords"]


class Whereabouts(NamedTuple):
    """How messages name the database."""

    user: str
    place: str  # host, port and database

    def __str__(self) -> str:
        return f"{self.user} at {self.place}" if self.user else self.place


def url_of_keywords(conninfo: str) -> str:
    """The URL that says what a connection string of libpq's keywords (`host=db dbname=agents`) says."""
    try:
        parts = conninfo_to_dict(conninfo)
    except psycopg.Error:
        parts = {}
    if not parts or "\0" in conninfo:
        # What libpq says here may quote the password.
        raise InvalidRequest(
            "this is neither a URL nor a connection string of PostgreSQL: write postgresql://user:password@host:5432/"
            "database, or keywords that libpq knows, such as host=… dbname=… user=…, with quotes around spaces"
        ) from None
    return "postgresql://?" + "&".join(f"{name}={quote(str(value), safe='')}" for name, value in parts.items())


def read_url(url: str) -> tuple[str, Whereabouts, str]:
    """What the driver takes, how messages name it, and the URL without its password."""
    # A URL of SQLAlchemy's names the driver too.
    if url.startswith("postgresql+psycopg://"):
        url = url.replace("+psycopg", "", 1)
    authority = url.partition("://")[2].partition("?")[0]
    if authority.count("@") > 1:
        raise InvalidRequest("the URL has an @ in its user or password: write it as %40")
    if "@" in authority.partition("/")[2]:
        raise InvalidRequest("the URL has a / in its user or password: write it as %2F")
    if "\0" in url:
        raise InvalidRequest("the URL holds a NUL")
    try:
        parts = conninfo_to_dict(url)
        if not all(port.isdecimal() for port in str(parts.get("port") or "0").split(",") if port):
            raise ValueError("port")
    except (psycopg.Error, ValueError):
        # What libpq says here may quote the password.
        raise InvalidRequest(
            "the URL is not one of PostgreSQL: write postgresql://user:password@host:5432/database, with "
            "special characters of user and password as %XX, and only options that libpq knows"
        ) from None
    return url, *_shown(parts)


def read_given(connection: Any) -> tuple[str, Whereabouts, str]:
    """How messages name a given connection, and its URL without a password; a given pool does not tell where it is."""
    if connection is None:
        return "", Whereabouts("", "the given pool's database"), "postgresql://"
    info = connection.info if not connection.closed else None
    parts = {"user": info.user, "host": info.host, "port": info.port, "dbname": info.dbname} if info else {}
    return "", *_shown(parts)


def _shown(parts: dict[str, Any]) -> tuple[Whereabouts, str]:
    user, host, port, database = (str(parts.get(name) or "") for name in ("user", "host", "port", "dbname"))
    host = host or str(parts.get("hostaddr") or "localhost")
    place = f"{host}:{port or 5432}/{database}"
    shown = f"postgresql://{quote(user) + '@' if user else ''}{host}{':' + port if port else ''}/{quote(database)}"
    return Whereabouts(user, place), shown
