"""The Records port: a hash of packed records for each space, their names in order, and those that expire by time."""

from __future__ import annotations

import struct
import sys
from collections import Counter
from collections.abc import Sequence
from typing import Any

import ormsgpack

from ...ports.records import (
    ABSENT,
    Expired,
    PlainPuts,
    Record,
    RecordChange,
    RecordSpace,
    Scan,
    WithoutVectors,
    end_of_prefix,
    first_version,
    group_of,
    newest,
)
from .directory import Directory
from .keys import Keys
from .wire import Link

__all__ = ["RedisRecords"]

# A packed record: version and time of creation first, which scripts read and keep, then the rest as one field.
_HEAD = struct.Struct(">Qd")
_PAGE = 512


class RedisRecords(WithoutVectors):
    """Named records of one prefix."""

    def __init__(self, link: Link, keys: Keys, directory: Directory) -> None:
        self._link = link
        self._keys = keys
        self._directory = directory
        # The keys of each space: records, names, times of expiry, and the sign of the format.
        self._places = {space: keys.records(space.name.lower()) for space in RecordSpace}
        # Three of each space, and the sign.
        spaces = list(self._places.values())
        self._all = [*(key for place in spaces for key in place[:-1]), spaces[0][-1]]

    async def read_records(self, space: RecordSpace, names: Sequence[bytes]) -> list[Record | None]:
        if not names:
            return []
        if len(names) == 1 and self._link.is_direct:
            # Two commands cost less than a script. The time comes first: a record that is put in between is alive.
            records, _, expiry, _ = self._of(space)
            ends, packed = await self._link.exchange((b"ZSCORE", expiry, names[0]), (b"HGET", records, names[0]))
            return [_unpacked(names[0], packed, ends) if packed else None]
        # One script, so that no change comes between a record and the time it expires.
        shown = await self._link.call("read_records", self._of(space), names)
        return [_unpacked(*one) if one[1] else None for one in shown]

    async def write_records(self, changes: Sequence[RecordChange]) -> int | None:
        if puts := _plain_puts(changes):
            place = self._of(changes[0].space)
            await self._directory.formatted(lambda: self._link.call("put_records", place, puts), place[-1])
            return None
        args: list[Any] = []
        last = {(change.space, change.name): position for position, change in enumerate(changes)}
        is_free = all(change.if_version is None for change in changes)
        for position, (space, name, record, expected) in enumerate(changes):
            if is_free and last[space, name] != position:
                continue
            condition = b"" if expected is None else b"%d" % expected
            if record is None:
                args += [b"%d" % space, name, condition, b"0", b"", b"", b""]
            else:
                args += [
                    b"%d" % space,
                    name,
                    condition,
                    b"%d" % (first_version(record) if expected == ABSENT else 1),
                    repr(record.created),
                    _time(record.expires),
                    _packed(record),
                ]
        if not args:
            return None
        keys = self._all
        refused = int(await self._directory.formatted(lambda: self._link.call("write_records", keys, args), keys[-1]))
        return refused if refused >= 0 else None

    async def touch_records(self, space: RecordSpace, names: Sequence[bytes], expires: float | None) -> None:
        if names:
            await self._link.call("touch_records", self._of(space), [_time(expires), *names])

    async def scan_records(self, space: RecordSpace, scan: Scan) -> list[Record]:
        if scan.newest_first:
            everything = await self.scan_records(space, Scan(prefix=scan.prefix, limit=sys.maxsize, now=scan.now))
            return newest(everything, scan)
        found: list[Record] = []
        after, page = max(scan.prefix, scan.after), None
        while len(found) < scan.limit and (page is None or len(page) == _PAGE):
            page = await self._page(space, scan.prefix, after, _PAGE)
            found += [record for record in page if _is_alive(record, scan.now)]
            if page:
                after = page[-1].name
        return found[: scan.limit]

    async def record_prefixes(
        self, space: RecordSpace, prefix: bytes, depth: int, after: bytes, limit: int, now: float | None = None
    ) -> list[bytes]:
        groups: list[bytes] = []
        low = prefix
        while len(groups) < limit:
            page = await self._page(space, prefix, low, 1 if now is None else 16)
            if not page:
                break
            first = next((record for record in page if _is_alive(record, now)), None)
            if first is None:
                low = page[-1].name
                continue
            group, low = group_of(first.name, depth)
            if group > after and (not groups or groups[-1] != group):
                groups.append(group)
        return groups

    async def count_records(self, space: RecordSpace, prefix: bytes, now: float | None = None) -> int:
        names = self._of(space)[1]
        if now is None:
            return int(await self._link.command("ZLEXCOUNT", names, *_range(prefix, prefix)))
        count, after = 0, prefix
        while page := await self._page(space, prefix, after, _PAGE):
            count += sum(_is_alive(record, now) for record in page)
            after = page[-1].name
        return count

    async def drop_records(self, space: RecordSpace, prefix: bytes) -> int:
        count = 0
        while page := await self._page(space, prefix, prefix, _PAGE):
            names = [record.name for record in page]
            count += len(await self._link.call("drop_records", self._of(space), [b"", *names]))
        return count

    async def expire_records(self, space: RecordSpace, now: float, limit: int) -> list[Expired]:
        keys = self._of(space)
        names = await self._link.command("ZRANGEBYSCORE", keys[2], "-inf", repr(now), "LIMIT", 0, limit)
        gone = await self._link.call("drop_records", keys, [repr(now), *names]) if names else []
        return sorted(Expired(name, float(ends)) for name, ends in gone)

    async def rewrap_records(self, space: RecordSpace, pairs: Sequence[tuple[Record, Record]]) -> None:
        args: list[bytes] = []
        for old, new in pairs:
            head = _HEAD.pack(old.version, old.created)
            args += [old.name, head + _packed(old), head + _packed(new)]
        if args:
            await self._link.call("rewrap_records", self._of(space), args)

    async def forms(self) -> Counter[int]:
        """Every form that some record has, and how many have it."""
        found = Counter[int]()
        for space in RecordSpace:
            after = b""
            while page := await self._page(space, b"", after, _PAGE):
                found.update(record.form for record in page)
                after = page[-1].name
        return found

    async def index_records(self, keys: Sequence[str]) -> None:
        """Nothing: a scan looks at every record in any case."""

    async def _page(self, space: RecordSpace, prefix: bytes, after: bytes, limit: int) -> list[Record]:
        rows = await self._link.call("page_of_records", self._of(space), [*_range(prefix, after), limit])
        return [_unpacked(*row) for row in rows if row[1]]

    def _of(self, space: RecordSpace) -> list[bytes]:
        return self._places[space]


def _plain_puts(changes: Sequence[RecordChange]) -> list[Any]:
    """The arguments for puts into one space without a condition; empty where there is anything else."""
    if not changes or (type(changes) is not PlainPuts and len(changes) > 1):
        return []
    args: list[Any] = []
    for _, name, record, expected in changes:
        if record is None or expected is not None:
            return []
        args += [name, repr(record.created), _time(record.expires), _packed(record)]
    return args


def _range(prefix: bytes, after: bytes) -> tuple[bytes, bytes]:
    end = end_of_prefix(prefix)
    return b"(" + after if after else b"-", b"(" + end if end is not None else b"+"


def _time(seconds: float | None) -> str:
    return "" if seconds is None else repr(seconds)


def _packed(record: Record) -> bytes:
    return ormsgpack.packb([record.form, record.value, record.searchable, record.updated])


def _unpacked(name: bytes, packed: bytes, expires: bytes) -> Record:
    version, created = _HEAD.unpack_from(packed)
    form, value, searchable, updated = ormsgpack.unpackb(packed[_HEAD.size :])
    ends = float(expires) if expires else None
    return Record(name, form, value, searchable, created, updated, ends, version)


def _is_alive(record: Record, now: float | None) -> bool:
    return now is None or record.expires is None or record.expires > now
