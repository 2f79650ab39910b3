"""The registrations: which domains there are, and what each brings into a process.

A domain is registered by one ``Domain`` in ``DOMAINS``: its operators, what it needs whichever
operators run, and its part of the debug page. A custom resource that is only validated takes
nothing but an ``Operator`` with that resource.

Plugins of the planner stand in ``koord.core.engine.registry``: the command line plans with them
too. Kinds that are reflected stand in ``koord.kube.kinds``, which the command line reads without
loading the operators; each kind says which operators read it. Commands are modules of
``koord.cli``, found by name for the same reason.
"""

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from koord.api.device import Device
from koord.api.elasticquota import ElasticQuota
from koord.api.networktopology import ClusterNetworkTopology
from koord.api.podgroup import PodGroup
from koord.api.quotaprofile import ElasticQuotaProfile
from koord.api.reservation import Reservation
from koord.api.resource import Resource
from koord.kube.kinds import (
    DEVICE,
    PLACEMENT,
    POD_GROUP,
    PROFILE,
    QUOTA,
    RESERVATION,
    TOPOLOGY,
    kinds_of,
)
from koord.kube.status import AT_ONCE, BEHIND_ALL, Pace
from koord.runtime.descriptions import describe_placement, describe_quota_state
from koord.runtime.operators import (
    start_devices,
    start_placement,
    start_pod_groups,
    start_profiles,
    start_quota_audit,
    start_quotas,
    start_reservations,
    start_topologies,
)

if TYPE_CHECKING:
    from koord.controllers.validation import ValidationSink
    from koord.runtime.wiring import Parts


@dataclass(frozen=True, slots=True)
class Operator:
    """An operator, which a process runs or not; ``name`` is that of ``koord run --operator``."""

    name: str
    resource: type[Resource] | None = None
    """The custom resource that it validates, and that must be installed."""
    start: "Callable[[Parts], ValidationSink | None] | None" = None
    """Adds what else the operator does, and may return where the verdicts of validation go.

    Without such a sink they go into the condition ``Accepted``.
    """
    pace: Pace = AT_ONCE
    """How that condition gives way to bindings."""


@dataclass(frozen=True, slots=True)
class Domain:
    """What one domain brings into a process."""

    name: str
    operators: tuple[Operator, ...]
    start: "Callable[[Parts], None] | None" = None
    """Adds what the domain needs whichever operators run: its metrics, for example."""
    describe: "Callable[[Parts], Mapping[str, object]] | None" = None
    """Returns the domain's part of the debug page."""


DOMAINS: Final = (
    Domain("placement", (Operator(PLACEMENT, start=start_placement),), describe=describe_placement),
    Domain("gang", (Operator(POD_GROUP, PodGroup, start_pod_groups),)),
    Domain(
        "quota",
        (
            Operator(QUOTA, ElasticQuota, start_quotas),
            Operator(PROFILE, ElasticQuotaProfile, start_profiles),
        ),
        start=start_quota_audit,
        describe=describe_quota_state,
    ),
    Domain("reservation", (Operator(RESERVATION, Reservation, start_reservations),)),
    Domain("topology", (Operator(TOPOLOGY, ClusterNetworkTopology, start_topologies),)),
    Domain("device", (Operator(DEVICE, Device, start_devices, BEHIND_ALL),)),
)
OPERATORS: Final = tuple(operator.name for domain in DOMAINS for operator in domain.operators)


def required_resources(operators: Collection[str]) -> list[tuple[str, str]]:
    read = [(kind.api_version, kind.plural) for kind in kinds_of(operators) if kind.is_required]
    validated = [
        (operator.resource.names.api_version, operator.resource.names.plural)
        for domain in DOMAINS
        for operator in domain.operators
        if operator.resource is not None and operator.name in operators
    ]
    return list(dict.fromkeys(read + validated))
