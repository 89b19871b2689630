"""Branches, retention and deletion in any order, by two savers of one store, beside the model."""

import itertools
import threading

import pytest
from branch_model import CHILD, INTERRUPT, Kept, Line
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from threadline import Conflict, InvalidRequest, Policy
from threadline.base.ids import new_id

picks = st.integers(0, 10**6)
# In leaps, because a merge takes the next ones.
_versions = itertools.count(1000, 1000)


def config(thread, checkpoint_id=None, namespace=""):
    named = {"thread_id": thread, "checkpoint_ns": namespace}
    return {"configurable": named if checkpoint_id is None else {**named, "checkpoint_id": checkpoint_id}}


def item(pick):
    """Small ones stand in their leaf, others are chunks, a few are cut."""
    if pick % 40 == 39:
        return f"{pick} " * 9000
    return {"id": f"m{pick}", "text": "t" * (pick % 300)} if pick % 3 else pick


class HistoryMachine(RuleBasedStateMachine):
    """Threads begin with t0; forks add more. Two savers take turns, so that one changes what the other remembers."""

    def __init__(self, connect):
        super().__init__()
        self.savers = [connect(), connect()]
        self.lines = {"t0": Line()}
        self.dead = {}  # thread -> checkpoints from before its last deletion
        self.turn = 0

    # -- writing

    @rule(pick=picks, at=picks, count=st.integers(0, 30))
    def put(self, pick, at, count):
        name, line = self._line(pick)
        parent = self._any(line.root[:4] if at % 5 else line.root, at)
        values = self._grown(line.kept["", parent].values if parent else {"words": [], "n": 0}, at, count)
        self._put(name, "", parent, values)

    @rule(pick=picks, at=picks)
    def put_below(self, pick, at):
        """A checkpoint of a subgraph that runs under one of the root."""
        name, line = self._line(pick)
        above = self._any(line.root[:3], at)
        if above is not None:
            earlier = sorted(one for ns, one in line.kept if ns == CHILD and line.kept[ns, one].above == above)
            values = {"words": [item(at), item(at + 1)], "n": at}
            self._put(name, CHILD, earlier[-1] if earlier else None, values, above=above)

    @rule(
        pick=picks, at=picks, task=st.sampled_from(["task-a", "task-b"]), wrote=st.lists(picks, min_size=1, max_size=3)
    )
    def put_writes(self, pick, at, task, wrote):
        name, line = self._line(pick)
        keys = sorted(line.kept)
        if not keys:
            return
        key = keys[at % len(keys)]
        pairs = [(INTERRUPT if one % 9 == 0 else "words", item(one)) for one in wrote]

        def model():
            held = line.kept[key].writes
            for position, (channel, value) in enumerate(pairs):
                if channel == INTERRUPT:
                    held[task, -3] = (task, channel, value)
                else:
                    held.setdefault((task, position), (task, channel, value))

        self._unless_archived(line, lambda: self._saver().put_writes(config(name, *key[::-1]), pairs, task), model)

    @precondition(lambda self: self.dead)
    @rule(pick=picks, at=picks)
    def put_too_late(self, pick, at):
        """A run that goes on after its thread was deleted is refused, also where the thread began anew."""
        name = sorted(self.dead)[pick % len(self.dead)]
        parent = self._any(sorted(self.dead[name]), at)
        line = self.lines.get(name)
        if parent is None or (line is not None and any(one == parent for _, one in line.kept)):
            return
        with pytest.raises(Conflict):
            self._saver().put(*arguments(name, parent, {"words": [], "n": 0}, next(_versions), new_id()))

    @rule(pick=picks, at=picks, count=st.integers(1, 3))
    def write_beside_a_prune(self, pick, at, count):
        """One saver prunes and collects a thread while the other writes to a fork of it, in the same pool."""
        name, line = self._line(pick)
        one = self._any(line.root, at)
        if one is None or line.is_archived:
            return
        fork = self._new_name()
        self.savers[0].thread(name).fork(one, to=fork)
        self.lines[fork] = line.forked_away(one)
        puts, parent, values = [], one, line.kept["", one].values
        for number in range(count):
            values = self._grown(values, at + number, 8)
            puts.append((parent, new_id(), values, next(_versions)))
            parent = puts[-1][1]
        failures = []

        def write():
            try:
                for parent, new, values, version in puts:
                    put_again(self.savers[1], *arguments(fork, parent, values, version, new))
            except BaseException as error:
                failures.append(error)

        writer = threading.Thread(target=write)
        writer.start()
        self.savers[0].thread(name).prune(keep_last=1)
        self.savers[0].collect()
        writer.join(60)
        assert not failures, failures
        line.prune(keep_last=1)
        for parent, new, values, version in puts:
            self.lines[fork].kept["", new] = Kept(values, {"words": version, "n": version}, parent, "loop")

    # -- branching

    @rule(pick=picks, at=picks, back=st.booleans())
    def fork(self, pick, at, back):
        name, line = self._line(pick)
        one = self._any(line.root, at)
        if one is None:
            return
        thread = self._saver().thread(name)

        def act():
            return thread.rollback(one) if back else thread.fork(one)

        def model(point):
            assert point.id > max(line.root)
            line.kept["", point.id] = line.forked(one)

        self._unless_archived(line, act, model)

    @rule(pick=picks, at=picks, onto=picks)
    def fork_away(self, pick, at, onto):
        name, line = self._line(pick)
        one = self._any(line.root, at)
        if one is None:
            return
        taken = sorted(self.lines.keys() - {name})
        if onto % 4 == 0 and taken:
            with pytest.raises(Conflict):
                self._saver().thread(name).fork(one, to=taken[onto % len(taken)])
            return
        # A name that was deleted may be used again.
        free = sorted(self.dead.keys() - self.lines.keys())
        fork = free[0] if free and onto % 3 == 0 else self._new_name()
        self._saver().thread(name).fork(one, to=fork)
        self.lines[fork] = line.forked_away(one)

    @rule(pick=picks, at=picks, other=picks, strategy=st.sampled_from(["ours", "theirs"]))
    def merge(self, pick, at, other, strategy):
        """A merge is a child of our head, and each channel is as on one of the sides."""
        name, line = self._line(pick)
        others = self._line(other)[0] if other % 2 else name
        theirs = self._any(self.lines[others].root, at)
        if theirs is None or not line.root or line.is_archived:
            return
        ours, head = line.kept["", line.root[0]], line.root[0]
        their = self.lines[others].kept["", theirs]
        try:
            point = self._saver().thread(name).merge(config(others, theirs), strategy=strategy)
        except InvalidRequest as refusal:
            if "no common ancestor" not in str(refusal):
                raise
            return
        assert point.id > max(head, theirs)
        found = self._saver().get_tuple(point.config)
        values, versions = dict(found.checkpoint["channel_values"]), found.checkpoint["channel_versions"]
        for channel in ("words", "n"):
            assert values[channel] in (ours.values[channel], their.values[channel])
            if values[channel] != ours.values[channel]:
                assert versions[channel] > max(ours.versions[channel], their.versions[channel])
        line.kept["", point.id] = Kept(values, dict(versions), head, "update")

    @rule(pick=picks, at=picks)
    def discard(self, pick, at):
        name, line = self._line(pick)
        one = self._any(line.root, at)
        if one is None or line.is_archived:
            return
        doomed = line.discard(one)
        if doomed is None:
            with pytest.raises(Conflict):
                self._saver().thread(name).discard(one)
        else:
            assert self._saver().thread(name).discard(one) == len(doomed)
            line.remove(doomed)

    # -- keeping and deleting

    @rule(pick=picks, keep_last=st.integers(1, 4), drop_branches=st.booleans(), drop_settled=st.booleans())
    def prune(self, pick, keep_last, drop_branches, drop_settled):
        name, line = self._line(pick)
        if line.is_archived or not line.kept:
            return
        rules = policy(keep_last, drop_branches, drop_settled)
        thread = self._saver().thread(name)
        forecast = thread.prune(rules, dry_run=True)
        there = line.kept.keys() | line.loose
        line.prune(keep_last=keep_last, drop_branches=drop_branches, drop_settled=drop_settled)
        assert there - {(key.namespace, key.id) for key in forecast.removes} >= line.kept.keys()
        assert thread.prune(rules) == forecast

    @rule(keep_last=st.integers(1, 4), drop_branches=st.booleans(), drop_settled=st.booleans())
    def sweep(self, keep_last, drop_branches, drop_settled):
        swept = self._saver().sweep(policy(keep_last, drop_branches, drop_settled))
        assert not swept.is_elsewhere
        for line in self.lines.values():
            if not line.is_archived:
                line.prune(keep_last=keep_last, drop_branches=drop_branches, drop_settled=drop_settled)

    @rule(pick=picks)
    def keep_latest(self, pick):
        name, line = self._line(pick)
        if not line.is_archived:
            self._saver().prune([name])
            line.keep_latest()

    @rule(pick=picks, at=picks)
    def delete_checkpoint(self, pick, at):
        name, line = self._line(pick)
        one = self._any(line.root, at)
        if one is not None and not line.is_archived:
            self._saver().thread(name).delete(one)
            line.remove({one})
            line.tags = {tag: key for tag, key in line.tags.items() if key != ("", one)}
            line.pins.discard(("", one))

    @precondition(lambda self: self.lines)
    @rule(pick=picks)
    def delete_thread(self, pick):
        if pick % 3 == 0:
            name, line = self._line(pick)
            self._saver().delete_thread(name)
            self.dead[name] = {one for _, one in line.kept}
            del self.lines[name]

    @rule()
    def collect(self):
        self._saver().collect()
        assert self._saver().collect() == 0

    # -- naming

    @rule(pick=picks, at=picks, tag=st.sampled_from(["good", "bad"]), pins=st.booleans())
    def mark(self, pick, at, tag, pins):
        name, line = self._line(pick)
        one = self._any(line.root, at)
        if one is None:
            return
        thread = self._saver().thread(name)

        def model():
            if pins:
                line.pins.add(("", one))
            else:
                line.tags[tag] = ("", one)

        self._unless_archived(line, lambda: thread.pin(one) if pins else thread.tag(tag, one), model)

    @rule(pick=picks, at=picks)
    def unmark(self, pick, at):
        name, line = self._line(pick)
        thread = self._saver().thread(name)
        pinned = sorted(one for _, one in line.pins if ("", one) in line.kept)
        if line.tags and at % 2:
            tag = sorted(line.tags)[at % len(line.tags)]
            self._unless_archived(line, lambda: thread.untag(tag), lambda: line.tags.pop(tag))
        elif pinned:
            one = pinned[at % len(pinned)]
            self._unless_archived(line, lambda: thread.unpin(one), lambda: line.pins.discard(("", one)))

    @rule(pick=picks)
    def archive_or_restore(self, pick):
        name, line = self._line(pick)
        if line.kept:
            thread = self._saver().thread(name)
            thread.restore() if line.is_archived else thread.archive()
            line.is_archived = not line.is_archived

    @rule()
    def forget(self):
        self._saver().clear_cache()

    # -- what must hold

    @invariant()
    def the_store_holds_what_the_model_holds(self):
        found = {}
        for one in self._saver().list(None):
            place = one.config["configurable"]
            found[place["thread_id"], place["checkpoint_ns"], place["checkpoint_id"]] = one
        loose = {(name, *key) for name, line in self.lines.items() for key in line.loose}
        expected = {(name, *key): kept for name, line in self.lines.items() for key, kept in line.kept.items()}
        assert found.keys() - loose == expected.keys()
        for key, kept in expected.items():
            assert_is(found[key], kept)

    def teardown(self):
        try:
            for name, line in self.lines.items():
                for saver in self.savers:
                    saver.clear_cache()
                for (namespace, one), kept in line.kept.items():
                    assert_is(self._saver().get_tuple(config(name, one, namespace)), kept)
                if line.kept:
                    heads = self._saver().thread(name).log(namespace="").heads
                    assert {entry.id for entry in heads} == line.heads()
            assert self._saver().fsck().ok
        finally:
            for saver in self.savers:
                saver.close()

    # -- how the rules are put together

    def _saver(self):
        self.turn += 1
        return self.savers[self.turn // 2 % 2]

    def _line(self, pick):
        """A thread that lives; the first begins anew when none does."""
        if not self.lines:
            self.lines["t0"] = Line()
        name = sorted(self.lines)[pick % len(self.lines)]
        return name, self.lines[name]

    def _any(self, ids, at):
        return ids[at % len(ids)] if ids else None

    def _new_name(self):
        return f"t{len(self.lines.keys() | self.dead.keys())}"

    def _grown(self, values, at, count):
        words = values["words"][at % 3 if at % 4 == 0 else 0 :]
        return {"words": [*words, *(item(at + one) for one in range(count))], "n": at}

    def _put(self, name, namespace, parent, values, above=None):
        line, version, made = self.lines[name], next(_versions), new_id()

        def act():
            put_again(self._saver(), *arguments(name, parent, values, version, made, namespace, above))

        def model():
            versions = {"words": version, "n": version}
            line.kept[namespace, made] = Kept(values, versions, parent, "loop", above)

        self._unless_archived(line, act, model)

    def _unless_archived(self, line, act, model):
        """An archived thread refuses, and stays as it is."""
        if line.is_archived:
            with pytest.raises(Conflict):
                act()
            return
        answer = act()
        model() if model.__code__.co_argcount == 0 else model(answer)


def arguments(name, parent, values, version, made, namespace="", above=None):
    versions = {"words": version, "n": version}
    checkpoint = {
        "v": 4, "id": made, "ts": "2026-01-01", "versions_seen": {}, "updated_channels": None,
        "channel_values": values, "channel_versions": versions,
    }  # fmt: skip
    metadata = {"source": "loop", "step": version, "parents": {"": above} if above else {}}
    return config(name, parent, namespace), checkpoint, metadata, versions


def put_again(saver, *arguments):
    """Put, and once more where the parent was deleted behind the saver's back, as the refusal says."""
    try:
        saver.put(*arguments)
    except Conflict as refusal:
        if "put the checkpoint again" not in str(refusal):
            raise
        saver.put(*arguments)


def policy(keep_last, drop_branches, drop_settled):
    older = 0 if drop_branches else None
    return Policy(keep_last=keep_last, drop_branches_older_than=older, drop_settled_writes=drop_settled)


def assert_is(found, kept):
    assert found is not None
    assert dict(found.checkpoint["channel_values"]) == kept.values
    assert found.checkpoint["channel_versions"] == kept.versions
    assert (found.parent_config and found.parent_config["configurable"]["checkpoint_id"]) == kept.parent
    assert found.metadata["source"] == kept.source
    assert found.pending_writes == [kept.writes[key] for key in sorted(kept.writes)]
