"""What a store must hold after any history, in plain dicts: the model that real stores are compared with."""

from dataclasses import dataclass, field
from typing import Any

from threadline import Conflict, NotFound

Key = tuple[str, str]  # namespace, checkpoint id


@dataclass
class Kept:
    """One checkpoint."""

    values: dict[str, Any]
    versions: dict[str, int]
    run_id: str
    parent: str | None
    writes: dict[tuple[str, int], tuple[str, str, Any]] = field(default_factory=dict)


@dataclass
class Line:
    """One thread."""

    kept: dict[Key, Kept] = field(default_factory=dict)
    early: dict[Key, dict] = field(default_factory=dict)  # writes whose checkpoint has not come

    def has(self, checkpoint_id: str) -> bool:
        return any(one == checkpoint_id for _, one in self.kept)


class Model:
    """All threads. Ids are older than any deletion, so that what continues must be there to be continued."""

    def __init__(self):
        self.threads: dict[str, Line] = {}
        self.deleted: set[str] = set()

    def has(self, thread, ns, checkpoint_id):
        return (ns, checkpoint_id) in self.threads.get(thread, Line()).kept

    def put(self, thread, ns, checkpoint_id, parent, values, versions, new_versions, run_id):
        line = self._continued(thread, parent)
        above = line.kept.get((ns, parent)) if parent else None
        kept = {}
        for name, version in versions.items():
            if name not in new_versions and above and above.versions.get(name) == version and name in above.values:
                kept[name] = above.values[name]
            elif name in values:
                kept[name] = values[name]
        key = (ns, checkpoint_id)
        writes = line.kept[key].writes if key in line.kept else line.early.pop(key, {})
        line.kept[key] = Kept(kept, dict(versions), run_id, parent, writes)

    def put_writes(self, thread, ns, checkpoint_id, task, writes):
        line = self._continued(thread, checkpoint_id)
        key = (ns, checkpoint_id)
        held = line.kept[key].writes if key in line.kept else line.early.setdefault(key, {})
        for at, (channel, value) in enumerate(writes):
            if channel == "__error__":
                held[task, -1] = (task, channel, value)
            else:
                held.setdefault((task, at), (task, channel, value))

    def delete_thread(self, thread):
        if self.threads.pop(thread, None) is not None:
            self.deleted.add(thread)

    def copy_thread(self, source, target):
        if source not in self.threads:
            raise NotFound(source)
        if target in self.threads:
            raise Conflict(target)
        copied = {
            key: Kept(one.values, one.versions, one.run_id, one.parent, dict(one.writes))
            for key, one in self.threads[source].kept.items()
        }
        self.threads[target] = Line(copied)

    def prune(self, thread):
        line = self.threads.get(thread, Line())
        newest = {}
        for ns, checkpoint_id in line.kept:
            newest[ns] = max(newest.get(ns, ""), checkpoint_id)
        line.kept = {key: one for key, one in line.kept.items() if newest[key[0]] == key[1]}

    def delete_checkpoint(self, thread, ns, checkpoint_id):
        if thread not in self.threads or self.threads[thread].kept.pop((ns, checkpoint_id), None) is None:
            raise NotFound(checkpoint_id)

    def delete_for_runs(self, run_ids):
        for line in self.threads.values():
            line.kept = {key: one for key, one in line.kept.items() if one.run_id not in run_ids}

    def everything(self):
        """All checkpoints in the order of a list over all threads."""
        rows = [
            (checkpoint_id, thread, ns, one)
            for thread, line in self.threads.items()
            for (ns, checkpoint_id), one in line.kept.items()
        ]
        rows.sort(key=lambda row: row[1:3])
        rows.sort(key=lambda row: row[0], reverse=True)
        return [
            (
                *(thread, ns, checkpoint_id),
                *(dict(sorted(channels.items())) for channels in (one.values, one.versions)),
                *(one.run_id, one.parent, _ordered(one.writes)),
            )
            for checkpoint_id, thread, ns, one in rows
        ]

    def _continued(self, thread, above):
        if above is not None and thread in self.deleted and not self.threads.get(thread, Line()).has(above):
            raise Conflict(f"{thread} was deleted")
        return self.threads.setdefault(thread, Line())


def _ordered(writes):
    return [writes[key] for key in sorted(writes)]
