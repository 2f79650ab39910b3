"""What a gang asks of the network: which layers its members must or should share, in what portions.

Shared by the domains of the core: gangs carry the wish, the topology solves it, placement joins
them. Knows no tree and no node. Source: the annotation ``network-topology-spec`` of Koordinator;
``docs/topology.md`` carries the meaning of every field.
"""

from dataclasses import dataclass
from enum import StrEnum
from typing import Final

ROOT_LAYER: Final = "ClusterTopologyLayer"
"""Built in: the one domain that holds every node of the tree; never listed."""
NODE_LAYER: Final = "NodeTopologyLayer"
"""Built in: one domain per node; always listed, and always the lowest."""
DEFAULT_TOPOLOGY: Final = "default"


class GatherStrategy(StrEnum):
    """How firmly members are to share one domain of a layer."""

    MUST = "MustGather"
    PREFER = "PreferGather"


@dataclass(frozen=True, slots=True)
class LayerConstraint:
    """The wish for one layer; in every domain of it the members count a multiple of ``multiple``.

    1 asks for no multiple.
    """

    layer: str
    strategy: GatherStrategy
    multiple: int = 1


@dataclass(frozen=True, slots=True)
class TopologyConstraint:
    """What is asked of each layer, in no order, and of which topology."""

    layers: tuple[LayerConstraint, ...]
    topology: str = DEFAULT_TOPOLOGY
    nest: str = ""
    """The gang whose sub-groups gather by themselves, if it has some."""

    @property
    def multiples(self) -> dict[str, int]:
        """Layer -> multiple, only where there is one; a layer named twice asks for the larger."""
        found: dict[str, int] = {}
        for one in self.layers:
            if one.multiple > 1:
                found[one.layer] = max(one.multiple, found.get(one.layer, 1))
        return found

    def layers_with(self, strategy: GatherStrategy) -> frozenset[str]:
        """Return the layers that are named with a strategy."""
        return frozenset(one.layer for one in self.layers if one.strategy is strategy)


@dataclass(frozen=True, slots=True)
class PlacedMember:
    """A member that has its place already: what joins it must fit to it."""

    node: str
    index: int = -1
    name: str = ""
    sub_group: str = ""
