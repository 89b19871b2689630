"""The tree of a thread as text, in the manner of `git log --graph`.

Steps come newest first, so a child always comes before its parent. Each lane
waits for one step: the parent of what was last drawn in it. Where several lanes
wait for the same step, a branch began there, and they are joined before it is
drawn. Pure functions: they know neither savers nor terminals.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

__all__ = ["Step", "draw", "fold"]

# A stretch without branches keeps this many steps at each end when it is folded.
KEPT_NEWEST = 2
KEPT_OLDEST = 3


@dataclass(frozen=True, slots=True, kw_only=True)
class Step:
    """A checkpoint as a line of the tree; or, where `folded` is set, a run of that many."""

    id: str
    parent: str | None
    number: int
    source: str
    act: str
    folded: int = 0


def fold(steps: Sequence[Step]) -> Iterator[Step]:
    """The steps, with the middle of each long stretch without branches made one."""
    children = Counter(step.parent for step in steps)
    stretch: list[Step] = []
    for step in steps:
        if stretch and stretch[-1].parent != step.id:
            yield from _fold_stretch(stretch)
            stretch = []
        is_plain = children[step.id] == 1
        if is_plain:
            stretch.append(step)
            continue
        yield from _fold_stretch(stretch)
        stretch = []
        yield step
    yield from _fold_stretch(stretch)


def draw(steps: Sequence[Step]) -> Iterator[tuple[str, Step | None]]:
    """The lines of the tree: the rails on the left, and the step that stands beside them."""
    lanes: list[str] = []
    for position, step in enumerate(steps):
        if position and not lanes:
            yield "", None  # what is above has come to its end; without a gap it would seem to go on
        waiting = [place for place, awaited in enumerate(lanes) if awaited == step.id]
        if not waiting:
            waiting = [len(lanes)]
            lanes.append(step.id)
        own, *joining = waiting
        for place in reversed(joining):
            yield _join(len(lanes), own, place), None
            del lanes[place]
        mark = ":" if step.folded else "*"
        yield " ".join(mark if place == own else "|" for place in range(len(lanes))), step
        if step.parent is None:
            if own + 1 < len(lanes):
                yield _close(len(lanes), own), None
            del lanes[own]
        else:
            lanes[own] = step.parent


def _fold_stretch(stretch: Sequence[Step]) -> Iterator[Step]:
    middle = stretch[KEPT_NEWEST : len(stretch) - KEPT_OLDEST]
    # Folding one step would hide it and save nothing.
    if len(middle) < 2:
        yield from stretch
        return
    yield from stretch[:KEPT_NEWEST]
    newest, oldest = middle[0], middle[-1]
    yield Step(
        id=newest.id,
        parent=oldest.parent,
        number=oldest.number,
        source="",
        act="",
        folded=len(middle),
    )
    yield from stretch[len(stretch) - KEPT_OLDEST :]


def _close(width: int, ended: int) -> str:
    """The rails of `width` lanes where lane `ended` has come to its end and those beside it move up."""
    rails = [" "] * (2 * width - 1)
    for lane in range(width):
        if lane < ended:
            rails[2 * lane] = "|"
        elif lane > ended:
            rails[2 * lane - 1] = "/"
    return "".join(rails).rstrip()


def _join(width: int, into: int, place: int) -> str:
    """The rails of `width` lanes where lane `place` runs into lane `into`."""
    rails = [" "] * (2 * width - 1)
    for lane in range(width):
        if lane < place:
            rails[2 * lane] = "|"
        else:
            rails[2 * lane - 1] = "/"
    for between in range(2 * into + 1, 2 * place - 1, 2):
        rails[between] = "_"
    return "".join(rails).rstrip()
