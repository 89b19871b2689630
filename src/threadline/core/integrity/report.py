"""The findings of a check as plain data. The head of core/integrity/fsck.py explains the words."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from ...base.checkpoint import config_of
from ...base.printable import printable
from ...errors import InvalidRequest
from ...ports.objects import Absence

__all__ = ["Damage", "LostObject", "MissingChunk", "Report", "Verdict", "check_damages", "told_unknown"]

_MOST_TYPES = 10


@dataclass(frozen=True, slots=True, kw_only=True)
class Damage:
    """One thing that is wrong with a checkpoint; `channel` where it is one of its values or writes."""

    thread_id: str
    namespace: str
    checkpoint_id: str
    channel: str | None
    what: str
    # The chunks at fault, by digest: what many checkpoints share is damaged in all of them.
    chunks: tuple[str, ...] = ()

    @property
    def config(self) -> dict[str, Any]:
        """The config that names the checkpoint."""
        return config_of(self.thread_id, self.namespace, self.checkpoint_id)

    def __str__(self) -> str:
        where = f" in {self.namespace!r}" if self.namespace else ""
        channel = f", channel {self.channel!r}" if self.channel is not None else ""
        return printable(f"thread {self.thread_id!r}, checkpoint {self.checkpoint_id}{where}{channel}: {self.what}")


@dataclass(frozen=True, slots=True, kw_only=True)
class MissingChunk:
    """A chunk that is not there, and what cannot be read without it."""

    pool: int
    digest: str
    needed_by: tuple[Damage, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class LostObject:
    """An object of the cold tier that is gone or altered, the chunks that are lost with it, and what needs them."""

    name: str
    where: str
    # What became of it, such as "is gone".
    fate: str
    chunks: tuple[str, ...]
    needed_by: tuple[Damage, ...]

    def __str__(self) -> str:
        return f"the object {self.name} of {self.where} {self.fate}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Report:
    """The findings of fsck."""

    threads: int
    checkpoints: int
    writes: int
    chunks: int
    damaged: tuple[Damage, ...] = ()
    missing: tuple[MissingChunk, ...] = ()
    # Objects of the cold tier that do not have the chunks any more which they should have.
    lost_objects: tuple[LostObject, ...] = ()
    warnings: tuple[Damage, ...] = ()
    orphaned_chunks: int = 0
    orphaned_bytes: int = 0
    spoiled_chunks: tuple[str, ...] = ()
    leaked_pools: tuple[int, ...] = ()
    notes: tuple[str, ...] = ()
    # Items of stores and cached results, and what is wrong with some of them.
    records: int = 0
    damaged_records: tuple[str, ...] = ()
    # The types that this process cannot rebuild, and how many stored objects have each.
    unknown_types: Mapping[str, int] = field(default_factory=dict)
    # What could not be read after it was restored, by the id of its entry of the trash.
    damaged_trash: Mapping[str, tuple[Damage, ...]] = field(default_factory=dict)

    @property
    def ok(self) -> bool:
        """Whether everything can be read, and nothing will be lost by writing on."""
        found = self.damaged or self.missing or self.spoiled_chunks or self.leaked_pools
        return not (found or self.damaged_trash or self.damaged_records)

    def __str__(self) -> str:
        counted = (
            f"{self.threads} threads, {self.checkpoints} checkpoints, {self.writes} pending writes, "
            f"{self.chunks} chunks{f', {self.records} records' if self.records else ''}: "
            f"{'ok' if self.ok else 'damaged'}"
        )
        lines = [counted, *(f"damaged: {damage}" for damage in self.damaged)]
        for entry, damages in self.damaged_trash.items():
            lines += [f"damaged in the trash, entry {entry}: {damage}" for damage in damages]
        for chunk in self.missing:
            checkpoints = {(d.thread_id, d.namespace, d.checkpoint_id) for d in chunk.needed_by}
            lines.append(
                f"missing: chunk {chunk.digest} of pool {chunk.pool}, needed by {len(checkpoints)} checkpoints"
            )
        for lost in self.lost_objects:
            threads = {damage.thread_id for damage in lost.needed_by}
            lines.append(f"lost: {lost}, with {len(lost.chunks)} chunks that {len(threads)} threads need")
        lines += [f"damaged: {printable(record)}" for record in self.damaged_records]
        lines += [f"warning: {warning}" for warning in self.warnings]
        lines += [f"spoiled: chunk {digest}, which nothing needs: prune collects it" for digest in self.spoiled_chunks]
        lines += [f"leaked: pool {pool}, whose chunks no living thread can reach" for pool in self.leaked_pools]
        if self.orphaned_chunks:
            lines.append(f"orphaned: {self.orphaned_chunks} chunks, {self.orphaned_bytes} bytes; prune collects them")
        if self.unknown_types:
            lines.append(f"not rebuilt: {told_unknown(self.unknown_types)}")
        return "\n".join([*lines, *(f"note: {printable(note)}" for note in self.notes)])


def check_damages(damages: Any) -> list[Damage]:
    """Damages of a report, as a caller hands them in."""
    if isinstance(damages, Report):
        raise InvalidRequest("pass what is damaged, not the whole report: report.damaged")
    if not isinstance(damages, Sequence) or not all(isinstance(damage, Damage) for damage in damages):
        raise InvalidRequest("damages is a list of Damage, as in the `damaged` of an fsck report")
    return list(damages)


def told_unknown(unknown: Mapping[str, int]) -> str:
    """Which types cannot be rebuilt here, the most frequent first."""
    most = sorted(unknown.items(), key=lambda one: (-one[1], one[0]))
    named = [f"{printable(name)} ({count:,})" for name, count in most[:_MOST_TYPES]]
    more = f" and {len(most) - _MOST_TYPES:,} more" if len(most) > _MOST_TYPES else ""
    objects, types = sum(unknown.values()), len(most)
    return f"{objects:,} objects of {types:,} types that this process cannot rebuild: {', '.join(named)}{more}"


@dataclass(slots=True)
class Verdict:
    """The damages, warnings, missing chunks and lost objects of some rows."""

    damages: list[Damage] = field(default_factory=list)
    warnings: list[Damage] = field(default_factory=list)
    missing: list[tuple[bytes, Damage]] = field(default_factory=list)
    lost: list[tuple[Absence, str, Damage]] = field(default_factory=list)
