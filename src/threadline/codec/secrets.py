"""Secrets of pydantic: stored as what they hide, and masked wherever a value is shown.

Only where this process has imported pydantic are they rebuilt. Who must keep them from readers of the database
encrypts the store.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any

from ..errors import NotAllowed
from .builtin import Builtin
from .states import a_text, bytes_of

__all__ = ["MASKS", "SECRET_NAMES", "secret_builder", "secret_plan"]

_MODULE = "pydantic.types"
# How a secret is shown.
MASKS: dict[str, Any] = {"SecretStr": "**********", "SecretBytes": b"**********"}
SECRET_NAMES = frozenset(MASKS)
_STATES: dict[str, Callable[[Any], Any]] = {"SecretStr": a_text, "SecretBytes": bytes_of}


def secret_plan(cls: type) -> Builtin | None:
    """How a secret is stored; None for every other class."""
    if cls.__module__ != _MODULE or cls.__name__ not in MASKS:
        return None
    return Builtin(cls.__name__, cls, lambda secret: secret.get_secret_value(), _build(cls.__name__))


def secret_builder(name: str) -> Callable[[Any], Any] | None:
    """How a stored secret is rebuilt."""
    return _build(name) if name in MASKS else None


def _build(name: str) -> Callable[[Any], Any]:
    def build(state: Any) -> Any:
        cls: Any = vars(sys.modules[_MODULE]).get(name) if _MODULE in sys.modules else None
        if cls is None:
            raise NotAllowed(f"the stored value is a {name}: import pydantic before reading")
        secret = object.__new__(cls)
        secret._secret_value = _STATES[name](state)
        return secret

    return build
