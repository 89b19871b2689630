"""Going back: reading history, replaying from an old checkpoint, and branching off it."""

import operator
from typing import Annotated, TypedDict

import pytest
from langgraph.graph import END, START, StateGraph
from langgraph.types import Command, StateUpdate, interrupt


class Story(TypedDict):
    hero: str
    lines: Annotated[list[str], operator.add]


CHAPTERS = ("opening", "conflict", "ending")


def build_story(told):
    """Three chapters, each about the hero of the moment; `told` counts what really ran."""

    def chapter(name):
        def node(state):
            told.append(name)
            return {"lines": [f"{name} of {state['hero']}"]}

        return node

    builder = StateGraph(Story)
    previous = START
    for name in CHAPTERS:
        builder.add_node(name, chapter(name))
        builder.add_edge(previous, name)
        previous = name
    builder.add_edge(previous, END)
    return builder


def told_of(*heroes):
    return [f"{chapter} of {hero}" for chapter, hero in zip(CHAPTERS, heroes, strict=True)]


def checkpoint_id(config):
    return config["configurable"]["checkpoint_id"]


def before_chapter(history, name):
    """The snapshot whose next node is the named chapter."""
    (snapshot,) = [each for each in history if each.next == (name,)]
    return snapshot


@pytest.fixture
def told():
    return []


@pytest.fixture
def graph(saver, told):
    return build_story(told).compile(checkpointer=saver)


@pytest.fixture
def story(half, graph, told, thread):
    """A thread that has told the story of Ann once."""
    config = thread()
    half.invoke(graph, {"hero": "Ann", "lines": []}, config)
    told.clear()
    return config


def test_an_old_checkpoint_is_read_as_it_was(half, graph, story):
    history = half.get_state_history(graph, story)

    for snapshot in history:
        again = half.get_state(graph, snapshot.config)
        assert again.values == snapshot.values
        assert again.next == snapshot.next
        assert again.metadata == snapshot.metadata
        assert again.created_at == snapshot.created_at
        assert again.parent_config == snapshot.parent_config
    assert [len(snapshot.values.get("lines", [])) for snapshot in history] == [3, 2, 1, 0, 0]


def test_replaying_an_old_checkpoint_runs_only_what_came_after(half, graph, story, told):
    past = before_chapter(half.get_state_history(graph, story), "ending")

    final = half.invoke(graph, None, past.config)

    assert told == ["ending"]
    assert final["lines"] == told_of("Ann", "Ann", "Ann")


def test_replaying_leaves_the_old_branch_in_place(half, graph, story, reopen):
    before = half.get_state_history(graph, story)
    half.invoke(graph, None, before_chapter(before, "conflict").config)

    after = half.get_state_history(build_story([]).compile(checkpointer=reopen()), story)

    old = {checkpoint_id(each.config): each.values for each in before}
    kept = {checkpoint_id(each.config): each.values for each in after}
    assert old.items() <= kept.items()
    assert len(kept) > len(old)


def test_a_branch_of_an_old_checkpoint_has_its_own_future(half, graph, story, told, reopen):
    before = half.get_state_history(graph, story)
    past = before_chapter(before, "conflict")

    forked = half.update_state(graph, past.config, {"hero": "Bob"})
    final = half.invoke(graph, None, forked)

    assert told == ["conflict", "ending"]
    assert final == {"hero": "Bob", "lines": told_of("Ann", "Bob", "Bob")}
    other = build_story([]).compile(checkpointer=reopen())
    newest, oldest_head = half.get_state(other, story), half.get_state(other, before[0].config)
    assert newest.values == final
    assert oldest_head.values == {"hero": "Ann", "lines": told_of("Ann", "Ann", "Ann")}


def test_two_branches_of_one_checkpoint_share_their_parent(half, graph, story):
    past = before_chapter(half.get_state_history(graph, story), "ending")

    forks = [half.update_state(graph, past.config, {"hero": hero}) for hero in ("Bob", "Eve")]
    ends = [half.invoke(graph, None, fork)["lines"] for fork in forks]

    assert ends == [told_of("Ann", "Ann", "Bob"), told_of("Ann", "Ann", "Eve")]
    states = [half.get_state(graph, fork) for fork in forks]
    assert {checkpoint_id(state.parent_config) for state in states} == {checkpoint_id(past.config)}
    assert [state.metadata["source"] for state in states] == ["update", "update"]


def test_branches_of_branches_go_on_after_reopening(half, graph, story, reopen):
    config = before_chapter(half.get_state_history(graph, story), "opening").config
    for depth, hero in enumerate(("Bob", "Eve", "Sam", "Kim")):
        other = build_story([]).compile(checkpointer=reopen())
        fork = half.update_state(other, config, {"hero": hero})
        final = half.invoke(other, None, fork)
        assert final["lines"] == told_of(hero, hero, hero), depth
        config = before_chapter(
            [
                each
                for each in half.get_state_history(other, story)
                if each.values.get("hero") == hero and each.metadata["source"] == "update"
            ],
            "opening",
        ).config


def test_a_copy_of_an_old_checkpoint_can_be_made_and_run(half, graph, story, told):
    past = before_chapter(half.get_state_history(graph, story), "ending")

    copied = half.update_state(graph, past.config, None, as_node="__copy__")
    state = half.get_state(graph, copied)
    assert state.values == past.values
    assert state.next == past.next
    assert state.metadata["source"] == "fork"
    assert state.parent_config == past.parent_config

    final = half.invoke(graph, None, copied)
    assert told == ["ending"]
    assert final["lines"] == told_of("Ann", "Ann", "Ann")


def test_history_is_newest_first_and_stops_at_its_limit(half, graph, story):
    whole = half.get_state_history(graph, story)
    ids = [checkpoint_id(each.config) for each in whole]

    assert ids == sorted(ids, reverse=True)
    for limit in (1, 2, len(ids), 100):
        part = half.get_state_history(graph, story, limit=limit)
        assert [checkpoint_id(each.config) for each in part] == ids[:limit]


def test_history_before_a_checkpoint_excludes_it(half, graph, story):
    whole = half.get_state_history(graph, story)
    ids = [checkpoint_id(each.config) for each in whole]

    for position, snapshot in enumerate(whole):
        older = half.get_state_history(graph, story, before=snapshot.config)
        assert [checkpoint_id(each.config) for each in older] == ids[position + 1 :]
    page = half.get_state_history(graph, story, before=whole[1].config, limit=2)
    assert [checkpoint_id(each.config) for each in page] == ids[2:4]


def test_history_is_filtered_by_metadata(half, graph, story):
    half.update_state(graph, story, {"hero": "Bob"}, as_node="opening")

    def steps(**filter):
        found = half.get_state_history(graph, story, filter=filter)
        return [each.metadata["step"] for each in found]

    assert steps(source="loop") == [3, 2, 1, 0]
    assert steps(source="input") == [-1]
    assert steps(source="update") == [4]
    assert steps(step=2) == [2]
    assert steps(source="loop", step=1) == [1]
    assert steps(source="update", step=1) == []


def test_metadata_of_the_run_can_be_searched(half, graph, thread):
    for user, turn in (("ann", 1), ("bob", 2)):
        config = {**thread(), "metadata": {"user": user, "turn": turn}}
        half.invoke(graph, {"hero": user, "lines": []}, config)

    def heroes(**filter):
        found = half.get_state_history(graph, thread(), filter=filter)
        return {each.values["hero"] for each in found if each.next != ("__start__",)}

    assert heroes(user="ann") == {"ann"}
    assert heroes(turn=2) == {"bob"}
    assert heroes(user="ann", turn=2) == set()


@pytest.mark.parametrize("key", ["dotted.key", "hyphenated-key"])
def test_metadata_with_a_dotted_or_hyphenated_key_is_found_by_it(half, graph, thread, key):
    for user in ("ann", "bob"):
        config = {**thread(), "metadata": {key: user}}
        half.invoke(graph, {"hero": user, "lines": []}, config)

    found = half.get_state_history(graph, thread(), filter={key: "bob"})

    assert {each.metadata[key] for each in found} == {"bob"}
    assert len(found) == 5


def test_a_filter_key_that_attacks_the_query_is_refused(half, graph, story):
    with pytest.raises(ValueError, match="filter"):
        half.get_state_history(graph, story, filter={"step') = 1 OR ('1' = '1": "1"})


def test_an_update_acts_as_the_node_it_names(half, graph, story, told):
    half.update_state(graph, story, {"lines": ["a twist"]}, as_node="opening")
    state = half.get_state(graph, story)
    assert state.next == ("conflict",)

    final = half.invoke(graph, None, story)

    assert told == ["conflict", "ending"]
    assert final["lines"] == [*told_of("Ann", "Ann", "Ann"), "a twist", "conflict of Ann", "ending of Ann"]


def test_a_thread_may_begin_with_an_update(half, graph, thread, told, reopen):
    half.update_state(graph, thread(), {"hero": "Eve", "lines": ["once"]}, as_node="conflict")

    final = half.invoke(build_story(told).compile(checkpointer=reopen()), None, thread())

    assert told == ["ending"]
    assert final["lines"] == ["once", "ending of Eve"]


def test_many_updates_make_one_checkpoint_per_superstep(half, graph, thread, reopen, told):
    supersteps = [
        [StateUpdate({"hero": "Kim", "lines": ["i"]}, "__start__")],
        [StateUpdate({"lines": ["ii"]}, "opening")],
        [StateUpdate({"lines": ["iii"]}, "conflict")],
    ]
    half.bulk_update_state(graph, thread(), supersteps)

    other = build_story(told).compile(checkpointer=reopen())
    history = half.get_state_history(other, thread())
    assert [each.values["lines"] for each in history] == [["i", "ii", "iii"], ["i", "ii"], ["i"]]
    assert history[0].next == ("ending",)
    assert half.invoke(other, None, thread())["lines"] == ["i", "ii", "iii", "ending of Kim"]


def test_a_superstep_of_several_updates_applies_them_all(half, saver, thread):
    builder = StateGraph(Story)
    for name in ("left", "right"):
        builder.add_node(name, lambda state: {})
        builder.add_edge(START, name)
    graph = builder.compile(checkpointer=saver)
    half.invoke(graph, {"hero": "Ann", "lines": []}, thread())

    half.bulk_update_state(
        graph,
        thread(),
        [
            [
                StateUpdate({"lines": ["l"]}, "left"),
                StateUpdate({"lines": ["r"], "hero": "Bob"}, "right"),
            ]
        ],
    )

    assert half.get_state(graph, thread()).values == {"hero": "Bob", "lines": ["l", "r"]}


def test_going_back_before_an_answer_asks_again(half, saver, thread, reopen):
    def ask(state):
        return {"lines": [interrupt("what happens?")]}

    builder = StateGraph(Story)
    builder.add_node("ask", ask)
    builder.add_edge(START, "ask")
    graph = builder.compile(checkpointer=saver)
    half.invoke(graph, {"hero": "Ann", "lines": []}, thread())
    question = half.get_state(graph, thread())
    assert half.invoke(graph, Command(resume="rain"), thread())["lines"] == ["rain"]

    other = builder.compile(checkpointer=reopen())
    asked = half.invoke(other, None, question.config)
    assert [each.value for each in asked["__interrupt__"]] == ["what happens?"]
    second = half.invoke(other, Command(resume="snow"), thread())

    assert second["lines"] == ["snow"]
    answers = {tuple(each.values["lines"]) for each in half.get_state_history(other, thread()) if each.next == ()}
    assert answers == {("rain",), ("snow",)}
