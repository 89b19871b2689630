"""Random graphs, drawn by both engines: the same text, character for character."""

from __future__ import annotations

import operator
import random
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Annotated, Any, Literal

import pytest
from oracle_engines import LANGGRAPH, THREADLINE, Engine
from typing_extensions import TypedDict

NAMES = ("a", "b b", "c", "d", "e-é", "f")
START, END = "__start__", "__end__"


class State(TypedDict, total=False):
    log: Annotated[list, operator.add]


@dataclass
class Sketch:
    """A graph as data."""

    names: list[str]
    edges: list[tuple[str, str]] = field(default_factory=list)
    joins: list[tuple[tuple[str, ...], str]] = field(default_factory=list)
    # source, how the targets are declared, targets
    branches: list[tuple[str, str, list[str]]] = field(default_factory=list)
    destinations: dict[str, tuple[str, list[str]]] = field(default_factory=dict)
    deferred: set[str] = field(default_factory=set)
    metadata: dict[str, dict[str, Any]] = field(default_factory=dict)
    inner: dict[str, Sketch] = field(default_factory=dict)
    pauses: list[str] = field(default_factory=list)


def sketched(chance: random.Random, depth: int = 0) -> Sketch:
    names = list(NAMES[: chance.randint(1, 3 if depth else 6)])
    chance.shuffle(names)
    sketch = Sketch(names)
    ends = [*names, END]
    for _ in range(chance.randint(0, 7)):
        edge = (chance.choice([START, *names]), chance.choice(ends))
        if edge not in sketch.edges:
            sketch.edges.append(edge)
    if chance.random() < 0.95 and not any(source == START for source, _ in sketch.edges):
        sketch.edges.append((START, chance.choice(names)))
    if len(names) > 2 and chance.random() < 0.4:
        for _ in range(chance.randint(1, 2)):
            join = (tuple(chance.sample(names, chance.randint(2, 3))), chance.choice(names))
            if join not in sketch.joins:
                sketch.joins.append(join)
    for _ in range(chance.choice([0, 0, 1, 1, 2, 3])):
        source = chance.choice([START, *names] if chance.random() < 0.2 else names)
        targets = chance.sample(ends, chance.randint(1, min(3, len(ends))))
        sketch.branches.append((source, chance.choice(["list", "dict", "open", "literal"]), targets))
    for name in names:
        if chance.random() < 0.12:
            targets = chance.sample(ends, chance.randint(1, min(2, len(ends))))
            sketch.destinations[name] = (chance.choice(["tuple", "dict", "hint"]), targets)
        if chance.random() < 0.1:
            sketch.deferred.add(name)
        if chance.random() < 0.08:
            sketch.metadata[name] = {"k": 1}
        if depth < 2 and chance.random() < 0.1:
            sketch.inner[name] = sketched(chance, depth + 1)
    if chance.random() < 0.1:
        sketch.pauses = [chance.choice(names)]
    return sketch


def built(engine: Engine, sketch: Sketch) -> Any:
    builder = engine.StateGraph(State)
    for name in sketch.names:
        _add_node(engine, builder, sketch, name)
    for source, target in sketch.edges:
        builder.add_edge(source, target)
    for sources, target in sketch.joins:
        builder.add_edge(list(sources), target)
    for number, (source, kind, targets) in enumerate(sketch.branches):

        def path(state: Any) -> Any:
            raise AssertionError("a drawing calls nothing")

        path.__name__ = f"path{number}"
        ends: Mapping[str, str] | list[str] | None = None
        if kind == "literal":
            path.__annotations__["return"] = Literal[tuple(targets)]  # type: ignore[valid-type]
        elif kind == "list":
            ends = targets
        elif kind == "dict":
            ends = {target if target == END else f"go {target}": target for target in targets}
        builder.add_conditional_edges(source, path, ends)
    return builder.compile(interrupt_before=sketch.pauses)


def _add_node(engine: Engine, builder: Any, sketch: Sketch, name: str) -> None:
    def act(state: Any) -> Any:
        raise AssertionError("a drawing calls nothing")

    options: dict[str, Any] = {"defer": name in sketch.deferred, "metadata": sketch.metadata.get(name)}
    kind, targets = sketch.destinations.get(name, ("", []))
    if kind == "tuple":
        options["destinations"] = tuple(targets)
    elif kind == "dict":
        options["destinations"] = {target: f"to {target}" for target in targets}
    elif kind == "hint":
        act.__annotations__["return"] = engine.Command[Literal[tuple(targets)]]
    builder.add_node(name, built(engine, sketch.inner[name]) if name in sketch.inner else act, **options)


def drawn(engine: Engine, sketch: Sketch, xray: Any, styled: bool) -> str:
    try:
        graph = built(engine, sketch)
    except ValueError as error:
        return type(error).__name__
    text: str = graph.get_graph(xray=xray).draw_mermaid(with_styles=styled)
    return text


def is_not_drawn_by_langgraph(error: Exception) -> bool:
    """It cannot order a label beside none, nor draw two subgraphs of one name; ours draws both."""
    return isinstance(error, TypeError) or "duplicate subgraph" in str(error)


@pytest.mark.parametrize(
    "seeds",
    [range(40), range(40, 80), range(80, 120), pytest.param(range(120, 6000), marks=pytest.mark.soak)],
    ids=str,
)
def test_random_drawings_are_the_same(seeds: range) -> None:
    compared = 0
    for seed in seeds:
        sketch = sketched(random.Random(seed))
        for xray in (False, True, 1) if sketch.inner else (False,):
            styled = seed % 7 != 0
            try:
                theirs = drawn(LANGGRAPH, sketch, xray, styled)
            except Exception as error:
                if not is_not_drawn_by_langgraph(error):
                    raise
                assert drawn(THREADLINE, sketch, xray, styled)
                continue
            assert drawn(THREADLINE, sketch, xray, styled) == theirs, (seed, xray, sketch)
            compared += len(theirs) > 20
    assert compared >= len(seeds)
