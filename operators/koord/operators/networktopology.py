"""The operator ``networktopology``: keeps the status of ClusterNetworkTopologies."""

from typing import TYPE_CHECKING, Final

from koord.api.networktopology import ClusterNetworkTopology
from koord.controllers.network_topology import TopologyStatusPolicy
from koord.controllers.status_publishing import StatusPublisher
from koord.domains.placement import NODES
from koord.domains.topology import TOPOLOGIES
from koord.kube.objects import ref_of_topology
from koord.kube.status import AFTER_BINDINGS, applied_by
from koord.kube.write_check import Write
from koord.operators.names import TOPOLOGY
from koord.operators.operator import Operator

if TYPE_CHECKING:
    from koord.runtime.wiring import Parts


def start(parts: "Parts") -> None:
    seen = parts.reader.translator(TOPOLOGIES)
    writer = parts.make_writer(
        TOPOLOGIES.plural,
        applied_by("koord-networktopology-tree"),
        lambda ref: seen.status_of(ref.uid),
        pace=AFTER_BINDINGS,
    )
    policy = TopologyStatusPolicy(parts.reader.state, StatusPublisher(writer, ref_of_topology))
    parts.keep_status(policy, when_synced=False)


OPERATOR: Final = Operator(
    TOPOLOGY,
    ClusterNetworkTopology,
    start,
    reads=(NODES, TOPOLOGIES),
    writes=frozenset(
        {Write("scheduling.koordinator.sh", "clusternetworktopologies/status", "patch")}
    ),
)
