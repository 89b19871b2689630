"""Archive files in an object store: in parts, so that no request and no process holds a whole one.

A file `name` is the objects `name.00000`, `name.00001` and so on, and at last `name`, which says how many there are: so
an upload that died is no file. Nothing is listed, and nothing is replaced.
"""

from __future__ import annotations

import os
from pathlib import Path
from urllib.parse import urlsplit

import ormsgpack

from ...errors import Conflict, Corrupt, InvalidRequest, NewerFormat, NotFound, StorageFull
from ...packs.archive import Base
from ...ports.objects import Objects
from .archive import read_directory, verify_file

__all__ = ["check_absent", "fetch_chain", "send_file", "split_place"]

_FORMAT = 1
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
    await objects.put(name, ormsgpack.packb([_FORMAT, count, path.stat().st_size]))


async def fetch_chain(objects: Objects, name: str, folder: Path) -> Path:
    """Bring a file and its bases into a folder, each checked; returns the file."""
    wanted, above = Base(b"", name), ""
    for _ in range(_MOST_BASES):
        path, where = folder / wanted.name, f"{objects.where}/{wanted.name}"
        await _fetch(objects, wanted.name, path)
        directory = read_directory(path, where)
        verify_file(path, where)
        if above and directory.id != wanted.id:
            raise NotFound(f"{above} adds to another {wanted.name} than the one beside it: put its own base there")
        if directory.base is None:
            return folder / name
        wanted, above = directory.base, where
    raise Corrupt(f"{name} of {objects.where}: its bases lead in a circle")


async def _fetch(objects: Objects, name: str, path: Path) -> None:
    size = await objects.size(name)
    found = await objects.read(name, [(0, size)]) if size is not None and size < 1000 else None
    if found is None:
        raise NotFound(f"there is no backup {name} in {objects.where}")
    count, whole = _read_header(found[0], f"{name} of {objects.where}")
    with open(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "wb") as file:
        for number in range(count):
            length = min(_PART_BYTES, whole - number * _PART_BYTES)
            part = await objects.read(f"{name}.{number:05d}", [(0, length)])
            if part is None:
                raise Corrupt(f"{name} of {objects.where}: its part {number} is gone")
            if len(part[0]) != length:
                raise Corrupt(f"{name} of {objects.where}: its part {number} was altered or cut short")
            try:
                file.write(part[0])
                file.flush()
            except OSError as error:
                reason = os.strerror(error.errno or 0)
                raise StorageFull(f"{name} of {objects.where} does not fit into {path.parent}: {reason}") from None


def _read_header(content: bytes, where: str) -> tuple[int, int]:
    """How many parts a backup has, and how many bytes; NewerFormat or Corrupt for what is none."""
    try:
        held = ormsgpack.unpackb(content)
    except ValueError:
        held = None
    if type(held) is list and held and type(held[0]) is int and held[0] > _FORMAT:
        raise NewerFormat(f"{where} was written by a later Threadline: upgrade this one to read it")
    if type(held) is list and len(held) == 3 and all(type(one) is int for one in held) and held[0] == _FORMAT:
        _, count, whole = held
        if whole > 0 and count == -(-whole // _PART_BYTES):
            return count, whole
    raise Corrupt(f"{where} is no backup, or was altered")
