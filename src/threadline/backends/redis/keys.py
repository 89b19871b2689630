"""Keys and packed rows.

All keys of a pool carry its number as hash tag, so that a cluster keeps the pool in one slot:

    PREFIX:{POOL}:pool       hash: epoch; version, raised by each change; living, how many threads; ends, its expiry
    PREFIX:{POOL}:threads    hash: thread id -> its row, also when it is deleted or moved to another pool
    PREFIX:{POOL}:chunks     hash: digest -> links, form, bytes: whole or gone, never in parts
    PREFIX:{POOL}:rows       hash: place -> checkpoint;  PREFIX:{POOL}:order  sorted set: these places in order
    PREFIX:{POOL}:writes     hash: place -> write;       PREFIX:{POOL}:tasks  sorted set: these places in order
    PREFIX:{POOL}:heirs      sorted set: place of a parent, NUL, id of its child
    PREFIX:{POOL}:leases     hash: thread id -> the record of its lease
    PREFIX:{POOL}:gate       there for a moment when collecting must keep writers out

and those of the store as a whole:

    PREFIX:dir:THREAD        pool, ticket and last deletion of a thread; may be there before the thread is
    PREFIX:threads           sorted set of thread, ticket and pool; may hold what is gone
    PREFIX:asking            the same of threads that have asked something; may hold what has its answer, or is gone
    PREFIX:pools             sorted set of pools, scored by their number; may hold what is empty
    PREFIX:meta              hash: records of the store, its format, and the last number given to a pool or thread

All keys of the records (records.py) carry one hash tag too:

    PREFIX:{records}:format         there as long as the store has its format, as far as this slot knows
    PREFIX:{records}:SPACE          hash: name -> the record, packed
    PREFIX:{records}:SPACE:names    sorted set of the names, all with one score: in the order of their bytes
    PREFIX:{records}:SPACE:expiry   sorted set of the names that expire, by the time they do

A place is `serial:namespace NUL id`, and for a write `serial:namespace NUL id NUL task NUL index`; a NUL inside
a name is written NUL FF, which keeps the order of the bytes. Rows are fields, each behind its length.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import NamedTuple

from ...ports.checkpoints import CheckpointRow, ThreadRow, WriteRow

__all__ = [
    "Entry",
    "Keys",
    "POOL_KEYS",
    "chunk_of",
    "decoded",
    "encoded",
    "escaped",
    "head_of",
    "index_member",
    "index_parts",
    "lives",
    "optional",
    "pack_checkpoint",
    "pack_chunk",
    "pack_fields",
    "pack_write",
    "place_of",
    "place_parts",
    "thread_of",
    "tombstone",
    "unpack_checkpoint",
    "unpack_write",
    "write_place_of",
]

# The end of a name: a NUL that is not part of it.
_END = re.compile(rb"\x00(?!\xff)")
# Of how many pools the keys are remembered.
_MOST_POOLS = 4096
POOL_KEYS = ("pool", "threads", "chunks", "rows", "order", "writes", "tasks", "heirs", "leases", "gate")


class Keys:
    """The names of a store's keys."""

    def __init__(self, prefix: str) -> None:
        # Braces of the prefix must not be taken for a hash tag.
        plain = prefix.replace("%", "%25").replace("{", "%7B").replace("}", "%7D")
        self.prefix = encoded(plain)
        self.threads = self.prefix + b":threads"
        self.asking = self.prefix + b":asking"
        self.pools = self.prefix + b":pools"
        self.meta = self.prefix + b":meta"
        self._pools: dict[int, tuple[bytes, ...]] = {}

    def directory(self, thread_id: str) -> bytes:
        return self.prefix + b":dir:" + encoded(thread_id)

    def pool(self, pool: int) -> tuple[bytes, ...]:
        """All keys of a pool, in the order in which scripts expect them."""
        keys = self._pools.get(pool)
        if keys is None:
            if len(self._pools) >= _MOST_POOLS:
                self._pools.clear()
            head = b"%s:{%d}:" % (self.prefix, pool)
            keys = self._pools[pool] = tuple([head + name.encode() for name in POOL_KEYS])
        return keys

    def of(self, pool: int, name: str) -> bytes:
        return b"%s:{%d}:%s" % (self.prefix, pool, name.encode())

    def records(self, space: str) -> list[bytes]:
        """All keys of a space of records, in the order in which scripts expect them."""
        slot = self.prefix + b":{records}:"
        base = slot + space.encode()
        return [base, base + b":names", base + b":expiry", slot + b"format"]


class Entry(NamedTuple):
    """Where a thread lives, or would begin: each life of a thread has a ticket of its own."""

    pool: int
    ticket: int
    before: str | None  # its last deletion, as long as no row says so

    def packed(self) -> bytes:
        return b"%d:%d:%s" % (self.pool, self.ticket, optional(self.before))

    @staticmethod
    def unpacked(value: bytes) -> Entry:
        pool, ticket, before = value.split(b":", 2)
        return Entry(int(pool), int(ticket), _text(before))


def encoded(text: str) -> bytes:
    """Text as bytes; lone surrogates are kept."""
    return text.encode(errors="surrogatepass")


def decoded(data: bytes) -> str:
    return data.decode(errors="surrogatepass")


def optional(value: object) -> bytes:
    """A value that may be None, as a field."""
    if value is None:
        return b""
    return b"=" + (encoded(value) if isinstance(value, str) else repr(value).encode())


def escaped(text: str) -> bytes:
    """A name as part of a place, with its end."""
    return encoded(text).replace(b"\0", b"\0\xff") + b"\0"


def place_of(namespace: str, checkpoint_id: str) -> bytes:
    """A checkpoint's place without the serial of its thread, which only the server knows for sure."""
    head = namespace.encode(errors="surrogatepass").replace(b"\0", b"\0\xff")
    return b"%b\0%b" % (head, checkpoint_id.encode(errors="surrogatepass"))


def place_parts(place: bytes) -> tuple[str, str]:
    """The namespace and the id of a checkpoint's place."""
    if place.count(b"\0") == 1:
        namespace, _, checkpoint = place.decode(errors="surrogatepass").partition("\0")
        return namespace, checkpoint
    namespace, checkpoint_id = _parted(place)
    return namespace, decoded(checkpoint_id)


def head_of(namespace: str, checkpoint_id: str) -> bytes:
    """What the places of a checkpoint's writes, and the entries of its children, begin with after the serial."""
    return escaped(namespace) + escaped(checkpoint_id)


def write_place_of(write: WriteRow) -> bytes:
    names = f"{write.namespace}\0{write.checkpoint_id}\0{write.task_id}\0"
    if names.count("\0") == 3:
        return b"%b%d" % (names.encode(errors="surrogatepass"), write.idx)
    return escaped(write.namespace) + escaped(write.checkpoint_id) + escaped(write.task_id) + b"%d" % write.idx


def index_member(thread_id: str, ticket: int, pool: int) -> bytes:
    """One life of a thread in the index of all threads."""
    return escaped(thread_id) + b"%d:%d" % (ticket, pool)


def index_parts(member: bytes) -> tuple[str, int, int]:
    name, rest = _parted(member)
    ticket, _, pool = rest.partition(b":")
    return name, int(ticket), int(pool)


def pack_fields(fields: Sequence[bytes]) -> bytes:
    return b"".join([part for field in fields for part in (len(field).to_bytes(4, "big"), field)])


def unpack_fields(value: bytes) -> list[bytes]:
    fields: list[bytes] = []
    at, end = 4, len(value)
    while at <= end:
        stop = at + int.from_bytes(value[at - 4 : at], "big")
        fields.append(value[at:stop])
        at = stop + 4
    return fields


def thread_of(thread_id: str, pool: int, epoch: int, value: bytes) -> ThreadRow:
    serial, status, before, forked, created, active, expires, tags, metadata = unpack_fields(value)
    times = float(created), float(active), float(expires[1:]) if expires else None
    words = decoded(status), _text(before), _text(forked)
    return ThreadRow(thread_id, int(serial), pool, epoch, *words, *times, decoded(tags), metadata)


def tombstone(thread_id: str, pool: int, ticket: int, before: str) -> ThreadRow:
    """The row of a deleted thread of which only the deletion is known."""
    return ThreadRow(thread_id, ticket, pool, 0, "deleted", before, None, 0.0, 0.0, None, "[]", b"")


def lives(row: ThreadRow | None) -> bool:
    """Whether a row is that of a living thread: not deleted, nor moved to another pool."""
    return row is not None and row.status not in ("deleted", "moved")


def pack_chunk(links: bytes, form: int, data: bytes) -> bytes:
    return b"".join((len(links).to_bytes(4, "big"), links, form.to_bytes(4, "big"), data))


def chunk_of(value: bytes) -> tuple[bytes, int, bytes]:
    end = 4 + int.from_bytes(value[:4], "big")
    return value[4:end], int.from_bytes(value[end : end + 4], "big"), value[end + 4 :]


def pack_checkpoint(row: CheckpointRow) -> bytes:
    texts = [
        b"=" + one.encode(errors="surrogatepass") if one is not None else b"" for one in (row[2], *row[9:11], row[12])
    ]
    parent, source, run_id, searchable = texts
    forms = b"%d" % row.form, b"%d" % row.metadata_form
    step = b"=%d" % row.step if row.step is not None else b""
    times = step, source, repr(row.created).encode()
    return pack_fields([row.links, parent, run_id, *forms, *times, searchable, row.document, row.metadata])


def unpack_checkpoint(place: bytes, value: bytes) -> CheckpointRow:
    links, parent, run_id, form, metadata_form, step, source, created, searchable, document, metadata = unpack_fields(
        value
    )
    texts = [one[1:].decode(errors="surrogatepass") if one else None for one in (parent, source, run_id, searchable)]
    namespace, id = place_parts(place)
    number = int(step[1:]) if step else None
    return CheckpointRow(
        namespace, id, texts[0], links, int(form), document, int(metadata_form), metadata, number, texts[1], texts[2],
        float(created), texts[3],
    )  # fmt: skip


def pack_write(write: WriteRow) -> bytes:
    texts = write.task_path.encode(errors="surrogatepass"), write.channel.encode(errors="surrogatepass")
    return pack_fields([write.links, b"%d" % write.form, *texts, write.data])


def unpack_write(place: bytes, value: bytes) -> WriteRow:
    if place.count(b"\0") == 3:
        namespace, checkpoint_id, task_id, index = place.decode(errors="surrogatepass").split("\0")
    else:
        namespace, rest = _parted(place)
        checkpoint_id, rest = _parted(rest)
        task_id, rest = _parted(rest)
        index = decoded(rest)
    links, form, task_path, channel, data = unpack_fields(value)
    texts = task_path.decode(errors="surrogatepass"), channel.decode(errors="surrogatepass")
    return WriteRow(namespace, checkpoint_id, task_id, int(index), *texts, links, int(form), data)


def _text(field: bytes) -> str | None:
    return decoded(field[1:]) if field else None


def _parted(place: bytes) -> tuple[str, bytes]:
    """The first name of a place, and what follows it."""
    end = _END.search(place)
    assert end is not None
    return decoded(place[: end.start()].replace(b"\0\xff", b"\0")), place[end.end() :]
