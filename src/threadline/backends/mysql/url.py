"""From a mysql:// URL to what the drivers need to connect, and to a name that can be shown."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any
from urllib.parse import parse_qsl, unquote, urlsplit

import pymysql
from pymysql.constants import CLIENT

from ...errors import InvalidRequest

__all__ = ["Address"]

_TLS = ("ssl_ca", "ssl_cert", "ssl_key", "ssl_mode")
_KNOWN = ("unix_socket", "read_timeout", "write_timeout", *_TLS)
_MODES = ("REQUIRED", "VERIFY_CA", "VERIFY_IDENTITY", "DISABLED")


@dataclass(frozen=True, slots=True, kw_only=True)
class Address:
    """Where a server is, and as which user to connect; `shown` has no password."""

    shown: str
    host: str
    port: int
    user: str | None
    password: str | None
    database: str
    options: dict[str, str]

    @classmethod
    def of(cls, url: str) -> Address:
        """The address in a URL; nothing of a wrong URL is shown, since its password may be anywhere."""
        try:
            parts = urlsplit(url)
            port = parts.port or 3306
        except ValueError:
            raise InvalidRequest("the mysql:// URL is malformed: mysql://user:password@host:3306/database") from None
        if "@" in parts.path + parts.fragment:
            # Cut there, pieces of the password would be the port and the database, which are shown.
            raise InvalidRequest("the URL has a / ? or # in its user or password: percent-encode it (%2F, %3F, %23)")
        database = unquote(parts.path[1:])
        if not database or "/" in database:
            raise InvalidRequest("the mysql:// URL names no database: mysql://user:password@host:3306/database")
        options = dict(parse_qsl(parts.query, keep_blank_values=True))
        unknown = sorted(set(options) - set(_KNOWN))
        if unknown:
            raise InvalidRequest(f"a mysql:// URL takes {', '.join(_KNOWN)} after its ?, and no other names")
        if options.get("ssl_mode", _MODES[0]).upper() not in _MODES:
            raise InvalidRequest(f"ssl_mode is one of {', '.join(_MODES)}")
        for name in ("read_timeout", "write_timeout"):
            if name in options and not _is_seconds(options[name]):
                raise InvalidRequest(f"{name} is a number of seconds above 0")
        user = None if parts.username is None else unquote(parts.username)
        host = parts.hostname or "localhost"
        shown = f"mysql://{user + '@' if user else ''}{host}:{port}/{database}"
        password = None if parts.password is None else unquote(parts.password)
        return cls(shown=shown, host=host, port=port, user=user, password=password, database=database, options=options)

    def blocking_options(self, timeout: float) -> dict[str, Any]:
        """What PyMySQL's `connect` takes."""
        waits: dict[str, Any] = {
            name: float(self.options[name]) for name in ("read_timeout", "write_timeout") if name in self.options
        }
        tls = {"ssl_disabled": True} if self._is_plain else {"ssl": self._tls()} if self._tls() else {}
        return {
            **self._common(timeout),
            **waits,
            **tls,
            "database": self.database,
            "password": (self.password or "").encode(),
            "client_flag": CLIENT.MULTI_STATEMENTS,
        }

    def loop_options(self, timeout: float) -> dict[str, Any]:
        """What aiomysql's `connect` takes."""
        # It encodes passwords as latin-1, whatever they are; so the server gets the bytes of their UTF-8.
        password = (self.password or "").encode().decode("latin-1")
        return {**self._common(timeout), "db": self.database, "password": password, "ssl": self._tls()}

    @property
    def _is_plain(self) -> bool:
        return self.options.get("ssl_mode", "").upper() == "DISABLED"

    def _common(self, timeout: float) -> dict[str, Any]:
        wait = max(1, math.ceil(timeout))
        return {
            "host": self.host,
            "port": self.port,
            "user": self.user or pymysql.connections.DEFAULT_USER,
            "unix_socket": self.options.get("unix_socket"),
            "charset": "utf8mb4",
            "connect_timeout": min(wait, 31_536_000),
            "autocommit": None,
            "init_command": (
                "SET NAMES utf8mb4, SESSION autocommit = 1, "
                f"SESSION sql_mode = 'STRICT_ALL_TABLES,NO_ENGINE_SUBSTITUTION', "
                f"SESSION innodb_lock_wait_timeout = {min(wait, 1_000_000)}"
            ),
        }

    def _tls(self) -> Any:
        """The TLS context that the URL asks for, or None; PyMySQL tries TLS without one, too."""
        if self._is_plain or not any(name in self.options for name in _TLS):
            return None
        import ssl

        mode = self.options.get("ssl_mode", "VERIFY_CA" if "ssl_ca" in self.options else "REQUIRED").upper()
        try:
            context = ssl.create_default_context(cafile=self.options.get("ssl_ca"))
            context.check_hostname = mode == "VERIFY_IDENTITY"
            context.verify_mode = ssl.CERT_NONE if mode == "REQUIRED" else ssl.CERT_REQUIRED
            if "ssl_cert" in self.options:
                context.load_cert_chain(self.options["ssl_cert"], self.options.get("ssl_key"))
        except OSError as error:
            raise InvalidRequest(f"the TLS files that the URL names cannot be used: {error.strerror}") from error
        return context


def _is_seconds(text: str) -> bool:
    try:
        return 0 < float(text) < math.inf
    except ValueError:
        return False
