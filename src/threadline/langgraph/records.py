"""What an InMemorySaver holds, shown in the three dicts that LangGraph's has: `storage`, `writes` and `blobs`.

They are read-only views, made anew from the records whenever they are looked at. Values are pairs of a type's name and
bytes, as the saver's `serde` gives them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import TYPE_CHECKING, Any

from ..core.context import Context
from ..core.get import Read, complete, to_tuple, value_of
from ..core.paging import thread_rows
from ..ports.checkpoints import Backend, CheckpointKey

if TYPE_CHECKING:
    from .dropin import InMemorySaver

__all__ = ["Records", "blobs_of", "storage_of", "writes_of"]

_PAGE = 256
Shown = Callable[["InMemorySaver", Read], Mapping[Any, Any]]


class Records(Mapping[Any, Any]):
    """A dict of LangGraph's InMemorySaver, as a view. `clear` is the only way to change it."""

    def __init__(self, show: Callable[[], dict[Any, Any]], clear: Callable[[], None]) -> None:
        self._show = show
        self._clear = clear

    def __getitem__(self, key: Any) -> Any:
        return self._show()[key]

    def __iter__(self) -> Iterator[Any]:
        return iter(self._show())

    def __len__(self) -> int:
        return len(self._show())

    def __repr__(self) -> str:
        return repr(self._show())

    def clear(self) -> None:
        """Forget everything that is shown here."""
        self._clear()


def storage_of(saver: InMemorySaver) -> Records:
    """`storage[thread][namespace][checkpoint id]`: the checkpoint without values, its metadata, and its parent's id."""

    def show() -> dict[str, dict[str, dict[str, Any]]]:
        shown: dict[str, dict[str, dict[str, Any]]] = {}
        for read in _everything(saver):
            found = to_tuple(saver._tools, read, lazy=True)
            checkpoint = {name: part for name, part in found.checkpoint.items() if name != "channel_values"}
            record = (
                saver.serde.dumps_typed(checkpoint),
                saver.serde.dumps_typed(found.metadata),
                read.found.row.parent,
            )
            namespaces = shown.setdefault(read.found.thread_id, {})
            namespaces.setdefault(read.found.row.namespace, {})[read.found.row.id] = record
        return shown

    return Records(show, lambda: _delete_threads(saver))


def writes_of(saver: InMemorySaver) -> Records:
    """`writes[thread, namespace, checkpoint id][task, index]`: task, channel, value and the task's path."""

    def show() -> dict[tuple[str, str, str], dict[tuple[str, int], Any]]:
        shown = {}
        for read in _everything(saver):
            if read.writes:
                shown[_place(read)] = {
                    (write.task_id, write.idx): (
                        write.task_id,
                        write.channel,
                        saver.serde.dumps_typed(value_of(saver._tools, read, ref, "a pending write")),
                        write.task_path,
                    )
                    for write, ref in read.writes
                }
        return shown

    return Records(show, lambda: _delete_writes(saver))


def blobs_of(saver: InMemorySaver) -> Records:
    """`blobs[thread, namespace, channel, version]`: the value of that version; `("empty", b"")` where it has none."""

    def show() -> dict[tuple[str, str, str, Any], tuple[str, bytes]]:
        shown: dict[tuple[str, str, str, Any], tuple[str, bytes]] = {}
        for read in _everything(saver):
            thread_id, namespace, _ = _place(read)
            versions, refs = read.document.roots.versions, read.document.roots.refs
            for channel, version in versions.items():
                shown[thread_id, namespace, channel, version] = (
                    saver.serde.dumps_typed(value_of(saver._tools, read, refs[channel], f"channel {channel!r}"))
                    if channel in refs
                    else ("empty", b"")
                )
        return shown

    # A value belongs to its checkpoint, and goes with it.
    return Records(show, lambda: _delete_threads(saver))


def _place(read: Read) -> tuple[str, str, str]:
    return read.found.thread_id, read.found.row.namespace, read.found.row.id


def _everything(saver: InMemorySaver) -> list[Read]:
    """All checkpoints of all threads, each with its writes; oldest first in each namespace."""
    names = [info.thread_id for info in saver.threads()]

    async def read(store: Context) -> list[Read]:
        # By namespace, oldest first; `complete` reads the chunks of a page at once.
        rows = [found for name in names for found in reversed(await thread_rows(store, name, with_writes=True))]
        return [read for at in range(0, len(rows), _PAGE) for read in await complete(store, rows[at : at + _PAGE])]

    return saver._run(read)


def _delete_threads(saver: InMemorySaver) -> None:
    for info in list(saver.threads()):
        saver.delete_thread(info.thread_id)


def _delete_writes(saver: InMemorySaver) -> None:
    written: dict[str, list[CheckpointKey]] = {}
    for thread_id, namespace, checkpoint_id in writes_of(saver):
        written.setdefault(thread_id, []).append(CheckpointKey(namespace, checkpoint_id))

    async def remove(backend: Backend) -> None:
        for thread_id, keys in written.items():
            await backend.remove_checkpoints(thread_id, (), keys)

    saver._engine.run(remove)
