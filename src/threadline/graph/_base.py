"""What the runtime takes from the rest of the package: errors, ids, registered types, and the driver of coroutines.

Every import from outside this room is here, so that a move of these modules touches one file; `testing/` uses the
public names of `threadline` besides.
"""

from __future__ import annotations

from functools import lru_cache
from typing import Any

from ..base.checkpoint import config_of
from ..base.drive import run_now
from ..base.fields import stored_field
from ..base.ids import new_id
from ..base.printable import printable
from ..codec import Serializer
from ..codec.allowed import Registration, registry
from ..codec.data_classes import Shape, shape_of
from ..errors import Conflict, Corrupt, InvalidRequest, MissingExtra, ThreadlineError
from ..saver import Saver

__all__ = [
    "Conflict",
    "Corrupt",
    "InvalidRequest",
    "MissingExtra",
    "Registration",
    "Saver",
    "Shape",
    "ThreadlineError",
    "config_of",
    "encode",
    "new_id",
    "printable",
    "registry",
    "run_now",
    "shape_of",
    "stored_field",
]


def encode(value: Any) -> bytes:
    """The bytes that a checkpoint would hold for a value."""
    return _serializer().dumps(value)


@lru_cache(maxsize=1)
def _serializer() -> Serializer:
    return Serializer()
