"""From the URL of a cold tier to its objects, for one half."""

from __future__ import annotations

import os
import re
from pathlib import Path
from urllib.parse import unquote

from ...errors import InvalidRequest
from ...ports.objects import Objects
from .cache import CachedObjects
from .folder import FolderObjects, beside_the_loop, here
from .remote import RemoteObjects

__all__ = ["CACHE_BYTES", "check_place", "open_objects"]

CACHE_BYTES = 256 * 1024 * 1024
_SCHEMES = ("s3", "gs", "az", "abfs", "abfss", "file")


def open_objects(
    place: str, *, is_of_loop: bool, cache: str | os.PathLike[str] | None = None, cache_bytes: int = CACHE_BYTES
) -> Objects:
    """The objects at a URL; nothing is asked of a server yet. A folder needs no cache, and has none."""
    place = check_place(place)
    call = beside_the_loop if is_of_loop else here
    if place.startswith("file://"):
        return FolderObjects(Path(unquote(place.removeprefix("file://"))), call)
    objects = RemoteObjects(place, call)
    if not cache_bytes:
        return objects
    return CachedObjects(objects, Path(cache) if cache is not None else _default_cache(), cache_bytes, call)


def check_place(place: str) -> str:
    """The URL of an object store; InvalidRequest, which shows no key, for one with keys or that nothing serves."""
    scheme, separator, rest = place.partition("://")
    if not separator or scheme not in _SCHEMES:
        shown = f"{scheme}://" if separator and re.fullmatch(r"[a-z][a-z0-9+.-]{0,20}", scheme) else "such a place"
        known = ", ".join(f"{one}://" for one in _SCHEMES)
        raise InvalidRequest(f"no object store is at {shown}; there are {known}: write s3://bucket/prefix")
    if "?" in rest or "#" in rest or (scheme != "file" and _has_login(scheme, rest)):
        raise InvalidRequest(
            "the URL of an object store names a bucket and a prefix, and nothing else: keys come from the environment, "
            "as AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY"
        )
    if scheme == "file" and not rest.startswith("/"):
        raise InvalidRequest("a folder for objects is named by its whole path: write file:///var/threadline")
    if not rest.strip("/"):
        raise InvalidRequest(f"this names no bucket: write {scheme}://bucket/prefix")
    return place.rstrip("/")


def _has_login(scheme: str, rest: str) -> bool:
    """Whether a user or a password stands before the bucket; abfs:// writes container@account there."""
    login, at, _ = rest.rpartition("@")
    return bool(at) and (":" in login or not scheme.startswith("abfs"))


def _default_cache() -> Path:
    base = os.environ.get("XDG_CACHE_HOME") or os.path.join(os.path.expanduser("~"), ".cache")
    return Path(base) / "threadline" / "cold"
