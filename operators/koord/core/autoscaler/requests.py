"""ProvisioningRequests of ours: what they say, and which there are to be.

Read from the API again at each look, so nothing is remembered. Knows no client.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from hashlib import blake2s
from typing import Final

from koord.core.autoscaler.demand import NodeDemand

AGAIN_SECONDS: Final = 600.0
"""After a request has failed, or nodes did not help until its booking was over."""
MOST_SHAPES: Final = 32
"""The API takes no more pod sets."""
_OVER: Final = ("Failed", "BookingExpired", "CapacityRevoked")
PROVISIONED: Final = "Provisioned"


@dataclass(frozen=True, slots=True)
class RequestCondition:
    """One condition; ``since`` in seconds since the epoch."""

    is_true: bool
    reason: str
    message: str
    since: float


@dataclass(frozen=True, slots=True)
class NodeRequest:
    """One object, with the digest of its unit, and which attempt it is."""

    namespace: str
    name: str
    uid: str
    digest: str
    attempt: int
    conditions: Mapping[str, RequestCondition] = field(default_factory=dict)

    @property
    def unit(self) -> tuple[str, str]:
        """Of which unit it is. Others may have labelled one in a namespace of theirs."""
        return self.namespace, self.digest

    @property
    def over_since(self) -> float | None:
        """Since when nothing more comes of it; None: something may."""
        times = [
            condition.since
            for kind in _OVER
            if (condition := self.conditions.get(kind)) is not None and condition.is_true
        ]
        return min(times, default=None)

    @property
    def refusal(self) -> RequestCondition | None:
        """Why there are no nodes for it, if an autoscaler has said so."""
        for kind in _OVER:
            condition = self.conditions.get(kind)
            if condition is not None and condition.is_true:
                return condition
        provisioned = self.conditions.get(PROVISIONED)
        return provisioned if provisioned is not None and not provisioned.is_true else None


@dataclass(frozen=True, slots=True)
class RequestChanges:
    """What is to be written: requests to delete, and demands with the attempt that is next."""

    delete: tuple[NodeRequest, ...]
    create: tuple[tuple[NodeDemand, int], ...]


def unit_of(demand: NodeDemand) -> tuple[str, str]:
    """Return what the requests of a unit are known by: a namespace, and a digest for a label."""
    digest = blake2s(demand.unit.encode(), digest_size=8).hexdigest()
    return demand.pods[0].namespace, digest


def may_be_requested(demand: NodeDemand) -> bool:
    """Whether one request can say all that a unit needs."""
    namespaces = {pod.namespace for pod in demand.pods}
    return len(namespaces) == 1 and len({pod.shape for pod in demand.pods}) <= MOST_SHAPES


def find_changes(
    seen: Iterable[NodeRequest], demands: Iterable[NodeDemand], now: float
) -> RequestChanges:
    """Return what makes the requests those of the demands: one each, the next after a pause."""
    by_unit: dict[tuple[str, str], list[NodeRequest]] = {}
    for request in seen:
        by_unit.setdefault(request.unit, []).append(request)
    delete: list[NodeRequest] = []
    create: list[tuple[NodeDemand, int]] = []
    for demand in filter(may_be_requested, demands):
        mine = sorted(by_unit.pop(unit_of(demand), ()), key=lambda request: request.attempt)
        delete += mine[:-1]
        if not mine:
            if not demand.is_served:
                create.append((demand, 1))
            continue
        last = mine[-1]
        over = last.over_since
        if over is not None and over + AGAIN_SECONDS <= now and not demand.is_served:
            delete.append(last)
            create.append((demand, last.attempt + 1))
    delete += [request for requests in by_unit.values() for request in requests]
    return RequestChanges(tuple(delete), tuple(create))
