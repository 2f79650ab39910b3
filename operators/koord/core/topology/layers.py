"""The layers of a network: one chain from the top layer down to the nodes, or its first problem.

Knows no nodes. An invalid list of layers is a value, never an error.
"""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Final, TypeAlias

from koord.core.model.text import listed
from koord.core.model.topology_constraint import NODE_LAYER, ROOT_LAYER


@dataclass(frozen=True, slots=True)
class Layer:
    """One layer as listed: its name, the layer above, the node labels that name its domains."""

    name: str
    parent: str = ""
    label_keys: tuple[str, ...] = ()


Chain: TypeAlias = tuple[Layer, ...]
"""Layers from the top one down to the node layer."""


class LayerProblem(StrEnum):
    """What can be wrong with a list of layers."""

    EMPTY = "Empty"
    DUPLICATE = "Duplicate"
    ROOT_LISTED = "RootListed"
    NO_NODE_LAYER = "NoNodeLayer"
    UNKNOWN_PARENT = "UnknownParent"
    CYCLE = "Cycle"
    TWO_ROOTS = "TwoRoots"
    TWO_CHILDREN = "TwoChildren"
    NO_LABEL = "NoLabel"


_STRAY: Final = ' (topology layer "" not found in spec)'
_PROBLEMS: Final = {
    LayerProblem.EMPTY: f"no layers are listed; at least {NODE_LAYER} is required",
    LayerProblem.DUPLICATE: (
        f"topologyLayer {{names}} is listed twice; list each layer once{_STRAY}"
    ),
    LayerProblem.ROOT_LISTED: f"{ROOT_LAYER} is built in; remove it from the list",
    LayerProblem.NO_NODE_LAYER: "topology layer {names} not found in spec; it must be listed",
    LayerProblem.UNKNOWN_PARENT: "topology layer {names} not found in spec; parents must be listed",
    LayerProblem.CYCLE: "the parents of {names} form a cycle; one layer must be the top",
    LayerProblem.TWO_ROOTS: f"{{names}} have no parent; only one layer can be the top{_STRAY}",
    LayerProblem.TWO_CHILDREN: f"{{names}} branch off; layers must form one chain{_STRAY}",
    LayerProblem.NO_LABEL: f"{{names}} have no labelKey; only {NODE_LAYER} may omit it",
}


@dataclass(frozen=True, slots=True)
class InvalidLayers:
    """Why no tree can be made of a list of layers: the first problem, and the layers concerned."""

    problem: LayerProblem
    layers: tuple[str, ...] = ()

    def describe(self) -> str:
        """Return the problem, and how to fix it."""
        names = listed(f'"{name}"' for name in self.layers)
        return _PROBLEMS[self.problem].format(names=names)


def order_layers(layers: Sequence[Layer]) -> Chain | InvalidLayers:
    """Order layers from top to bottom by their parents, whatever the order of the list."""
    problem = _find_problem(layers)
    if problem is not None:
        return problem
    by_name = {layer.name: layer for layer in layers}
    chain: list[Layer] = []
    name = NODE_LAYER
    while name and len(chain) <= len(by_name):
        chain.append(by_name[name])
        name = _parent(by_name[name])
    if len(chain) == len(by_name) and not name:
        return tuple(reversed(chain))
    return _explain_branches(by_name)


def _find_problem(layers: Sequence[Layer]) -> InvalidLayers | None:
    names = [layer.name for layer in layers]
    if not names:
        return InvalidLayers(LayerProblem.EMPTY)
    if ROOT_LAYER in names:
        return InvalidLayers(LayerProblem.ROOT_LISTED, (ROOT_LAYER,))
    twice = tuple(sorted(name for name, count in Counter(names).items() if count > 1))
    if twice:
        return InvalidLayers(LayerProblem.DUPLICATE, twice)
    unknown = sorted({parent for layer in layers if (parent := _parent(layer))} - set(names))
    if unknown:
        return InvalidLayers(LayerProblem.UNKNOWN_PARENT, tuple(unknown))
    if NODE_LAYER not in names:
        return InvalidLayers(LayerProblem.NO_NODE_LAYER, (NODE_LAYER,))
    bare = tuple(
        layer.name for layer in layers if layer.name != NODE_LAYER and not any(layer.label_keys)
    )
    return InvalidLayers(LayerProblem.NO_LABEL, bare) if bare else None


def _explain_branches(by_name: dict[str, Layer]) -> InvalidLayers:
    """Say why layers are not one chain that ends with the node layer."""
    import networkx as nx  # noqa: PLC0415 - slow to import, and needed for invalid layers only

    edges = [(name, parent) for name, layer in by_name.items() if (parent := _parent(layer))]
    graph = nx.DiGraph(edges)
    graph.add_nodes_from(by_name)
    above = {NODE_LAYER} | nx.descendants(graph, NODE_LAYER)
    if not nx.is_directed_acyclic_graph(graph.subgraph(above)):
        ring = nx.find_cycle(graph, NODE_LAYER)
        return InvalidLayers(LayerProblem.CYCLE, tuple(name for name, _ in ring))
    tops = sorted(name for name, parents in graph.out_degree if not parents)
    if len(tops) > 1:
        return InvalidLayers(LayerProblem.TWO_ROOTS, tuple(tops))
    aside = sorted(set(by_name) - above)
    branches = [name for name in aside if _parent(by_name[name]) in above]
    problem = LayerProblem.TWO_CHILDREN if branches else LayerProblem.CYCLE
    return InvalidLayers(problem, tuple(branches or aside))


def _parent(layer: Layer) -> str:
    return "" if layer.parent == ROOT_LAYER else layer.parent
