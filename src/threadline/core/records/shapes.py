"""The shapes of items as operations hand them on, and how an item's record is named."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, NamedTuple

from ...ports.records import pack_name, split_name

__all__ = ["Found", "ItemOptions", "Put", "Version", "name_of", "path_of"]


@dataclass(frozen=True, slots=True, kw_only=True)
class ItemOptions:
    """How a store keeps its items."""

    # Keys whose exact values a database can look for.
    indexed: tuple[str, ...] = ()
    # How many former versions of an item are kept, or for how many seconds; 0 for none.
    keep_versions: int = 0
    keep_seconds: float | None = None
    has_vectors: bool = False

    @property
    def keeps_history(self) -> bool:
        return self.keep_versions > 0 or self.keep_seconds is not None

    @property
    def is_plain(self) -> bool:
        """Whether a put is one record, whatever was there."""
        return not self.keeps_history and not self.has_vectors


class Found(NamedTuple):
    """An item as it was read."""

    namespace: tuple[str, ...]
    key: str
    value: dict[str, Any]
    created: float
    updated: float
    version: int
    expires: float | None
    ttl: float | None
    name: bytes


class Put(NamedTuple):
    """One item to put, or without a content to delete."""

    namespace: tuple[str, ...]
    key: str
    # The value and its time to live, packed (`pack_item`): nothing that the caller does to the value changes it.
    content: bytes | None
    ttl_seconds: float | None = None
    # The values of indexed fields, as JSON.
    searchable: str | None = None
    # The embeddings of the item, as 32-bit floats side by side; None for none.
    vectors: bytes | None = None
    if_version: int | None = None


class Version(NamedTuple):
    """A value that an item had from `since` until `until` (None: until now); the value None is a deletion."""

    value: dict[str, Any] | None
    version: int
    since: float
    until: float | None
    # Its time to live, in seconds.
    ttl: float | None = None


def name_of(namespace: Sequence[str], key: str) -> bytes:
    """The name of an item's record."""
    return _packed(tuple(namespace), key)


@lru_cache(4096)
def _packed(namespace: tuple[str, ...], key: str) -> bytes:
    """Agents read and put the same items again and again."""
    return pack_name((*namespace, "", key))


def path_of(name: bytes) -> tuple[tuple[str, ...], str]:
    """Namespace and key of an item's record."""
    path = split_name(name)
    return path[:-2], path[-1]
