"""Keys and packed rows.

All keys of a pool carry its number as hash tag, so that a cluster keeps the pool in one slot:

    PREFIX:{POOL}:pool       hash: epoch; version, raised by each change; living, how many threads; ends, its expiry
    PREFIX:{POOL}:threads    hash: thread id -> its row, also when it is deleted or moved to another pool
    PREFIX:{POOL}:chunks     hash: digest -> links, form, bytes: whole or gone, never in parts
    PREFIX:{POOL}:rows       hash: place -> checkpoint;  PREFIX:{POOL}:order  sorted set: these places in order
    PREFIX:{POOL}:writes     hash: place -> write;       PREFIX:{POOL}:tasks  sorted set: these places in order
    PREFIX:{POOL}:heirs      sorted set: place of a parent, NUL, id of its child (heirs.py)
    PREFIX:{POOL}:leases     hash: thread id -> the record of its lease
    PREFIX:{POOL}:gate       there for a moment when collecting must keep writers out

and those of the store as a whole:

    PREFIX:dir:THREAD        pool, ticket and last deletion of a thread; may be there before the thread is
    PREFIX:threads           sorted set of thread, ticket and pool; may hold what is gone
    PREFIX:asking            the same of threads that have asked something; may hold what has its answer, or is gone
    PREFIX:pools             sorted set of pools, scored by their number; may hold what is empty
    PREFIX:meta              hash: records of the store, its format, and the last number given to a pool or thread

A place is `serial:namespace NUL id`, and for a write `serial:namespace NUL id NUL task NUL index`; a NUL inside
a name is written NUL FF, which keeps the order of the bytes. Rows are fields, each behind its length.
"""

from __future__ import annotations

import re
import struct
from collections.abc import Sequence
from typing import NamedTuple

from ..port import CheckpointRow, ThreadRow, WriteRow

__all__ = [
    "Entry",
    "Keys",
    "chunk_of",
    "decoded",
    "encoded",
    "escaped",
    "head_of",
    "index_member",
    "index_parts",
    "optional",
    "pack_checkpoint",
    "pack_chunk",
    "pack_thread",
    "pack_write",
    "place_of",
    "thread_of",
    "unpack_checkpoint",
    "unpack_fields",
    "unpack_write",
    "write_place_of",
]

_LENGTH = struct.Struct(">I")
# The end of a name: a NUL that is not part of it.
_END = re.compile(rb"\x00(?!\xff)")
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

    def directory(self, thread_id: str) -> bytes:
        return self.prefix + b":dir:" + encoded(thread_id)

    def pool(self, pool: int) -> list[bytes]:
        """All keys of a pool, in the order in which scripts expect them."""
        head = b"%s:{%d}:" % (self.prefix, pool)
        return [head + name.encode() for name in POOL_KEYS]

    def of(self, pool: int, name: str) -> bytes:
        return b"%s:{%d}:%s" % (self.prefix, pool, name.encode())


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
    return escaped(namespace) + encoded(checkpoint_id)


def head_of(namespace: str, checkpoint_id: str) -> bytes:
    """What the places of a checkpoint's writes, and the entries of its children, begin with after the serial."""
    return escaped(namespace) + escaped(checkpoint_id)


def write_place_of(write: WriteRow) -> bytes:
    head = escaped(write.namespace) + escaped(write.checkpoint_id) + escaped(write.task_id)
    return head + b"%d" % write.idx


def index_member(thread_id: str, ticket: int, pool: int) -> bytes:
    """One life of a thread in the index of all threads."""
    return escaped(thread_id) + b"%d:%d" % (ticket, pool)


def index_parts(member: bytes) -> tuple[str, int, int]:
    name, rest = _parted(member)
    ticket, _, pool = rest.partition(b":")
    return name, int(ticket), int(pool)


def pack_fields(fields: Sequence[bytes]) -> bytes:
    return b"".join([part for field in fields for part in (_LENGTH.pack(len(field)), field)])


def unpack_fields(value: bytes) -> list[bytes]:
    fields: list[bytes] = []
    at = 0
    while at < len(value):
        end = at + 4 + int.from_bytes(value[at : at + 4], "big")
        fields.append(value[at + 4 : end])
        at = end
    return fields


def pack_thread(row: ThreadRow) -> bytes:
    return pack_fields(
        [
            b"%d" % row.serial,
            encoded(row.status),
            optional(row.deleted_before),
            optional(row.forked_from),
            repr(row.created).encode(),
            repr(row.active).encode(),
            optional(row.expires),
            encoded(row.tags),
            row.metadata or b"",
        ]
    )


def thread_of(thread_id: str, pool: int, epoch: int, value: bytes) -> ThreadRow:
    serial, status, before, forked, created, active, expires, tags, metadata = unpack_fields(value)
    return ThreadRow(
        thread_id=thread_id,
        serial=int(serial),
        pool=pool,
        epoch=epoch,
        status=decoded(status),
        deleted_before=_text(before),
        forked_from=_text(forked),
        created=float(created),
        active=float(active),
        expires=float(expires[1:]) if expires else None,
        tags=decoded(tags),
        metadata=metadata,
    )


def pack_chunk(links: bytes, form: int, data: bytes) -> bytes:
    return b"".join((_LENGTH.pack(len(links)), links, _LENGTH.pack(form), data))


def chunk_of(value: bytes) -> tuple[bytes, int, bytes]:
    end = 4 + int.from_bytes(value[:4], "big")
    return value[4:end], int.from_bytes(value[end : end + 4], "big"), value[end + 4 :]


def pack_checkpoint(row: CheckpointRow) -> bytes:
    return pack_fields(
        [
            row.links,
            optional(row.parent),
            optional(row.run_id),
            b"%d" % row.form,
            b"%d" % row.metadata_form,
            optional(row.step),
            optional(row.source),
            repr(row.created).encode(),
            optional(row.searchable),
            row.document,
            row.metadata,
        ]
    )


def unpack_checkpoint(place: bytes, value: bytes) -> CheckpointRow:
    namespace, checkpoint_id = _parted(place)
    links, parent, run_id, form, metadata_form, step, source, created, searchable, document, metadata = unpack_fields(
        value
    )
    return CheckpointRow(
        namespace,
        decoded(checkpoint_id),
        _text(parent),
        links,
        int(form),
        document,
        int(metadata_form),
        metadata,
        int(step[1:]) if step else None,
        _text(source),
        _text(run_id),
        float(created),
        _text(searchable),
    )


def pack_write(write: WriteRow) -> bytes:
    fields = [write.links, b"%d" % write.form, encoded(write.task_path), encoded(write.channel), write.data]
    return pack_fields(fields)


def unpack_write(place: bytes, value: bytes) -> WriteRow:
    namespace, rest = _parted(place)
    checkpoint_id, rest = _parted(rest)
    task_id, index = _parted(rest)
    links, form, task_path, channel, data = unpack_fields(value)
    return WriteRow(
        namespace,
        checkpoint_id,
        task_id,
        int(index),
        decoded(task_path),
        decoded(channel),
        links,
        int(form),
        data,
    )


def _text(field: bytes) -> str | None:
    return decoded(field[1:]) if field else None


def _parted(place: bytes) -> tuple[str, bytes]:
    """The first name of a place, and what follows it."""
    end = _END.search(place)
    assert end is not None
    return decoded(place[: end.start()].replace(b"\0\xff", b"\0")), place[end.end() :]
