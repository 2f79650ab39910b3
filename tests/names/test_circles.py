"""Modules that import each other can only be read together: no more than three of them.

Imports for type checkers count, and those in functions: whoever reads follows them.
"""

import ast
from collections.abc import Iterable

import networkx as nx
from tests.names.sources import read_modules

MOST = 3


def list_imports(tree: ast.Module) -> Iterable[tuple[str, ...]]:
    """Yield of each import what it may name, the most exact name first."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from ((alias.name,) for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module:
            yield from ((f"{node.module}.{alias.name}", node.module) for alias in node.names)


def find_circles(trees: dict[str, ast.Module]) -> list[set[str]]:
    """Return the modules that can be reached from each other, circle by circle."""
    graph = nx.DiGraph()
    for module, tree in trees.items():
        for names in list_imports(tree):
            imported = next((name for name in names if name in trees), module)
            graph.add_edge(module, imported)
    return [circle for circle in nx.strongly_connected_components(graph) if len(circle) > 1]


def test_circles_are_seen() -> None:
    sources = {
        "a": "from b import f",
        "b": "def f():\n    import c.d",
        "c": "",
        "c.d": "if TYPE_CHECKING:\n    import a",
        "e": "import a",
    }
    trees = {name: ast.parse(source) for name, source in sources.items()}
    assert find_circles(trees) == [{"a", "b", "c.d"}]


def test_no_circle_has_more_than_three_modules() -> None:
    circles = find_circles(read_modules())
    assert [sorted(circle) for circle in circles if len(circle) > MOST] == []
