"""What a pod uses of its node, and what inter-pod rules have to know of it.

Bound pods are charged to their node; so are pods that will be bound to a known node.
"""

from dataclasses import dataclass, field
from typing import Final

from koord.core.model.constraints import ClaimUse, PodConstraints, PodLabels
from koord.core.model.pods import Allocation, Handling, HostPort, Pod, PodShape, fast_init


@dataclass(frozen=True, slots=True)
class Load:
    """What a pod uses of its node."""

    node: str
    requests: tuple[tuple[str, int], ...]
    host_ports: tuple[HostPort, ...]


@dataclass(frozen=True, slots=True)
class PodCharge:
    """The charge of one pod: its load, and what inter-pod rules see of it."""

    uid: str
    load: Load
    profile: PodLabels
    constraints: PodConstraints | None
    claims: tuple[ClaimUse, ...]
    is_terminating: bool
    shape: PodShape = field(compare=False)
    allocations: tuple[Allocation, ...] = ()
    """What plugins gave it on its node."""
    is_held: bool = False
    """It is room held for other pods: its allocations shrink and grow with what they use."""


_make_load: Final = fast_init(Load)
_make_charge: Final = fast_init(PodCharge)


def charge_of(pod: Pod) -> PodCharge | None:
    """Return the charge of a pod; None for a pod that uses no node."""
    node = node_charged(pod)
    if not node:
        return None
    shape = pod.shape
    load = _make_load(node, shape.requests, shape.host_ports)
    return _make_charge(
        uid=pod.uid,
        load=load,
        profile=pod.profile,
        constraints=shape.constraints,
        claims=pod.claims,
        is_terminating=pod.is_terminating,
        shape=shape,
        allocations=pod.allocations,
        is_held=pod.handling is Handling.RESERVE,
    )


def node_charged(pod: Pod) -> str:
    """Return the node that a pod is charged to; empty if there is none.

    Terminating pods are charged until they are deleted. A pinned pod may be bound by kube-scheduler
    at any moment, so it is charged while it waits.
    """
    if pod.phase.is_terminal:
        return ""
    if pod.node:
        return pod.node
    if pod.pinned and pod.recorded and not pod.is_gated:
        return pod.recorded.node
    return ""
