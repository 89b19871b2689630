"""From a URL and options to an engine and tools: the one place that knows which backend serves which URL."""

from __future__ import annotations

import os
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

from .backends.engine import Engine, named_memory
from .codec.rules import AllowedTypes, TypeRules
from .codec.seal import CipherRing, Ring
from .codec.serializer import Serializer
from .codec.wire import Codec
from .core.tools import Tools
from .errors import InvalidRequest
from .options import check_options
from .saver import Saver

if TYPE_CHECKING:
    import sqlite3

__all__ = ["connect", "make_engine", "make_tools"]


def connect(url: str | os.PathLike[str] | None = None, **options: Any) -> Saver:
    """A saver for a URL (`sqlite:///agents.db`, `memory://`), or for the path of a SQLite file.

    Nothing is opened before first use. For the options see docs/options.md.
    """
    engine_options, tool_options = split_options(options)
    engine = make_engine(url, **engine_options)
    return Saver(engine, make_tools(engine, **tool_options))


_TOOL_OPTIONS = frozenset(
    [
        "serde",
        "allowed_types",
        "compression",
        "encryption",
        "cache_bytes",
        "trust_identity",
        "share_decoded",
        "index_metadata",
    ]
)


def split_options(options: dict[str, Any]) -> tuple[dict[str, Any], dict[str, Any]]:
    """Options for the engine, and options for what is done with values; both checked."""
    check_options(options)
    tool_options = {name: options[name] for name in options if name in _TOOL_OPTIONS}
    return {name: options[name] for name in options if name not in _TOOL_OPTIONS}, tool_options


def make_engine(
    url: str | os.PathLike[str] | None = None,
    *,
    connection: sqlite3.Connection | None = None,
    table_prefix: str = "threadline_",
    setup: str | bool = "create",
    synchronous: str = "FULL",
    timeout: float = 30.0,
    read_only: bool = False,
) -> Engine:
    """The engine that serves a URL or a given connection."""
    if connection is None:
        scheme, path = parse_url(url)
        if scheme == "memory":
            return named_memory(path, read_only=read_only)
    else:
        path = ""
    from .backends.sqlite_engine import SqliteEngine

    return SqliteEngine(
        path or None,
        connection=connection,
        table_prefix=table_prefix,
        setup=setup,
        synchronous=synchronous,
        timeout=timeout,
        read_only=read_only,
    )


def parse_url(url: str | os.PathLike[str] | None) -> tuple[str, str]:
    """The scheme and the path of a URL; anything without a scheme is the path of a SQLite file."""
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
        return "sqlite", text
    if scheme == "sqlite":
        if "?" in rest:
            raise InvalidRequest("a sqlite:// URL takes no ?query; give options as keyword arguments (docs/options.md)")
        # sqlite:///relative.db, sqlite:////absolute.db, sqlite:// in memory.
        return "sqlite", rest[1:] or ":memory:" if rest.startswith("/") else rest or ":memory:"
    if scheme == "memory":
        return scheme, rest
    raise InvalidRequest(f"no backend of this version serves {scheme}://; there are sqlite:// and memory://")


def make_tools(
    engine: Engine,
    *,
    serde: Any = None,
    allowed_types: AllowedTypes = None,
    compression: str | None = "zstd",
    encryption: Ring | None = None,
    cache_bytes: int = 64 * 1024 * 1024,
    trust_identity: bool = False,
    share_decoded: bool = False,
    index_metadata: Iterable[str] = (),
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
        if allowed_types is not None:
            raise InvalidRequest("give allowed_types= to the Serializer, or to connect without one, not both")
        codec = foreign.codec
    else:
        if foreign is not None and not hasattr(foreign, "dumps_typed"):
            foreign = _Untyped(foreign)
        codec = Codec(TypeRules(allowed_types), foreign=foreign)
    return Tools(
        codec,
        ring=ring,
        compression=compression,
        cache_bytes=cache_bytes,
        trust_identity=trust_identity,
        share_decoded=share_decoded,
        index_metadata=tuple(index_metadata),
        is_in_memory=engine.is_in_memory,
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
