"""What the runtime takes from the rest of the package: errors, ids, and the driver of coroutines.

Every import from outside this room is here, so that a move of these modules touches one file.
"""

from __future__ import annotations

from functools import lru_cache
from typing import Any

from ..base.drive import run_now
from ..base.ids import new_id
from ..base.printable import printable
from ..codec import Serializer
from ..errors import Conflict, InvalidRequest, MissingExtra, ThreadlineError

__all__ = ["Conflict", "InvalidRequest", "MissingExtra", "ThreadlineError", "encode", "new_id", "printable", "run_now"]


def encode(value: Any) -> bytes:
    """The bytes that a checkpoint would hold for a value."""
    return _serializer().dumps(value)


@lru_cache(maxsize=1)
def _serializer() -> Serializer:
    return Serializer()
