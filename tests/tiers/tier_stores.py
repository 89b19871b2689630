"""What the tests of the cold tier put into stores, and how they look at objects."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any, NamedTuple

from tests.servers.s3 import S3Server

Place = tuple[str, dict[str, Any]]


class S3Place(NamedTuple):
    """A prefix of a bucket, and the server that has it."""

    url: str
    server: S3Server


def text_of(seed: int, length: int = 600) -> str:
    """Text that does not compress to nothing."""
    chance = random.Random(seed)
    return " ".join(f"{chance.getrandbits(40):x}" for _ in range(length // 11))


def messages(count: int, seed: int = 0) -> list[dict[str, Any]]:
    return [{"role": "user", "content": text_of(seed * 100_000 + at), "at": at} for at in range(count)]


def converse(saver: Any, thread: str = "t", turns: int = 12, seed: int = 0) -> list[dict[str, Any]]:
    """Put a conversation, checkpoint by checkpoint; returns its messages."""
    said = messages(turns * 4, seed)
    for turn in range(1, turns + 1):
        saver.thread(thread).put({"messages": said[: turn * 4], "turn": turn})
    return said


def read(saver: Any, thread: str = "t", at: Any = None) -> dict[str, Any]:
    """The values of a checkpoint, from the store and not from memory."""
    saver.clear_cache()
    state = saver.thread(thread).state(at) if at is not None else saver.thread(thread).state()
    return {name: state[name] for name in ("messages", "turn")}


def object_names(cold: str) -> set[str]:
    """The files in a folder of objects, drafts of uploads that died among them."""
    folder = Path(cold.removeprefix("file://"))
    return {path.name for path in folder.iterdir()} if folder.exists() else set()


def object_paths(cold: str) -> list[Path]:
    folder = Path(cold.removeprefix("file://"))
    return sorted(folder / name for name in object_names(cold))
