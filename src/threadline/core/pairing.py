"""Which items of a list are the same item, changed: by their ids, as messages have them, or by their place."""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from typing import Any
from uuid import UUID

__all__ = ["id_of", "paired"]


def paired(before: Sequence[Any], after: Sequence[Any]) -> list[tuple[int | None, int | None]]:
    """Pairs of positions over a stretch that was replaced; None where an item has no partner.

    Items with an id belong to the item with the same id. Items without belong to each other in order, if
    there are as many before as after. What was removed comes first, then the rest in the order it has now.
    """
    places: dict[Hashable, list[int]] = {}
    nameless: list[int] = []
    for i, value in enumerate(before):
        name = id_of(value)
        if name is None:
            nameless.append(i)
        else:
            places.setdefault(name, []).append(i)
    partners: dict[int, int] = {}
    others: list[int] = []
    for j, value in enumerate(after):
        name = id_of(value)
        if name is None:
            others.append(j)
        elif places.get(name):
            partners[j] = places[name].pop(0)
    if len(nameless) == len(others):
        partners.update(zip(others, nameless, strict=True))
    kept = set(partners.values())
    removed: list[tuple[int | None, int | None]] = [(i, None) for i in range(len(before)) if i not in kept]
    return removed + [(partners.get(j), j) for j in range(len(after))]


def id_of(value: Any) -> Hashable | None:
    """An item's own name, with its type (1 and True are two names); None when it has none."""
    try:
        found = value.get("id") if isinstance(value, dict) else getattr(value, "id", None)
    except Exception:  # code of the value's own class
        return None
    return (type(found), found) if isinstance(found, (str, int, UUID)) else None
