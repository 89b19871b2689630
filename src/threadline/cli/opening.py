"""How commands open a store: never making one by looking, and without the classes of the application."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import NamedTuple

from ..backends.engine import Engine
from ..codec import KeyRing, Serializer
from ..codec.structure import StructuralCodec
from ..connecting import make_engine, make_tools, parse_url
from ..core.tools import ids_of_keys
from ..errors import InvalidRequest, NotFound
from ..saver import Saver

__all__ = ["KEY_FILE", "Store", "given_keys", "open_store", "require_file"]

# The path that --key-file gave to the command that runs.
KEY_FILE: ContextVar[str | None] = ContextVar("KEY_FILE", default=None)
_KEYS = "THREADLINE_KEYS"
_LANGGRAPHS = "LANGGRAPH_AES_KEY"


class Store(NamedTuple):
    """An open store: the saver, and the engine for what no method of a saver does."""

    saver: Saver
    engine: Engine


@contextmanager
def open_store(url: str, *, read_only: bool = False, structural: bool = True) -> Iterator[Store]:
    """A store that must be there. Values are read as structures, unless they are to be written again.

    An encrypted store is opened with the keys of --key-file or THREADLINE_KEYS, or with LANGGRAPH_AES_KEY.
    """
    require_file(url)
    engine = make_engine(url, read_only=True) if read_only else make_engine(url, setup=False)
    try:
        serde = Serializer(codec=StructuralCodec()) if structural else None
        yield Store(
            Saver(engine, make_tools(engine, serde=serde, encryption=_keys_of(engine, read_only))).open(), engine
        )
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
        try:
            with open(path, encoding="utf-8") as file:
                return KeyRing.from_text(file.read(), f"the key file {path}")
        except (OSError, UnicodeDecodeError) as error:
            reason = getattr(error, "strerror", None) or "it is no text"
            raise InvalidRequest(f"the key file {path} cannot be read: {reason}") from None
    text = os.environ.get(_KEYS)
    return KeyRing.from_text(text, _KEYS) if text else None


def _keys_of(engine: Engine, read_only: bool) -> KeyRing | None:
    stored = engine.run(lambda backend: backend.get_meta("keys"))
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
    known = ids_of_keys(stored)
    ours = [key_id for key_id in ring.ids if key_id in known]
    if not ours:
        raise InvalidRequest(
            f"this store is encrypted under {', '.join(map(repr, known))}, and the keys given are "
            f"{', '.join(map(repr, ring.ids))}: give one of its own, by {_KEYS} or --key-file"
        )
    # Looking adds no key to those that a store knows.
    return ring.sealing_with(ours[0]) if read_only and ring.current not in known else ring
