"""Random histories in which a thread changes engines at every turn: it must look as if LangGraph had done it all."""

from __future__ import annotations

import itertools
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from oracle_engines import LANGGRAPH, THREADLINE
from oracle_trial import Trial, observe
from test_graph_random import Recipe, build, chapter, done, histories, trials

import threadline
from threadline.langgraph import Checkpointer


def told_by_turns(recipe: Recipe, deeds: list[tuple[str, int]], turns: list[bool], url: str) -> Any:
    """What happens on a thread; each turn says whether the deed is done on our engine."""

    def tell(t: Trial) -> Any:
        trials = {False: Trial(LANGGRAPH, t.is_async, t.loop), True: Trial(THREADLINE, t.is_async, t.loop)}
        savers = {False: Checkpointer(url), True: threadline.connect(url)}
        graphs = {ours: build(trials[ours], recipe, savers[ours]) for ours in trials}
        config = {**t.config(), "recursion_limit": 8}
        first, *others = turns
        told = [chapter(trials[first], recipe, graphs[first], {"log": ["in"]}, config)]
        for (deed, number), ours in zip(deeds, itertools.cycle(others), strict=False):
            told.append(
                t.error(
                    lambda ours=ours, deed=deed, number=number: done(
                        trials[ours], recipe, graphs[ours], config, deed, number
                    )
                )
            )
        theirs = trials[False]
        observed = {
            "told": told,
            "state": t.error(lambda: theirs.state(graphs[False], config)),
            "history": t.error(lambda: theirs.history(graphs[False], config)),
            "stored": t.error(lambda: theirs.stored(savers[False], config)),
        }
        for saver in savers.values():
            saver.close()
        return observed

    return tell


@pytest.mark.parametrize("examples", [25, pytest.param(1000, marks=pytest.mark.soak)])
@pytest.mark.parametrize("nests", [False, True], ids=["flat", "nested"])
@pytest.mark.parametrize("half", ["sync", "async"])
def test_a_thread_changes_engines_at_every_turn(half: str, nests: bool, examples: int, tmp_path: Path) -> None:
    numbers = itertools.count()

    def store() -> str:
        return f"sqlite:///{tmp_path / f'{next(numbers)}.db'}"

    @trials(examples)
    @given(histories(nests=nests), st.lists(st.booleans(), min_size=2, max_size=5))
    def same(history: tuple[Recipe, list[tuple[str, int]]], turns: list[bool]) -> None:
        is_async = half == "async"
        mixed = observe(told_by_turns(*history, turns, store()), LANGGRAPH, is_async)
        alone = observe(told_by_turns(*history, [False, False], store()), LANGGRAPH, is_async)
        assert mixed == alone

    same()
