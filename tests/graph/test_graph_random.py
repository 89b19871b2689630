"""Random graphs, with LangGraph as the model: nodes, edges, joins, branches, sends, commands, questions, pauses."""

from __future__ import annotations

import operator
from dataclasses import dataclass, field
from typing import Annotated, Any

import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st
from oracle_engines import LANGGRAPH, THREADLINE
from oracle_normal import described
from oracle_trial import Trial, observe
from typing_extensions import TypedDict

NODES = ("a", "b", "c", "d", "e")


class State(TypedDict, total=False):
    log: Annotated[list, operator.add]
    count: Annotated[int, operator.add]
    last: str


class Inner(TypedDict, total=False):
    log: list
    kept: Annotated[int, operator.add]
    last: str


# Graphs that keep their state per thread are not among them: on a resume LangGraph gives their last result again
# instead of calling them.
BELOW = ("sub", "sub ask", "call", "call ask")


@dataclass(frozen=True)
class Recipe:
    """A graph as data, so that hypothesis can shrink it."""

    kinds: dict[str, str]
    edges: frozenset[tuple[str, str]]
    joins: frozenset[tuple[tuple[str, ...], str]] = frozenset()
    branches: dict[str, tuple[str, ...]] = field(default_factory=dict)
    deferred: frozenset[str] = frozenset()
    pauses: tuple[str, ...] = ()


@st.composite
def recipes(draw: Any, *, nests: bool = False) -> Recipe:
    names = NODES[: draw(st.integers(1, len(NODES)))]
    one = st.sampled_from(names)
    kind = st.sampled_from(["plain", "plain", "plain", "last", "none", "goto", "send", "ask", "count"])
    if nests:
        kind = st.one_of(kind, st.sampled_from(BELOW))
    edges = draw(st.frozensets(st.tuples(st.sampled_from(("__start__", *names)), one), max_size=7))
    joins: frozenset[Any] = frozenset()
    if len(names) > 2 and draw(st.booleans()):
        sources = draw(st.lists(one, min_size=2, max_size=3, unique=True))
        joins = frozenset({(tuple(sources), draw(one))})
    branched = draw(st.frozensets(one, max_size=2))
    kinds = {name: draw(kind) for name in names}
    if nests:
        # Two graphs of one node at a time could not be told apart.
        kinds = {name: "plain" if one == "send" else one for name, one in kinds.items()}
    return Recipe(
        kinds=kinds,
        edges=edges | {("__start__", draw(one))},
        joins=joins,
        branches={
            name: tuple(draw(st.lists(st.sampled_from((*names, "__end__")), min_size=1, max_size=3, unique=True)))
            for name in sorted(branched)
        },
        deferred=draw(st.frozensets(one, max_size=1)),
        pauses=tuple(sorted(draw(st.frozensets(one, max_size=1)))) if draw(st.integers(0, 3)) == 0 else (),
    )


def below(t: Trial, name: str, kind: str) -> Any:
    """A graph as a node, or a function that calls one."""

    def ask(state: Any) -> Any:
        return {"log": [t.interrupt(f"{name} {state.get('last')}")]}

    inner = t.StateGraph(Inner)
    inner.add_node("one", t.node(lambda state: {"log": [f"{name}1"], "kept": 1}))
    inner.add_node("two", t.node(ask if "ask" in kind else lambda state: {"log": [f"{name}2"], "kept": 1}))
    inner.add_edge("__start__", "one")
    inner.add_edge("one", "two")
    graph = inner.compile()
    if not kind.startswith("call"):
        return graph
    if t.is_async:

        async def acall(state: Any) -> Any:
            return {"log": [(await graph.ainvoke({"last": "x"}))["kept"]]}

        return acall
    return lambda state: {"log": [graph.invoke({"last": "x"})["kept"]]}


def choosing(targets: tuple[str, ...]) -> Any:
    """A path that depends on the state and nothing else."""
    return lambda state: targets[len(state.get("log", ())) % len(targets)]


def build(t: Trial, recipe: Recipe, saver: Any) -> Any:
    names = sorted(recipe.kinds)

    def action(name: str, kind: str) -> Any:
        following = names[(names.index(name) + 1) % len(names)]

        def act(state: Any) -> Any:
            count = state.get("count", 0) if isinstance(state, dict) else 0
            if kind == "last":
                return {"log": [name], "last": name}
            if kind == "none":
                return None
            if kind == "goto":
                return t.Command(update={"log": [name], "count": 1}, goto=following if count < 2 else ())
            if kind == "send" and count < 2:
                return t.Command(
                    update={"count": 1}, goto=[t.Send(following, {"count": 9, "log": [name, i]}) for i in range(2)]
                )
            if kind == "ask":
                # Equal questions of one step could not be told apart.
                question = f"{name} {state.get('log')}"
                return {"log": [f"{name}:{t.interrupt(question)}"]}
            if kind == "count":
                return {"log": [name], "count": 1}
            return {"log": [name, len(state.get("log", ()))]}

        return t.node(act)

    builder = t.StateGraph(State)
    for name, kind in recipe.kinds.items():
        inner = below(t, name, kind) if kind in BELOW else action(name, kind)
        builder.add_node(name, inner, defer=name in recipe.deferred)
    for source, target in sorted(recipe.edges):
        builder.add_edge(source, target)
    for sources, target in recipe.joins:
        builder.add_edge(list(sources), target)
    for source, targets in recipe.branches.items():
        builder.add_conditional_edges(
            source,
            t.node(lambda state, targets=targets: targets[len(state.get("log", ())) % len(targets)]),
            list(targets),
        )
    return builder.compile(checkpointer=saver, interrupt_before=list(recipe.pauses))


def story(recipe: Recipe) -> Any:
    def tell(t: Trial) -> Any:
        saver = t.saver()
        graph = build(t, recipe, saver)
        config = {**t.config(), "recursion_limit": 8}
        chapters: list[Any] = []
        given_next: Any = {"log": ["in"]}
        for _ in range(4):
            chapters.append(chapter(t, recipe, graph, given_next, config))
            snapshot = t.error(lambda: t.state(graph, config))
            if isinstance(chapters[-1], dict) or "raised" in snapshot or not t.snapshot(graph, config).next:
                break
            answers = {question.id: "A" for question in t.snapshot(graph, config).interrupts}
            given_next = t.Command(resume=answers) if answers else None
        return {
            "chapters": chapters,
            "state": t.error(lambda: t.state(graph, config)),
            "history": t.error(lambda: t.history(graph, config)),
            "stored": t.error(lambda: t.stored(saver, config)),
        }

    return tell


def chapter(t: Trial, recipe: Recipe, graph: Any, given_next: Any, config: Any) -> Any:
    """What one run streams. A question comes at the moment of asking, so beside it only what was written is told."""
    asks = any("ask" in kind for kind in recipe.kinds.values())
    modes = ["updates"] if asks else ["values", "updates"]
    try:
        # Under durability "async" LangGraph stores a barrier after the next step has changed it.
        return t.stream(graph, given_next, config, stream_mode=modes, unordered=True, durability="sync")
    except Exception as error:
        return described(error)


DEEDS = (
    "input",
    "none",
    "answer",
    "goto",
    "update",
    "update as",
    "end",
    "restart",
    "copy",
    "replay",
    "fork",
    "input at",
)


@st.composite
def histories(draw: Any, *, nests: bool = False) -> tuple[Recipe, list[tuple[str, int]]]:
    """A graph, and what is done to one thread of it; the number chooses a node or a checkpoint."""
    deed = st.tuples(st.sampled_from(DEEDS), st.integers(0, 7))
    return draw(recipes(nests=nests)), draw(st.lists(deed, min_size=1, max_size=4))


def history_of(recipe: Recipe, deeds: list[tuple[str, int]]) -> Any:
    def tell(t: Trial) -> Any:
        saver = t.saver()
        graph = build(t, recipe, saver)
        config = {**t.config(), "recursion_limit": 8}
        told = [chapter(t, recipe, graph, {"log": ["in"]}, config)]
        for deed, number in deeds:
            told.append(t.error(lambda deed=deed, number=number: done(t, recipe, graph, config, deed, number)))
        return {
            "told": told,
            "state": t.error(lambda: t.state(graph, config)),
            "history": t.error(lambda: t.history(graph, config)),
            "stored": t.error(lambda: t.stored(saver, config)),
        }

    return tell


def done(t: Trial, recipe: Recipe, graph: Any, config: Any, deed: str, number: int) -> Any:
    """Do one thing to the thread; what it shows."""
    names = sorted(recipe.kinds)
    node = names[number % len(names)]

    def past() -> Any:
        snapshots = t.snapshots(graph, config)
        return {**config, **snapshots[number % len(snapshots)].config}

    if deed == "input":
        return chapter(t, recipe, graph, {"log": ["again"]}, config)
    if deed == "none":
        return chapter(t, recipe, graph, None, config)
    if deed == "answer":
        answers = {question.id: "A" for question in t.snapshot(graph, config).interrupts}
        return chapter(t, recipe, graph, t.Command(resume=answers), config) if answers else "no question"
    if deed == "goto":
        return chapter(t, recipe, graph, t.Command(goto=node, update={"log": ["goto"]}), config)
    if deed == "update":
        if recipe.joins:
            return "LangGraph takes two channels of one node for two nodes, and calls that ambiguous"
        return bool(t.update(graph, config, {"log": ["by hand"]}))
    if deed == "update as":
        return bool(t.update(graph, config, {"log": ["by hand"]}, as_node=node))
    if deed == "end":
        return bool(t.update(graph, config, None, as_node="__end__"))
    if deed == "restart":
        return bool(t.update(graph, config, {"log": ["restart"]}, as_node="__input__"))
    if deed == "copy":
        return bool(t.update(graph, past() if number % 2 else config, None, as_node="__copy__"))
    if deed == "replay":
        return chapter(t, recipe, graph, None, past())
    if deed == "fork":
        return bool(t.update(graph, past(), {"log": ["fork"]}, as_node=node))
    return chapter(t, recipe, graph, {"log": ["at"]}, past())


def trials(examples: int) -> settings:
    """So many examples: the same ones in every run of the tests, others in every soak."""
    return settings(
        max_examples=examples,
        deadline=None,
        database=None,
        derandomize=examples < 1000,
        # Each example runs on threads: shrinking takes longer than reading the example.
        phases=[Phase.explicit, Phase.generate],
        suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large],
    )


EXAMPLES = pytest.mark.parametrize("examples", [60, pytest.param(2000, marks=pytest.mark.soak)])


@EXAMPLES
@pytest.mark.parametrize("nests", [False, True], ids=["flat", "nested"])
@pytest.mark.parametrize("half", ["sync", "async"])
def test_random_graphs_show_the_same(half: str, nests: bool, examples: int) -> None:
    @trials(examples)
    @given(recipes(nests=nests))
    def same(recipe: Recipe) -> None:
        tell = story(recipe)
        assert observe(tell, THREADLINE, half == "async") == observe(tell, LANGGRAPH, half == "async")

    same()


@EXAMPLES
@pytest.mark.parametrize("nests", [False, True], ids=["flat", "nested"])
@pytest.mark.parametrize("half", ["sync", "async"])
def test_random_histories_show_the_same(half: str, nests: bool, examples: int) -> None:
    @trials(examples)
    @given(histories(nests=nests))
    def same(history: tuple[Recipe, list[tuple[str, int]]]) -> None:
        tell = history_of(*history)
        assert observe(tell, THREADLINE, half == "async") == observe(tell, LANGGRAPH, half == "async")

    same()
