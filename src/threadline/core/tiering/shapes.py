"""Plans, results and figures of the cold tier."""

from __future__ import annotations

from dataclasses import dataclass

__all__ = ["PackUse", "Restored", "TierPlan", "TierStatus", "Tiered", "chosen_to_rewrite"]

# A pack is written anew when more of it than this is dead; and the worst ones, while more of all packs is dead.
_MOST_DEAD = 0.25
_MOST_DEAD_OVERALL = 0.05
# Packs of fewer bytes are small; so many of a pool are joined: each costs a reader a request.
_SMALL_BYTES = 1024 * 1024
_MOST_SMALL = 8


@dataclass(frozen=True, slots=True, kw_only=True)
class PackUse:
    """How much of an object is needed: the bytes of the chunks in it, and of those that some row names."""

    name: str
    pool: int
    chunk_bytes: int
    live_bytes: int
    # Whether what is in quarantine needs it.
    is_held: bool = False

    @property
    def is_orphan(self) -> bool:
        """Whether nothing needs it."""
        return not self.live_bytes and not self.is_held

    @property
    def dead_bytes(self) -> int:
        return max(self.chunk_bytes - self.live_bytes, 0)

    @property
    def dead_share(self) -> float:
        return self.dead_bytes / self.chunk_bytes if self.chunk_bytes else 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class TierPlan:
    """What a run of the cold tier would do now."""

    # The threads that are due as a whole.
    threads: tuple[str, ...]
    # Chunks that would move, of threads that are due and of large values, and the bytes that leave the database.
    chunks: int
    bytes: int
    # Objects that would be written anew, because too much of them is dead or they are small, and their dead bytes.
    rewrites: tuple[str, ...]
    dead_bytes: int
    # Objects that no row names, and those of them whose grace is over: they would be deleted.
    orphans: tuple[str, ...]
    deletes: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Tiered:
    """The result of a run of the cold tier."""

    chunks: int = 0
    bytes: int = 0
    # Objects that were written, that were written anew as part of others, and that were deleted.
    objects: int = 0
    rewritten: int = 0
    deleted: int = 0
    # Objects that could not be written anew, because they are lost, a sentence each; fsck names the threads.
    problems: tuple[str, ...] = ()
    # Whether another process is at it, so that this one left it alone; which, and how long its lease lasts if it died.
    is_elsewhere: bool = False
    holder: str = ""
    seconds_left: float = 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Restored:
    """Chunks that are in the database again, their bytes, and how many could not be had from their objects."""

    chunks: int
    bytes: int
    lost: int
    # Why, a sentence for each object that is gone or altered.
    why_lost: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class TierStatus:
    """What is where, in figures."""

    where: str
    hot_chunks: int
    hot_bytes: int
    cold_chunks: int
    cold_bytes: int
    # Rows of checkpoints and writes, and what cold chunks leave in the database: always there.
    row_bytes: int
    reference_bytes: int
    objects: int
    object_bytes: int
    dead_bytes: int
    orphans: int

    @property
    def share_in_database(self) -> float:
        """The part of all stored bytes that is in the database."""
        inside = self.hot_bytes + self.row_bytes + self.reference_bytes
        total = inside + self.cold_bytes
        return inside / total if total else 1.0


def chosen_to_rewrite(packs: list[PackUse]) -> list[PackUse]:
    """The objects of one pool that are to be written anew, worst first; those without a living chunk are orphans."""
    living = sorted((pack for pack in packs if pack.live_bytes), key=lambda pack: (-pack.dead_share, pack.name))
    dead, total = sum(pack.dead_bytes for pack in living), sum(pack.chunk_bytes for pack in living)
    chosen = []
    for pack in living:
        if pack.dead_share <= _MOST_DEAD and (not pack.dead_bytes or dead <= total * _MOST_DEAD_OVERALL):
            break
        chosen.append(pack)
        dead, total = dead - pack.dead_bytes, total - pack.dead_bytes
    small = [pack for pack in living if pack.chunk_bytes < _SMALL_BYTES and pack not in chosen]
    return chosen + small if len(small) > _MOST_SMALL else chosen
