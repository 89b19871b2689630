"""Graphs go on after retention has shrunk their threads: resumed, forked, back in time; with writers beside a prune."""

import itertools
import operator
import threading
from typing import Annotated, TypedDict

import pytest
from langgraph.channels import DeltaChannel
from langgraph.graph import END, START, StateGraph
from langgraph.types import Command, Send, interrupt

from tests.stores import savers
from threadline import NotFound, Policy
from threadline.langgraph import Checkpointer
from threadline.testing.making import checkpoint, place

THREAD = {"configurable": {"thread_id": "thread-1"}}


@pytest.fixture
def reopen(tmp_path):
    """Opens a further saver on the file of this test."""
    with savers(tmp_path / "threads.db", make=Checkpointer, synchronous="OFF") as opening:
        yield opening


def by_policy(**rules):
    return lambda saver: saver.thread("thread-1").prune(Policy(**rules))


# Ways to shrink a thread; each leaves its newest checkpoint, and all that this is made of.
SHRINKERS = [
    pytest.param(by_policy(keep_last=2), id="two"),
    pytest.param(by_policy(keep_last=1, drop_settled_writes=True), id="one, without settled writes"),
    pytest.param(by_policy(drop_settled_writes=True), id="settled writes only"),
    pytest.param(by_policy(keep_last=1, drop_branches_older_than=0), id="one branch"),
    pytest.param(lambda saver: saver.prune(["thread-1"]), id="keep_latest"),
    pytest.param(lambda saver: saver.sweep(Policy(keep_hourly=1)), id="sweep"),
]


@pytest.fixture(params=SHRINKERS)
def shrink(request):
    """Shrinks the thread; what is left is sound."""

    def act(saver):
        request.param(saver)
        saver.collect()
        assert saver.fsck().ok

    return act


# -- a delta channel beside an ordinary one


def extend(state, writes):
    return list(itertools.chain(state, *writes))


def talk(frequency):
    """Five words a turn in both channels, three of them from a fan-out, whose order matters."""
    delta = Annotated[list, DeltaChannel(extend, snapshot_frequency=frequency)]
    fields = {"words": delta, "twin": Annotated[list, operator.add], "turn": int}
    schema = TypedDict("Talk", fields)

    def both(*words):
        return {"words": list(words), "twin": list(words)}

    builder = StateGraph(schema)
    builder.add_node("listen", lambda state: {**both(f"heard {state['turn']}"), "turn": state["turn"] + 1})
    builder.add_node("echo", lambda word: both(word))
    builder.add_edge(START, "listen")
    builder.add_conditional_edges("listen", lambda s: [Send("echo", f"{c} {s['turn']}") for c in "cab"], ["echo"])
    builder.add_edge("echo", END)
    return builder


def say(turn):
    return {"words": [f"said {turn}"], "twin": [f"said {turn}"], "turn": turn}


FREQUENCIES = (1, 4, 1000)


@pytest.mark.parametrize("frequency", FREQUENCIES)
def test_a_shrunk_delta_thread_goes_on(reopen, shrink, frequency):
    graph = talk(frequency).compile(checkpointer=reopen())
    for turn in range(3):
        graph.invoke(say(turn), THREAD)
    for turn in range(3, 8):
        shrink(reopen())
        saver = reopen()
        final = talk(frequency).compile(checkpointer=saver).invoke(say(turn), THREAD)
        assert final["words"] == final["twin"]
        assert len(final["words"]) == 5 * (turn + 1)
    assert saver.fsck().ok


@pytest.mark.parametrize("frequency", FREQUENCIES)
def test_every_checkpoint_that_is_left_of_a_delta_thread_has_the_value_of_its_moment(reopen, shrink, frequency):
    graph = talk(frequency).compile(checkpointer=reopen())
    for turn in range(5):
        graph.invoke(say(turn), THREAD)
    before = {at(one): one.values for one in graph.get_state_history(THREAD)}
    shrink(reopen())

    saver = reopen()
    graph = talk(frequency).compile(checkpointer=saver)
    left = {at(one): one for one in graph.get_state_history(THREAD)}

    assert max(left) == max(before)
    assert left[max(left)].values == before[max(before)]
    # Those that are kept for what is replayed from them may not have a value of their own any more.
    kept = {(key.namespace, key.id) for key in saver.thread("thread-1").prune(keep_last=2, dry_run=True).keeps}
    for one in sorted(left)[-2:]:
        assert ("", one) in kept
        if left[one].values.get("words"):
            assert left[one].values == before[one]


@pytest.mark.parametrize("frequency", FREQUENCIES)
def test_a_shrunk_delta_thread_is_forked_and_travelled(reopen, shrink, frequency):
    graph = talk(frequency).compile(checkpointer=reopen())
    for turn in range(4):
        graph.invoke(say(turn), THREAD)
    head = graph.get_state(THREAD)
    saver = reopen()
    saver.thread("thread-1").tag("good", head.config)
    graph.invoke(say(4), THREAD)
    shrink(saver)

    graph = talk(frequency).compile(checkpointer=reopen())
    assert graph.get_state(head.config).values == head.values
    branch = saver.thread("thread-1").fork("good")
    assert graph.get_state(branch.config).values == head.values
    other = saver.thread("thread-1").fork("good", to="thread-2")
    for config in (branch.config, other.config):
        final = graph.invoke(say(9), config)
        assert final["words"] == final["twin"] == [*head.values["words"], *final["words"][-5:]]
    # The origin may go: the fork has all it is made of.
    saver.delete_thread("thread-1")
    saver.collect()
    again = talk(frequency).compile(checkpointer=reopen()).invoke(say(10), {"configurable": {"thread_id": "thread-2"}})
    assert again["words"] == again["twin"]
    assert len(again["words"]) == 30
    assert saver.fsck().ok


# -- subgraphs


class Order(TypedDict):
    trail: Annotated[list[str], operator.add]


def ordering(ran):
    """A graph in a graph in a graph; the innermost asks, after a step that must not run twice."""

    def step(name, asks=False):
        def node(state):
            ran.append(name)
            return {"trail": [f"{name} {interrupt(name)}" if asks else name]}

        return node

    def chain(*nodes):
        builder = StateGraph(Order)
        for (before, _), (name, node) in itertools.pairwise([(START, None), *nodes]):
            builder.add_node(name, node)
            builder.add_edge(before, name)
        return builder

    inner = chain(("write", step("write")), ("approve", step("approve", asks=True)), ("sign", step("sign")))
    middle = chain(("read", step("read")), ("inner", inner.compile()))
    return chain(("begin", step("begin")), ("middle", middle.compile()), ("end", step("end")))


@pytest.mark.parametrize("asked_before", [0, 2])
def test_a_shrunk_thread_whose_subgraph_waits_is_resumed(reopen, shrink, asked_before):
    for turn in range(asked_before):
        graph = ordering([]).compile(checkpointer=reopen())
        graph.invoke({"trail": [f"turn {turn}"]}, THREAD)
        graph.invoke(Command(resume="yes"), THREAD)
    ordering([]).compile(checkpointer=reopen()).invoke({"trail": ["now"]}, THREAD)
    shrink(reopen())

    ran, saver = [], reopen()
    graph = ordering(ran).compile(checkpointer=saver)
    inner = graph.get_state(THREAD, subgraphs=True).tasks[0].state.tasks[0].state
    assert inner.next == ("approve",)
    assert inner.values["trail"][-1] == "write"
    final = graph.invoke(Command(resume="yes"), THREAD)

    assert ran == ["approve", "sign", "end"]
    assert final["trail"][-3:] == ["approve yes", "sign", "end"]
    shrink(reopen())
    assert ordering([]).compile(checkpointer=reopen()).get_state(THREAD).values == final
    assert saver.fsck().ok


def test_a_shrunk_thread_whose_subgraph_waits_is_forked(reopen, shrink):
    ordering([]).compile(checkpointer=reopen()).invoke({"trail": ["now"]}, THREAD)
    saver = reopen()
    shrink(saver)
    saver.thread("thread-1").fork(to="thread-2")
    saver.delete_thread("thread-1")
    saver.collect()

    ran = []
    graph = ordering(ran).compile(checkpointer=reopen())
    final = graph.invoke(Command(resume="yes"), {"configurable": {"thread_id": "thread-2"}})

    assert ran == ["approve", "sign", "end"]
    assert final["trail"][-3:] == ["approve yes", "sign", "end"]
    assert saver.fsck().ok


def test_a_stored_answer_outlives_a_prune(reopen, shrink):
    graph = ordering([]).compile(checkpointer=reopen())
    [question] = graph.invoke({"trail": ["now"]}, THREAD)["__interrupt__"]
    saver = reopen()
    saver.thread("thread-1").answer({question.id: "later"})
    shrink(saver)

    ran = []
    final = ordering(ran).compile(checkpointer=reopen()).invoke(None, THREAD)

    assert ran == ["approve", "sign", "end"]
    assert final["trail"][-3:] == ["approve later", "sign", "end"]


def test_back_in_time_after_a_prune_runs_what_came_after_again(reopen):
    ran = []
    graph = ordering(ran).compile(checkpointer=reopen())
    graph.invoke({"trail": ["now"]}, THREAD)
    final = graph.invoke(Command(resume="yes"), THREAD)
    [before] = [one for one in graph.get_state_history(THREAD) if one.next == ("end",)]
    reopen().thread("thread-1").prune(keep_last=2)

    ran.clear()
    graph = ordering(ran).compile(checkpointer=reopen())
    assert graph.invoke(None, before.config) == final
    assert ran == ["end"]
    # Its parents were pruned, and a fork of it goes on all the same.
    branch = reopen().thread("thread-1").fork(before.config)
    assert graph.invoke(None, branch.config) == final


@pytest.mark.parametrize("mark", ["tag", "pin"])
def test_keep_latest_keeps_what_people_marked_with_its_subgraphs(reopen, mark):
    graph = ordering([]).compile(checkpointer=reopen())
    graph.invoke({"trail": ["now"]}, THREAD)
    waiting, saver = graph.get_state(THREAD), reopen()
    thread = saver.thread("thread-1")
    thread.tag("asked", waiting.config) if mark == "tag" else thread.pin(waiting.config)
    graph.invoke(Command(resume="no"), THREAD)
    before = {(entry.namespace, entry.id) for entry in thread.log()}
    saver.prune(["thread-1"])
    left = {(entry.namespace, entry.id) for entry in thread.log()}
    assert left == {("", at(waiting)), ("", at(graph.get_state(THREAD)))} | {each for each in before if each[0]}
    assert graph.get_state(waiting.config).values == waiting.values
    assert saver.fsck().ok


def test_a_fork_of_an_answered_question_can_be_answered_anew(reopen):
    """Also in a thread of its own, where the subgraph that asked has come to its end in the origin."""
    graph = ordering([]).compile(checkpointer=reopen())
    graph.invoke({"trail": ["now"]}, THREAD)
    waiting = graph.get_state(THREAD)
    graph.invoke(Command(resume="no"), THREAD)
    thread = reopen().thread("thread-1")
    for to in (None, "thread-2"):
        point = thread.fork(waiting.config, to=to)
        ran = []
        graph = ordering(ran).compile(checkpointer=reopen())
        [question] = graph.invoke(None, point.config)["__interrupt__"]
        final = graph.invoke(Command(resume={question.id: "yes"}), thread_config(point))
        assert final["trail"][-3:] == ["approve yes", "sign", "end"]
        assert ran[-3:] == ["approve", "sign", "end"]


class Mind(TypedDict):
    said: str
    memory: Annotated[list[str], operator.add]
    heard: list[str]


class Person(TypedDict):
    said: str
    heard: list[str]


def minded():
    """A subgraph that remembers from run to run what it was told, and a step after it."""
    mind = StateGraph(Mind)
    mind.add_node("remember", lambda state: {"memory": [state["said"]]})
    mind.add_node("tell", lambda state: {"heard": state["memory"]})
    mind.add_edge(START, "remember")
    mind.add_edge("remember", "tell")
    person = StateGraph(Person)
    person.add_node("mind", mind.compile(checkpointer=True))
    person.add_node("rest", lambda state: {})
    person.add_edge(START, "mind")
    person.add_edge("mind", "rest")
    return person


def test_a_subgraph_remembers_earlier_runs_after_every_prune(reopen, shrink):
    for turn in range(6):
        final = minded().compile(checkpointer=reopen()).invoke({"said": f"word {turn}"}, THREAD)
        assert final["heard"] == [f"word {each}" for each in range(turn + 1)]
        shrink(reopen())
        shrink(reopen())


def test_a_fork_remembers_what_its_origin_did_and_no_more(reopen):
    graph = minded().compile(checkpointer=reopen())
    ends = []
    for turn in range(4):
        graph.invoke({"said": f"word {turn}"}, THREAD)
        ends.append(graph.get_state(THREAD).config)
    thread = reopen().thread("thread-1")
    thread.fork(ends[1], to="thread-2")
    thread.fork(ends[3], to="thread-3")
    thread.delete()
    graph = minded().compile(checkpointer=reopen())
    for name, turns in (("thread-2", 2), ("thread-3", 4)):
        final = graph.invoke({"said": "new"}, {"configurable": {"thread_id": name}})
        assert final["heard"] == [*(f"word {each}" for each in range(turns)), "new"]


def test_the_tag_of_a_deleted_checkpoint_names_nothing(reopen):
    graph = ordering([]).compile(checkpointer=reopen())
    graph.invoke({"trail": ["now"]}, THREAD)
    thread = reopen().thread("thread-1")
    thread.tag("first", "head~1")
    thread.delete("first")
    for verb in (thread.at, thread.state, thread.pin, thread.fork):
        with pytest.raises(NotFound, match="first"):
            verb("first")


# -- writers beside a prune


def test_a_store_is_sound_while_writers_and_a_prune_go_on(reopen):
    done, failures = threading.Event(), []

    def guarded(work):
        def run():
            try:
                while not done.is_set():
                    work()
            except BaseException as error:
                failures.append(error)

        return threading.Thread(target=run)

    def writing(name):
        saver, words, numbers = reopen(), [], itertools.count()
        config = place(name)

        def write():
            nonlocal config
            number = next(numbers)
            words.append({"id": number, "text": f"{name} {number} " * 20})
            made = checkpoint({"words": list(words[-60:]), "n": number}, {"words": number + 1, "n": number + 1})
            config = saver.put(config, made, {"source": "loop", "step": number}, made["channel_versions"])
            saver.put_writes(config, [("words", words[-1])], "task")

        return write

    def pruning():
        saver = reopen()

        def prune():
            for info in list(saver.threads()):
                saver.thread(info.thread_id).prune(keep_last=3, drop_settled_writes=True)
            saver.collect()

        return prune

    workers = [guarded(writing("a")), guarded(writing("b")), guarded(pruning())]
    for worker in workers:
        worker.start()
    checking, reports = reopen(), []
    try:
        while checking.stats().checkpoints == 0 and not failures:
            pass
        reports = [checking.fsck() for _ in range(12)]
    finally:
        done.set()
        for worker in workers:
            worker.join(60)
    assert not failures, failures
    assert all(report.ok for report in reports), [report.damaged for report in reports if not report.ok]
    last = reopen()
    assert last.fsck().ok
    for name in ("a", "b"):
        values = last.get_tuple(place(name)).checkpoint["channel_values"]
        assert values["words"][-1]["id"] == values["n"]


def at(state):
    return state.config["configurable"]["checkpoint_id"]


def thread_config(point):
    return {"configurable": {"thread_id": point.config["configurable"]["thread_id"]}}
