"""What deleting needs to know of a history, found in one pass, against the plain definition of each word."""

import random

import pytest

from threadline.core.history.branch import remembered
from threadline.core.history.graph import History, Step
from threadline.ports.checkpoints import CheckpointKey

CHANNELS = ("a", "b", "c")
LASTING = ("sub", "sub|below")


def history_of(seed, *, damaged=False):
    """Branches with gaps; channels that some hold and some replay; subgraphs that keep their state."""
    chance = random.Random(seed)
    keys = [CheckpointKey("", f"{at:03}") for at in range(chance.randrange(2, 40))]
    steps = {}
    for at, key in enumerate(keys):
        holds = frozenset(one for one in CHANNELS if chance.random() < 0.3)
        parent = chance.choice(keys[:at]) if at and chance.random() < 0.95 else None
        if damaged and chance.random() < 0.2:
            parent = chance.choice(keys)
        replays = frozenset(one for one in CHANNELS if chance.random() < 0.4) - holds
        steps[key] = Step(key, parent, None, replays, holds, "loop", 0.0, {}, damaged and chance.random() < 0.1)
    for at in range(chance.randrange(0, 12)):
        key = CheckpointKey(chance.choice(LASTING), f"{chance.randrange(40):03}.{at}")
        above = {"": chance.choice(keys).id} if chance.random() < 0.9 else {}
        steps[key] = Step(key, None, None, frozenset(), frozenset(), "loop", 0.0, above)
    for key in chance.sample(keys, len(keys) // 4):  # pruned before
        del steps[key]
    return History(steps), chance


def chain_of(history, key):
    """One checkpoint and what it is replayed from, step by step."""
    step, chain = history[key], {key}
    missing, at = set(step.replays), step.parent
    while (missing or step.is_unreadable) and at in history and at not in chain:
        chain.add(at)
        missing -= history[at].holds
        at = history[at].parent
    return chain


def some_of(history, chance):
    return [key for key in history if chance.random() < 0.3]


@pytest.mark.parametrize("damaged", [False, True])
@pytest.mark.parametrize("seed", range(60))
def test_chains_are_those_of_each_checkpoint_together(seed, damaged):
    history, chance = history_of(seed, damaged=damaged)
    kept = some_of(history, chance)
    assert history.with_chains(kept) == set().union(*(chain_of(history, key) for key in kept))


@pytest.mark.parametrize("damaged", [False, True])
@pytest.mark.parametrize("seed", range(60))
def test_children_come_before_their_parents(seed, damaged):
    history, _ = history_of(seed, damaged=damaged)
    order = history.children_first()
    assert sorted(order) == sorted(history)
    if not damaged:
        places = {key: at for at, key in enumerate(order)}
        assert all(places[key] < places[step.parent] for key, step in history.items() if step.parent in places)


@pytest.mark.parametrize("seed", range(60))
def test_partly_kept_are_those_that_lose_some_of_their_own_chain(seed):
    history, chance = history_of(seed)
    kept = history.with_chains(some_of(history, chance))
    lost = {key for key in kept if not chain_of(history, key) <= kept}
    assert set(history.partly_kept(history.keys() - kept)) == lost


@pytest.mark.parametrize("seed", range(60))
def test_what_is_remembered_is_the_newest_made_under_an_ancestor_of_each_root(seed):
    history, chance = history_of(seed)
    roots = [key for key in some_of(history, chance) if key.namespace == ""]
    expected = set()
    for root in roots:
        line, at = set(), history[root].parent
        while at is not None:
            line.add(at.id)
            at = history[at].parent if at in history else None
        for namespace in LASTING:
            made = [key for key in history if key.namespace == namespace]
            along = [key for key in made if history[key].parents.get("") in line]
            orphans = [
                key for key in made if CheckpointKey("", history[key].parents.get("", "none")) not in history
                and key.id < root.id
            ]  # fmt: skip
            expected.update([max(along, key=lambda key: key.id)] if along else orphans)
    assert remembered(history, roots) == expected


def test_a_line_is_a_checkpoint_with_all_its_ancestors():
    history, _ = history_of(3)
    for key in history:
        line, at = set(), key
        while at in history:
            line.add(at)
            at = history[at].parent
        assert history.line_of([key]) == line
