"""How commands open a store: never making one by looking, and without the classes of the application."""

from __future__ import annotations

import importlib
import os
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Annotated, Any, NamedTuple

import typer

from ..codec import KeyRing, Serializer
from ..codec.structural import StructuralCodec
from ..connect import make_engine, make_tools, parse_url
from ..core.context import Tools, ids_of_keys
from ..core.store_records import KEYS, read_record
from ..errors import InvalidRequest, NotFound
from ..ports.engine import Engine
from ..saver import Saver

__all__ = [
    "COLD",
    "KEY_FILE",
    "Modules",
    "Store",
    "given_keys",
    "import_modules",
    "keys_from",
    "keys_known",
    "open_store",
    "require_file",
]

Modules = Annotated[
    list[str] | None,
    typer.Option(
        "--import",
        metavar="MODULE",
        help="Import a module of the application first, so that its types can be rebuilt. May be given several times.",
        show_default=False,
    ),
]

# The path that --key-file gave to the command that runs.
KEY_FILE: ContextVar[str | None] = ContextVar("KEY_FILE", default=None)
# The place that --cold gave to the command that runs; else the environment names that of the store.
COLD: ContextVar[str | None] = ContextVar("COLD", default=None)
_COLD = "THREADLINE_COLD"
_KEYS = "THREADLINE_KEYS"
_LANGGRAPHS = "LANGGRAPH_AES_KEY"


class Store(NamedTuple):
    """An open store: the saver, and engine and tools for what no method of a saver does."""

    saver: Saver
    engine: Engine
    tools: Tools


def import_modules(modules: Sequence[str] | None) -> None:
    """Import what the user named, from the working directory too, as `python -m` does."""
    if modules and os.getcwd() not in sys.path:
        sys.path.insert(0, os.getcwd())
    for name in modules or ():
        try:
            importlib.import_module(name)
        except Exception as error:  # whatever the module does when it is imported
            raise InvalidRequest(f"--import {name}: {type(error).__name__}: {error}") from error


@contextmanager
def open_store(url: str, *, read_only: bool = False, structural: bool = True) -> Iterator[Store]:
    """A store that must be there. Values are read as structures, unless they are to be written again.

    An encrypted store is opened with the keys of --key-file or THREADLINE_KEYS, or with LANGGRAPH_AES_KEY. A store with
    a cold tier is opened with that of --cold or THREADLINE_COLD.
    """
    require_file(url)
    cold = COLD.get() or os.environ.get(_COLD)
    how: dict[str, Any] = {"read_only": True} if read_only else {"setup": False}
    engine = make_engine(url, **how, cold=cold or None)
    try:
        serde = Serializer(codec=StructuralCodec()) if structural else None
        tools = make_tools(engine, serde=serde, encryption=_keys_of(engine, read_only))
        yield Store(Saver(engine, tools).open(), engine, tools)
    finally:
        engine.close()


def require_file(url: str) -> None:
    """Looking at a store must not make an empty one where the name was mistyped."""
    scheme, path = parse_url(url)
    if scheme == "sqlite" and path != ":memory:" and not path.startswith("file:") and not os.path.exists(path):
        raise NotFound(f"there is no database at {path}; `threadline setup` makes one")


def given_keys() -> KeyRing | None:
    """The keys of --key-file, or else those of THREADLINE_KEYS; None where neither is given."""
    path = KEY_FILE.get()
    if path is not None:
        return keys_from(path)
    text = os.environ.get(_KEYS)
    return KeyRing.from_text(text, _KEYS) if text else None


def keys_from(path: str) -> KeyRing:
    """The keys in a file."""
    try:
        with open(path, encoding="utf-8") as file:
            return KeyRing.from_text(file.read(), f"the key file {path}")
    except (OSError, UnicodeDecodeError) as error:
        reason = getattr(error, "strerror", None) or "it is no text"
        raise InvalidRequest(f"the key file {path} cannot be read: {reason}") from None


def _keys_of(engine: Engine, read_only: bool) -> KeyRing | None:
    stored = engine.run(lambda backend: read_record(backend, KEYS))
    if stored is None:
        return None
    ring = given_keys()
    if ring is None and os.environ.get(_LANGGRAPHS):
        ring = KeyRing.from_env(_LANGGRAPHS)
    if ring is None:
        raise InvalidRequest(
            f"this store is encrypted: set {_KEYS} to its keys (id:base64, the current one first), or name a file that "
            f"holds them with --key-file; {_LANGGRAPHS} stands for a key with the id env"
        )
    ours = keys_known(stored, ring, f"by {_KEYS} or --key-file")
    # Looking adds no key to those that a store knows.
    return ring.sealing_with(ours[0]) if read_only and ring.current not in ids_of_keys(stored) else ring


def keys_known(stored: bytes, ring: KeyRing, how: str) -> list[str]:
    """The ids of a ring that the record of a store's keys knows; InvalidRequest where there are none."""
    known = ids_of_keys(stored)
    ours = [key_id for key_id in ring.ids if key_id in known]
    if not ours:
        raise InvalidRequest(
            f"this store is encrypted under {', '.join(map(repr, known))}, and the keys given are "
            f"{', '.join(map(repr, ring.ids))}: give one of its own, {how}"
        )
    return ours
