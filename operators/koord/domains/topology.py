"""Network topology: gangs close together."""

from typing import Final

from koord.api.networktopology import ClusterNetworkTopology
from koord.core.topology.plugin import Topologies
from koord.domains.planning import Planning
from koord.kube.errors import NotFound
from koord.kube.kind import of_model, of_plugin
from koord.kube.translate.cluster_objects import TopologyTranslator

TOPOLOGIES: Final = of_model(
    ClusterNetworkTopology,
    lambda _: TopologyTranslator(),
    of_plugin(Topologies),
    Topologies.upsert,
    Topologies.remove,
    absent_on=(NotFound,),
)


PLANNING: Final = Planning(kinds=(TOPOLOGIES,), make_plugins=lambda _: (Topologies(),))
