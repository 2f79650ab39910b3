"""Every network topology that is known, each with the tree of the nodes that there are.

Fed one object at a time by a single writer. Trees follow nodes and labels as they come and go. A
topology whose layers become invalid keeps the tree of the last valid ones and says so; one that is
deleted has no tree any more.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from koord.core.topology.layers import Chain, InvalidLayers, Layer, order_layers
from koord.core.topology.tree import TopologyTree


@dataclass(frozen=True, slots=True)
class Topology:
    """One topology: its layers as written, and the last valid ones as far as they are known.

    ``last_valid`` is what a status had kept; it counts only until valid layers are seen.
    """

    name: str
    layers: tuple[Layer, ...]
    uid: str = ""
    generation: int = 0
    last_valid: tuple[Layer, ...] = ()


@dataclass(slots=True)
class _Entry:
    topology: Topology
    tree: TopologyTree | None
    fault: InvalidLayers | None


class TopologyCache:
    """Topologies by name, and the nodes that are put into each of them."""

    def __init__(self) -> None:
        self._entries: dict[str, _Entry] = {}
        self._nodes: dict[int, tuple[str, Mapping[str, str]]] = {}

    def __contains__(self, name: str) -> bool:
        return name in self._entries

    def __iter__(self) -> Iterator[str]:
        return iter(sorted(self._entries))

    def upsert_node(self, row: int, name: str, labels: Mapping[str, str]) -> None:
        """Put a node, known by its row, where its labels say."""
        self._nodes[row] = (name, labels)
        for entry in self._entries.values():
            if entry.tree is not None:
                entry.tree.upsert(row, name, labels)

    def remove_node(self, row: int) -> None:
        """Take the node of a row out of every tree."""
        if self._nodes.pop(row, None) is not None:
            for entry in self._entries.values():
                if entry.tree is not None:
                    entry.tree.remove(row)

    def upsert(self, topology: Topology) -> bool:
        """Take in a topology as observed; tell whether its tree is another one now."""
        before = self._entries.get(topology.name)
        chain = order_layers(topology.layers)
        fault = chain if isinstance(chain, InvalidLayers) else None
        tree = before.tree if before is not None else None
        if fault is None:
            tree = self._renewed(tree, chain)
        elif tree is None and topology.last_valid:
            tree = self._renewed(tree, order_layers(topology.last_valid))
        self._entries[topology.name] = _Entry(topology, tree, fault)
        return before is None or before.tree is not tree

    def remove(self, name: str) -> bool:
        """Forget a topology that is gone; tell whether there was one."""
        return self._entries.pop(name, None) is not None

    def topology(self, name: str) -> Topology | None:
        """Return a topology as observed."""
        entry = self._entries.get(name)
        return None if entry is None else entry.topology

    def tree(self, name: str) -> TopologyTree | None:
        """Return the tree in force; None if there is no topology, or never was a valid one."""
        entry = self._entries.get(name)
        return None if entry is None else entry.tree

    def fault(self, name: str) -> InvalidLayers | None:
        """Return what is wrong with the layers as written."""
        entry = self._entries.get(name)
        return None if entry is None else entry.fault

    def _renewed(
        self, tree: TopologyTree | None, chain: Chain | InvalidLayers
    ) -> TopologyTree | None:
        if isinstance(chain, InvalidLayers) or (tree is not None and tree.chain == chain):
            return tree
        made = TopologyTree(chain)
        for row, (name, labels) in self._nodes.items():
            made.upsert(row, name, labels)
        return made
