"""A checkpoint as a row: the document holds the truth, the other columns are an index of what fits.

The document is a list in the codec's encoding: `[v, ts, versions_seen, updated_channels, other, channels]`,
where `channels` maps a name to `[version, reference]` and a channel without a value has `[version]`.
"""

from __future__ import annotations

import json
import logging
import math
import re
from collections.abc import Mapping
from operator import itemgetter
from typing import Any, NamedTuple, Protocol

import ormsgpack

from ..base.native import native
from ..base.printable import printable
from ..base.versions import Version
from ..chunks.refs import Pair, Ref, pairs_of, unpack_refs
from ..codec.codec import OPTIONS, Codec
from ..codec.envelope import Envelope
from ..codec.limits import unpack
from ..codec.packing import may_hold_bytes
from ..errors import Corrupt, NotAllowed, NotFound, ThreadlineError, TooLarge
from ..ports.checkpoints import CheckpointRow, Found, ThreadRow, WriteRow

__all__ = [
    "ABSENT",
    "DELTA_COUNTERS",
    "Document",
    "Draft",
    "LONGEST_INDEXED",
    "NONE",
    "Roots",
    "can_search",
    "checkpoint_place",
    "draft",
    "fits_column",
    "form_of_thread",
    "log_damage",
    "name_of",
    "place_of_row",
    "read_document",
    "read_known",
    "read_metadata",
    "searchable",
    "searchable_value",
    "write_place",
    "write_row",
]

log = logging.getLogger("threadline")
# Where the metadata of a checkpoint counts the steps since a delta channel was last stored whole.
DELTA_COUNTERS = "counters_since_delta_snapshot"
_first, packb = itemgetter(0), ormsgpack.packb
# The reference to the value None, and what it can be encoded from again.
NONE: tuple[Pair, bytes] = (b"", b"\xc0"), b"\xc0"
# Marks a key that the checkpoint did not have, where None is a value.
ABSENT = False
_STANDARD_KEYS = frozenset(("v", "id", "ts", "channel_values", "channel_versions", "versions_seen", "updated_channels"))
_OWN_COLUMNS = frozenset(("step", "source", "run_id"))
# What has columns of its own, and what is in every checkpoint: neither is looked for in the JSON.
_UNSEARCHED = _OWN_COLUMNS | {"parents"}
_SOURCES = ("loop", "input", "update", "fork")
LONGEST_INDEXED = 512
_PLAIN = frozenset((int, float, str, bool, type(None)))
_SEARCHABLE_KEY = re.compile(r"[A-Za-z0-9_-]+")


class Roots:
    """The channels of a checkpoint: their versions, and where their values are."""

    __slots__ = ("_refs", "pairs", "versions")

    def __init__(self, versions: dict[str, Version], pairs: dict[str, Pair]) -> None:
        self.versions, self.pairs = versions, pairs
        self._refs: dict[str, Ref] | None = None

    @property
    def refs(self) -> dict[str, Ref]:
        """The references of the values; Corrupt where they do not fit their links."""
        if self._refs is None:
            links = b"".join([pair[0] for pair in self.pairs.values()])
            self._refs = unpack_refs(links, {name: pair[1] for name, pair in self.pairs.items()})
        return self._refs

    def has(self, name: str, version: Any) -> bool:
        """Whether the channel has a value of just this version."""
        return name in self.pairs and self.versions.get(name) == version


class Document(NamedTuple):
    """The content of a checkpoint, with references in place of values."""

    v: int
    ts: str
    roots: Roots
    versions_seen: dict[str, dict[str, Version]]
    updated_channels: Any
    other: dict[str, Any]


class RowTools(Protocol):
    """What making a row takes."""

    codec: Codec
    envelope: Envelope
    # The keys of the metadata that can be looked for; None for all.
    indexed: tuple[str, ...] | None


class Draft(NamedTuple):
    """A checkpoint on its way into a row: everything but the channels is encoded already."""

    head: bytes  # v, ts, versions_seen, updated_channels, other
    described: bytes  # the metadata
    metadata: Mapping[str, Any]  # the same, for the index columns


def checkpoint_place(
    part: str, thread_id: str, namespace: str, checkpoint_id: str, parent: str | None, links: bytes
) -> bytes:
    """The bytes that a checkpoint's seal is bound to: its place, and its columns that are not sealed."""
    return ormsgpack.packb([part, thread_id, namespace, checkpoint_id, parent, links])


def place_of_row(thread_id: str, row: CheckpointRow, part: str) -> bytes:
    """The bytes that the seal of a stored checkpoint is bound to."""
    return checkpoint_place(part, thread_id, row.namespace, row.id, row.parent, row.links)


def write_place(thread_id: str, write: WriteRow) -> bytes:
    """The bytes that a pending write's seal is bound to."""
    return ormsgpack.packb(["write", thread_id, *write[:7]])


def draft(checkpoint: Mapping[str, Any], metadata: Mapping[str, Any], codec: Codec) -> Draft:
    """Encode what does not depend on the parent; NotSerializable names the path."""
    head = [
        checkpoint.get("v", 1),
        checkpoint["ts"],
        checkpoint.get("versions_seen", {}),
        checkpoint.get("updated_channels", ABSENT),
        {key: checkpoint[key] for key in checkpoint if key not in _STANDARD_KEYS},
    ]
    try:
        # Both are nearly always plain data; objects, and bytes, which a bytearray packs to as well, are for the codec.
        encoded, described = packb(head, None, OPTIONS), packb(metadata, None, OPTIONS)
        is_plain = not (0xC4 in encoded or 0xC5 in encoded or 0xC6 in encoded or may_hold_bytes(described))
    except (TypeError, ValueError, RecursionError):
        is_plain = False
    if not is_plain:
        encoded, described = codec.encode_natively(head, "checkpoint"), codec.encode_natively(metadata, "metadata")
    # The beginning of a list of six: the channels follow as the last entry.
    return tuple.__new__(Draft, (b"\x96" + encoded[1:], described, metadata))


def write_row(
    tools: RowTools, drafted: Draft, roots: Roots, place: tuple[str, str, str | None], checkpoint_id: str, now: float
) -> CheckpointRow:
    """The row of a checkpoint; `place` is its thread, its namespace and its parent's id."""
    head, described, metadata = drafted
    versions, pairs, envelope = roots.versions, roots.pairs, tools.envelope
    searched = searchable(metadata, tools.indexed) if not metadata.keys() <= _UNSEARCHED else None
    if native is not None:
        how = packb, envelope.begun, envelope.wrap_row, CheckpointRow
        row = native.row(place, checkpoint_id, head, described, metadata, versions, pairs, now, searched, *how)
        if row is not None:
            return row  # type: ignore[no-any-return]
    return _row_of_parts(tools, drafted, roots, place, checkpoint_id, now, searched)


def _row_of_parts(
    tools: RowTools,
    drafted: Draft,
    roots: Roots,
    place: tuple[str, str, str | None],
    checkpoint_id: str,
    now: float,
    searched: str | None,
) -> CheckpointRow:
    """`write_row`, for all names, versions and metadata."""
    thread_id, namespace, parent = place
    head, described, metadata = drafted
    versions, pairs = roots.versions, roots.pairs
    links = b"".join(map(_first, pairs.values()))
    # In the order of the links: channels with values first.
    channels: dict[str, list[Any]] = {}
    for name, pair in pairs.items():
        channels[name] = [versions.get(name), pair[1]]
    if len(channels) < len(versions):
        for name, version in versions.items():
            if name not in channels:
                channels[name] = [version]
    try:
        packed = packb(channels)
    except TypeError:  # names and versions that msgpack cannot say
        packed = tools.codec.encode_natively(channels, "channels")
    wrap = tools.envelope.wrap_row
    # As `checkpoint_place` has it, for both parts.
    bound_to = packb([thread_id, namespace, checkpoint_id, parent, links])[1:]
    form, stored = wrap(head + packed, b"\x96\xa8document" + bound_to)
    metadata_form, described = wrap(described, b"\x96\xa8metadata" + bound_to)
    step, source, run_id = metadata.get("step"), metadata.get("source"), metadata.get("run_id")
    row = (
        namespace,
        checkpoint_id,
        parent,
        links,
        form,
        stored,
        metadata_form,
        described,
        int(step) if isinstance(step, int) and abs(step) < 2**62 else None,
        source if source in _SOURCES or fits_column(source) else None,
        run_id if run_id is not None and fits_column(run_id) else None,
        now,
        searched,
    )
    return tuple.__new__(CheckpointRow, row)


def read_document(found: Found, codec: Codec, envelope: Envelope, roots: Roots | None = None) -> Document:
    """The document of a row; Corrupt names the checkpoint. `roots` are its channels, where they are known already."""
    row = found.row
    place = ["document", found.thread_id, row[0], row[1], row[2], row[3]]
    try:
        v, ts, seen, updated, other, channels = _parts(codec.decode(_opened(envelope, row[4], row[5], place)))
        if roots is None:
            versions, packed = {}, {}
            for name, entry in channels.items():
                if entry[0] is not None:
                    versions[name] = entry[0]
                if len(entry) > 1:
                    packed[name] = entry[1]
            roots = Roots(versions, pairs_of(row.links, packed))
        return tuple.__new__(Document, (v, ts, roots, seen, updated, other))
    # NotFound is a key that the ring lacks; a KeyError is taken for damage.
    except (NotAllowed, NotFound, TooLarge) as error:
        raise type(error)(f"{name_of(found)}: {error}") from None
    except (Corrupt, ValueError, TypeError, AttributeError, IndexError, KeyError) as error:
        raise Corrupt(f"{name_of(found)}: the document is damaged ({error})") from error


def read_known(found: Found, codec: Codec, envelope: Envelope, roots: Roots) -> tuple[Document, dict[str, Any] | None]:
    """The document of a row whose channels are known already, and its metadata, decoded in one pass.

    None for metadata that is not of the usual kind: `read_metadata` reads it, or says what is wrong.
    """
    row, decoded = found.row, None
    if native is not None and not row[4] and not row[6]:
        place = ["document", found.thread_id, row[0], row[1], row[2], row[3]]
        document = native.checked(place, row[5], packb, envelope.begun)
        place[0] = "metadata"
        metadata = native.checked(place, row[7], packb, envelope.begun)
        decoded = codec.read([document, metadata]) if document and metadata else None
    if decoded is None or type(decoded[1]) is not dict:
        return read_document(found, codec, envelope, roots), None
    try:
        v, ts, seen, updated, other, _ = _parts(decoded[0])
    except (Corrupt, TypeError, IndexError):
        return read_document(found, codec, envelope, roots), None
    return tuple.__new__(Document, (v, ts, roots, seen, updated, other)), decoded[1]


def _opened(envelope: Envelope, form: int, stored: bytes, place: list[Any]) -> bytes:
    """The content of a row that is bound to a place."""
    content: bytes | None = None
    if native is not None and not form:
        content = native.checked(place, stored, packb, envelope.begun)
    return content or envelope.unwrap_row(form, stored, packb(place))


def _parts(parts: Any) -> list[Any]:
    """The parts of a document, by their exact kinds: an instance of a class of the program would run its methods."""
    is_sound = type(parts) is list and len(parts) == 6 and type(parts[4]) is dict and type(parts[5]) is dict
    is_sound = is_sound and {list}.issuperset(map(type, parts[5].values()))
    if not is_sound or not _PLAIN.issuperset(map(type, [parts[0], *map(_first, parts[5].values())])):
        raise Corrupt("it has not the parts of a document")
    return parts  # type: ignore[no-any-return]


def read_metadata(found: Found, codec: Codec, envelope: Envelope) -> dict[str, Any]:
    """The metadata of a row."""
    row = found.row
    place = ["metadata", found.thread_id, row[0], row[1], row[2], row[3]]
    try:
        metadata: dict[str, Any] = codec.decode(_opened(envelope, row[6], row[7], place))
        if not issubclass(type(metadata), dict):
            raise Corrupt("it is no dict")
        return metadata
    except (NotAllowed, NotFound, TooLarge) as error:
        raise type(error)(f"{name_of(found)}, its metadata: {error}") from None
    except (Corrupt, ValueError, TypeError) as error:
        raise Corrupt(f"{name_of(found)}: the metadata is damaged ({error})") from error


def form_of_thread(row: ThreadRow) -> int:
    """The form of a thread's metadata; 0 without any."""
    try:
        form = unpack(row.metadata)[0] if row.metadata else 0
    except (Corrupt, ValueError, TypeError, LookupError):
        return 0
    return form if isinstance(form, int) else 0


def log_damage(damage: ThreadlineError) -> None:
    """Say that a row was left out of a list: it is damaged, or the ring lacks its key."""
    log.error("%s; it is left out of the list", printable(damage))


def name_of(found: Found) -> str:
    """A checkpoint as errors name it."""
    where = f" in {found.row.namespace!r}" if found.row.namespace else ""
    return f"thread {found.thread_id!r}, checkpoint {found.row.id}{where}"


def searchable(metadata: Mapping[str, Any], only: tuple[str, ...] | None) -> str | None:
    """The JSON by which a database can look for checkpoints: plain values only, and only some keys if so told."""
    fitting = {
        key: searchable_value(value)
        for key, value in metadata.items()
        if type(value) is not dict
        and key not in _OWN_COLUMNS
        and (only is None or key in only)
        and can_search(key, value)  # a dict is in every checkpoint: its parents
    }
    return json.dumps(fitting, separators=(",", ":"), ensure_ascii=True) if fitting else None


def fits_column(value: Any) -> bool:
    """Whether every database holds this text exactly."""
    if not isinstance(value, str) or "\0" in value:
        return False
    try:
        return len(value.encode()) <= LONGEST_INDEXED
    except UnicodeEncodeError:
        return False


def can_search(key: Any, value: Any) -> bool:
    """Whether a database can look for this value."""
    return isinstance(key, str) and _SEARCHABLE_KEY.fullmatch(key) is not None and searchable_value(value) is not None


def searchable_value(value: Any) -> str | float | None:
    """The form by which a database compares: values that are equal in Python have equal forms.

    Numbers of every kind become an exact small integer or a float; unequal ones may share a form, and the
    core checks what the database found.
    """
    if isinstance(value, str):
        return str.__str__(value) if len(value) <= LONGEST_INDEXED and value.isprintable() else None
    if isinstance(value, int) and abs(value) < 2**53:
        return int(value)
    try:
        number = float(value.real if isinstance(value, complex) else value)
    except (TypeError, ValueError, OverflowError):
        return None
    if not math.isfinite(number):
        return None
    return int(number) if number.is_integer() and abs(number) < 2**53 else number
