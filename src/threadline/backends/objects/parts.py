"""Archive files in an object store: in parts, so that no request and no process holds a whole one.

A file `name` is the objects `name.00000`, `name.00001` and so on, and at last `name`, which says how many there are: so
an upload that died is no file. Nothing is listed, and nothing is replaced.
"""

from __future__ import annotations

import os
from pathlib import Path
from urllib.parse import urlsplit

import ormsgpack

from ...errors import Conflict, Corrupt, InvalidRequest, NotFound
from ...ports.objects import Objects
from .archive import read_directory, verify_file

__all__ = ["check_absent", "fetch_chain", "send_file", "split_place"]

_PART_BYTES = 16 * 1024 * 1024
_MOST_BASES = 1_000


def split_place(url: str) -> tuple[str, str]:
    """The place of an object as `open_objects` takes it, and the object's name."""
    place, _, name = url.rpartition("/")
    if not name or not urlsplit(place).netloc + urlsplit(place).path.strip("/"):
        raise InvalidRequest("name the object too, such as s3://bucket/backups/monday.tla")
    return place, name


async def check_absent(objects: Objects, name: str) -> None:
    """Raise Conflict where there is a file of that name."""
    if await objects.size(name) is not None:
        raise Conflict(
            f"{name} exists already in {objects.where}: choose another name, an archive is never written over"
        )


async def send_file(objects: Objects, name: str, path: Path) -> None:
    """Store a file; Conflict where there is one of that name."""
    await check_absent(objects, name)
    count = 0
    with path.open("rb") as file:
        while part := file.read(_PART_BYTES):
            await objects.put(f"{name}.{count:05d}", part)
            count += 1
    await objects.put(name, ormsgpack.packb([1, count, path.stat().st_size]))


async def fetch_chain(objects: Objects, name: str, folder: Path) -> Path:
    """Bring a file and its bases into a folder, each checked; returns the file."""
    first, wanted = folder / name, name
    for _ in range(_MOST_BASES):
        path = folder / wanted
        await _fetch(objects, wanted, path)
        verify_file(path)
        base = read_directory(path).base
        if base is None:
            return first
        wanted = base.name
    raise Corrupt(f"{name} of {objects.where}: its bases lead in a circle")


async def _fetch(objects: Objects, name: str, path: Path) -> None:
    size = await objects.size(name)
    found = await objects.read(name, [(0, size)]) if size is not None and size < 1000 else None
    if found is None:
        raise NotFound(f"there is no backup {name} in {objects.where}")
    try:
        _, count, whole = ormsgpack.unpackb(found[0])
    except (ValueError, TypeError):
        raise Corrupt(f"{name} of {objects.where} is no backup, or was altered") from None
    with open(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "wb") as file:
        for number in range(count):
            part = await objects.read(f"{name}.{number:05d}", [(0, min(_PART_BYTES, whole - number * _PART_BYTES))])
            if part is None:
                raise Corrupt(f"{name} of {objects.where}: its part {number} is gone")
            file.write(part[0])
