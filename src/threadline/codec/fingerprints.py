"""Runs of values packed together: the fastest proof that they are still what they were.

A fingerprint packs the states of many values in one call. It is *exact* where the encoded items can be made
from it again; then equal fingerprints mean equal items.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import ormsgpack

from .framing import EXT_HEADERS, array_header
from .plans import name_header
from .rules import class_name
from .scan import has_bytes, may_hold_bytes
from .wire import OBJECT, OPTIONS, Codec

__all__ = ["Contents", "Fingerprint", "Fingerprinter"]

packb, unpackb, Ext = ormsgpack.packb, ormsgpack.unpackb, ormsgpack.Ext
_NATIVE = frozenset((str, int, float, bool, type(None), list, dict))


class Fingerprint(NamedTuple):
    """A run of values packed together: two runs with equal fingerprints have equal items."""

    kinds: list[type]
    packed: bytes


class Contents:
    """Encoded items, and the types they were made from."""

    __slots__ = ("is_plain", "items", "kinds", "starts")

    def __init__(self, items: list[bytes], kinds: list[type], starts: list[int] | None = None) -> None:
        self.items = items
        self.kinds = kinds
        # Where in each the state begins, as far as somebody asked; never changed in place, for others may read it.
        self.starts = starts or []
        # Whether no bytes are among them, once it was looked at.
        self.is_plain: bool | None = None

    def followed_by(self, more: Contents) -> Contents:
        return Contents(self.items + more.items, self.kinds + more.kinds, self.starts)


class Fingerprinter:
    """Takes the fingerprints of values as one codec packs them."""

    def __init__(self, codec: Codec) -> None:
        self.codec = codec

    def of(self, values: Sequence[Any]) -> Fingerprint | None:
        """The values packed in one go; None where they must be encoded one by one.

        Equal to an exact fingerprint means: the values have the items that one was made from.
        """
        if self.codec.foreign is not None:
            return None
        self.codec.refresh()
        kinds = list(map(type, values))
        states: Any = values if _NATIVE.issuperset(kinds) else self.codec.alike.states(values, kinds)
        try:
            return None if states is None else Fingerprint(kinds, packb(states, None, OPTIONS))
        except (TypeError, RecursionError):
            return None

    @staticmethod
    def misleads(found: Fingerprint) -> bool:
        """Bytes and bytearrays pack alike, so a fingerprint that holds either proves nothing."""
        return may_hold_bytes(found.packed) and has_bytes(unpackb(found.packed, ext_hook=Ext))

    def is_made_of(self, found: Fingerprint, contents: Contents) -> bool:
        """Whether a fingerprint packs the very states that these encoded items hold."""
        items, kinds, starts = contents.items, contents.kinds, contents.starts
        if kinds != found.kinds:
            return False
        if len(starts) != len(items):
            added = self._starts(kinds[len(starts) :], items[len(starts) :])
            if added is None:
                return False
            starts = contents.starts = starts + added
        states = [item[start:] for item, start in zip(items, starts, strict=True)]
        return b"".join((array_header(len(items)), *states)) == found.packed

    def _starts(self, kinds: list[type], items: list[bytes]) -> list[int] | None:
        """Where in each item the state begins; None where one is not of a kind that packs as its state."""
        headers = self.codec.alike.headers
        starts: list[int] = []
        for kind, item in zip(kinds, items, strict=True):
            if kind in _NATIVE:
                starts.append(0)
                continue
            header, start = headers.get(kind), EXT_HEADERS.get(item[0], 2)
            if header is None or not item.startswith(header, start):
                return None
            starts.append(start + len(header))
        return starts

    def items_of(self, fingerprint: Fingerprint) -> list[bytes]:
        """The encoded items that an exact fingerprint stands for."""
        return [
            self.codec.encode(state)
            if kind in _NATIVE
            else packb(Ext(OBJECT, name_header(class_name(kind)) + packb(state)))
            for kind, state in zip(fingerprint.kinds, unpackb(fingerprint.packed), strict=True)
        ]
