"""Every way to delete beside a run on another branch of the thread: its state stays whole, or its next put is refused.

A delta channel is replayed from the checkpoints before it. A run that goes on from a checkpoint which is deleted under
it must never find its channel empty, or a part of it.
"""

import contextlib
import itertools
import operator
from typing import Annotated, TypedDict

import pytest

import threadline
from threadline import Conflict, NotFound, Policy
from threadline.base.ids import new_id

THREAD = {"configurable": {"thread_id": "t", "checkpoint_ns": ""}}
COUNTERS = "counters_since_delta_snapshot"
VERSIONS = itertools.count(1)


class Run:
    """A run that goes on from a checkpoint: writes of its tasks, then the checkpoint they lead to."""

    def __init__(self, call, saver, config=THREAD, words=(), run_id="run", **metadata):
        self.call, self.saver, self.config, self.words = call, saver, config, list(words)
        self.metadata = {"run_id": run_id, **metadata}
        self.steps = itertools.count(len(self.words))

    def begin(self):
        """The first checkpoint, which holds the channel."""
        self._put({"m": ["seed"]}, {})
        self.words = ["seed"]
        return self

    def write(self):
        self.word = f"{self.metadata['run_id']} {next(self.steps)}"
        self.call(self.saver, "put_writes", self.config, [("m", self.word)], f"task {self.word}")

    def put(self, **values):
        self._put({"z": self.word, **values}, {COUNTERS: {"m": [1, len(self.words)]}} if "m" not in values else {})
        self.words.append(self.word)

    def step(self):
        self.write()
        self.put()
        return self.config

    def snapshot(self):
        self.write()
        self.put(m=[*self.words, self.word])

    def begin_branch(self):
        """Go on beside others: as LangGraph does, with the value itself, for the writes here are theirs as well."""
        self._put({"m": list(self.words)}, {})

    def _put(self, values, counters):
        made = threadline.empty_checkpoint()
        made["channel_values"] = values
        made["channel_versions"] = dict.fromkeys(("m", "z"), next(VERSIONS))
        about = {"source": "loop", "step": len(self.words), **self.metadata, **counters}
        self.config = self.call(self.saver, "put", self.config, made, about, made["channel_versions"])

    def branch(self, saver, run_id):
        return Run(self.call, saver, self.config, self.words, run_id)


def value_of(call, saver, config):
    """The channel at a checkpoint, as LangGraph would replay it."""
    found = call(saver, "get_tuple", config)
    held = found.checkpoint["channel_values"].get("m")
    if held is not None:
        return held
    history = call(saver, "get_delta_channel_history", config=config, channels=["m"])["m"]
    return [*history.get("seed", []), *(value for _, _, value in history["writes"])]


def keep_latest(call, saver, beside):
    call(saver, "prune", ["t"])


def delete(call, saver, beside):
    call(saver, "prune", ["t"], strategy="delete")


def by_policy(call, saver, beside):
    call(saver.thread("t"), "prune", Policy(keep_last=1))


def by_policy_with_writes(call, saver, beside):
    call(saver.thread("t"), "prune", Policy(keep_last=1, drop_settled_writes=True))


def old_branches(call, saver, beside):
    call(saver.thread("t"), "prune", Policy(keep_last=1, drop_branches_older_than=0))


def settled_writes(call, saver, beside):
    call(saver.thread("t"), "prune", Policy(drop_settled_writes=True))


def swept(call, saver, beside):
    call(saver, "sweep", Policy(keep_last=1))


def swept_branches(call, saver, beside):
    call(saver, "sweep", Policy(keep_last=1, drop_branches_older_than=0))


def expired(call, saver, beside):
    call(saver.thread("t"), "create", ttl=0)
    call(saver, "sweep")


def its_checkpoint(call, saver, beside):
    with contextlib.suppress(Conflict):  # what somebody is replayed from may not go
        call(saver, "delete_checkpoint", beside.config)


def its_run(call, saver, beside):
    call(saver, "delete_for_runs", [beside.metadata["run_id"]])


def the_other_run(call, saver, beside):
    call(saver, "delete_for_runs", ["first"])


def discarded(call, saver, beside):
    call(saver.thread("t"), "discard", beside.config)


def rolled_back(call, saver, beside):
    call(saver.thread("t"), "rollback", "head~1")


def forked(call, saver, beside):
    call(saver.thread("t"), "fork", beside.config)


def forked_away(call, saver, beside):
    call(saver.thread("t"), "fork", beside.config, to="elsewhere")


def deleted(call, saver, beside):
    call(saver, "delete_thread", "t")


def collected(call, saver, beside):
    call(saver, "collect")


DELETIONS = [
    keep_latest, delete, by_policy, by_policy_with_writes, old_branches, settled_writes, swept, swept_branches, expired,
    its_checkpoint, its_run, the_other_run, discarded, rolled_back, forked, forked_away, deleted, collected,
]  # fmt: skip


def two_branches(call, saver, other):
    """A thread whose newest checkpoint is on one branch, and a run that goes on on another."""
    first = Run(call, saver, run_id="first").begin()
    first.step()
    first.step()
    beside = first.branch(other, "beside")
    beside.step()
    beside.step()
    first.begin_branch()
    first.step()
    first.snapshot()
    first.step()
    assert beside.config["configurable"]["checkpoint_id"] < first.config["configurable"]["checkpoint_id"]
    return first, beside


def goes_on(connect, call, beside, steps):
    """Every step is stored whole, or refused."""
    for step in steps:
        try:
            step()
        except Conflict:
            return
        if step != beside.write:
            assert value_of(call, connect(), beside.config) == beside.words


@pytest.mark.parametrize("forgets", [False, True])
@pytest.mark.parametrize("deletes", DELETIONS)
def test_a_run_on_another_branch_keeps_its_state_or_is_refused(connect, call, deletes, forgets):
    _, beside = two_branches(call, connect(), connect())
    deletes(call, connect(), beside)
    if forgets:
        call(beside.saver, "clear_cache")
    goes_on(connect, call, beside, [beside.step, beside.step, beside.step])


@pytest.mark.parametrize("deletes", DELETIONS)
def test_a_run_between_its_writes_and_their_checkpoint_keeps_its_state_or_is_refused(connect, call, deletes):
    _, beside = two_branches(call, connect(), connect())
    beside.write()
    deletes(call, connect(), beside)
    goes_on(connect, call, beside, [beside.put, beside.step])


@pytest.mark.parametrize("deletes", DELETIONS)
def test_a_run_that_begins_a_branch_keeps_its_state_or_is_refused(connect, call, deletes):
    """It has read a checkpoint amid the branch of the newest one, and not put anything yet."""
    saver = connect()
    first = Run(call, saver, run_id="first").begin()
    first.step()
    beside = first.branch(connect(), "beside")
    first.begin_branch()
    for _ in range(3):
        first.step()
    first.snapshot()
    first.step()
    call(beside.saver, "get_tuple", beside.config)
    try:
        deletes(call, connect(), beside)
    except Conflict:  # a branch with the newest checkpoint is not discarded
        assert deletes is discarded
    goes_on(connect, call, beside, [beside.step, beside.step])


@pytest.mark.parametrize("deletes", DELETIONS)
def test_a_run_that_snapshots_goes_on_from_its_own_value(connect, call, deletes):
    """What it puts holds the channel whole: it needs nothing that was deleted."""
    _, beside = two_branches(call, connect(), connect())
    deletes(call, connect(), beside)
    goes_on(connect, call, beside, [beside.snapshot, beside.step])


@pytest.mark.parametrize("deletes", DELETIONS)
def test_what_is_left_of_the_other_branch_is_whole(connect, call, deletes):
    first, beside = two_branches(call, connect(), connect())
    kept = list(first.words)
    deletes(call, connect(), beside)
    saver = connect()
    if call(saver, "get_tuple", THREAD) is None:
        assert deletes in (delete, deleted, expired)
    elif call(saver, "get_tuple", first.config) is not None:
        assert value_of(call, saver, first.config) == kept
    else:
        assert deletes is the_other_run


@pytest.mark.parametrize("deletes", DELETIONS)
def test_tasks_that_write_beside_a_deletion_lose_nothing_that_is_taken_up(connect, call, deletes):
    """Two tasks of one step: one has written before the deletion, the other writes after it."""
    _, beside = two_branches(call, connect(), connect())
    beside.write()
    early = beside.word
    deletes(call, connect(), beside)
    try:
        beside.write()
        beside.put()
    except Conflict:
        return
    assert value_of(call, connect(), beside.config) == [*beside.words[:-1], early, beside.words[-1]]


# -- with graphs


def talk(frequency):
    """Words in a delta channel and in one that is stored whole."""
    delta = pytest.importorskip("langgraph.channels").DeltaChannel
    graph = pytest.importorskip("langgraph.graph")
    channel = delta(lambda state, writes: [*state, *itertools.chain(*writes)], snapshot_frequency=frequency)
    words = Annotated[list, channel]
    builder = graph.StateGraph(TypedDict("Talk", {"words": words, "twin": Annotated[list, operator.add], "turn": int}))
    for name in ("listen", "speak"):
        builder.add_node(name, lambda state, name=name: {key: [f"{name} {state['turn']}"] for key in ("words", "twin")})
    builder.add_edge(graph.START, "listen")
    builder.add_edge("listen", "speak")
    return builder


@pytest.mark.parametrize("frequency", [1, 3, 1000])
@pytest.mark.parametrize("deletes", DELETIONS)
def test_a_graph_on_another_branch_never_finds_a_part_of_its_words(connect, url, call, deletes, frequency, monkeypatch):
    checkpointer = pytest.importorskip("threadline.langgraph").Checkpointer
    running = checkpointer(url)
    try:
        graph = talk(frequency).compile(checkpointer=running)
        for turn in range(3):
            graph.invoke({"turn": turn, "words": [f"said {turn}"], "twin": [f"said {turn}"]}, THREAD)
        middle = graph.get_state(THREAD).config
        graph.invoke({"turn": 3, "words": ["said 3"], "twin": ["said 3"]}, THREAD)
        put, puts = running.put, []

        def put_beside(config, *args):
            puts.append(config)
            if len(puts) == 3:  # amid the branch of this run
                beside = Run(call, running, config, run_id=str(args[1].get("run_id", "none")))
                newest = [found.config for found in connect().list(THREAD, limit=1)]
                # Another run goes on where the thread was, and has the newest checkpoint.
                made = {**connect().get_tuple(newest[0]).checkpoint, "id": new_id()}
                connect().put(newest[0], made, {"source": "update", "step": 99, "run_id": "first"}, {})
                deletes(call, connect(), beside)
            return put(config, *args)

        monkeypatch.setattr(running, "put", put_beside)
        try:
            final = graph.invoke({"turn": 9, "words": ["other"], "twin": ["other"]}, middle, durability="sync")
        except (Conflict, NotFound):
            return
        assert final["words"] == final["twin"]
        last = {"configurable": {**puts[-1]["configurable"]}}
        for config in (last, THREAD):
            state = talk(frequency).compile(checkpointer=checkpointer(url)).get_state(config).values
            if state.get("turn") == 9:
                assert state["words"] == state["twin"]
    finally:
        running.close()
