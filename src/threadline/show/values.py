"""Stored values for people and for programs: one line each, or JSON. No class of theirs is needed."""

from __future__ import annotations

import base64
import math
from collections.abc import Mapping
from typing import Any

from ..base.damage import Damaged
from ..base.printable import MOST_BITS, printable, shown
from ..codec import StoredException
from ..codec.structural import Structure

__all__ = ["Damaged", "one_line_of", "plain", "text_of"]


_PLAIN = (str, int, bool, type(None))


def one_line_of(value: Any) -> str:
    """A value as one line."""
    # The text of an exception is its repr already.
    return printable(str(value) if isinstance(value, StoredException) else shown(value))


def plain(value: Any) -> Any:
    """A value for JSON. What JSON has no form for is an object with `$type`."""
    if isinstance(value, float):
        return value if math.isfinite(value) else {"$type": "float", "value": repr(value)}
    if type(value) in _PLAIN:
        # Programs that read JSON take no number of so many digits, and Python writes none.
        is_long = type(value) is int and value.bit_length() > MOST_BITS
        return {"$type": "int", "hex": hex(value)} if is_long else value
    if isinstance(value, StoredException):
        return {"$type": value.type_name, "value": value.message}
    if isinstance(value, Structure):
        fields = value.fields
        if fields is not None:
            return {"$type": value.type_name, "fields": {key: plain(field) for key, field in fields.items()}}
        return {"$type": value.type_name, "value": plain(value.shown)}
    if isinstance(value, (bytes, bytearray)):
        return {"$type": type(value).__name__, "base64": base64.b64encode(value).decode()}
    if isinstance(value, (list, tuple, set, frozenset)):
        return [plain(item) for item in value]
    if isinstance(value, Mapping):
        if all(isinstance(key, str) for key in value):
            return {key: plain(item) for key, item in value.items()}
        return {"$type": "dict", "items": [[plain(key), plain(item)] for key, item in value.items()]}
    if isinstance(value, Damaged):
        return {"$type": "damaged", "value": value.why}
    return {"$type": f"{type(value).__module__}.{type(value).__qualname__}", "value": text_of(value)}


def text_of(value: Any) -> str:
    """The text of a value that JSON has no form for."""
    try:
        return str(value)
    except ValueError:
        return shown(value)
