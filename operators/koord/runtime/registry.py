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

from koord.kube.kinds import kinds_of
from koord.operators import (
    device,
    elasticquota,
    elasticquotaprofile,
    networktopology,
    placement,
    podgroup,
    reservation,
)
from koord.operators.operator import Operator
from koord.runtime.descriptions import describe_placement, describe_quota_state

if TYPE_CHECKING:
    from koord.runtime.wiring import Parts


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
    Domain("placement", (placement.OPERATOR,), describe=describe_placement),
    Domain("gang", (podgroup.OPERATOR,)),
    Domain(
        "quota",
        (elasticquota.OPERATOR, elasticquotaprofile.OPERATOR),
        start=elasticquota.start_audit,
        describe=describe_quota_state,
    ),
    Domain("reservation", (reservation.OPERATOR,)),
    Domain("topology", (networktopology.OPERATOR,)),
    Domain("device", (device.OPERATOR,)),
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
