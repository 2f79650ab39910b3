"""The tree as a list of domains, depth first, children by name: what its status shows."""

from collections.abc import Iterator
from dataclasses import dataclass

from koord.core.topology.tree import TopologyTree


@dataclass(frozen=True, slots=True)
class Domain:
    """One domain above the nodes. ``parent`` is (layer, name), None for the root.

    ``child_layer`` is empty without children, ``child_names`` is empty if they are nodes.
    """

    layer: str
    name: str
    path: tuple[str, ...]
    parent: tuple[str, str] | None
    child_layer: str
    child_names: tuple[str, ...]
    nodes: int


def describe_domains(tree: TopologyTree) -> Iterator[Domain]:
    """Yield every domain above the nodes."""
    yield from _describe(tree, 0, 0)


def _describe(tree: TopologyTree, layer: int, number: int) -> Iterator[Domain]:
    path = tree.path_of(layer, number)
    nodes = tree.nodes_in(layer, number)
    is_lowest = layer + 1 == tree.depth
    children = [] if is_lowest else tree.members_of(layer, number).tolist()
    children.sort(key=lambda child: tree.path_of(layer + 1, child))
    above = (tree.layers[layer - 1], path[-2] if layer > 1 else "") if layer else None
    yield Domain(
        layer=tree.layers[layer],
        name=path[-1] if path else "",
        path=path,
        parent=above,
        child_layer=tree.layers[layer + 1] if nodes else "",
        child_names=tuple(tree.path_of(layer + 1, child)[-1] for child in children),
        nodes=nodes,
    )
    for child in children:
        yield from _describe(tree, layer + 1, child)
