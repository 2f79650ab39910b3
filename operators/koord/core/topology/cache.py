"""All network topologies, each with its tree of nodes.

Updated one object at a time by a single writer. Trees follow nodes and their labels. A topology
whose layers become invalid keeps the tree of its last valid layers and reports the problem; a
deleted one has no tree.
"""

from collections import OrderedDict
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Final

from koord.core.model.topology_constraint import NODE_LAYER, parse_label_topology
from koord.core.topology.layers import Chain, InvalidLayers, Layer, order_layers
from koord.core.topology.tree import TopologyTree

MAX_LABEL_TREES: Final = 16
"""Trees by node labels that are kept: anybody may name any label."""


@dataclass(frozen=True, slots=True)
class Topology:
    """One topology: its layers as written, and the last valid ones as kept in its status.

    ``last_valid`` is used only until valid layers are seen.
    """

    name: str
    layers: tuple[Layer, ...]
    uid: str = ""
    generation: int = 0
    last_valid: tuple[Layer, ...] = ()


@dataclass(slots=True)
class _CachedTopology:
    topology: Topology
    tree: TopologyTree | None
    problem: InvalidLayers | None


class TopologyCache:
    """Topologies by name, and the nodes in each of them."""

    def __init__(self) -> None:
        self._entries: dict[str, _CachedTopology] = {}
        self._nodes: dict[int, tuple[str, Mapping[str, str]]] = {}
        self._label_trees: OrderedDict[str, tuple[str, TopologyTree]] = OrderedDict()
        """Name of a topology of a node label -> the label, its tree; the last used are last."""

    def __contains__(self, name: str) -> bool:
        return name in self._entries

    def __iter__(self) -> Iterator[str]:
        return iter(sorted(self._entries))

    def upsert_node(self, row: int, name: str, labels: Mapping[str, str]) -> None:
        """Add or move the node of a row in every tree, as its labels say."""
        self._nodes[row] = (name, labels)
        for entry in self._entries.values():
            if entry.tree is not None:
                entry.tree.upsert(row, name, labels)
        for key, tree in self._label_trees.values():
            _put_labelled(tree, key, row, name, labels)

    def remove_node(self, row: int) -> None:
        if self._nodes.pop(row, None) is not None:
            for entry in self._entries.values():
                if entry.tree is not None:
                    entry.tree.remove(row)
            for _, tree in self._label_trees.values():
                tree.remove(row)

    def upsert(self, topology: Topology) -> bool:
        """Store a topology; return whether its tree was replaced."""
        before = self._entries.get(topology.name)
        chain = order_layers(topology.layers)
        problem = chain if isinstance(chain, InvalidLayers) else None
        tree = before.tree if before is not None else None
        if problem is None:
            tree = self._rebuild(tree, chain)
        elif tree is None and topology.last_valid:
            tree = self._rebuild(tree, order_layers(topology.last_valid))
        self._entries[topology.name] = _CachedTopology(topology, tree, problem)
        self._label_trees.clear()
        return before is None or before.tree is not tree

    def remove(self, name: str) -> bool:
        """Delete a topology; return whether there was one."""
        self._label_trees.clear()
        return self._entries.pop(name, None) is not None

    def topology(self, name: str) -> Topology | None:
        entry = self._entries.get(name)
        return None if entry is None else entry.topology

    def tree(self, name: str) -> TopologyTree | None:
        """Return the current tree; None without a topology, or if its layers were never valid.

        A topology of a node label always has one, if it has no nodes.
        """
        entry = self._entries.get(name)
        if entry is not None:
            return entry.tree
        label_topology = parse_label_topology(name)
        return None if label_topology is None else self._label_tree(name, *label_topology)

    def kept_tree(self, name: str) -> TopologyTree | None:
        """Return :meth:`tree` if that takes no time; that of a node label may have to be made."""
        if name in self._entries:
            return self._entries[name].tree
        labelled = self._label_trees.get(name)
        return None if labelled is None else labelled[1]

    def problem(self, name: str) -> InvalidLayers | None:
        entry = self._entries.get(name)
        return None if entry is None else entry.problem

    def _label_tree(self, name: str, key: str, within: str) -> TopologyTree:
        """Return the tree of a node label; nodes without it are not in it."""
        if name in self._label_trees:
            self._label_trees.move_to_end(name)
            return self._label_trees[name][1]
        tree = TopologyTree(self._label_chain(key, within))
        for row, (node, labels) in self._nodes.items():
            if labels.get(key):
                tree.upsert(row, node, labels)
        self._label_trees[name] = key, tree
        if len(self._label_trees) > MAX_LABEL_TREES:
            self._label_trees.popitem(last=False)
        return tree

    def _label_chain(self, key: str, within: str) -> Chain:
        """Return the layers of another topology, if the label is one of them; else the label's."""
        other = self.tree(within) if within in self._entries else None
        chain = () if other is None else other.chain
        if not any(key in layer.label_keys for layer in chain):
            return Layer(key, "", (key,)), Layer(NODE_LAYER, key)
        return tuple(
            replace(layer, name=key) if key in layer.label_keys else layer for layer in chain
        )

    def _rebuild(
        self, tree: TopologyTree | None, chain: Chain | InvalidLayers
    ) -> TopologyTree | None:
        if isinstance(chain, InvalidLayers) or (tree is not None and tree.chain == chain):
            return tree
        made = TopologyTree(chain)
        for row, (name, labels) in self._nodes.items():
            made.upsert(row, name, labels)
        return made


def _put_labelled(
    tree: TopologyTree, key: str, row: int, name: str, labels: Mapping[str, str]
) -> None:
    if labels.get(key):
        tree.upsert(row, name, labels)
    else:
        tree.remove(row)
