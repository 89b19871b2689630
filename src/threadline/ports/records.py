"""The Records port: named records in spaces, for all that is no checkpoint. A backend sees names and bytes.

A name is bytes: the segments of a path, packed so that the order of packed names is the order of paths, and a path of
whole segments is a prefix of every path below it (`pack_name`). Names are at most `MOST_NAME_BYTES` long, so that every
database can keep them in an index. The *group* of a name is its path up to the first empty segment, or all but the last
segment: `("users", "7", "", "likes")` is in the group `("users", "7")`, and lies beside the others of that group.

Promises every backend keeps, and the contract suite checks:
  - `write_records` is atomic and durable when it returns. A condition that does not hold refuses all of its changes.
  - A put keeps the time of creation of a record that is there, and raises its version by one; the first version is 1.
    A record that is brought over from another store begins with the version it had there (`first_version`).
  - A record that has expired is in no answer that names a time (`now`), whether it was swept or not.
  - The same `write_records` again, after an answer that never came, is harmless: a condition also holds where the
    record is already what the change would make of it, with the same time of update.
  - Methods are coroutines that a blocking backend finishes without suspending.
"""

from __future__ import annotations

from collections.abc import Sequence
from enum import IntEnum
from operator import attrgetter
from typing import Any, NamedTuple, Protocol, overload

from ..errors import InvalidRequest
from .marks import Scope, reads, writes

__all__ = [
    "ABSENT",
    "Content",
    "Embedded",
    "Expired",
    "MOST_NAME_BYTES",
    "Nearest",
    "PlainPuts",
    "Record",
    "RecordChange",
    "RecordSpace",
    "Records",
    "Scan",
    "WithoutVectors",
    "end_of_prefix",
    "first_version",
    "group_of",
    "is_made",
    "newest",
    "pack_name",
    "split_name",
]

# PostgreSQL keeps at most 2,704 bytes in an entry of a B-tree, MySQL 3,072 in a key.
MOST_NAME_BYTES = 2600
_updated = attrgetter("updated")
# The version that a change names where the record must not be there.
ABSENT = 0


class RecordSpace(IntEnum):
    """What a record is of. The numbers are stored."""

    META = 0  # of the store itself: keys, evidence of deletions
    ITEM = 1  # of a Store
    PAST = 2  # former values of items
    VECTOR = 3  # embeddings of items
    CACHE = 4  # results of nodes


class Record(NamedTuple):
    """A named record. `searchable` is JSON of what can be looked for; the value is wrapped as `form` says."""

    name: bytes
    form: int
    value: bytes
    searchable: str | None
    created: float
    updated: float
    expires: float | None
    version: int


# What of a record a reader needs who knows its place: form, value, and when it expires.
Content = tuple[int, bytes, float | None]


class Expired(NamedTuple):
    """A record that was deleted because it had expired, and when it had."""

    name: bytes
    expires: float


class RecordChange(NamedTuple):
    """A record to put (`version` is the backend's to set, `created` where it is new), or with None one to delete.

    Under `ABSENT`, a record that names a version has just that one: it was brought over from another store.
    """

    space: RecordSpace
    name: bytes
    record: Record | None
    # The version that must be there, ABSENT for none; with None the change holds whatever is there.
    if_version: int | None = None


class PlainPuts(Sequence[RecordChange]):
    """Puts without a condition into one space, made at one moment, each name once: what a batch of items is.

    Kept as columns, which is how databases take many rows at once. A backend that makes no difference sees a sequence
    of changes.
    """

    __slots__ = ("expires", "forms", "names", "now", "searchables", "space", "values")

    def __init__(
        self,
        space: RecordSpace,
        now: float,
        names: Sequence[bytes],
        forms: Sequence[int],
        values: Sequence[bytes],
        searchables: Sequence[str | None],
        expires: Sequence[float | None],
    ) -> None:
        self.space = space
        self.now = now
        self.names = names
        self.forms = forms
        self.values = values
        self.searchables = searchables
        self.expires = expires

    @property
    def are_alike(self) -> bool:
        """Whether all have one form and expire at one time: then rows differ in name, value and what is searchable."""
        forms, expires, count = self.forms, self.expires, len(self.names)
        return forms.count(forms[0]) == count and expires.count(expires[0]) == count

    def rows(self) -> list[tuple[bytes, bytes, str | None]]:
        """Name, value and what is searchable of each, in the order of their names."""
        return sorted(zip(self.names, self.values, self.searchables, strict=True))

    def __len__(self) -> int:
        return len(self.names)

    @overload
    def __getitem__(self, position: int) -> RecordChange: ...

    @overload
    def __getitem__(self, position: slice) -> list[RecordChange]: ...

    def __getitem__(self, position: int | slice) -> RecordChange | list[RecordChange]:
        if isinstance(position, slice):
            return [self[one] for one in range(*position.indices(len(self.names)))]
        name, now = self.names[position], self.now
        form, value, searchable = self.forms[position], self.values[position], self.searchables[position]
        record = Record(name, form, value, searchable, now, now, self.expires[position], 0)
        return RecordChange(self.space, name, record, None)


def first_version(record: Record) -> int:
    """The version that a record has which is put where it must not be there (`ABSENT`)."""
    return record.version or 1


def is_made(there: Record, record: Record, expected: int) -> bool:
    """Whether a put under a condition was made before, and its answer lost.

    Another writer may have put the same value over the same version: the time tells that it is another change.
    """
    becomes = first_version(record) if expected == ABSENT else expected + 1
    return there.version == becomes and (there.form, there.value, there.updated) == (
        record.form,
        record.value,
        record.updated,
    )


class Scan(NamedTuple):
    """Which records to read: in the order of their names, or the last updated first and then by name."""

    prefix: bytes = b""
    # Continue after this name; with `newest_first` after the record that was updated then and has this name.
    after: bytes = b""
    after_time: float | None = None
    newest_first: bool = False
    limit: int = 100
    # Exact values of searchable keys. A backend may return more than matches, such as records that do not have the key,
    # and the core checks again; it never returns less.
    equals: tuple[tuple[str, Any], ...] = ()
    # Leave out what has expired by then; None includes it.
    now: float | None = None


class Embedded(NamedTuple):
    """The embeddings of an item: 32-bit floats side by side, and when the record that has them was made."""

    name: bytes
    made: float
    vectors: bytes


class Nearest(NamedTuple):
    """What an index of embeddings answers: names that it cannot compare yet, or else names and how far each is away."""

    unfilled: list[bytes]
    # The nearest first, by cosine distance (0 to 2, exact to about 1e-6), then by name.
    found: list[tuple[bytes, float]]


class Records(Protocol):
    """Named records; see the promises at the head of this file."""

    @reads(Scope.RECORDS)
    async def read_records(self, space: RecordSpace, names: Sequence[bytes]) -> list[Record | None]:
        """The records of these names, in their order, expired ones included; None for one that is not there."""

    @writes(Scope.RECORDS)
    async def write_records(self, changes: Sequence[RecordChange]) -> int | None:
        """Make all changes, of any spaces, in one transaction and in order; of several to one name the last one holds.

        Returns the position of the first change whose condition does not hold, and then nothing was changed; None
        when all were made.
        """

    @writes(Scope.RECORDS)
    async def touch_records(self, space: RecordSpace, names: Sequence[bytes], expires: float | None) -> None:
        """Set when these records expire, where they are there; nothing else of them changes."""

    @reads(Scope.RECORDS)
    async def scan_records(self, space: RecordSpace, scan: Scan) -> list[Record]:
        """The next records of a scan; fewer than its limit only at the end."""

    @reads(Scope.RECORDS, is_long=True)
    async def record_prefixes(
        self, space: RecordSpace, prefix: bytes, depth: int, after: bytes, limit: int, now: float | None = None
    ) -> list[bytes]:
        """The groups of the names below a prefix, each cut to its first `depth` segments, without repetition.

        In order, after `after`. What is read grows with the answer, not with the records.
        """

    @reads(Scope.RECORDS, is_long=True)
    async def count_records(self, space: RecordSpace, prefix: bytes, now: float | None = None) -> int:
        """How many records there are below a prefix."""

    @writes(Scope.RECORDS, is_long=True)
    async def drop_records(self, space: RecordSpace, prefix: bytes) -> int:
        """Delete all records below a prefix; returns how many."""

    @writes(Scope.RECORDS)
    async def expire_records(self, space: RecordSpace, now: float, limit: int) -> list[Expired]:
        """Delete at most `limit` records that have expired, the longest expired first; returns them by name."""

    @writes(Scope.RECORDS)
    async def rewrap_records(self, space: RecordSpace, pairs: Sequence[tuple[Record, Record]]) -> None:
        """Replace form and value of each first record by those of the second, where it is still stored so.

        Version and times stay as they are.
        """

    @writes(Scope.STORE, is_long=True)
    async def index_records(self, keys: Sequence[str]) -> None:
        """Make an index of items by each of these searchable keys, where it is missing and the backend has such.

        A key consists of letters, digits, `_`, `-` and dots.
        """

    @writes(Scope.STORE, is_long=True)
    async def index_vectors(self, dims: int) -> bool:
        """Make an index of embeddings of so many dimensions where the backend has such; tells whether there is one.

        A backend that could have one, and has none here, says so in the log.
        """

    @reads(Scope.STORE, is_long=True)
    async def nearest_vectors(self, dims: int, prefix: bytes, query: bytes, limit: int) -> Nearest:
        """The names below a prefix whose embeddings are nearest to a query, by an index; see `index_vectors`.

        The index follows every change of a record of VECTOR, by whatever writer. It cannot read records, so it first
        asks for the embeddings of those that are new (`fill_vectors`).
        """

    @writes(Scope.STORE, is_long=True)
    async def fill_vectors(self, dims: int, embedded: Sequence[Embedded]) -> None:
        """Give the index embeddings that it lacks; one whose record was replaced in the meantime is left out."""


class WithoutVectors:
    """The methods about embeddings of a backend that has no index of them: all are compared by the core."""

    async def index_vectors(self, dims: int) -> bool:
        return False

    async def nearest_vectors(self, dims: int, prefix: bytes, query: bytes, limit: int) -> Nearest:
        raise NotImplementedError("there is no index of embeddings here")

    async def fill_vectors(self, dims: int, embedded: Sequence[Embedded]) -> None:
        raise NotImplementedError("there is no index of embeddings here")


def newest(records: list[Record], scan: Scan) -> list[Record]:
    """The page of a scan with `newest_first` from all its records, for a backend without an order by time.

    They come in the order of their names, which stays among those that were updated at the same moment.
    """
    if scan.after_time is not None:
        last = (-scan.after_time, scan.after)
        records = [one for one in records if (-one.updated, one.name) > last]
    return sorted(records, key=_updated, reverse=True)[: scan.limit]


def pack_name(path: Sequence[str]) -> bytes:
    """The name of a path. Raises InvalidRequest where it is too long, or no text that UTF-8 can hold."""
    try:
        text = "\0".join(path)
        if text.count("\0") == len(path) - 1:
            packed = text.encode() + b"\0"
        else:
            packed = b"".join([segment.encode().replace(b"\0", b"\0\xff") + b"\0" for segment in path])
    except UnicodeEncodeError:
        raise InvalidRequest("a name must be text that UTF-8 can hold") from None
    if len(packed) > MOST_NAME_BYTES:
        raise InvalidRequest(f"a name takes {len(packed):,} bytes, and at most {MOST_NAME_BYTES:,} can be stored")
    return packed


def split_name(name: bytes) -> tuple[str, ...]:
    """The path that `pack_name` was given."""
    if b"\xff" not in name:
        return tuple(name[:-1].decode().split("\0"))
    return tuple([segment.replace(b"\0\xff", b"\0").decode() for segment in _segments(name)])


def group_of(name: bytes, depth: int) -> tuple[bytes, bytes]:
    """The group of a name, cut to `depth` segments, and a bound: later groups have only names above it."""
    segments = _segments(name)
    whole = segments.index(b"") if b"" in segments else len(segments) - 1
    group = b"".join([segment + b"\0" for segment in segments[: min(whole, depth)]])
    if depth < whole:
        return group, group[:-1] + b"\0\xff" if group else b"\xff"
    # Groups below this one come after its own names, which lie behind the empty segment.
    return group, group + b"\0\xff" if b"" in segments else name


def end_of_prefix(prefix: bytes) -> bytes | None:
    """The first name that is not below a prefix; None where all are."""
    # A packed prefix ends with NUL, which 0xFF never follows, except inside a segment.
    return prefix[:-1] + b"\0\xff" if prefix else None


def _segments(name: bytes) -> list[bytes]:
    found, start, at = [], 0, name.find(b"\0")
    while at >= 0:
        if name[at + 1 : at + 2] == b"\xff":
            at = name.find(b"\0", at + 2)
            continue
        found.append(name[start:at])
        start = at + 1
        at = name.find(b"\0", start)
    return found
