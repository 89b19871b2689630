"""The graph as a picture: nodes and edges as data, and as text for Mermaid.

Edges are found by walking the graph as a run would go, taking every branch: a node that no run can reach has no
edge. A deferred node also gets an edge from what runs last before it.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from ..constants import END, START
from .mermaid import mermaid

__all__ = ["Branch", "Edge", "Graph", "Node", "Outline", "Station", "draw"]

# A graph whose static edges form a cycle without an exit is walked this many steps.
_STEPS = 250


class Node(NamedTuple):
    """One node of a drawing. `data` is what runs, None for the end."""

    id: str
    name: str
    data: Any
    metadata: dict[str, Any] | None = None


class Edge(NamedTuple):
    """One arrow of a drawing. `data` is its label."""

    source: str
    target: str
    data: str | None = None
    conditional: bool = False


@dataclass(frozen=True, slots=True)
class Branch:
    """Where a node may go on to: label -> target."""

    ends: Mapping[Any, str]


@dataclass(frozen=True, slots=True)
class Station:
    """A node as the builder knows it. `subgraph` is drawn in its place under xray."""

    action: Any
    metadata: Mapping[str, Any] | None = None
    defer: bool = False
    branches: Sequence[Branch] = ()
    subgraph: Outline | None = None


@dataclass(frozen=True, slots=True)
class Outline:
    """What there is to draw: nodes in the order of definition, static edges, joins, and where runs may pause.

    `entry` has the branches of the start; `begins_with_start` says whether it comes before the other nodes.
    """

    nodes: Mapping[str, Station]
    edges: Sequence[tuple[str, str]]
    joins: Sequence[tuple[Sequence[str], str]] = ()
    pauses: Mapping[str, str] = field(default_factory=dict)
    entry: Sequence[Branch] = ()
    begins_with_start: bool = True


@dataclass(slots=True)
class Graph:
    """A drawing: nodes by id, and edges."""

    nodes: dict[str, Node] = field(default_factory=dict)
    edges: list[Edge] = field(default_factory=list)

    def first_node(self) -> Node | None:
        """The one node without incoming edges."""
        return self._only({edge.target for edge in self.edges})

    def last_node(self) -> Node | None:
        """The one node without outgoing edges."""
        return self._only({edge.source for edge in self.edges})

    def draw_mermaid(
        self,
        *,
        with_styles: bool = True,
        curve_style: Any = "linear",
        node_colors: Any = None,
        wrap_label_n_words: int = 9,
        frontmatter_config: dict[str, Any] | None = None,
    ) -> str:
        """The drawing as Mermaid text."""
        first, last = self.first_node(), self.last_node()
        return mermaid(
            {name: (node.name, node.metadata) for name, node in self.nodes.items()},
            self.edges,
            first=first.id if first else None,
            last=last.id if last else None,
            styled=with_styles,
            curve=str(getattr(curve_style, "value", curve_style)),
            colors=node_colors,
            words_a_line=wrap_label_n_words,
            front_matter=frontmatter_config,
        )

    def to_json(self, *, with_schemas: bool = False) -> dict[str, list[dict[str, Any]]]:
        """Nodes and edges as plain values."""
        nodes: list[dict[str, Any]] = []
        for node in self.nodes.values():
            shown: dict[str, Any] = {"id": node.id}
            if node.data is not None:
                shown |= {"type": "runnable", "data": {"name": node.name}}
            if node.metadata:
                shown["metadata"] = node.metadata
            nodes.append(shown)
        edges = [
            {"source": edge.source, "target": edge.target}
            | ({"data": edge.data} if edge.data is not None else {})
            | ({"conditional": True} if edge.conditional else {})
            for edge in self.edges
        ]
        return {"nodes": nodes, "edges": edges}

    def draw_ascii(self) -> str:
        """The drawing as text, with one line for each edge."""
        arrows = {True: "-.->", False: "-->"}
        label = {edge: f"  ({edge.data})" if edge.data else "" for edge in self.edges}
        return "\n".join(f"{e.source} {arrows[e.conditional]} {e.target}{label[e]}" for e in self.edges)

    def print_ascii(self) -> None:
        """Print `draw_ascii`."""
        print(self.draw_ascii())

    def remove_node(self, name: str) -> None:
        """Take a node out, with its edges."""
        del self.nodes[name]
        self.edges = [edge for edge in self.edges if name not in (edge.source, edge.target)]

    def _only(self, excluded: set[str]) -> Node | None:
        found = [node for node in self.nodes.values() if node.id not in excluded]
        return found[0] if len(found) == 1 else None

    def _only_entry(self, first: str) -> Node | None:
        """The node that would be the first one without `first`; None when `first` leads to more than one."""
        if sum(edge.source == first for edge in self.edges) != 1:
            return None
        return self._only({first} | {edge.target for edge in self.edges if edge.source != first})

    def _only_exit(self, last: str) -> Node | None:
        if sum(edge.target == last for edge in self.edges) != 1:
            return None
        return self._only({last} | {edge.source for edge in self.edges if edge.target != last})


def draw(outline: Outline, *, xray: int | bool = False) -> Graph:
    """The drawing of a graph; `xray` draws subgraphs in place, a number to that depth."""
    walk = _Walk(outline)
    walk.run()
    graph = Graph()
    if outline.begins_with_start:
        graph.nodes[START] = Node(START, START, START)
    for name, station in outline.nodes.items():
        metadata = dict(station.metadata or {})
        if station.defer:
            metadata["defer"] = True
        if name in outline.pauses:
            metadata["__interrupt"] = outline.pauses[name]
        graph.nodes[name] = Node(name, name, station.action, metadata or None)
    graph.nodes.setdefault(START, Node(START, START, START))
    graph.edges = walk.all_edges()
    if any(edge.target == END for edge in graph.edges):
        graph.nodes[END] = Node(END, END, None)
    if xray:
        deeper = xray if isinstance(xray, bool) else xray - 1
        for name, station in outline.nodes.items():
            if station.subgraph is not None:
                _insert(graph, name, draw(station.subgraph, xray=deeper))
    return graph


# What makes a node run: a direct way to it, or a join. Written as (sources of the join, node).
_Trigger = tuple[tuple[str, ...], str]


class _Walk:
    """A run over the outline that takes every branch, and the edges that it went along."""

    def __init__(self, outline: Outline) -> None:
        self.outline = outline
        self.edges: dict[tuple[str, str], Edge] = {}
        self.last: list[str] = []
        self._static: dict[str, list[str]] = {}
        for source, target in outline.edges:
            self._static.setdefault(source, []).append(target)
        self._triggers: dict[str, list[_Trigger]] = {name: [((), name)] for name in outline.nodes}
        for sources, target in outline.joins:
            self._triggers[target].append((tuple(sources), target))
        self._branched: set[str] = set()
        # The pairs of nodes of which one led to the other by itself.
        self._led: set[tuple[str, str]] = set()
        # Who went to a trigger since its node ran, and along which edge.
        self._arrived: dict[_Trigger, dict[str, Edge]] = {}
        # The sources of a join that went there since it was full, whatever made its node run in the meantime.
        self._joined: dict[_Trigger, set[str]] = {}

    def run(self) -> None:
        tasks = [START]
        # Where the start is no node of its own, the first nodes run in step 0.
        for _ in range(_STEPS + (1 if self.outline.begins_with_start else 2)):
            self.last = tasks
            for task in tasks:
                self._leave(task)
            ready = [name for name in self._triggers if any(map(self._is_ready, self._triggers[name]))]
            tasks = [name for name in ready if not self._is_deferred(name)]
            if not tasks:
                for name in ready:  # the deferred nodes run now: nothing else is left to do
                    self._draw_end_of_wait(name)
                tasks = ready
            if not tasks:
                return
            for task in tasks:
                self._enter(task)

    def all_edges(self) -> list[Edge]:
        """The edges in order of their names, then those to the end of nodes that lead nowhere."""
        edges = sorted(self.edges.values(), key=lambda edge: (edge.source, edge.target))
        sources = {edge.source for edge in edges}
        visited = dict.fromkeys(target for _, target in self.edges)
        ordered = [name for name in self.outline.nodes if name in visited]
        ends = [Edge(name, END) for name in sorted(ordered) if name not in sources]
        if START not in sources:
            ends.append(Edge(START, END, None, True))
        if not ends and len(self.last) == 1 and not any(edge.target == END for edge in edges):
            ends.append(Edge(self.last[0], END, None, True))
        return edges + ends

    def _leave(self, task: str) -> None:
        """Go on to every node that a task leads to. Its branches count once: a second visit of a loop ends there."""
        found: dict[_Trigger, Edge] = {}
        for target in self._static.get(task, ()):
            if target != END:
                found[(), target] = Edge(task, target)
        for edge in self._branches_of(task):
            known = found.get(((), edge.target))
            # Of several ways to the same node the branch with the least label is drawn, in place of a static edge too.
            if known is None or not known.conditional or _label(edge) < _label(known):
                found[(), edge.target] = edge
        for sources, target in self.outline.joins:
            if task in sources:
                found[tuple(sources), target] = Edge(task, target)
                self._joined.setdefault((tuple(sources), target), set()).add(task)
        for trigger, edge in found.items():
            if edge.target == END:
                self._draw(edge)
            else:
                self._arrived.setdefault(trigger, {})[task] = edge

    def _branches_of(self, task: str) -> Iterator[Edge]:
        if task in self._branched:
            return
        self._branched.add(task)
        station = self.outline.nodes.get(task)
        for branch in self.outline.entry if station is None else station.branches:
            for label, target in branch.ends.items():
                yield Edge(task, target, str(label) if label != target else None, True)

    def _is_ready(self, trigger: _Trigger) -> bool:
        sources, _ = trigger
        return self._joined.get(trigger) == set(sources) if sources else trigger in self._arrived

    def _is_deferred(self, name: str) -> bool:
        station = self.outline.nodes.get(name)
        return station is not None and station.defer

    def _enter(self, name: str) -> None:
        """A node runs: whoever went to any of its triggers led to it, those of a join that is not full as well."""
        for trigger in self._triggers[name]:
            if self._is_ready(trigger):
                self._joined.pop(trigger, None)
            for edge in self._arrived.pop(trigger, {}).values():
                self._draw(edge)

    def _draw_end_of_wait(self, name: str) -> None:
        """A deferred node also gets an edge from what ran last before it, if none of that leads to it anyway."""
        sources = {source for trigger in self._triggers[name] for source in self._arrived.get(trigger, ())}
        if not any(task in sources or (task, name) in self._led for task in self.last):
            for task in self.last:
                self.edges[task, name] = Edge(task, name, None, True)

    def _draw(self, edge: Edge) -> None:
        self.edges[edge.source, edge.target] = edge
        self._led.add((edge.source, edge.target))


def _label(edge: Edge) -> str:
    return edge.target if edge.data is None else edge.data


def _insert(graph: Graph, name: str, inner: Graph) -> None:
    """Put a subgraph's drawing in the place of its node. Its start and end are left out where one node follows."""
    first, last = inner.first_node(), inner.last_node()
    if first is not None and (second := inner._only_entry(first.id)) is not None:
        inner.remove_node(first.id)
        first = second
    if last is not None and (before := inner._only_exit(last.id)) is not None:
        inner.remove_node(last.id)
        last = before
    if first is None or last is None:
        return
    ids = {node: f"{name}:{node}" for node in inner.nodes}
    del graph.nodes[name]
    graph.nodes |= {ids[node.id]: node._replace(id=ids[node.id]) for node in inner.nodes.values()}
    for place, edge in enumerate(graph.edges):
        source = ids[last.id] if edge.source == name else edge.source
        target = ids[first.id] if edge.target == name else edge.target
        graph.edges[place] = edge._replace(source=source, target=target)
    graph.edges += [edge._replace(source=ids[edge.source], target=ids[edge.target]) for edge in inner.edges]
