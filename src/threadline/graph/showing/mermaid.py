"""A drawing as Mermaid text. People keep this text and compare it, so every character counts."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Protocol

__all__ = ["mermaid"]

_STYLES = {"default": "fill:#f2f0ff,line-height:1.2", "first": "fill-opacity:0", "last": "fill:#bfb6fc"}
_MARKDOWN = ("*", "_", "`")
Shown = Mapping[str, "tuple[str, Mapping[str, Any] | None]"]
Marked = tuple[str | None, str | None]


class Arrow(Protocol):
    """What is drawn of an edge."""

    @property
    def source(self) -> str: ...

    @property
    def target(self) -> str: ...

    @property
    def data(self) -> str | None: ...

    @property
    def conditional(self) -> bool: ...


def mermaid(
    nodes: Shown,
    edges: Sequence[Arrow],
    *,
    first: str | None,
    last: str | None,
    styled: bool,
    curve: str,
    colors: Any,
    words_a_line: int,
    front_matter: Mapping[str, Any] | None,
) -> str:
    """The text of a flowchart; node ids with colons are in the subgraph that the part before names."""
    lines = _front_matter(curve, front_matter) if styled else []
    lines.append("graph TD;")
    lines += _Chart(nodes, edges, (first, last), styled=styled, words_a_line=words_a_line).draw()
    if styled:
        styles = {name: getattr(colors, name, style) for name, style in _STYLES.items()}
        lines += [f"\tclassDef {name} {style}" for name, style in styles.items()]
    return "\n".join(lines) + "\n"


class _Chart:
    """The lines of a flowchart: nodes and edges under the innermost subgraph that holds them."""

    def __init__(
        self, nodes: Shown, edges: Sequence[Arrow], marked: Marked, *, styled: bool, words_a_line: int
    ) -> None:
        self.nodes = nodes if styled else {}
        self.marked = marked
        self.words_a_line = words_a_line
        self.lines: list[str] = []
        self.framed: set[str] = set()
        # A loop of one node counts as a subgraph without a frame, so it comes in the order of those.
        self.edges: dict[str, list[Arrow]] = {}
        for edge in edges:
            self.edges.setdefault(_common(edge), []).append(edge)

    def draw(self) -> list[str]:
        self._draw_nodes("")
        self._draw_edges("")
        for prefix in self.edges:
            if prefix and ":" not in prefix:
                self._draw_subgraph(prefix)
        # Deeper ones without an edge are left out, and those whose name is taken, as LangGraph does.
        for prefix in dict.fromkeys(map(_parent, self.nodes)):
            if prefix and ":" not in prefix and prefix not in self.framed:
                self._frame(prefix)
                self._draw_nodes(prefix)
                self.lines.append("\tend")
        return self.lines

    def _draw_subgraph(self, prefix: str) -> None:
        own = self.edges[prefix]
        is_loop = len(own) == 1 and own[0].source == own[0].target
        if not is_loop:
            self._frame(prefix)
            self._draw_nodes(prefix)
        self._draw_edges(prefix)
        for inner in self.edges:
            if _parent(inner) == prefix:
                self._draw_subgraph(inner)
        if not is_loop:
            self.lines.append("\tend")

    def _frame(self, prefix: str) -> None:
        name = prefix.rpartition(":")[2]
        self.framed.add(name)
        self.lines.append(f"\tsubgraph {name}")

    def _draw_nodes(self, prefix: str) -> None:
        self.lines += [_node(name, shown, self.marked) for name, shown in self.nodes.items() if _parent(name) == prefix]

    def _draw_edges(self, prefix: str) -> None:
        self.lines += [_edge(edge, self.words_a_line) for edge in self.edges.get(prefix, ())]


def _node(name: str, shown: tuple[str, Mapping[str, Any] | None], marked: Marked) -> str:
    label, metadata = shown
    if label.startswith(_MARKDOWN) and label.endswith(_MARKDOWN):
        label = f"<p>{label}</p>"
    if metadata:
        facts = "\n".join(f"{key} = {value}" for key, value in metadata.items())
        label = f"{label}<hr/><small><em>{facts}</em></small>"
    if name in marked:
        return f"\t{_escaped(name)}([{label}]):::{'first' if name == marked[0] else 'last'}"
    return f"\t{_escaped(name)}({label})"


def _edge(edge: Arrow, words_a_line: int) -> str:
    arrow = "-.->" if edge.conditional else "-->"
    if edge.data is not None:
        words = edge.data.split()
        rows = [" ".join(words[at : at + words_a_line]) for at in range(0, len(words), words_a_line)]
        label = "&nbsp<br>&nbsp".join(rows) if len(words) > words_a_line else edge.data
        arrow = f"-. &nbsp;{label}&nbsp; .->" if edge.conditional else f"-- &nbsp;{label}&nbsp; -->"
    return f"\t{_escaped(edge.source)} {arrow} {_escaped(edge.target)};"


def _escaped(name: str) -> str:
    """A name as an id of Mermaid: other characters than letters, digits, `_` and `-` as their code in hex."""
    return "".join(c if c.isascii() and (c.isalnum() or c in "_-") else f"\\{ord(c):x}" for c in name)


def _parent(name: str) -> str:
    return name.rpartition(":")[0]


def _common(edge: Arrow) -> str:
    """The subgraph that holds both ends; of a loop, the node itself.

    As LangGraph has it: parts count where they are equal, also behind parts that differ.
    """
    pairs = zip(edge.source.split(":"), edge.target.split(":"), strict=False)
    return ":".join([one for one, other in pairs if one == other])


def _front_matter(curve: str, more: Mapping[str, Any] | None) -> list[str]:
    config = dict((more or {}).get("config", {}))
    flowchart = {**config.pop("flowchart", {}), "curve": curve}
    content = {**(more or {}), "config": {"flowchart": flowchart, **config}}
    return ["---", *_yaml(content, ""), "---"]


def _yaml(content: Mapping[str, Any], indent: str) -> list[str]:
    lines = []
    for key, value in content.items():
        if isinstance(value, Mapping):
            lines += [f"{indent}{key}:", *_yaml(value, indent + "  ")]
        else:
            lines.append(f"{indent}{key}: {value}")
    return lines
