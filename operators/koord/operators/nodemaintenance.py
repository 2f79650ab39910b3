"""The operator ``nodemaintenance``: validates windows, and says how many nodes they are about."""

from typing import TYPE_CHECKING, Final

from koord.api.nodemaintenance import NodeMaintenance
from koord.controllers.node_maintenance import MaintenancePolicy
from koord.domains.maintenance import MAINTENANCES
from koord.domains.placement import NODES
from koord.kube.objects import ref_of_maintenance
from koord.kube.write_check import Write
from koord.operators.operator import Operator

if TYPE_CHECKING:
    from koord.runtime.wiring import Parts


def start(parts: "Parts") -> None:
    seen = parts.reader.translator(MAINTENANCES)
    author = parts.make_author(OPERATOR, seen, lambda meta: str(meta["name"]), ref_of_maintenance)
    policy = MaintenancePolicy(parts.reader.state, author)
    parts.handle(author, parts.keep_status(policy, author))


OPERATOR: Final = Operator(
    "nodemaintenance",
    NodeMaintenance,
    start,
    reads=(NODES, MAINTENANCES),
    writes=frozenset(
        {
            Write("operators.koordinator.sh", "nodemaintenances/status", "patch"),
            Write("events.k8s.io", "events", "create"),
        }
    ),
)
