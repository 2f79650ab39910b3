"""What a gang asks of the network: from its annotations to values of the core."""

from koord.api.annotations import NetworkTopologySpec
from koord.api.gang import GangSettings
from koord.core.gang.sub_group_tree import ROOT, SubGroup, SubGroupTree
from koord.core.topology_constraint import (
    DEFAULT_TOPOLOGY,
    GatherStrategy,
    LayerConstraint,
    TopologyConstraint,
)


def make_wish(settings: GangSettings) -> TopologyConstraint | None:
    """Return the wish of a gang; an empty one is none, unless its sub-groups may have some."""
    topology = settings.topology_name or DEFAULT_TOPOLOGY
    if settings.topology is None or not settings.topology.gather_strategy:
        return None if settings.sub_groups is None else TopologyConstraint((), topology)
    return translate_wish(settings.topology, topology)


def make_nest(settings: GangSettings) -> SubGroupTree | None:
    """Return the sub-groups of a gang."""
    found = settings.sub_groups
    if found is None:
        return None
    return SubGroupTree(
        root=SubGroup(ROOT, min_sub_groups=found.min_sub_groups),
        groups=tuple(
            SubGroup(one.name, one.min_member, one.layer, one.parent, one.min_sub_groups)
            for one in found.groups
        ),
    )


def translate_wish(
    spec: NetworkTopologySpec, topology: str = DEFAULT_TOPOLOGY
) -> TopologyConstraint:
    """Return what an annotation says."""
    return TopologyConstraint(
        layers=tuple(
            LayerConstraint(
                rule.layer, GatherStrategy(rule.strategy), max(rule.pod_count_multiple, 1)
            )
            for rule in spec.gather_strategy
        ),
        topology=topology,
    )
