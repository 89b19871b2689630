"""The life cycle of a thread: tags, pins, status, metadata and expiry.

All of it is in the thread's row, which is changed by compare-and-swap. A
tag is a name for a checkpoint; a pin has no name. Both keep their checkpoint through every retention.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Container, Iterable, Mapping
from typing import Any, NamedTuple

import ormsgpack

from ..base.attempts import ATTEMPTS, gave_up
from ..codec.limits import unpack
from ..errors import Conflict, Corrupt, InvalidRequest, NotAllowed, NotFound
from ..ports.checkpoints import Backend, Change, CheckpointKey, ThreadRow
from .context import Context, Reads, Tools
from .retention.policy import seconds_of

__all__ = [
    "Tag",
    "change_words",
    "create",
    "encoded_metadata",
    "forget_checkpoint",
    "living",
    "marks_of",
    "metadata_of",
    "note_went_on",
    "pin",
    "resealed_words",
    "rewrap_words",
    "set_status",
    "tag",
    "tags_of",
    "tags_text",
    "thread_place",
    "unpin",
    "untag",
    "went_on",
]

# A tag must not look like any other way to name a checkpoint.
_TAG = re.compile(r"[^\W\d][\w./-]{0,99}")
_RESERVED = frozenset(("head",))
_WENT_ON = "~"


class Tag(NamedTuple):
    """A checkpoint that people named, or pinned (`name` is empty)."""

    name: str
    key: CheckpointKey


async def living(store: Reads, thread_id: str) -> ThreadRow:
    """A thread's row; NotFound without a living thread."""
    row = await store.thread(thread_id)
    if row is None or row.status == "deleted":
        raise NotFound(f"there is no thread {thread_id!r}")
    return row


def tags_of(row: ThreadRow) -> list[Tag]:
    """The tags and pins of a thread, in the order they were made."""
    return [mark for mark in _marks(row) if mark.name != _WENT_ON]


def went_on(row: ThreadRow) -> set[CheckpointKey]:
    """Checkpoints whose children were pruned: each looks like the head of a branch, and is none."""
    return {mark.key for mark in _marks(row) if mark.name == _WENT_ON}


def _marks(row: ThreadRow) -> list[Tag]:
    try:
        marks = [(name, namespace, key) for name, namespace, key in json.loads(row.tags or "[]")]
    except (ValueError, TypeError, RecursionError):
        marks = [(None, None, None)]
    if not {str}.issuperset(type(part) for mark in marks for part in mark):
        raise Corrupt(f"the tags of thread {row.thread_id!r} are damaged")
    return [Tag(name, CheckpointKey(namespace, key)) for name, namespace, key in marks]


def marks_of(row: ThreadRow, key: CheckpointKey) -> str:
    """The tags and pins of one checkpoint, as a thread's row has them."""
    return _packed([mark for mark in tags_of(row) if mark.key == key])


def tags_text(row: ThreadRow, keeps: Callable[[CheckpointKey], bool]) -> str:
    """The tags, pins and notes of a thread, as its row has them, of those checkpoints that are kept."""
    return _packed([mark for mark in _marks(row) if keeps(mark.key)])


def metadata_of(tools: Tools, row: ThreadRow) -> dict[str, Any]:
    """The metadata that callers gave a thread."""
    if not row.metadata:
        return {}
    try:
        found = tools.codec.decode(_unwrapped(tools, row.metadata, row.thread_id))
        if type(found) is not dict:
            raise Corrupt("it is no dict")
        return found
    except (NotAllowed, NotFound) as error:
        raise type(error)(f"the metadata of thread {row.thread_id!r}: {error}") from None
    except (Corrupt, ValueError, TypeError) as error:
        raise Corrupt(f"the metadata of thread {row.thread_id!r} is damaged ({error})") from None


def _unwrapped(tools: Tools, packed: bytes, thread_id: str) -> bytes:
    """The encoded metadata of a thread."""
    try:
        form, stored = unpack(packed)
        if type(form) is not int or type(stored) is not bytes:
            raise TypeError("it is not stored as a form and bytes")
    except (ValueError, TypeError) as error:
        raise Corrupt(f"the metadata of thread {thread_id!r} is damaged ({error})") from None
    return tools.envelope.unwrap_row(form, stored, thread_place(thread_id))


def encoded_metadata(tools: Tools, row: ThreadRow) -> bytes:
    """The metadata of a thread as it is encoded; empty without any."""
    return _unwrapped(tools, row.metadata, row.thread_id) if row.metadata else b""


def resealed_words(tools: Tools, metadata: bytes, thread_id: str) -> bytes:
    """The metadata of a thread, sealed under the current key."""
    content = _unwrapped(tools, metadata, thread_id)
    return ormsgpack.packb(list(tools.envelope.wrap_row(content, thread_place(thread_id))))


async def rewrap_words(store: Context, thread_id: str) -> int:
    """Seal a thread's metadata under the current key."""

    def anew(row: ThreadRow) -> ThreadRow:
        return row._replace(metadata=resealed_words(store.tools, row.metadata, thread_id)) if row.metadata else row

    await change_words(store.backend, thread_id, anew)
    return 1


async def create(store: Context, thread_id: str, metadata: Mapping[str, Any] | None, ttl: Any, now: float) -> None:
    """Begin a thread before its first checkpoint, or note metadata and expiry of one that lives."""
    seconds = seconds_of(ttl, "ttl")
    stored: bytes | None = None
    if metadata is not None and not isinstance(metadata, Mapping):
        raise InvalidRequest(f"metadata is a dict, not {type(metadata).__name__}")
    if metadata is not None:
        content = store.tools.codec.encode_natively(dict(metadata), "metadata")
        stored = ormsgpack.packb(list(store.tools.envelope.wrap_row(content, thread_place(thread_id))))
    row = await store.backend.thread(thread_id)
    if row is None or row.status == "deleted":
        await store.backend.apply([Change(thread_id=thread_id, now=now)])

    def noted(row: ThreadRow) -> ThreadRow:
        kept = row if stored is None else row._replace(metadata=stored)
        return kept if seconds is None else kept._replace(expires=now + seconds)

    await change_words(store.backend, thread_id, noted)


async def tag(backend: Backend, thread_id: str, key: CheckpointKey, name: Any) -> None:
    """Name a checkpoint; a name that is in use moves here."""
    if not isinstance(name, str) or not _TAG.fullmatch(name) or name in _RESERVED:
        raise InvalidRequest(
            f"{name!r} is no name for a tag: it begins with a letter, has letters, digits and . / - _, "
            f"and is not 'head'"
        )
    await _retag(backend, thread_id, lambda tags: [*(one for one in tags if one.name != name), Tag(name, key)])


async def untag(backend: Backend, thread_id: str, name: str) -> None:
    """Forget a name; NotFound without it."""

    def without(tags: list[Tag]) -> list[Tag]:
        kept = [one for one in tags if one.name != name]
        if len(kept) == len(tags) or not name:
            raise NotFound(f"thread {thread_id!r} has no tag {name!r}")
        return kept

    await _retag(backend, thread_id, without)


async def pin(backend: Backend, thread_id: str, key: CheckpointKey) -> None:
    """Keep a checkpoint through every retention."""
    await _retag(backend, thread_id, lambda tags: tags if Tag("", key) in tags else [*tags, Tag("", key)])


async def unpin(backend: Backend, thread_id: str, key: CheckpointKey) -> None:
    """Leave a checkpoint to retention again."""
    await _retag(backend, thread_id, lambda tags: [one for one in tags if one != Tag("", key)])


async def note_went_on(
    backend: Backend, thread_id: str, keys: Iterable[CheckpointKey], kept: Container[CheckpointKey]
) -> None:
    """Note which checkpoints lose their children to a prune; notes about what is not kept are dropped."""
    wanted = set(keys)

    def changed(row: ThreadRow) -> ThreadRow:
        marks = [mark for mark in _marks(row) if mark.name != _WENT_ON]
        noted = sorted(key for key in went_on(row) | wanted if key in kept)
        return row._replace(tags=_packed([*marks, *(Tag(_WENT_ON, key) for key in noted)]))

    await change_words(backend, thread_id, changed)


async def forget_checkpoint(backend: Backend, thread_id: str, key: CheckpointKey) -> None:
    """Drop the tags and pins of a checkpoint that was deleted."""

    def changed(row: ThreadRow) -> ThreadRow:
        return row._replace(tags=_packed([mark for mark in _marks(row) if mark.key != key]))

    await change_words(backend, thread_id, changed)


async def set_status(backend: Backend, thread_id: str, status: str) -> None:
    """Archive a thread, or bring it back."""
    await change_words(backend, thread_id, lambda row: row._replace(status=status))


async def _retag(backend: Backend, thread_id: str, change: Callable[[list[Tag]], list[Tag]]) -> None:
    def changed(row: ThreadRow) -> ThreadRow:
        if row.status == "archived":
            raise Conflict(f"the thread {thread_id!r} is archived: restore() it before changing it")
        noted = [mark for mark in _marks(row) if mark.name == _WENT_ON]
        return row._replace(tags=_packed([*change(tags_of(row)), *noted]))

    await change_words(backend, thread_id, changed)


async def change_words(backend: Backend, thread_id: str, change: Callable[[ThreadRow], ThreadRow]) -> None:
    """Change a thread's row by compare-and-swap."""
    for _ in range(ATTEMPTS):
        row = await living(backend, thread_id)
        wanted = change(row)
        if wanted == row or await backend.swap_thread(row, wanted):
            return
    raise gave_up(f"change of thread {thread_id!r}", "another process changed it during each of them")


def _packed(marks: list[Tag]) -> str:
    return json.dumps([[mark.name, *mark.key] for mark in marks], separators=(",", ":"))


def thread_place(thread_id: str) -> bytes:
    """The bytes that the seal of a thread's metadata is bound to."""
    return b"thread:" + thread_id.encode()
