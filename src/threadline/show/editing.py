"""A value that was edited as JSON, made a value again. Objects keep the types they are stored with; no class is needed.

The text is what `plain` made of the value: an object is `{"$type": …, "fields": {…}}`. One that the original has too,
at the same place or under the same id, keeps its stored form and takes the new fields. A type that the original does
not have cannot be made here.
"""

from __future__ import annotations

import base64
import json
from collections.abc import Iterator, Mapping
from typing import Any

from ..codec import StoredException
from ..codec.structural import Structure
from ..errors import InvalidRequest
from .values import plain

__all__ = ["edited"]

_TYPE = "$type"


def edited(original: Any, text: str) -> Any:
    """The value that a text stands for; InvalidRequest says what is wrong with it."""
    try:
        wanted = json.loads(text)
    except ValueError as error:
        raise InvalidRequest(f"this is no JSON: {error}") from None
    return _made(original, wanted, dict(_samples(original)))


def _made(original: Any, wanted: Any, samples: Mapping[str, Structure]) -> Any:
    if plain(original) == wanted and type(plain(original)) is type(wanted):
        return original  # untouched, whatever JSON has no form for
    if isinstance(wanted, list):
        known = original if isinstance(original, (list, tuple)) else []
        items = [_made(_partner(known, at, one), one, samples) for at, one in enumerate(wanted)]
        return tuple(items) if isinstance(original, tuple) else items
    if not isinstance(wanted, dict):
        return wanted
    if _TYPE in wanted:
        return _object(original, wanted, samples)
    known_items = original if isinstance(original, Mapping) else {}
    return {key: _made(known_items.get(key), one, samples) for key, one in wanted.items()}


def _object(original: Any, wanted: dict[str, Any], samples: Mapping[str, Structure]) -> Any:
    name, fields = wanted[_TYPE], wanted.get("fields")
    if name in ("bytes", "bytearray") and isinstance(wanted.get("base64"), str):
        try:
            return base64.b64decode(wanted["base64"], validate=True)
        except ValueError:
            raise InvalidRequest(f"the base64 of a {name} value cannot be read") from None
    like = original if isinstance(original, Structure) and original.type_name == name else samples.get(str(name))
    if like is None or not isinstance(fields, dict):
        raise InvalidRequest(
            f"an object of type {name!r} cannot be made here: the value that is edited has none like it"
        )
    before = like.fields or {}
    state = {key: _made(before.get(key), one, samples) for key, one in fields.items()}
    if isinstance(like.state, dict):
        return Structure(like.type_name, state, like.stored_name)
    if isinstance(like.state, list) and state.keys() == before.keys() and like is original:
        # Fields, extra fields, private ones: each goes back to the part that it came from.
        parts = [{key: state[key] for key in part} if isinstance(part, dict) else part for part in like.state]
        return Structure(like.type_name, parts, like.stored_name)
    raise InvalidRequest(f"of an object of type {name!r} only the values of its fields can be edited here")


def _partner(known: Any, at: int, wanted: Any) -> Any:
    """The item that an edited one was: the one with its id, or at its place."""
    name = _id_of(wanted)
    if name is not None:
        for one in known:
            if _id_of(plain(one)) == name:
                return one
    return known[at] if at < len(known) and name is None else None


def _id_of(shown: Any) -> Any:
    fields = shown.get("fields", shown) if isinstance(shown, dict) else None
    return fields.get("id") if isinstance(fields, dict) and isinstance(fields.get("id"), (str, int)) else None


def _samples(value: Any) -> Iterator[tuple[str, Structure]]:
    """Every type in a value, with one of its objects."""
    if isinstance(value, StoredException):
        return
    if isinstance(value, Structure):
        yield value.type_name, value
        yield from _samples(value.state)
    elif isinstance(value, Mapping):
        for one in value.values():
            yield from _samples(one)
    elif isinstance(value, (list, tuple)):
        for one in value:
            yield from _samples(one)
