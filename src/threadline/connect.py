"""From a URL and options to an engine and a context: which backend serves a URL, and which values an option may
have.
"""

from __future__ import annotations

import functools
import importlib
import importlib.util
import inspect
import math
import os
import re
import sys
from collections.abc import Callable, Mapping
from dataclasses import fields
from typing import Any, NamedTuple

from .codec.allowed import AllowedTypes, Registration, TypeRules, UnknownTypes
from .codec.codec import Codec
from .codec.envelope import load_compression
from .codec.seal import CipherRing, Ring
from .codec.serializer import Serializer
from .core.context import ToolOptions, Tools
from .core.retention.policy import TierPolicy, seconds_of
from .errors import InvalidRequest, MissingExtra
from .ports.engine import Engine
from .saver import Saver

__all__ = [
    "OPTIONS",
    "check_driver",
    "check_options",
    "connect",
    "is_pool",
    "make_cache_engine",
    "make_engine",
    "make_tools",
    "refuse_ttl",
]


def connect(url: str | os.PathLike[str] | None = None, **options: Any) -> Saver:
    """A saver for a URL (`sqlite:///agents.db`, `postgresql://…`, `memory://`), or for a SQLite file's path.

    Nothing is opened before first use. For the options see docs/options.md.
    """
    engine_options, tool_options = split_options(options)
    if tool_options.get("cold_after") is not None and engine_options.get("cold") is None:
        raise InvalidRequest("cold_after needs cold=, the place of the cold tier, such as s3://bucket/prefix")
    load_compression()
    engine = make_engine(url, **engine_options)
    tools = make_tools(engine, **tool_options)
    tools.checks_versions = tools.codec.foreign is None
    if not isinstance(tool_options.get("serde"), Serializer):  # its rules may be another reader's as well
        tools.codec.rules.preferred = _room_classes
    return Saver(engine, tools)


def _room_classes() -> Mapping[str, Registration]:
    """What a stored Send, Interrupt and the like are to a program that uses `threadline.graph`."""
    if f"{__package__}.graph" not in sys.modules:
        return {}
    from .graph.storing.wire import ROOM

    return ROOM


_TOOL_OPTIONS = frozenset(
    ["serde", "allowed_types", "unknown_types", "encryption", *(one.name for one in fields(ToolOptions))]
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


def refuse_ttl(options: Mapping[str, Any]) -> None:
    """Refuse what is the time to live of threads where items or entries are meant: it would be without effect."""
    if "ttl" in options:
        raise InvalidRequest("ttl= is of threads: the time to live of items and cached results is default_ttl=")


# What serves a scheme: the module and class of its engine, the packages it needs, and their extra.
class _Served(NamedTuple):
    module: str
    engine: str
    packages: tuple[str, ...] = ()
    extra: str = ""


_SERVED = {
    "sqlite": _Served("sqlite", "SqliteEngine"),
    "postgresql": _Served("postgres", "PostgresEngine", ("psycopg", "psycopg_pool"), "postgres"),
    "mysql": _Served("mysql", "MysqlEngine", ("pymysql", "aiomysql"), "mysql"),
    "redis": _Served("redis", "RedisEngine", ("redis",), "redis"),
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
    "archive": "archive",
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


def make_engine(
    url: str | os.PathLike[str] | None = None,
    *,
    metrics: Any = None,
    cold: str | None = None,
    cold_cache: str | os.PathLike[str] | None = None,
    cold_cache_bytes: int | None = None,
    **options: Any,
) -> Engine:
    """The engine that serves a URL, a given connection or a given pool.

    With `cold` it reads chunks that are in objects; with `metrics` its calls are counted.
    """
    kind, engine = _plain_engine(url, options)
    if cold is not None and kind != "archive":  # whose chunks are in its own file
        _add_cold_tier(engine, cold, cold_cache, cold_cache_bytes)
    if metrics is None or metrics is False:
        return engine
    from .ops.metrics import metered

    return metered(engine, metrics, kind)


def _add_cold_tier(engine: Any, cold: str, cache: str | os.PathLike[str] | None, cache_bytes: int | None) -> None:
    from .backends.layers.tiered import TieredLayer
    from .backends.objects.opening import CACHE_BYTES, open_objects

    bound = CACHE_BYTES if cache_bytes is None else cache_bytes

    def objects(is_of_loop: bool) -> Any:
        return open_objects(cold, is_of_loop=is_of_loop, cache=cache, cache_bytes=bound)

    halves = {is_of_loop: objects(is_of_loop) for is_of_loop in (False, True)}
    shorter = engine.put_usual, engine.aput_usual, engine.find_now
    engine.add_layer(lambda backend, is_of_loop: TieredLayer(backend, halves[is_of_loop]))
    # The layer reads chunks: puts and rows of checkpoints do not go through it.
    engine.put_usual, engine.aput_usual, engine.find_now = shorter


def _plain_engine(url: str | os.PathLike[str] | None, options: dict[str, Any]) -> tuple[str, Engine]:
    given = [options[name] for name in ("connection", "pool") if options.get(name) is not None]
    if len(given) > 1:
        raise InvalidRequest("give a connection or a pool, not both")
    if given:
        kind, place = _driver_of(given[0]), None
    else:
        kind, place = parse_url(url)
    if kind == "memory":
        from .backends.memory.engine import named_memory

        return kind, named_memory(place or "", read_only=options.get("read_only", False))
    if kind == "archive":
        from .backends.memory.archive import archive_engine

        return kind, archive_engine(place or "")
    check_driver(kind)
    served = _SERVED[kind]
    module = importlib.import_module(f"threadline.backends.{served.module}.engine")
    engine = getattr(module, served.engine)
    taken = inspect.signature(engine).parameters
    options = {name: value for name, value in options.items() if name not in _SHARED_OPTIONS or name in taken}
    unknown = sorted(set(options) - set(taken))
    if unknown:
        raise InvalidRequest(f"{kind}:// takes no option {unknown[0]} (docs/options.md says which it takes)")
    made: Engine = engine(place, **options)
    return kind, made


def make_cache_engine(url: str | os.PathLike[str] | None = None, **options: Any) -> Engine:
    """The engine of a cache: on SQLite a commit need not wait for the disk, because a cache may forget.

    What was set survives the end of the process; a power cut may take the last results with it. That its file was
    moved or deleted is noticed within a tenth of a second.
    """
    if url is None or parse_url(url)[0] != "sqlite":
        return make_engine(url, **options)
    options.setdefault("synchronous", "NORMAL")
    engine: Any = make_engine(url, **options)
    engine.may_forget()
    return engine  # type: ignore[no-any-return]


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


def is_pool(given: Any) -> bool:
    """Whether something that a driver or a subclass of it made is a pool of connections, and not a connection."""
    return any(
        one.__module__.partition(".")[0] == "psycopg_pool" or one.__name__ == "Pool" for one in type(given).__mro__
    )


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
        known = ", ".join(f"{name}://" for name in (*_SERVED, "memory", "archive"))
        shown = f"{scheme}://" if re.fullmatch(r"[A-Za-z][A-Za-z0-9+.-]{0,30}", scheme) else "such a URL"
        raise InvalidRequest(f"no backend of this version serves {shown}; there are {known}")
    if kind in ("sqlite", "memory"):
        _refuse_address(rest.removeprefix("/"))
    if kind == "sqlite":
        if "?" in rest:
            raise InvalidRequest("a sqlite:// URL takes no ?query; give options as keyword arguments (docs/options.md)")
        # sqlite:///relative.db, sqlite:////absolute.db, sqlite:// in memory.
        return kind, rest[1:] or ":memory:" if rest.startswith("/") else rest or ":memory:"
    if kind == "archive":
        # As with SQLite: archive:///relative.tla, archive:////absolute.tla.
        return kind, rest.removeprefix("/")
    return kind, rest if kind == "memory" else text


# The keywords of libpq's connection strings and of others like it, where a name begins. Compiled when first used.
_KEYWORD = (
    r"(?i)(?:^|[\s;])(?:host|hostaddr|port|dbname|database|server|user|uid|password|passwd|pwd|passfile|service|sslmode)\s*="
    r"|[?&](?:password|passwd|pwd)="
)
# A user and a password before an @, behind nothing or what is left of a scheme; C:\\ is a drive.
_LOGIN = r"(?is)(?!file:)(?![A-Za-z]:[\\/])(?:[a-z+.-]*:?//)?[^/\\@]*:.*@"


def _refuse_address(name: str) -> None:
    """Refuse a name that is a server's address: a file of that name would show its password. Nothing of it is shown."""
    if re.search(_KEYWORD, name) or re.match(_LOGIN, name):
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
    encryption: Ring | None = None,
    **options: Any,
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
    return Tools(codec, ToolOptions(**options), ring=ring, is_in_memory=engine.is_in_memory)


class _Untyped:
    """A serializer with only `dumps` and `loads`, such as the json module."""

    def __init__(self, serde: Any) -> None:
        self._serde = serde

    def dumps_typed(self, obj: Any) -> tuple[str, bytes]:
        dumped = self._serde.dumps(obj)
        return type(obj).__name__, dumped.encode() if isinstance(dumped, str) else dumped

    def loads_typed(self, data: tuple[str, bytes]) -> Any:
        return self._serde.loads(data[1])


def check_options(options: Mapping[str, Any]) -> None:
    """Refuse an option that is unknown or cannot have its value."""
    for name, value in options.items():
        rule = _RULES.get(name)
        if rule is None:
            raise InvalidRequest(f"unknown option: {name} (docs/options.md lists them)")
        accepts, wanted = rule
        if not accepts(value):
            raise InvalidRequest(f"{name} is {wanted}, not {_shown(value)}")


def _one_of(*values: Any) -> Callable[[Any], bool]:
    # By type too: 1 is not True, and 0 is not False.
    return lambda value: any(value == one and type(value) is type(one) for one in values)


def _is_seconds(value: Any) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool) and value >= 0 and math.isfinite(value)


def _is_cold_after(value: Any) -> bool:
    if value is None or isinstance(value, TierPolicy):
        return True
    try:
        return seconds_of(value, "cold_after") is not None
    except InvalidRequest:
        return False


def _is_text_list(value: Any) -> bool:
    return isinstance(value, (list, tuple, set, frozenset)) and all(isinstance(key, str) for key in value)


def _is_retry(value: Any) -> bool:
    if isinstance(value, bool):
        return value is False
    if isinstance(value, tuple):
        return len(value) == 2 and type(value[0]) is int and value[0] >= 1 and _is_seconds(value[1])
    return value is None or (type(value) is int and value >= 1)


def _is_metrics(value: Any) -> bool:
    return value is None or isinstance(value, bool) or value == "otel" or hasattr(value, "timing")


def _is_whole(value: Any) -> bool:
    return type(value) is int and value >= 1


def _is_text(value: Any) -> bool:
    return isinstance(value, str) and bool(value)


def _is_types(value: Any) -> bool:
    if isinstance(value, str):
        return value in ("imported", "strict")
    if not isinstance(value, (list, tuple, set, frozenset, type(None))):
        return False
    return all(isinstance(entry, type) or (isinstance(entry, tuple) and len(entry) >= 2) for entry in value or ())


def _is_serializer(value: Any) -> bool:
    if value is None:
        return True
    typed = hasattr(value, "dumps_typed") and hasattr(value, "loads_typed")
    return not isinstance(value, type) and (typed or (hasattr(value, "dumps") and hasattr(value, "loads")))


def _shown(value: Any) -> str:
    """A value in an error; never one that may be a key."""
    return repr(value) if isinstance(value, (str, int, float, type(None))) else type(value).__name__


_FLAG = (_one_of(True, False), "True or False")
_LEVELS = ("OFF", "NORMAL", "FULL", "EXTRA")
_RULES: dict[str, tuple[Callable[[Any], bool], str]] = {
    "allowed_types": (_is_types, "'imported', 'strict' or a list of types"),
    "cache_bytes": (lambda value: type(value) is int and value >= 0, "a number of bytes, 0 or more"),
    "cold": (lambda value: value is None or _is_text(value), "a URL such as s3://bucket/prefix"),
    "cold_after": (_is_cold_after, "a span of time such as '7d', or a TierPolicy(…)"),
    "cold_cache": (lambda value: value is None or isinstance(value, (str, os.PathLike)), "the path of a folder"),
    "cold_cache_bytes": (lambda value: type(value) is int and value >= 0, "a number of bytes, 0 or more"),
    "compression": (_one_of("zstd", None), "'zstd' or None"),
    "connection": (lambda value: value is None or not isinstance(value, (str, int)), "a connection of the driver"),
    "encryption": (lambda value: value is None or hasattr(value, "seal"), "a KeyRing({'2026': key of 32 bytes})"),
    "fencing": _FLAG,
    "index_metadata": (_is_text_list, "a list of metadata keys"),
    "key_prefix": (_is_text, "text"),
    "metrics": (_is_metrics, "True, 'otel', a Meter or None"),
    "partitions": (lambda value: value is None or _is_whole(value), "a number of partitions, 1 or more"),
    "pool": (lambda value: value is None or not isinstance(value, (str, int)), "a connection pool of the driver"),
    "pool_size": (_is_whole, "a number of connections, 1 or more"),
    "prepare_threshold": (
        lambda value: value is None or (type(value) is int and value >= 0),
        "after how many uses a statement is prepared, or None for never",
    ),
    "read_only": _FLAG,
    "retention": (lambda value: value is None or hasattr(value, "keep_last"), "a Policy(keep_last=…, …)"),
    "retry": (_is_retry, "a number of tries, Retry(tries=…, seconds=…), or None"),
    "schema": (lambda value: value is None or _is_text(value), "the name of a schema"),
    "serde": (_is_serializer, "an object with dumps_typed and loads_typed, or dumps and loads"),
    "setup": (_one_of("create", "migrate", False), "'create', 'migrate' or False"),
    "share_decoded": _FLAG,
    "synchronous": (lambda value: isinstance(value, str) and value.upper() in _LEVELS, "one of " + ", ".join(_LEVELS)),
    "table_prefix": (lambda value: isinstance(value, str), "text"),
    "tenant": (lambda value: value is None or _is_text(value), "the name of a tenant"),
    "ttl": (lambda value: value is None or (_is_seconds(value) and value > 0), "a number of seconds above 0"),
    "timeout": (_is_seconds, "a number of seconds, 0 or more"),
    "trust_identity": _FLAG,
    "unknown_types": (_one_of("plain", "refuse", None), "'plain' or 'refuse'"),
}

# The names of all options.
OPTIONS = tuple(sorted(_RULES))
