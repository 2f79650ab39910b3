"""What a gang asks of the network: from its annotations to values of the core."""

from koord.api.annotations import NetworkTopologySpec
from koord.api.gang import GangSettings
from koord.core.gang.nested import ROOT, Nest, SubGroup
from koord.core.gather import DEFAULT_TOPOLOGY, Gather, LayerWish, TopologyWish


def make_wish(settings: GangSettings) -> TopologyWish | None:
    """Return the wish of a gang; an empty one is none, unless its sub-groups may have some."""
    topology = settings.topology_name or DEFAULT_TOPOLOGY
    if settings.topology is None or not settings.topology.gather_strategy:
        return None if settings.sub_groups is None else TopologyWish((), topology)
    return translate_wish(settings.topology, topology)


def make_nest(settings: GangSettings) -> Nest | None:
    """Return the sub-groups of a gang."""
    found = settings.sub_groups
    if found is None:
        return None
    return Nest(
        root=SubGroup(ROOT, min_sub_groups=found.min_sub_groups),
        groups=tuple(
            SubGroup(one.name, one.min_member, one.layer, one.parent, one.min_sub_groups)
            for one in found.groups
        ),
    )


def translate_wish(spec: NetworkTopologySpec, topology: str = DEFAULT_TOPOLOGY) -> TopologyWish:
    """Return what an annotation says."""
    return TopologyWish(
        layers=tuple(
            LayerWish(rule.layer, Gather(rule.strategy), max(rule.pod_count_multiple, 1))
            for rule in spec.gather_strategy
        ),
        topology=topology,
    )
