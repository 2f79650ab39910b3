"""Network topology: gangs close together."""

from typing import Final

from koord.core.topology.cache import Topology
from koord.core.topology.plugin import Topologies
from koord.domains.planning import Planning
from koord.kube.errors import NotFound
from koord.kube.kind import Kind, of_plugin
from koord.kube.translate.cluster_objects import TopologyTranslator
from koord.kube.wire import WireCustomResource

TOPOLOGIES: Final = Kind[WireCustomResource, Topology, TopologyTranslator](
    "scheduling.koordinator.sh/v1alpha1",
    "clusternetworktopologies",
    WireCustomResource,
    lambda _: TopologyTranslator(),
    of_plugin(Topologies),
    Topologies.upsert,
    Topologies.remove,
    is_namespaced=False,
    absent_on=(NotFound,),
)


PLANNING: Final = Planning(kinds=(TOPOLOGIES,), make_plugins=lambda _: (Topologies(),))
