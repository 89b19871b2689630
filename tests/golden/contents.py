"""What the golden databases hold. Run as a script it writes them; a released format is never written again."""

from __future__ import annotations

import datetime as dt
import decimal
import functools
import pathlib
import sys
import uuid
from collections import deque
from dataclasses import dataclass
from typing import Any

import threadline

FOLDER = pathlib.Path(__file__).parent
KEY = threadline.KeyRing({"golden": bytes(range(32))})
THREAD = "golden/chat"
STEPS = 60


@dataclass
class Note:
    """A data class: in packs its name stands once, before the states of its instances."""

    text: str
    number: int


threadline.register(Note, name="golden.Note")


def messages(step: int) -> list[dict[str, Any]]:
    return [{"role": "user" if n % 2 else "agent", "text": f"message {n} " + "la" * (n * 7 % 300)} for n in range(step)]


@functools.cache
def large(number: int) -> str:
    return "".join(chr(65 + (n * n + number) % 26) for n in range(60_000))


def values(step: int) -> dict[str, Any]:
    """The state after a step: every built-in type somewhere, and every shape that a value is stored in.

    Lists that grow, so that their runs close; one that is edited behind closed runs; one that loses its beginning; a
    dict of many entries; a list of some depth; a large text that is cut, and a large dict within a dict.
    """
    return {
        "messages": messages(step),
        "notes": [
            Note(f"note {n} " + "so " * 60 if n % 3 else "short", step if step > 45 and n == 9 else n)
            for n in range(min(step, 40))
        ],
        "window": messages(step + 30)[step:],
        "ledger": {
            f"entry {n}": f"{n} at {step if step > 50 and n == 20 else 0} " + "or " * (n % 60)
            for n in range(4 * min(step, 45))
        },
        "counts": [n if n != 77 or step < 30 else step // 10 for n in range(700)],
        "report": {"rows": {f"{n}": f"row {n} of {step // 25} " + "x" * 90 for n in range(400)}, "title": "large"},
        "files": {f"file-{n}": f"{n} at {step // 7 if n == step % 5 else 0} " * 90 for n in range(12)},
        "large": large(step // 20),
        "step": step,
        "kinds": [
            None, True, 2**80, -0.0, "nul \0 and \ud800", b"\x00\xff", bytearray(b"mutable"), (1, (2,)), {1: "one", (2,): 3},  # noqa: E501
            {1, 2, 3}, frozenset("ab"), deque([1, 2], 5), uuid.UUID(int=step), decimal.Decimal("1.10"), 1j, range(3),
            dt.datetime(2024, 2, 29, 12, tzinfo=dt.timezone.utc), dt.date(2024, 2, 29), dt.time(1, 2, 3, 4, fold=1),
            dt.timedelta(days=-1, microseconds=7), dt.timezone(dt.timedelta(hours=5), "five"), pathlib.PurePosixPath("/a/b"),  # noqa: E501
        ],
    }  # fmt: skip


def checkpoint_id(step: int) -> str:
    return f"1f000000-0000-6000-8000-{step:012d}"


def fill(saver: threadline.Saver) -> None:
    parent: dict[str, Any] = {}
    before: dict[str, Any] = {}
    for step in range(STEPS):
        state = values(step)
        new = {name: step + 1 for name in state if before.get(name) != state[name]}
        versions = {name: step + 1 if name in new else last for name, last in (before.get("versions") or new).items()}
        checkpoint = {
            "v": 4,
            "id": checkpoint_id(step),
            "ts": "2024-02-29T12:00:00+00:00",
            "channel_values": state,
            "channel_versions": versions,
            "versions_seen": {"agent": {"messages": step}},
            "updated_channels": sorted(new),
        }
        config = {"configurable": {"thread_id": THREAD, "checkpoint_ns": "", **parent}}
        stored = saver.put(config, checkpoint, {"source": "loop", "step": step, "user": f"u{step % 3}"}, new)
        saver.put_writes(stored, [("messages", messages(step + 1)[-1:]), ("__interrupt__", "?")], "task", "path")
        parent = {"checkpoint_id": stored["configurable"]["checkpoint_id"]}
        before = {**state, "versions": versions}
    saver.copy_thread(THREAD, "golden/fork")
    saver.copy_thread(THREAD, "golden/deleted")
    saver.delete_thread("golden/deleted")


if __name__ == "__main__":
    for name, options in (("format-1.db", {}), ("format-1-sealed.db", {"encryption": KEY})):
        path = FOLDER / name
        if path.exists():
            sys.exit(f"{path} exists: a golden database is made once, when its format is new")
        with threadline.connect(str(path), **options) as saver:
            fill(saver)
            saver.compact()
