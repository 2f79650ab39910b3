"""Topology constraints of gangs: the layers that members must or should share, in what multiples.

Shared by gangs, which have constraints, and topology, which solves them. Knows no tree and no node.
Source: the annotation ``network-topology-spec`` of Koordinator; ``docs/topology.md`` documents the
fields.
"""

import re
from dataclasses import dataclass
from enum import StrEnum
from typing import Final, TypeAlias

ROOT_LAYER: Final = "ClusterTopologyLayer"
"""Built in: its one domain holds every node of the tree; never listed."""
NODE_LAYER: Final = "NodeTopologyLayer"
"""Built in: one domain per node; always listed, always the lowest layer."""
DEFAULT_TOPOLOGY: Final = "default"
_LABEL_TOPOLOGY: Final = "node label "
_WITHIN: Final = " in "


class GatherStrategy(StrEnum):
    """Whether members must or should share one domain of a layer."""

    MUST = "MustGather"
    PREFER = "PreferGather"


@dataclass(frozen=True, slots=True)
class LayerConstraint:
    """The constraint for one layer; members per domain must be a multiple of ``multiple``."""

    layer: str
    strategy: GatherStrategy
    multiple: int = 1


@dataclass(frozen=True, slots=True)
class TopologyConstraint:
    """Constraints for layers of a topology, in no order.

    ``gang`` is set for the constraint of a gang with sub-groups, which shares its domains with no
    other gang.
    """

    layers: tuple[LayerConstraint, ...]
    topology: str = DEFAULT_TOPOLOGY
    gang: str = ""

    @property
    def multiples(self) -> dict[str, int]:
        """Layer -> multiple above 1; the larger one of a layer named twice."""
        multiples: dict[str, int] = {}
        for layer_constraint in self.layers:
            if layer_constraint.multiple > 1:
                multiples[layer_constraint.layer] = max(
                    layer_constraint.multiple, multiples.get(layer_constraint.layer, 1)
                )
        return multiples

    def layers_with(self, strategy: GatherStrategy) -> frozenset[str]:
        return frozenset(
            layer_constraint.layer
            for layer_constraint in self.layers
            if layer_constraint.strategy is strategy
        )


def name_label_topology(key: str, within: str = "") -> str:
    """Return the name of the topology of which the domains are the values of one node label.

    No object has such a name. ``within`` names a topology whose other layers are used, too, if the
    label is one of its layers.
    """
    return f"{_LABEL_TOPOLOGY}{key}{_WITHIN}{within}" if within else f"{_LABEL_TOPOLOGY}{key}"


def parse_label_topology(name: str) -> tuple[str, str] | None:
    """Return the node label and the topology that such a name is made of; None for any other."""
    if not name.startswith(_LABEL_TOPOLOGY):
        return None
    key, _, within = name.removeprefix(_LABEL_TOPOLOGY).partition(_WITHIN)
    return key, within


def constrain_by_label(constraint: TopologyConstraint | None, key: str) -> TopologyConstraint:
    """Return a constraint with a node label of which all members must share the value."""
    shared = LayerConstraint(key, GatherStrategy.MUST)
    if constraint is None:
        return TopologyConstraint((shared,), name_label_topology(key))
    within = name_label_topology(key, constraint.topology)
    return TopologyConstraint((shared, *constraint.layers), within)


@dataclass(frozen=True, slots=True)
class PlacedMember:
    """A member on a node. ``index`` is its rank in the gang, below 0 for none."""

    node: str
    index: int = -1
    name: str = ""
    sub_group: str = ""


_DIGITS: Final = re.compile(r"([0-9]+)", re.ASCII)

Rank: TypeAlias = tuple[bool, int, tuple[tuple[int, str], ...], str]


def rank_member(index: int, name: str, uid: str) -> Rank:
    """Return the sort key of a member: by index, without one last; then ``w-2`` before ``w-10``."""
    parts = _DIGITS.split(name)
    # A number sorts before a text, by its value.
    natural = tuple((int(part), part) if at % 2 else (-1, part) for at, part in enumerate(parts))
    return index < 0, max(index, -1), natural, uid
