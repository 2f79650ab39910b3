"""ColocationPolicy: what nodes offer to batch and mid pods, beside what others use of them.

Fields and defaults are those of the key ``colocation-config`` of Koordinator's ConfigMap. How the
amounts come about is decided elsewhere; the status shows it for some nodes.
"""

from typing import ClassVar

from koord.api.colocation import ColocationStrategy
from koord.api.model import Model
from koord.api.quotaprofile import NodeSelector
from koord.api.resource import (
    AGE,
    Conditions,
    Int32,
    Int64,
    KeptSpec,
    Names,
    ObservedResources,
    PrinterColumn,
    Resource,
    Time,
    reason_column,
)


class ColocationPolicySpec(ColocationStrategy):
    """What some nodes offer to batch and mid pods; on, unless `enable` is false."""

    node_selector: NodeSelector | None = None
    """The nodes; all by default. Of several policies that select a node the oldest counts."""


class OfferTerm(Model):
    """One term of an amount."""

    kind: str
    """What it stands for."""
    amount: str
    """The amount with its sign: thousandths of a CPU, or bytes."""


class OfferedResource(Model):
    """An amount that a node offers, and the terms that add up to it."""

    resource: str
    """The resource."""
    amount: str
    """What is offered."""
    terms: list[OfferTerm] | None = None
    """Terms whose sum it is."""


class OfferingNode(Model):
    """A node of the policy."""

    node: str
    """Its name."""
    state: str
    """Published, Degraded or Off."""
    message: str | None = None
    """Why it offers nothing."""
    resources: list[OfferedResource] | None = None
    """What it offers."""


class ColocationPolicyStatus(Model):
    """What the nodes of the policy offer."""

    observed_generation: Int64 | None = None
    """The metadata.generation that this status was made from."""
    conditions: Conditions | None = None
    """Conditions of the policy: Accepted, Ready."""
    nodes: Int32 | None = None
    """How many nodes the policy decides about."""
    degraded: Int32 | None = None
    """Of how many of them nobody knows what they use."""
    offered: ObservedResources | None = None
    """What all of them offer together."""
    examples: list[OfferingNode] | None = None
    """The first nodes by name, with all terms; `koord colocation explain NODE` shows any."""
    last_update_time: Time | None = None
    """When that was so."""
    last_valid_spec: KeptSpec | None = None
    """The settings in force: those of the spec while valid, else the last valid ones."""


class ColocationPolicy(Resource):
    """What nodes offer to batch and mid pods."""

    names: ClassVar = Names(
        group="operators.koordinator.sh",
        kind="ColocationPolicy",
        plural="colocationpolicies",
        short=("colo",),
        namespaced=False,
        columns=(
            PrinterColumn("Nodes", ".status.nodes", "integer"),
            PrinterColumn("Degraded", ".status.degraded", "integer", "Nodes without a report."),
            PrinterColumn("BatchCPU", r".status.offered.kubernetes\.io/batch-cpu"),
            PrinterColumn("BatchMemory", r".status.offered.kubernetes\.io/batch-memory"),
            reason_column("Ready"),
            reason_column("Accepted", priority=1),
            AGE,
        ),
    )

    spec: ColocationPolicySpec = ColocationPolicySpec()
    """What the nodes offer."""
    status: ColocationPolicyStatus = ColocationPolicyStatus()
    """What they offer now."""
