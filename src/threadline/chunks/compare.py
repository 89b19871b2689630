"""Two trees compared: down level by level, into those nodes alone that only one of them has.

Equal content has an equal digest, so a node that both trees have is never read, nor anything below it. A
walk reads nothing itself: it says which nodes it needs, and is carried on once they are in the pile. Walks
of many channels can so share one query for each level.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, TypeAlias

from ..errors import Corrupt, NotFound
from .align import differing
from .read import Pile
from .refs import LIST, MAP, Node, Ref, Tree, are_digests
from .sizes import Budget

__all__ = ["AFTER", "BEFORE", "DictWalk", "Gap", "ListWalk", "Walk", "walk_of"]

BEFORE, AFTER = 0, 1
Entry = tuple[str, Ref]  # one of a dict's


@dataclass(slots=True)
class Gap:
    """A stretch in which two lists differ: what stands there, and where it begins (None: not known)."""

    before: list[Any]
    after: list[Any]
    before_start: int | None = None
    after_start: int | None = None

    def side(self, side: int) -> list[Any]:
        return self.after if side == AFTER else self.before


class _Descent(ABC):
    """How deep a walk is on either side. The deeper side goes first, until both stand on one level."""

    kind: int

    def __init__(self, before: Tree, after: Tree, names: tuple[str, str]) -> None:
        self._levels = [before.depth, after.depth]
        self._names = names  # as errors name the two values
        self._settle()

    @property
    def is_over(self) -> bool:
        """Whether what is left are items."""
        return not any(self._levels)

    def needed(self, side: int) -> dict[bytes, tuple[int, int]]:
        """The nodes of one side that the next step down needs, with their kind and depth."""
        if not self._is_due(side):
            return {}
        return {digest: (self.kind, self._levels[side]) for digest in self._tokens(side)}

    def descend(self, before: Pile, after: Pile) -> None:
        """One step down, the needed nodes being in the piles; Corrupt names the value that lacks one."""
        due = [side for side in (BEFORE, AFTER) if self._is_due(side)]
        for side in due:
            pile = after if side == AFTER else before
            # A node may stand in many places: how many entries there are is known before any are listed.
            Budget().take(sum([len(self._below(side, digest, pile).refs) for digest in self._tokens(side)]), 0)
            self._open(side, pile)
        for side in due:
            self._levels[side] -= 1
        self._settle()

    def _is_due(self, side: int) -> bool:
        return self._levels[side] > 0 and self._levels[side] == max(self._levels)

    def _below(self, side: int, digest: bytes, pile: Pile) -> Node:
        """A node of the level above, checked to be one that can stand there."""
        node = pile.nodes.get(digest)
        if node is None:
            if digest in pile.locked:
                raise NotFound(f"{self._names[side]}: {pile.locked[digest]}")
            reason = pile.damaged.get(digest, "is missing")
            raise Corrupt(f"{self._names[side]}: the chunk {digest.hex()} {reason}")
        is_leaf = self._levels[side] == 1
        if (node.keys is not None) != (is_leaf and self.kind == MAP) or not (is_leaf or are_digests(node.refs)):
            raise self._misfit(side)
        return node

    def _misfit(self, side: int) -> Corrupt:
        return Corrupt(f"{self._names[side]}: its chunks do not fit together")

    def _settle(self) -> None:
        if self._levels[BEFORE] == self._levels[AFTER]:
            self._set_aside()

    @abstractmethod
    def _tokens(self, side: int) -> Iterator[bytes]:
        """The digests of one side's nodes that are still to be opened."""

    @abstractmethod
    def _open(self, side: int, pile: Pile) -> None:
        """Put what is in one side's nodes in their place."""

    @abstractmethod
    def _set_aside(self) -> None:
        """Leave out what both sides have; they are at one level."""


class ListWalk(_Descent):
    """Two lists; what differs are gaps between what is equal."""

    kind = LIST

    def __init__(self, before: Tree, after: Tree, names: tuple[str, str]) -> None:
        # Gaps, and how many equal items stand between them (None: not known, as they stand in equal nodes).
        self._stretches: list[Gap | int | None] = [Gap(list(before.children), list(after.children))]
        super().__init__(before, after, names)

    def gaps(self) -> list[Gap]:
        """The stretches of item references that differ, in order; call when the walk is over."""
        found: list[Gap] = []
        starts: tuple[int, int] | None = (0, 0)
        for stretch in self._stretches:
            if isinstance(stretch, Gap):
                if starts is not None:
                    stretch.before_start, stretch.after_start = starts
                    starts = (starts[0] + len(stretch.before), starts[1] + len(stretch.after))
                found.append(stretch)
            else:
                starts = None if starts is None or stretch is None else (starts[0] + stretch, starts[1] + stretch)
        return found

    def _tokens(self, side: int) -> Iterator[bytes]:
        return (digest for stretch in self._stretches if isinstance(stretch, Gap) for digest in stretch.side(side))

    def _open(self, side: int, pile: Pile) -> None:
        for stretch in self._stretches:
            if isinstance(stretch, Gap):
                tokens = stretch.side(side)
                tokens[:] = [ref for digest in tokens for ref in self._below(side, digest, pile).refs]

    def _set_aside(self) -> None:
        stretches: list[Gap | int | None] = []
        for stretch in self._stretches:
            if isinstance(stretch, Gap):
                stretches.extend(self._split(stretch))
            else:
                stretches.append(stretch)
        self._stretches = stretches

    def _split(self, gap: Gap) -> Iterator[Gap | int | None]:
        """The gaps that are left of one, and what is equal between them."""
        are_items = self._levels[BEFORE] == 0
        position = 0
        for a0, a1, b0, b1 in differing(gap.before, gap.after):
            if a0 > position:
                yield a0 - position if are_items else None
            yield Gap(gap.before[a0:a1], gap.after[b0:b1])
            position = a1
        if position < len(gap.before):
            yield len(gap.before) - position if are_items else None


class DictWalk(_Descent):
    """Two dicts; what differs are entries, wherever they stand."""

    kind = MAP

    def __init__(self, before: Tree, after: Tree, names: tuple[str, str]) -> None:
        self._sides: list[list[Any]] = []
        self._names = names
        for side, tree in enumerate((before, after)):
            self._sides.append(list(tree.children) if tree.depth else self._entries(side, tree.keys, tree.children))
        super().__init__(before, after, names)

    def entries(self) -> tuple[dict[str, Ref], dict[str, Ref]]:
        """What only one side has, or has otherwise, by key; call when the walk is over."""
        return dict(self._sides[BEFORE]), dict(self._sides[AFTER])

    def _tokens(self, side: int) -> Iterator[bytes]:
        return iter(self._sides[side])

    def _open(self, side: int, pile: Pile) -> None:
        opened: list[bytes | Entry] = []
        for digest in self._sides[side]:
            node = self._below(side, digest, pile)
            opened.extend(node.refs if node.keys is None else self._entries(side, node.keys, node.refs))
        self._sides[side] = opened

    def _entries(self, side: int, keys: tuple[str, ...] | None, refs: tuple[Ref, ...]) -> list[Entry]:
        if keys is None or len(keys) != len(refs) or not set(map(type, keys)) <= {str}:
            raise self._misfit(side)
        return list(zip(keys, refs, strict=True))

    def _set_aside(self) -> None:
        # A key occurs once, so whatever both sides have they have once: no order is needed to match it.
        before, after = self._sides
        shared = set(before).intersection(after)
        self._sides = [[token for token in side if token not in shared] for side in (before, after)]


Walk: TypeAlias = ListWalk | DictWalk


def walk_of(before: Ref, after: Ref, names: tuple[str, str]) -> Walk | None:
    """The walk over two lists or two dicts; None where one of them is not taken apart, or they are of two kinds."""
    if not isinstance(before, Tree) or not isinstance(after, Tree) or before.kind != after.kind:
        return None
    return (DictWalk if before.kind == MAP else ListWalk)(before, after, names)
