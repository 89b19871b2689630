"""Random histories by several savers of one store, compared after every step with a plain dict.

The savers remember different things and never tell each other what they did, as processes would not.
"""

import random

import lives
import pytest

import threadline

SAVERS, THREADS = 3, ("red", "green", "blue")


def long_value(dice):
    """One of few values, so that chunks are deleted, come back, and are shared in every way."""
    kind, length, start = (
        dice.choice(["list", "dict", "text"]),
        dice.choice([1, 7, 40, 150, 400]),
        dice.choice([0, 0, 1, 9]),
    )
    items = [lives.text("item", n) for n in range(start, start + length)]
    if kind == "list":
        return items
    return dict(enumerate_text(items)) if kind == "dict" else "".join(items)


def enumerate_text(items):
    return ((f"key-{n}", item) for n, item in enumerate(items))


class Model:
    """What the store should hold: per thread, the values and writes of each checkpoint."""

    def __init__(self, savers, dice):
        self.savers, self.dice = savers, dice
        self.threads = {}
        self.step = 0
        self.refusals = 0

    @property
    def saver(self):
        return self.dice.choice(self.savers)

    def some_thread(self):
        return self.dice.choice(THREADS)

    def some_living(self):
        return self.dice.choice(sorted(self.threads)) if self.threads else None

    def put(self):
        thread_id = self.some_thread()
        held = self.threads.get(thread_id, {})
        parent = self.dice.choice([None, *sorted(held), *sorted(held)[-3:]]) if held else None
        self.step += 1
        before, versions = ({}, {}) if parent is None else (held[parent]["values"], held[parent]["versions"])
        changed = {name: self.step for name in ("a", "b", "c") if name not in before or self.dice.random() < 0.4}
        values = {**before, **{name: long_value(self.dice) for name in changed}}
        versions = {**versions, **changed}
        checkpoint = {
            "v": 4,
            # Later than any deletion's own id, which is made from the clock.
            "id": f"f0000000-0000-6000-8000-{self.step:012d}",
            "ts": "2026-01-01T00:00:00+00:00",
            "channel_values": values,
            "channel_versions": versions,
            "versions_seen": {},
        }
        arguments = (lives.config(thread_id, parent), checkpoint, {"step": self.step}, changed)
        try:
            self.saver.put(*arguments)
        except threadline.Conflict:
            # The parent's values were only in the parent, and that was deleted. Nothing was put.
            self.refusals += 1
            self.check_thread(thread_id)
            return
        self.threads.setdefault(thread_id, {})[checkpoint["id"]] = {
            "values": values,
            "versions": versions,
            "writes": [],
        }

    def put_writes(self):
        thread_id = self.some_living()
        if thread_id is None:
            return
        checkpoint_id = max(self.threads[thread_id])
        self.step += 1
        value = long_value(self.dice)
        self.saver.put_writes(lives.config(thread_id, checkpoint_id), [("a", value)], f"task-{self.step:06d}")
        self.threads[thread_id][checkpoint_id]["writes"].append((f"task-{self.step:06d}", "a", value))

    def prune(self):
        thread_id = self.some_living()
        if thread_id is not None:
            self.saver.prune([thread_id])
            held = self.threads[thread_id]
            self.threads[thread_id] = {max(held): held[max(held)]}

    def delete_checkpoint(self):
        thread_id = self.some_living()
        if thread_id is not None and len(self.threads[thread_id]) > 1:
            doomed = self.dice.choice(sorted(self.threads[thread_id]))
            self.saver.delete_checkpoint(lives.config(thread_id, doomed))
            del self.threads[thread_id][doomed]

    def delete_thread(self):
        thread_id = self.some_thread()
        self.saver.delete_thread(thread_id)
        self.threads.pop(thread_id, None)

    def copy_thread(self):
        source, target = self.some_living(), self.some_thread()
        if source is None or source == target:
            return
        if target in self.threads:
            with pytest.raises(threadline.Conflict, match=target):
                self.saver.copy_thread(source, target)
            return
        self.saver.copy_thread(source, target)
        self.threads[target] = {
            name: {**kept, "writes": list(kept["writes"])} for name, kept in self.threads[source].items()
        }

    def check_thread(self, thread_id):
        expected = self.threads.get(thread_id, {})
        found = {one.checkpoint["id"]: one for one in self.saver.list(lives.config(thread_id))}
        assert sorted(found) == sorted(expected)
        for name, one in found.items():
            assert dict(one.checkpoint["channel_values"]) == expected[name]["values"]
            assert one.checkpoint["channel_versions"] == expected[name]["versions"]
            assert one.pending_writes == expected[name]["writes"]

    def forget(self):
        self.saver.clear_cache()

    def run(self, steps):
        acts = [self.put] * 8 + [self.put_writes] * 2 + [self.prune, self.delete_checkpoint, self.copy_thread] * 2
        acts += [self.delete_thread, self.forget]
        for _ in range(steps):
            self.dice.choice(acts)()
            self.check_thread(self.some_thread())
        for thread_id in THREADS:
            self.check_thread(thread_id)


def savers(connect, url):
    # Nothing crashes here, so nothing need wait for the disk.
    return [connect(url, synchronous="OFF") for _ in range(SAVERS)]


@pytest.mark.parametrize("seed", range(8))
def test_savers_that_know_nothing_of_each_other_always_read_what_was_put(connect, url, seed):
    Model(savers(connect, url), random.Random(seed)).run(80)


@pytest.mark.soak
@pytest.mark.parametrize("seed", range(100, 140))
def test_long_histories_of_many_savers_always_read_what_was_put(connect, url, seed):
    Model(savers(connect, url), random.Random(seed)).run(400)


def test_a_dict_that_becomes_the_list_of_its_values_is_stored_as_a_list(connect, url, half):
    """And back again: what was recognised of the one must not be taken for the other."""
    saver = connect(url)
    items = [lives.text("item", n) for n in range(400)]
    for step, value in enumerate([dict(enumerate_text(items)), items, dict(enumerate_text(items)), items[:300]], 1):
        checkpoint = {**lives.checkpoint("t", step), "channel_values": {"a": value}, "channel_versions": {"a": step}}
        half.call(saver, "put", lives.config("t"), checkpoint, {"step": step}, {"a": step})
        for reader in (saver, connect(url)):
            assert half.call(reader, "get_tuple", lives.config("t")).checkpoint["channel_values"] == {"a": value}
