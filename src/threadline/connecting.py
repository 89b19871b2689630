"""From a URL and options to an engine and tools: the one place that knows which backend serves which URL."""

from __future__ import annotations

import functools
import importlib
import importlib.util
import inspect
import os
import re
from collections.abc import Iterable
from typing import Any, NamedTuple

from .backends.engine import Engine, named_memory
from .codec.rules import AllowedTypes, TypeRules, UnknownTypes
from .codec.seal import CipherRing, Ring
from .codec.serializer import Serializer
from .codec.wire import Codec
from .core.policy import Policy
from .core.tools import Tools
from .errors import InvalidRequest, MissingExtra
from .options import check_options
from .saver import Saver

__all__ = ["check_driver", "connect", "make_engine", "make_tools"]


def connect(url: str | os.PathLike[str] | None = None, **options: Any) -> Saver:
    """A saver for a URL (`sqlite:///agents.db`, `postgresql://…`, `memory://`), or for a SQLite file's path.

    Nothing is opened before first use. For the options see docs/options.md.
    """
    engine_options, tool_options = split_options(options)
    engine = make_engine(url, **engine_options)
    tools = make_tools(engine, **tool_options)
    tools.checks_versions = tools.codec.foreign is None
    return Saver(engine, tools)


_TOOL_OPTIONS = frozenset(
    [
        "serde",
        "allowed_types",
        "unknown_types",
        "compression",
        "encryption",
        "cache_bytes",
        "trust_identity",
        "share_decoded",
        "index_metadata",
        "fencing",
        "retention",
        "ttl",
    ]
)


# Options of both: Redis lets keys expire by itself, elsewhere a sweep deletes what has expired; some databases make
# an index for a metadata key. An engine that has no use for one is not given it.
_SHARED_OPTIONS = frozenset(["index_metadata", "ttl"])


def split_options(options: dict[str, Any]) -> tuple[dict[str, Any], dict[str, Any]]:
    """Options for the engine, and options for what is done with values; both checked."""
    check_options(options)
    tool_options = {name: options[name] for name in options if name in _TOOL_OPTIONS}
    engine_options = {name: options[name] for name in options if name not in _TOOL_OPTIONS or name in _SHARED_OPTIONS}
    return engine_options, tool_options


# What serves a scheme: the module and class of its engine, the packages it needs, and their extra.
class _Served(NamedTuple):
    module: str
    engine: str
    packages: tuple[str, ...] = ()
    extra: str = ""


_SERVED = {
    "sqlite": _Served("sqlite_engine", "SqliteEngine"),
    "postgresql": _Served("postgres_engine", "PostgresEngine", ("psycopg", "psycopg_pool"), "postgres"),
    "mysql": _Served("mysql_engine", "MysqlEngine", ("pymysql", "aiomysql"), "mysql"),
    "redis": _Served("redis_engine", "RedisEngine", ("redis",), "redis"),
}
_SCHEMES = {
    "sqlite": "sqlite",
    "postgresql": "postgresql",
    "postgres": "postgresql",
    "postgresql+psycopg": "postgresql",
    "mysql": "mysql",
    "mariadb": "mysql",
    "mysql+pymysql": "mysql",
    "mysql+aiomysql": "mysql",
    "mysql+asyncmy": "mysql",
    "redis": "redis",
    "rediss": "redis",
    "valkey": "redis",
    "valkeys": "redis",
    "redis+cluster": "redis",
    "rediss+cluster": "redis",
    "memory": "memory",
}
# Which driver a given connection or pool belongs to, by the module of its class.
_DRIVERS = {
    "sqlite3": "sqlite",
    "psycopg": "postgresql",
    "psycopg_pool": "postgresql",
    "pymysql": "mysql",
    "aiomysql": "mysql",
    "redis": "redis",
    "valkey": "redis",
}


def make_engine(url: str | os.PathLike[str] | None = None, **options: Any) -> Engine:
    """The engine that serves a URL, a given connection or a given pool."""
    given = options.get("connection") if options.get("connection") is not None else options.get("pool")
    if given is not None:
        kind, place = _driver_of(given), None
    else:
        kind, place = parse_url(url)
    if kind == "memory":
        return named_memory(place or "", read_only=options.get("read_only", False))
    check_driver(kind)
    served = _SERVED[kind]
    module = importlib.import_module(f"threadline.backends.{served.module}")
    engine = getattr(module, served.engine)
    taken = inspect.signature(engine).parameters
    options = {name: value for name, value in options.items() if name not in _SHARED_OPTIONS or name in taken}
    unknown = sorted(set(options) - set(taken))
    if unknown:
        raise InvalidRequest(f"{kind}:// takes no option {unknown[0]} (docs/options.md says which it takes)")
    made: Engine = engine(place, **options)
    return made


def check_driver(kind: str) -> None:
    """Raise MissingExtra unless the packages that serve this kind of URL are installed."""
    served = _SERVED[kind]
    for package in served.packages:
        if importlib.util.find_spec(package) is None:
            raise MissingExtra(f"{kind}:// needs the package {package}: pip install 'threadline[{served.extra}]'")


def _driver_of(given: Any) -> str:
    for one in type(given).__mro__:
        kind = _DRIVERS.get(one.__module__.partition(".")[0])
        if kind is not None:
            return kind
    if inspect.isroutine(given) or isinstance(given, functools.partial):
        return "mysql"  # whose savers take a function that gives connections
    raise InvalidRequest(f"connection and pool take a driver's own, not {type(given).__name__}")


def parse_url(url: str | os.PathLike[str] | None) -> tuple[str, str]:
    """What serves a URL, and what it is given: a path, or the URL; without a scheme it is a SQLite file's path."""
    if url is None:
        raise InvalidRequest("connect needs a URL or a path, such as sqlite:///agents.db")
    try:
        text: Any = os.fspath(url)
    except TypeError:
        text = url
    if not isinstance(text, str):
        raise InvalidRequest(f"connect needs a URL or a path as text, not {type(text).__name__}")
    if not text.strip():
        raise InvalidRequest("the URL is empty; give one such as sqlite:///agents.db")
    scheme, separator, rest = text.partition("://")
    if not separator:
        _refuse_address(text)
        return "sqlite", text
    kind = _SCHEMES.get(scheme)
    if kind is None:
        known = ", ".join(f"{name}://" for name in (*_SERVED, "memory"))
        shown = f"{scheme}://" if re.fullmatch(r"[A-Za-z][A-Za-z0-9+.-]{0,30}", scheme) else "such a URL"
        raise InvalidRequest(f"no backend of this version serves {shown}; there are {known}")
    if kind in ("sqlite", "memory"):
        _refuse_address(rest.removeprefix("/"))
    if kind == "sqlite":
        if "?" in rest:
            raise InvalidRequest("a sqlite:// URL takes no ?query; give options as keyword arguments (docs/options.md)")
        # sqlite:///relative.db, sqlite:////absolute.db, sqlite:// in memory.
        return kind, rest[1:] or ":memory:" if rest.startswith("/") else rest or ":memory:"
    return kind, rest if kind == "memory" else text


# The keywords of libpq's connection strings and of others like it, where a name begins.
_KEYWORD = re.compile(
    r"(?:^|[\s;])(?:host|hostaddr|port|dbname|database|server|user|uid|password|passwd|pwd|passfile|service|sslmode)\s*=",
    re.IGNORECASE,
)
# A user and a password before an @; C:\\ is a drive.
_LOGIN = re.compile(r"(?!file:)(?![A-Za-z]:[\\/])[^/\\@]*:.*@", re.IGNORECASE | re.DOTALL)


def _refuse_address(name: str) -> None:
    """Refuse a name that is a server's address: a file of that name would show its password. Nothing of it is shown."""
    if _KEYWORD.search(name) or _LOGIN.match(name):
        raise InvalidRequest(
            "this looks like the address of a server, not like the path of a SQLite file: write a server's as "
            "postgresql://user:password@host:5432/database, and put ./ before a file that is really named so"
        )


def make_tools(
    engine: Engine,
    *,
    serde: Any = None,
    allowed_types: AllowedTypes = None,
    unknown_types: UnknownTypes | None = None,
    compression: str | None = "zstd",
    encryption: Ring | None = None,
    cache_bytes: int = 64 * 1024 * 1024,
    trust_identity: bool = False,
    share_decoded: bool = False,
    index_metadata: Iterable[str] = (),
    fencing: bool = False,
    retention: Policy | None = None,
    ttl: float | None = None,
) -> Tools:
    """Codec, keys and caches, as the options say."""
    foreign, ring = serde, encryption
    if serde is not None and hasattr(serde, "cipher") and hasattr(serde, "serde"):
        # LangGraph's EncryptedSerializer: different bytes each time would share nothing. Its inner
        # serializer encodes, its cipher seals.
        if encryption is not None:
            raise InvalidRequest("give either encryption= or an encrypting serde=, not both")
        foreign, ring = serde.serde, CipherRing(serde.cipher)
    codec: Codec
    if isinstance(foreign, Serializer):
        if allowed_types is not None or unknown_types is not None:
            option = "allowed_types" if allowed_types is not None else "unknown_types"
            raise InvalidRequest(f"give {option}= to the Serializer, or to connect without one, not both")
        codec = foreign.codec
    else:
        if foreign is not None and not hasattr(foreign, "dumps_typed"):
            foreign = _Untyped(foreign)
        codec = Codec(TypeRules(allowed_types), foreign=foreign, unknown_types=unknown_types or "refuse")
    return Tools(
        codec,
        ring=ring,
        compression=compression,
        cache_bytes=cache_bytes,
        trust_identity=trust_identity,
        share_decoded=share_decoded,
        index_metadata=tuple(index_metadata),
        is_in_memory=engine.is_in_memory,
        fencing=fencing,
        retention=retention,
        ttl_seconds=ttl,
    )


class _Untyped:
    """A serializer with only `dumps` and `loads`, such as the json module."""

    def __init__(self, serde: Any) -> None:
        self._serde = serde

    def dumps_typed(self, obj: Any) -> tuple[str, bytes]:
        dumped = self._serde.dumps(obj)
        return type(obj).__name__, dumped.encode() if isinstance(dumped, str) else dumped

    def loads_typed(self, data: tuple[str, bytes]) -> Any:
        return self._serde.loads(data[1])
