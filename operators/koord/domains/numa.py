"""NUMA nodes and CPUs of nodes."""

from typing import Final

from koord.core.numa.model import NumaReport
from koord.core.numa.plugin import Numa
from koord.domains.planning import Planning
from koord.kube.errors import NotFound
from koord.kube.kind import Kind, Stateless, of_plugin
from koord.kube.translate.numa import NumaPodReader, translate_node_topology
from koord.kube.wire import WireNodeTopology

NODE_TOPOLOGIES: Final = Kind[
    WireNodeTopology, NumaReport, Stateless[WireNodeTopology, NumaReport]
](
    "topology.node.k8s.io/v1alpha1",
    "noderesourcetopologies",
    WireNodeTopology,
    lambda _: Stateless(translate_node_topology),
    of_plugin(Numa),
    Numa.upsert,
    Numa.remove,
    is_namespaced=False,
    absent_on=(NotFound,),
)


PLANNING: Final = Planning(
    kinds=(NODE_TOPOLOGIES,), make_plugins=lambda _: (Numa(),), pod_reader=NumaPodReader()
)
