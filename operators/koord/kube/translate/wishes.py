"""What a gang asks of the network: from its annotations to values of the core."""

from koord.api.annotations import NetworkTopologySpec
from koord.api.gang import GangSettings
from koord.core.gather import DEFAULT_TOPOLOGY, Gather, LayerWish, TopologyWish


def make_wish(settings: GangSettings) -> TopologyWish | None:
    """Return the wish of a gang; an empty one is none."""
    if settings.topology is None or not settings.topology.gather_strategy:
        return None
    return translate_wish(settings.topology, settings.topology_name or DEFAULT_TOPOLOGY)


def translate_wish(spec: NetworkTopologySpec, topology: str = DEFAULT_TOPOLOGY) -> TopologyWish:
    """Return what an annotation says."""
    return TopologyWish(
        layers=tuple(
            LayerWish(rule.layer, Gather(rule.strategy), max(rule.pod_count_multiple, 1))
            for rule in spec.gather_strategy
        ),
        topology=topology,
    )
