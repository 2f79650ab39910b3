"""NodeMaintenance: when nodes go out of service, known ahead.

Until then a node takes only pods that end before; those without a known end are kept off for a lead
time. Nothing is evicted for it. Cordoning and draining the node stays with the administrator.
"""

from typing import Annotated, ClassVar, Final

from pydantic import Field

from koord.api.model import Marker, Model, Rule
from koord.api.quotaprofile import NodeSelector
from koord.api.resource import (
    AGE,
    Conditions,
    Duration,
    Int32,
    Int64,
    Names,
    PrinterColumn,
    Resource,
    Time,
    reason_column,
)

DEFAULT_LEAD: Final = "1h"
MAX_NODES: Final = 1000
_ATOMIC_LIST: Final = Marker({"x-kubernetes-list-type": "atomic"})


class NodeMaintenanceSpec(Model):
    """Which nodes go out of service, and when."""

    rules = (
        Rule(
            "self.end > self.start",
            "end must be after start",
            lambda spec: spec.end.timestamp() > spec.start.timestamp(),
        ),
        Rule(
            "has(self.nodes) || has(self.nodeSelector)",
            "nodes or nodeSelector must be given",
            lambda spec: spec.nodes is not None or spec.node_selector is not None,
        ),
    )

    nodes: (
        Annotated[
            list[Annotated[str, Field(min_length=1, max_length=253)]],
            Field(max_length=MAX_NODES),
            _ATOMIC_LIST,
        ]
        | None
    ) = None
    """Names of nodes."""
    node_selector: NodeSelector | None = None
    """Further nodes, by their labels."""
    start: Time
    """When the nodes go out of service. Pods that end before are placed on them until then."""
    end: Time
    """When they are back."""
    lead_time: Duration | None = None
    """How long before the start pods are kept off that do not say when they end
    (spec.activeDeadlineSeconds); 1h by default."""
    reason: Annotated[str, Field(max_length=256)] | None = None
    """Why, for people."""


class NodeMaintenanceStatus(Model):
    """Which nodes it is about."""

    observed_generation: Int64 | None = None
    """The metadata.generation that this status was made from."""
    conditions: Conditions | None = None
    """Conditions of the maintenance: Accepted, Ready."""
    nodes: Int32 | None = None
    """How many nodes are named or selected, of those that there are."""


class NodeMaintenance(Resource):
    """Keeps pods off nodes that go out of service before the pods would end."""

    names: ClassVar = Names(
        group="operators.koordinator.sh",
        kind="NodeMaintenance",
        plural="nodemaintenances",
        short=("nm",),
        namespaced=False,
        columns=(
            PrinterColumn("Start", ".spec.start", "date", "When the nodes go out of service."),
            PrinterColumn("End", ".spec.end", "date", "When they are back."),
            PrinterColumn("Nodes", ".status.nodes", "integer", "Nodes that it is about."),
            PrinterColumn("Why", ".spec.reason"),
            reason_column("Accepted", priority=1),
            AGE,
        ),
    )

    spec: NodeMaintenanceSpec
    """Which nodes go out of service, and when."""
    status: NodeMaintenanceStatus = NodeMaintenanceStatus()
    """Which nodes it is about."""
