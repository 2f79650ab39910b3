"""Trees as graphs for other tools: DOT for Graphviz, GraphML for Gephi, yEd or networkx.

Knows neither quotas nor topologies. Imported only when a graph is asked for: networkx takes long.
"""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field

import networkx as nx

from koord.cli.common import TreeOutput


@dataclass(frozen=True, slots=True)
class GraphNode:
    """A node of a tree. ``lines`` are its label, ``attributes`` the same facts by name."""

    id: str
    parent: str | None
    lines: tuple[str, ...]
    attributes: Mapping[str, str | int] = field(default_factory=dict)


def write_graph(name: str, nodes: Iterable[GraphNode], output: TreeOutput) -> str:
    """Return the graph as a document; edges lead from parents to children."""
    graph: nx.DiGraph[str] = nx.DiGraph(name=name)
    for node in nodes:
        graph.add_node(node.id, label="\n".join(node.lines), **node.attributes)
        if node.parent is not None:
            graph.add_edge(node.parent, node.id)
    return "\n".join(_write_dot(graph) if output is TreeOutput.DOT else nx.generate_graphml(graph))


def _write_dot(graph: "nx.DiGraph[str]") -> Iterator[str]:
    yield f"digraph {_quote(graph.name)} {{"
    yield "  rankdir=LR;"
    yield "  node [shape=box];"
    for node, attributes in graph.nodes(data=True):
        written = ", ".join(f"{_quote(key)}={_quote(str(of))}" for key, of in attributes.items())
        yield f"  {_quote(node)} [{written}];"
    for parent, child in graph.edges:
        yield f"  {_quote(parent)} -> {_quote(child)};"
    yield "}"


def _quote(text: str) -> str:
    # Graphviz turns backslash sequences into line breaks and names: those of the text are escaped.
    escaped = text.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")
    return f'"{escaped}"'
