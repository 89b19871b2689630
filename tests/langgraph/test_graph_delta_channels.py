"""DeltaChannel: the writes *are* the state, so no fork, copy, prune or restart may lose one.

Each test compares with a twin graph whose channel is stored whole: the value a delta channel
shows must be the value the ordinary channel shows, whatever was done to the thread meanwhile.
"""

import itertools
import operator
from typing import Annotated, TypedDict

import pytest
from langgraph.channels import DeltaChannel
from langgraph.graph import END, START, StateGraph
from langgraph.types import Command, Overwrite, Send, interrupt

# 7: several snapshots in a test, most of them amid a turn (which is 4 updates); 1000: none, so
# every value comes from the first write on.
FREQUENCIES = (1, 7, 1000)


def extend(state, writes):
    return list(itertools.chain(state, *writes))


def schema(frequency):
    if frequency is None:
        words = Annotated[list, operator.add]
    else:
        words = Annotated[list, DeltaChannel(extend, snapshot_frequency=frequency)]
    return TypedDict("Chat", {"words": words, "turn": int})


def build(frequency, ask=False):
    """Two words a turn, then three more from a fan-out whose order matters."""

    def listen(state):
        return {"words": [f"heard {state['words'][-1]}"], "turn": state.get("turn", 0) + 1}

    def speak(state):
        said = interrupt("say what?") if ask else "said"
        return {"words": [f"{said} {state['turn']}"]}

    def fan(state):
        return [Send("echo", f"echo {letter} {state['turn']}") for letter in "cab"]

    builder = StateGraph(schema(frequency))
    builder.add_node("listen", listen)
    builder.add_node("speak", speak)
    builder.add_node("echo", lambda word: {"words": [word]})
    builder.add_edge(START, "listen")
    builder.add_edge("listen", "speak")
    builder.add_conditional_edges("speak", fan, ["echo"])
    builder.add_edge("echo", END)
    return builder


def talk(half, graph, config, turns, **options):
    final = None
    for turn in turns:
        final = half.invoke(graph, {"words": [f"hello {turn}"]}, config, **options)
    return final


def expected(turns):
    words = []
    for at, turn in enumerate(turns, start=1):
        words += [f"hello {turn}", f"heard hello {turn}", f"said {at}"]
        words += [f"echo {letter} {at}" for letter in "cab"]
    return words


@pytest.mark.parametrize("frequency", FREQUENCIES)
def test_thirty_turns_equal_those_of_an_ordinary_channel(half, saver, reopen, thread, frequency):
    delta = talk(half, build(frequency).compile(checkpointer=saver), thread("delta"), range(30))
    whole = talk(half, build(None).compile(checkpointer=saver), thread("whole"), range(30))

    other = reopen()
    stored_delta = half.get_state(build(frequency).compile(checkpointer=other), thread("delta"))
    stored_whole = half.get_state(build(None).compile(checkpointer=other), thread("whole"))

    assert delta == whole == {"words": expected(range(30)), "turn": 30}
    assert stored_delta.values == stored_whole.values == whole


@pytest.mark.parametrize("frequency", FREQUENCIES)
def test_every_checkpoint_of_a_delta_thread_has_the_value_of_its_moment(half, saver, reopen, thread, frequency):
    talk(half, build(frequency).compile(checkpointer=saver), thread("delta"), range(4))
    talk(half, build(None).compile(checkpointer=saver), thread("whole"), range(4))

    other = reopen()
    delta = half.get_state_history(build(frequency).compile(checkpointer=other), thread("delta"))
    whole = half.get_state_history(build(None).compile(checkpointer=other), thread("whole"))

    assert [each.values.get("words", []) for each in delta] == [each.values.get("words", []) for each in whole]
    assert [each.next for each in delta] == [each.next for each in whole]


@pytest.mark.parametrize("durability", ["sync", "async", "exit"])
@pytest.mark.parametrize("frequency", FREQUENCIES)
def test_every_durability_keeps_a_delta_channel(half, reopen, thread, frequency, durability):
    for turn in range(5):
        graph = build(frequency).compile(checkpointer=reopen())
        talk(half, graph, thread(), [turn], durability=durability)

    stored = half.get_state(build(frequency).compile(checkpointer=reopen()), thread())
    assert stored.values["words"] == expected(range(5))


def test_durability_may_change_between_turns_of_a_delta_thread(half, reopen, thread):
    modes = itertools.cycle(["exit", "sync", "async", "exit", "exit", "async"])
    for turn, durability in zip(range(12), modes, strict=False):
        graph = build(7).compile(checkpointer=reopen())
        talk(half, graph, thread(), [turn], durability=durability)

    stored = half.get_state(build(7).compile(checkpointer=reopen()), thread())
    assert stored.values["words"] == expected(range(12))


def fork_at_turn(half, graph, config, turn):
    """Branch off the checkpoint at which the given turn had ended."""
    ends = [each for each in half.get_state_history(graph, config) if each.next == ()]
    (past,) = [each for each in ends if each.values.get("turn") == turn]
    return half.update_state(graph, past.config, {"words": ["turning"]}, as_node="echo")


@pytest.mark.parametrize("frequency", FREQUENCIES)
def test_a_fork_of_a_delta_thread_has_its_past_and_not_its_sibling(half, saver, reopen, thread, frequency):
    graph = build(frequency).compile(checkpointer=saver)
    talk(half, graph, thread(), range(6))
    head = half.get_state(graph, thread())

    fork = fork_at_turn(half, graph, thread(), turn=3)
    assert half.get_state(graph, fork).values["words"] == [*expected(range(3)), "turning"]
    other = build(frequency).compile(checkpointer=reopen())
    branch = half.invoke(other, {"words": ["hello again"]}, fork)

    assert branch["words"][: len(expected(range(3))) + 2] == [*expected(range(3)), "turning", "hello again"]
    assert half.get_state(other, thread()).values == branch
    assert half.get_state(other, head.config).values["words"] == expected(range(6))


@pytest.mark.parametrize("frequency", FREQUENCIES)
def test_replaying_a_delta_thread_applies_no_write_twice(half, saver, reopen, thread, frequency):
    graph = build(frequency).compile(checkpointer=saver)
    talk(half, graph, thread(), range(3))
    history = half.get_state_history(graph, thread())
    middle = [each for each in history if each.next == ("speak",)][1]

    other = build(frequency).compile(checkpointer=reopen())
    replayed = half.invoke(other, None, middle.config)

    assert replayed["words"] == expected(range(2))
    assert half.get_state(other, thread()).values["words"] == expected(range(2))
    assert half.get_state(other, history[0].config).values["words"] == expected(range(3))


@pytest.mark.parametrize("frequency", FREQUENCIES)
def test_pruning_a_delta_thread_keeps_its_value_and_its_future(half, saver, reopen, thread, frequency):
    talk(half, build(frequency).compile(checkpointer=saver), thread(), range(7))
    half.call(saver, "prune", [thread()["configurable"]["thread_id"]], strategy="keep_latest")

    other = build(frequency).compile(checkpointer=reopen())
    assert half.get_state(other, thread()).values["words"] == expected(range(7))
    final = talk(half, other, thread(), range(7, 12))
    assert final["words"] == expected(range(12))

    last = reopen()
    half.call(last, "prune", [thread()["configurable"]["thread_id"]])
    again = build(frequency).compile(checkpointer=last)
    assert half.get_state(again, thread()).values["words"] == expected(range(12))


@pytest.mark.parametrize("frequency", FREQUENCIES)
def test_a_copied_delta_thread_goes_on_apart_from_its_origin(half, saver, reopen, thread, frequency):
    talk(half, build(frequency).compile(checkpointer=saver), thread("origin"), range(5))
    half.call(saver, "copy_thread", "origin", "copy")

    graph = build(frequency).compile(checkpointer=reopen())
    copy = talk(half, graph, thread("copy"), [50, 51])
    origin = talk(half, graph, thread("origin"), [5])
    half.call(saver, "delete_thread", "origin")

    assert origin["words"] == expected(range(6))
    assert copy["words"] == expected([*range(5), 50, 51])
    stored = half.get_state(build(frequency).compile(checkpointer=reopen()), thread("copy"))
    assert stored.values == copy


@pytest.mark.parametrize("frequency", FREQUENCIES)
def test_a_deleted_delta_thread_starts_empty_under_its_id(half, saver, reopen, thread, frequency):
    graph = build(frequency).compile(checkpointer=saver)
    talk(half, graph, thread(), range(3))
    half.call(saver, "delete_thread", thread()["configurable"]["thread_id"])

    final = talk(half, graph, thread(), [9])

    assert final["words"] == expected([9])
    stored = half.get_state(build(frequency).compile(checkpointer=reopen()), thread())
    assert stored.values["words"] == expected([9])


@pytest.mark.parametrize("frequency", FREQUENCIES)
def test_a_question_inside_a_delta_thread_resumes(half, reopen, thread, frequency):
    for turn in range(3):
        ask = build(frequency, ask=True).compile(checkpointer=reopen())
        half.invoke(ask, {"words": [f"hello {turn}"]}, thread())
        waiting = half.get_state(ask, thread())
        assert waiting.values["words"][-1] == f"heard hello {turn}"
        answer = build(frequency, ask=True).compile(checkpointer=reopen())
        final = half.invoke(answer, Command(resume="said"), thread())

    assert final["words"] == expected(range(3))


@pytest.mark.parametrize("frequency", FREQUENCIES)
def test_overwriting_a_delta_channel_forgets_what_was_before(half, saver, reopen, thread, frequency):
    graph = build(frequency).compile(checkpointer=saver)
    talk(half, graph, thread(), range(3))
    half.update_state(graph, thread(), {"words": Overwrite(["clean"])}, as_node="echo")

    other = build(frequency).compile(checkpointer=reopen())
    assert half.get_state(other, thread()).values["words"] == ["clean"]
    final = half.invoke(other, {"words": ["hello x"]}, thread())
    assert final["words"][:3] == ["clean", "hello x", "heard hello x"]


@pytest.mark.parametrize("frequency", FREQUENCIES)
def test_a_thread_moves_from_an_ordinary_channel_to_a_delta_channel(half, saver, reopen, thread, frequency):
    talk(half, build(None).compile(checkpointer=saver), thread(), range(3))

    graph = build(frequency).compile(checkpointer=reopen())
    assert half.get_state(graph, thread()).values["words"] == expected(range(3))
    final = talk(half, graph, thread(), range(3, 6))

    assert final["words"] == expected(range(6))
    back = build(None).compile(checkpointer=reopen())
    assert half.get_state(back, thread()).values["words"] == expected(range(6))
