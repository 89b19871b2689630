"""How commands open a store: never making one by looking, and without the classes of the application."""

from __future__ import annotations

import importlib
import os
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Annotated, NamedTuple

import typer

from ..backends.engine import Engine
from ..codec import KeyRing, Serializer
from ..codec.structure import StructuralCodec
from ..connecting import make_engine, make_tools, parse_url
from ..core.tools import Tools
from ..errors import InvalidRequest, NotFound
from ..saver import Saver

__all__ = ["Modules", "Store", "import_modules", "open_store", "require_file"]

Modules = Annotated[
    list[str] | None,
    typer.Option(
        "--import",
        metavar="MODULE",
        help="Import a module of the application first, so that its types can be rebuilt. May be given several times.",
        show_default=False,
    ),
]

_KEY = "LANGGRAPH_AES_KEY"


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

    An encrypted store is opened with the key in LANGGRAPH_AES_KEY.
    """
    require_file(url)
    engine = make_engine(url, read_only=True) if read_only else make_engine(url, setup=False)
    try:
        serde = Serializer(codec=StructuralCodec()) if structural else None
        tools = make_tools(engine, serde=serde, encryption=_key_of(engine))
        yield Store(Saver(engine, tools).open(), engine, tools)
    finally:
        engine.close()


def require_file(url: str) -> None:
    """Looking at a store must not make an empty one where the name was mistyped."""
    scheme, path = parse_url(url)
    if scheme == "sqlite" and path != ":memory:" and not path.startswith("file:") and not os.path.exists(path):
        raise NotFound(f"there is no database at {path}; `threadline setup` makes one")


def _key_of(engine: Engine) -> KeyRing | None:
    if engine.run(lambda backend: backend.get_meta("keys")) is None:
        return None
    if not os.environ.get(_KEY):
        raise InvalidRequest(f"this store is encrypted: set {_KEY} to its key")
    return KeyRing.from_env(_KEY)
