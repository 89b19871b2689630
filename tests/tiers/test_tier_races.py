"""Chunks move to objects and back while others put, fork, prune and collect in the same pool: nothing is lost."""

from __future__ import annotations

import threading

from tier_stores import messages, read

NOW = "0s"
PUTS = 12


def test_writers_and_prunes_beside_tiering_lose_nothing(opened):
    writing, tiering, pruning = opened(), opened(), opened()
    said = {name: messages(4 * PUTS, seed) for seed, name in enumerate(("one", "two"))}
    writing.thread("one").put({"messages": said["one"][:4], "turn": 0})
    writing.thread("one").fork(to="two")
    failures: list[BaseException] = []
    is_over = threading.Event()

    def guarded(act):
        def run():
            try:
                act()
            except BaseException as error:
                failures.append(error)
                is_over.set()

        return threading.Thread(target=run)

    def write():
        for turn in range(1, PUTS + 1):
            for name, whole in said.items():
                writing.thread(name).put({"messages": whole[: 4 * turn], "turn": turn})
                if turn % 4 == 0:
                    writing.clear_cache()
        is_over.set()

    def tier():
        while not is_over.is_set():
            tiering.tier(NOW, grace="1d")
            tiering.tier_restore(["one"])

    def prune():
        while not is_over.is_set():
            for name in said:
                pruning.thread(name).prune(keep_last=2)
            pruning.collect()
            for name in said:
                turn = read(pruning, name)
                assert turn["turn"] == 0 or turn["messages"] == said[name][: 4 * turn["turn"]]

    threads = [guarded(act) for act in (write, tier, prune)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(120)
    assert not failures, failures
    tiering.tier(NOW, grace=NOW)
    for saver in (writing, tiering, pruning):
        for name, whole in said.items():
            assert read(saver, name) == {"messages": whole, "turn": PUTS}
    report = writing.fsck()
    assert report.ok, report
    assert tiering.tier_status().orphans == 0


def test_a_pack_that_is_rewritten_under_a_reader_is_found_again(opened, cold, monkeypatch):
    """The row was read, then its object was replaced and deleted, and only then is the object asked for."""
    from pathlib import Path

    from threadline.backends.objects.folder import FolderObjects

    reader, other = opened(), opened()
    whole = messages(40)
    reader.thread("t").put({"messages": whole, "turn": 1})
    reader.tier(NOW)
    original, done = FolderObjects.read, []

    async def late(self, name, spans, *, is_fresh=False):
        if not done:
            done.append(name)
            other.tier_restore()
            other.tier(NOW, grace=NOW)
            assert name not in {path.name for path in Path(cold.removeprefix("file://")).iterdir()}
        return await original(self, name, spans, is_fresh=is_fresh)

    monkeypatch.setattr(FolderObjects, "read", late)
    assert read(reader) == {"messages": whole, "turn": 1}
    assert done


def test_two_that_run_at_once_leave_each_other_alone(opened, monkeypatch):
    from threadline.core.tiering.relocating import Mover

    first, second = opened(), opened()
    first.thread("t").put({"messages": messages(40), "turn": 1})
    original, seen = Mover.move, []

    async def meanwhile(self, pool, chosen):
        if not seen:
            seen.append(second.tier(NOW))
        await original(self, pool, chosen)

    monkeypatch.setattr(Mover, "move", meanwhile)
    assert not first.tier(NOW).is_elsewhere
    assert seen[0].is_elsewhere
    assert second.tier(NOW).is_elsewhere is False
