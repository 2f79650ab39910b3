"""Trees as DOT and GraphML."""

import networkx as nx

from koord.cli.common import TreeOutput
from koord.cli.output import GraphNode, write_graph

NODES = (
    GraphNode("/", None, ("all",), {"nodes": 3}),
    GraphNode("/a", "/", ('the "a"', "second line"), {"nodes": 2}),
    GraphNode("/a\\", "/a", ("backslash \\N",), {"nodes": 1}),
)


def test_dot_escapes_quotes_backslashes_and_line_breaks() -> None:
    assert write_graph("t", NODES, TreeOutput.DOT).splitlines() == [
        'digraph "t" {',
        "  rankdir=LR;",
        "  node [shape=box];",
        '  "/" ["label"="all", "nodes"="3"];',
        r'  "/a" ["label"="the \"a\"\nsecond line", "nodes"="2"];',
        r'  "/a\\" ["label"="backslash \\N", "nodes"="1"];',
        '  "/" -> "/a";',
        r'  "/a" -> "/a\\";',
        "}",
    ]


def test_graphml_can_be_read_back() -> None:
    graph = nx.parse_graphml(write_graph("t", NODES, TreeOutput.GRAPHML))
    assert dict(graph.nodes["/a"]) == {"label": 'the "a"\nsecond line', "nodes": 2}
    assert list(graph.edges) == [("/", "/a"), ("/a", "/a\\")]
