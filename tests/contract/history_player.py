"""Plays random histories on the model and on real stores, and compares what they hold.

Two savers take turns on each store, so that what one remembers is changed behind its back by the other.
"""

import copy
from functools import partial

from history_model import Model
from hypothesis import strategies as st

from threadline import Conflict, NotFound

THREADS = ("a", "b")
NAMESPACES = ("", "", "", "child:1")
picks = st.integers(0, 10**6)


def item(pick):
    """Small ones stand in their leaf, others are chunks, a few are cut."""
    if pick % 50 == 49:
        return f"{pick} " * 9000
    return {"at": pick, "text": "t" * (pick % 300)} if pick % 3 else pick


def edited(words, kind, pick, item=item):
    """A list after one of the edits that people make."""
    at = pick % (len(words) + 1)
    if kind == "append":
        return words + [item(pick + each) for each in range(pick % 40)]
    if kind == "insert":
        return [*words[:at], item(pick), *words[at:]]
    if kind == "replace":
        return [*words[:at], item(pick), *words[at + 1 :]]
    if kind == "trim":
        return words[at % 7 :]
    if kind == "cut":
        return words[:at]
    if kind == "reverse":
        return words[::-1]
    return (words * 2)[:400]


EDITS = ("append", "append", "append", "insert", "replace", "trim", "cut", "reverse", "double")
put = st.tuples(
    st.just("put"),
    st.sampled_from(THREADS),
    st.sampled_from(NAMESPACES),
    picks,  # which parent
    st.sampled_from(EDITS),
    picks,
    st.sampled_from(("words", "words", "as dict", "nothing", "all")),  # what changes
    st.booleans(),  # whether unchanged channels are left out of the values
)
put_again = st.tuples(st.just("put again"), picks)
writes = st.tuples(st.just("writes"), picks, st.sampled_from(("t1", "t2")), st.lists(picks, max_size=3))
rarely = st.one_of(
    st.tuples(st.just("delete"), st.sampled_from(THREADS)),
    st.tuples(st.just("copy"), st.sampled_from(THREADS), st.sampled_from(THREADS)),
    st.tuples(st.just("prune"), st.sampled_from(THREADS)),
    st.tuples(st.just("delete checkpoint"), picks),
    st.tuples(st.just("delete runs"), st.sampled_from(("run-0", "run-1"))),
    st.tuples(st.just("forget")),
)
ACTS = st.one_of(put, put, put, put, put_again, writes, rarely)
histories = st.lists(ACTS, min_size=8, max_size=50)


class Player:
    """Plays one history on the model and on two savers of each store, and compares.

    `item` makes a value of a number; `exact` is what of a value must be equal.
    """

    def __init__(self, stores, item=item, exact=lambda value: value):
        self.stores = stores
        self.item = item
        self.exact = exact
        self.model = Model()
        self.made = []  # arguments of every put so far
        self.turn = 0

    def play(self, act):
        self.turn += 1
        getattr(self, "_" + act[0].replace(" ", "_"))(*act[1:])

    def check(self):
        expected, exact = self.model.everything(), self.exact
        described = [exact(row) for row in expected]
        for savers in self.stores:
            for saver in savers:
                assert [exact(told(found)) for found in saver.list(None)] == described, saver
            for row, wanted in zip(expected, described, strict=True):
                # Alone, so that no chunk is at hand that another checkpoint brought.
                saver.clear_cache()
                assert exact(told(saver.get_tuple(config(*row[:3])))) == wanted, saver
            self._check_searches(saver, expected)
        figures = [savers[0].stats() for savers in self.stores]
        assert len({(each.threads, each.checkpoints, each.writes, each.chunks) for each in figures}) == 1

    def _check_searches(self, saver, expected):
        for thread in THREADS:
            for limit in (None, 1, 3):
                for before in (None, f"{len(self.made) // 2:08d}"):
                    rows = [row for row in expected if row[0] == thread and row[5] in ("run-0", "run-2")]
                    rows = [row for row in rows if before is None or row[2] < before]
                    found = saver.list(
                        {"configurable": {"thread_id": thread}},
                        filter={"run_id": {"$in": ["run-0", "run-2"]}, "source": "loop"},
                        before=config(thread, "", before),
                        limit=limit,
                    )
                    assert [self.exact(told(one)) for one in found] == [self.exact(row) for row in rows[:limit]]

    def _put(self, thread, ns, pick, kind, at, changes, leave_out):
        above = [one for one in self.made if one["thread"] == thread and one["ns"] == ns]
        # Mostly one of the last, so that states grow; sometimes any, sometimes none.
        among = above if pick % 7 == 0 else above[-3:]
        parent = among[pick % len(among)] if above and pick % 11 else None
        values = (
            copy.deepcopy(parent["state"]) if parent else {"words": [self.item(pick + n) for n in range(20)], "n": 0}
        )
        versions = dict(parent["versions"]) if parent else {"words": 0, "n": 0}
        changed = {"words", "n"} if parent is None or changes == "all" else {"words"} if changes != "nothing" else set()
        words = values["words"]
        if "words" in changed:
            words = edited(list(words.values()) if isinstance(words, dict) else words, kind, at, self.item)
            values["words"] = {str(each): word for each, word in enumerate(words)} if changes == "as dict" else words
        values["n"] += "n" in changed
        versions.update(dict.fromkeys(changed, self.turn))
        self.made.append({
            "thread": thread, "ns": ns, "id": f"{len(self.made):08d}", "parent": parent and parent["id"],
            "state": values, "versions": versions, "new": {name: self.turn for name in changed},
            "run": f"run-{self.turn % 4}", "leave_out": leave_out,
        })  # fmt: skip
        self._put_again(len(self.made) - 1)

    def _put_again(self, pick):
        if not self.made:
            return
        one = self.made[pick % len(self.made)]
        place = one["thread"], one["ns"], one["parent"]
        values = one["state"]
        if one["leave_out"] and self.model.has(*place):
            # The parent hands down what did not change.
            values = {name: values[name] for name in one["new"]}
        checkpoint = {
            "v": 4, "id": one["id"], "ts": "2026-01-01", "versions_seen": {}, "updated_channels": None,
            "channel_values": values, "channel_versions": one["versions"],
        }  # fmt: skip
        metadata = {"source": "loop", "step": 0, "run_id": one["run"]}

        def act(saver):
            try:
                saver.put(config(*place), checkpoint, metadata, one["new"])
            except Conflict as refusal:
                if "put the checkpoint again" not in str(refusal):
                    raise
                saver.put(config(*place), checkpoint, metadata, one["new"])

        expected = copy.deepcopy(values)
        self._do(
            lambda: self.model.put(
                one["thread"], one["ns"], one["id"], one["parent"], expected, one["versions"], one["new"], one["run"]
            ),
            act,
        )

    def _writes(self, pick, task, values):
        # One id ahead of what was put: writes may come before their checkpoint.
        at = pick % (len(self.made) + 1)
        known = self.made[at] if at < len(self.made) else {"thread": "a", "ns": "", "id": f"{at:08d}"}
        place = known["thread"], known["ns"], known["id"]
        pairs = [("__error__" if value % 4 == 0 else "words", self.item(value)) for value in values]
        self._do(
            lambda: self.model.put_writes(*place, task, pairs),
            lambda saver: saver.put_writes(config(*place), pairs, task),
        )

    def _delete(self, thread):
        self._do(lambda: self.model.delete_thread(thread), lambda saver: saver.delete_thread(thread))

    def _copy(self, source, target):
        if source != target:
            self._do(lambda: self.model.copy_thread(source, target), lambda saver: saver.copy_thread(source, target))

    def _prune(self, thread):
        self._do(lambda: self.model.prune(thread), lambda saver: saver.prune([thread]))

    def _delete_checkpoint(self, pick):
        if self.made:
            one = self.made[pick % len(self.made)]
            place = one["thread"], one["ns"], one["id"]
            self._do(
                lambda: self.model.delete_checkpoint(*place), lambda saver: saver.delete_checkpoint(config(*place))
            )

    def _delete_runs(self, run):
        self._do(lambda: self.model.delete_for_runs([run]), lambda saver: saver.delete_for_runs([run]))

    def _forget(self):
        for savers in self.stores:
            self._on_duty(savers).clear_cache()

    def _on_duty(self, savers):
        return savers[self.turn // 3 % 2]

    def _do(self, modelled, act):
        """The same outcome everywhere: nothing, or the same error."""
        expected = outcome(modelled)
        for savers in self.stores:
            saver = self._on_duty(savers)
            assert outcome(partial(act, saver)) == expected, saver


def outcome(act):
    try:
        act()
    except (Conflict, NotFound) as refusal:
        return type(refusal)
    return None


def config(thread, ns, checkpoint_id):
    named = {"thread_id": thread, "checkpoint_ns": ns}
    return {"configurable": named if checkpoint_id is None else {**named, "checkpoint_id": checkpoint_id}}


def told(found):
    """A tuple in the terms of the model; the order of channels among each other means nothing."""
    place = found.config["configurable"]
    checkpoint = found.checkpoint
    return (
        place["thread_id"],
        place["checkpoint_ns"],
        place["checkpoint_id"],
        dict(sorted(checkpoint["channel_values"].items())),
        dict(sorted(checkpoint["channel_versions"].items())),
        found.metadata["run_id"],
        found.parent_config and found.parent_config["configurable"]["checkpoint_id"],
        found.pending_writes,
    )
