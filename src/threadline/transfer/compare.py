"""Comparing a checkpoint of the source with the one in the store.

Everything is compared by its bytes in our encoding, because `==` forgives too much (1 and True, 0.0 and
-0.0) and too little (nan). The bytes of stored values are joined from chunks that were checked against
their digests; those of the source are encoded in one piece, without what was remembered of earlier puts.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, NamedTuple

from ..base.checkpoint import get_checkpoint_metadata
from ..chunks.refs import Pair, Ref
from ..core.context import Tools
from ..core.get import Read
from ..core.rows import ABSENT, draft
from ..errors import Corrupt
from .source import SourceCheckpoint
from .transcode import Cipher, TransferCodec

__all__ = ["Comparison", "Wanted", "WantedWrite", "compare", "read_json", "wanted_from"]


class WantedWrite(NamedTuple):
    """A pending write as it should be stored."""

    task_id: str
    task_path: str
    idx: int
    channel: str
    value: Any

    @property
    def key(self) -> tuple[str, int]:
        return (self.task_id, self.idx)


@dataclass(frozen=True, slots=True)
class Wanted:
    """A checkpoint as it should be stored."""

    thread_id: str
    namespace: str
    parent: str | None
    checkpoint: dict[str, Any]
    metadata: dict[str, Any]
    writes: list[WantedWrite]

    @property
    def id(self) -> str:
        return str(self.checkpoint["id"])

    @property
    def made_at(self) -> float | None:
        """When the checkpoint was made, in seconds; None where its time cannot be read."""
        try:
            return datetime.fromisoformat(self.checkpoint["ts"]).timestamp()
        except (KeyError, TypeError, ValueError, OverflowError):
            return None


@dataclass(slots=True)
class Comparison:
    """The parts of a checkpoint that the store lacks, or has otherwise."""

    is_absent: bool = False
    is_different: bool = False
    absent_writes: list[WantedWrite] = field(default_factory=list)
    different_writes: list[WantedWrite] = field(default_factory=list)
    # Whether the store has writes that the source has not: somebody went on from here.
    has_more_writes: bool = False

    @property
    def is_same(self) -> bool:
        return not (self.is_absent or self.is_different or self.absent_writes or self.different_writes)


def wanted_from(found: SourceCheckpoint, codec: TransferCodec, cipher: Cipher | None) -> Wanted:
    """The checkpoint of a row, transcoded; Corrupt when the row cannot be read."""
    if found.blobs is None:
        checkpoint = codec.load(found.tag, found.content, cipher)
    else:
        checkpoint = read_json(found.content, "checkpoint")
    if not isinstance(checkpoint, dict):
        raise Corrupt("its bytes hold no checkpoint")
    if found.blobs is not None:
        apart = {blob.channel: codec.load(blob.tag, blob.content, cipher) for blob in found.blobs}
        # Where no value was in JSON, a document may lack them altogether.
        checkpoint["channel_values"] = {**_mapping(checkpoint, "channel_values"), **apart}
    if found.sends:
        checkpoint["pending_sends"] = [codec.load(send.tag, send.content, cipher) for send in found.sends]
    _mapping(checkpoint, "channel_versions")
    writes = [
        WantedWrite(
            write.task_id, write.task_path, write.idx, write.channel, codec.load(write.tag, write.content, cipher)
        )
        for write in found.writes
    ]
    checkpoint["id"] = found.id
    metadata = read_json(found.metadata or b"{}", "metadata")
    if not isinstance(metadata, dict):
        raise Corrupt("its metadata is no JSON object")
    # In the form that a put gives it: old versions of LangGraph kept NUL characters.
    described = get_checkpoint_metadata({}, metadata)
    return Wanted(found.thread_id, found.namespace, found.parent, checkpoint, described, writes)


def compare(wanted: Wanted, stored: Read | None, tools: Tools) -> Comparison:
    """Compare a checkpoint of the source with the stored one."""
    if stored is None:
        return Comparison(is_absent=True, absent_writes=list(wanted.writes))
    comparison = Comparison(is_different=not _is_same_checkpoint(wanted, stored, tools))
    held = {(write.task_id, write.idx): (write, ref) for write, ref in stored.writes}
    for write in wanted.writes:
        if write.key not in held:
            comparison.absent_writes.append(write)
            continue
        row, ref = held.pop(write.key)
        is_same = (row.task_path, row.channel) == (write.task_path, write.channel)
        if not is_same or _content(stored, ref, tools) != tools.codec.encode_natively(write.value):
            comparison.different_writes.append(write)
    comparison.has_more_writes = bool(held)
    return comparison


def _is_same_checkpoint(wanted: Wanted, stored: Read, tools: Tools) -> bool:
    codec, document, row = tools.codec, stored.document, stored.found.row
    held: dict[str, Any] = {"v": document.v, "ts": document.ts, "versions_seen": document.versions_seen}
    if document.updated_channels is not ABSENT:
        held["updated_channels"] = document.updated_channels
    held.update(document.other)
    metadata = tools.metadata(stored.found)
    if draft(wanted.checkpoint, wanted.metadata, codec)[:2] != draft(held, metadata, codec)[:2]:
        return False
    said_of_channels = [wanted.parent, _sorted(wanted.checkpoint.get("channel_versions") or {})]
    if codec.encode_natively(said_of_channels) != codec.encode_natively([row.parent, _sorted(document.roots.versions)]):
        return False
    values, refs = wanted.checkpoint.get("channel_values", {}), document.roots.refs
    return values.keys() == refs.keys() and all(
        _content(stored, refs[name], tools) == codec.encode_natively(value) for name, value in values.items()
    )


def _content(stored: Read, ref: Ref | Pair, tools: Tools) -> bytes | None:
    """The bytes of a stored value; None where a chunk is missing or damaged."""
    try:
        return tools.reader.content(ref, stored.pile)
    except KeyError:
        return None


def _sorted(versions: Mapping[str, Any]) -> list[Any]:
    """Versions in an order of their own: the document has channels with values first."""
    return sorted([name, version] for name, version in versions.items())


def _mapping(checkpoint: dict[str, Any], name: str) -> dict[str, Any]:
    """A part of a checkpoint; Corrupt when it is something else than a mapping."""
    part = checkpoint.get(name) or {}
    if not isinstance(part, dict):
        raise Corrupt(f"its {name} are no mapping")
    return part


def read_json(stored: bytes, what: str) -> Any:
    """The value of a JSON text; Corrupt when it is none."""
    try:
        return json.loads(stored)
    except (ValueError, RecursionError) as error:
        raise Corrupt(f"its {what} is no JSON ({error})") from None
