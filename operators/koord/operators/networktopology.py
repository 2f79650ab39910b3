"""The operator ``networktopology``: keeps the status of ClusterNetworkTopologies."""

from typing import TYPE_CHECKING, Final

from koord.api.networktopology import ClusterNetworkTopology
from koord.controllers.network_topology import TopologyStatusPolicy
from koord.domains.placement import NODES
from koord.domains.topology import TOPOLOGIES
from koord.kube.objects import ref_of_topology
from koord.kube.status import Former
from koord.kube.write_check import Write
from koord.operators.names import TOPOLOGY
from koord.operators.operator import Operator

if TYPE_CHECKING:
    from koord.runtime.wiring import Parts


def start(parts: "Parts") -> None:
    author = parts.make_author(
        OPERATOR,
        parts.reader.translator(TOPOLOGIES),
        lambda meta: str(meta["name"]),
        ref_of_topology,
        former=(Former("koord-networktopology-tree"),),
    )
    policy = TopologyStatusPolicy(parts.reader.state, author)
    parts.handle(author, parts.keep_status(policy, author, when_synced=False))


OPERATOR: Final = Operator(
    TOPOLOGY,
    ClusterNetworkTopology,
    start,
    reads=(NODES, TOPOLOGIES),
    writes=frozenset(
        {
            Write("scheduling.koordinator.sh", "clusternetworktopologies/status", "patch"),
            Write("events.k8s.io", "events", "create"),
        }
    ),
)
