"""Two trees compared: down level by level, into those nodes alone that only one of them has.

Equal content has an equal digest, so a node that both trees have is never read, nor anything below it. A
walk reads nothing itself: it says which nodes it needs, and is carried on once they are in the pile. Walks
of many channels can so share one query for each level.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, NamedTuple, TypeAlias

from ..errors import Corrupt, NotFound
from .gather import Pile
from .refs import LIST, MAP, Node, Ref, Tree, are_digests
from .sequence_diff import differing
from .weigh import check_listed

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


class _Step(NamedTuple):
    """A node that was not opened yet, and its depth: 1 for leaves."""

    digest: bytes
    depth: int


def _steps(tree: Tree) -> list[Any]:
    return [_Step(digest, depth) for digest, depth in tree.nodes()]


class _Descent(ABC):
    """Two trees on the way down. The deepest nodes of either side are opened first."""

    kind: int

    def __init__(self, names: tuple[str, str]) -> None:
        self._names = names  # as errors name the two values
        self._set_aside()

    @property
    def is_over(self) -> bool:
        """Whether what is left are items."""
        return not self._depth()

    def needed(self, side: int) -> dict[bytes, tuple[int, int]]:
        """The nodes of one side that the next step down needs, with their kind and depth."""
        depth = self._depth()
        return {step.digest: (self.kind, depth) for step in self._tokens(side) if _is_due(step, depth)}

    def descend(self, before: Pile, after: Pile) -> None:
        """One step down, the needed nodes being in the piles; Corrupt names the value that lacks one."""
        depth = self._depth()
        for side, pile in ((BEFORE, before), (AFTER, after)):
            due = [step for step in self._tokens(side) if _is_due(step, depth)]
            # A node may stand in many places: how many entries there are is known before any are listed.
            lengths = {step.digest: len(self._below(side, step, pile).refs) for step in due}
            check_listed([step.digest for step in due], lengths.__getitem__)
            self._open(side, depth, pile)
        self._set_aside()

    def _depth(self) -> int:
        """The depth of the deepest nodes; 0 where there are none."""
        depths = [token.depth for side in (BEFORE, AFTER) for token in self._tokens(side) if _is_step(token)]
        return max(depths, default=0)

    def _below(self, side: int, step: _Step, pile: Pile) -> Node:
        """The node of a step, checked to be one that can stand there."""
        digest = step.digest
        node = pile.nodes.get(digest)
        if node is None:
            if digest in pile.locked:
                raise NotFound(f"{self._names[side]}: {pile.locked[digest]}")
            reason = pile.damaged.get(digest, "is missing")
            raise Corrupt(f"{self._names[side]}: the chunk {digest.hex()} {reason}")
        is_leaf = step.depth == 1
        if (node.keys is not None) != (is_leaf and self.kind == MAP) or not (is_leaf or are_digests(node.refs)):
            raise self._misfit(side)
        return node

    def _misfit(self, side: int) -> Corrupt:
        return Corrupt(f"{self._names[side]}: its chunks do not fit together")

    def _opened(self, side: int, step: _Step, pile: Pile) -> list[Any]:
        """What is in a node: further steps, or references."""
        refs = self._below(side, step, pile).refs
        return list(refs) if step.depth == 1 else [_Step(digest, step.depth - 1) for digest in refs]

    @abstractmethod
    def _tokens(self, side: int) -> Iterator[Any]:
        """What one side has that the other has not: steps, and items."""

    @abstractmethod
    def _open(self, side: int, depth: int, pile: Pile) -> None:
        """Put what is in one side's nodes of this depth in their place."""

    @abstractmethod
    def _set_aside(self) -> None:
        """Leave out what both sides have."""


class ListWalk(_Descent):
    """Two lists; what differs are gaps between what is equal."""

    kind = LIST

    def __init__(self, before: Tree, after: Tree, names: tuple[str, str]) -> None:
        # Gaps, and how many equal items stand between them (None: not known, as they stand in equal nodes).
        self._stretches: list[Gap | int | None] = [
            Gap([*_steps(before), *before.refs], [*_steps(after), *after.refs]),
        ]
        super().__init__(names)

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

    def _tokens(self, side: int) -> Iterator[Any]:
        return (token for stretch in self._stretches if isinstance(stretch, Gap) for token in stretch.side(side))

    def _open(self, side: int, depth: int, pile: Pile) -> None:
        for stretch in self._stretches:
            if isinstance(stretch, Gap):
                opened: list[Any] = []
                for token in stretch.side(side):
                    opened += self._opened(side, token, pile) if _is_due(token, depth) else [token]
                stretch.side(side)[:] = opened

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
        position = 0
        for a0, a1, b0, b1 in differing(gap.before, gap.after):
            if a0 > position:
                yield _count(gap.before[position:a0])
            yield Gap(gap.before[a0:a1], gap.after[b0:b1])
            position = a1
        if position < len(gap.before):
            yield _count(gap.before[position:])


class DictWalk(_Descent):
    """Two dicts; what differs are entries, wherever they stand."""

    kind = MAP

    def __init__(self, before: Tree, after: Tree, names: tuple[str, str]) -> None:
        self._names = names
        self._sides: list[list[Any]] = [
            [*_steps(tree), *self._entries(side, tree.keys, tree.refs)] for side, tree in enumerate((before, after))
        ]
        super().__init__(names)

    def entries(self) -> tuple[dict[str, Ref], dict[str, Ref]]:
        """What only one side has, or has otherwise, by key; call when the walk is over."""
        return dict(self._sides[BEFORE]), dict(self._sides[AFTER])

    def _tokens(self, side: int) -> Iterator[Any]:
        return iter(self._sides[side])

    def _open(self, side: int, depth: int, pile: Pile) -> None:
        opened: list[Any] = []
        for token in self._sides[side]:
            if not _is_due(token, depth):
                opened.append(token)
            elif depth == 1:
                node = self._below(side, token, pile)
                opened += self._entries(side, node.keys, node.refs)
            else:
                opened += self._opened(side, token, pile)
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


def _is_step(token: Any) -> bool:
    return type(token) is _Step


def _is_due(token: Any, depth: int) -> bool:
    return type(token) is _Step and token.depth == depth


def _count(equal: list[Any]) -> int | None:
    """How many items these are; None where nodes are among them."""
    return None if any(map(_is_step, equal)) else len(equal)


Walk: TypeAlias = ListWalk | DictWalk


def walk_of(before: Ref, after: Ref, names: tuple[str, str]) -> Walk | None:
    """The walk over two lists or two dicts; None where one of them is not taken apart, or they are of two kinds."""
    if not isinstance(before, Tree) or not isinstance(after, Tree) or before.kind != after.kind:
        return None
    return (DictWalk if before.kind == MAP else ListWalk)(before, after, names)
