"""Two checkpoints of a thread, put and compared; and a backend that counts what it is asked for."""

import itertools
from typing import Any

from langchain_core.messages import AIMessage, HumanMessage

from threadline.core.context import Context
from threadline.core.history.diff import ChannelDiff, Diff, diff
from threadline.testing.making import checkpoint, place

LONG = "x" * 200  # not inline

_versions = itertools.count(1)


def messages(count: int) -> list[Any]:
    """Messages of two kinds, each with an id, none of them inline."""
    kinds = (HumanMessage, AIMessage)
    return [
        kinds[i % 2](content=f"message {i} " + "of a thread that went on for long " * 4, id=f"m{i}")
        for i in range(count)
    ]


class Watched:
    """A backend that notes the digests asked of it, and can lose or spoil chunks on the way."""

    def __init__(self, backend: Any) -> None:
        self.backend = backend
        self.queries: list[list[bytes]] = []
        self.lost: set[bytes] = set()
        self.spoilt: set[bytes] = set()

    def __getattr__(self, name: str) -> Any:
        return getattr(self.backend, name)

    @property
    def asked(self) -> list[bytes]:
        return [digest for query in self.queries for digest in query]

    async def chunks(self, pool: int, digests: Any) -> Any:
        self.queries.append(list(digests))
        found = await self.backend.chunks(pool, digests)
        # Not a byte added: what follows a compressed frame is not read.
        spoil = [(d, links, form, _flipped(data) if d in self.spoilt else data) for d, links, form, data in found]
        return [row for row in spoil if row[0] not in self.lost]


def _flipped(data: bytes) -> bytes:
    return data[:-1] + bytes((data[-1] ^ 1,))


def put(saver: Any, thread: str, values: dict[str, Any]) -> Any:
    """A checkpoint with these values, after the thread's newest; gives its config."""
    version = next(_versions)
    newest = saver.get_tuple(place(thread))
    made = checkpoint(values, dict.fromkeys(values, version))
    return saver.put(newest.config if newest else place(thread), made, {"source": "loop"}, made["channel_versions"])


async def compared(backend: Any, saver: Any, a: Any, b: Any, **options: Any) -> Diff:
    """The diff of the checkpoints that two configs name."""
    found, store = [], Context(backend, saver._tools)
    for config in (a, b):
        named = config["configurable"]
        place = named["thread_id"], named["checkpoint_ns"], named["checkpoint_id"]
        found.append(await store.find(*place))
    return await diff(store, *found, **options)


def diff_of(saver: Any, a: Any, b: Any, **options: Any) -> Diff:
    return saver._engine.run(lambda backend: compared(backend, saver, a, b, **options))


def watched_diff(saver: Any, a: Any, b: Any, lost: Any = (), spoilt: Any = ()) -> tuple[Diff, Watched]:
    """The diff, and what it asked of the backend."""
    made: list[Watched] = []

    async def watching(backend: Any) -> Diff:
        made.append(Watched(backend))
        made[0].lost.update(lost)
        made[0].spoilt.update(spoilt)
        return await compared(made[0], saver, a, b)

    return saver._engine.run(watching), made[0]


def channel_diff(connect: Any, before: Any, after: Any, **options: Any) -> ChannelDiff | None:
    """What a channel's change from one value to another looks like to a saver that has seen neither."""
    writer = connect()
    a, b = put(writer, "t", {"x": before}), put(writer, "t", {"x": after})
    found = diff_of(connect(**options), a, b)
    assert len(found.channels) <= 1
    return found.channels[0] if found else None


def brief(changed: ChannelDiff | None) -> Any:
    """Sign, key, before and after of each item; the same without a key where a channel has no items."""
    assert changed is not None
    signs = {"added": "+", "removed": "-", "changed": "~"}
    if changed.items is None:
        return (signs[changed.kind], changed.before, changed.after)
    return [(signs[item.kind], item.key, item.before, item.after) for item in changed.items]
