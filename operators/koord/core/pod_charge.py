"""What a pod that holds a place takes from its node, and what of it matters to other pods.

A pod that is bound holds its place, one that is to be bound to a certain node does, too. What is
done with that is for ``state`` to say.
"""

from dataclasses import dataclass, field

from koord.core.constraints import ClaimUse, PodConstraints, PodLabels
from koord.core.pods import HostPort, Pod, PodShape


@dataclass(frozen=True, slots=True)
class Load:
    """What a pod takes from its node, wherever it would be admitted."""

    node: str
    requests: tuple[tuple[str, int], ...]
    host_ports: tuple[HostPort, ...]


@dataclass(frozen=True, slots=True)
class PodCharge:
    """A pod that holds a place: its load, and what matters to other pods."""

    uid: str
    load: Load
    profile: PodLabels
    constraints: PodConstraints | None
    claims: tuple[ClaimUse, ...]
    is_leaving: bool
    is_there: bool
    """Whether others see it: room alone is kept for a daemon that has yet to be bound."""
    shape: PodShape = field(compare=False)


def charge_of(pod: Pod) -> PodCharge | None:
    """Return what a pod takes, and where; None for a pod that holds no place."""
    node = node_charged(pod)
    if not node:
        return None
    shape = pod.shape
    load = Load(node, shape.requests, shape.host_ports)
    is_there = bool(pod.node) or pod.pinned
    return PodCharge(
        uid=pod.uid,
        load=load,
        profile=pod.profile,
        constraints=shape.constraints if is_there else None,
        claims=pod.claims if is_there else (),
        is_leaving=pod.is_terminating,
        is_there=is_there,
        shape=shape,
    )


def node_charged(pod: Pod) -> str:
    """Return the node whose resources a pod holds: its own, or the one that it is to go to.

    Terminating pods hold theirs until they are gone. A pinned pod may be bound by kube-scheduler at
    any moment, so its place is taken even while it waits; so is that of a daemon, or a fresh node
    would be full before its daemons are there.
    """
    if pod.phase.is_terminal:
        return ""
    if pod.node:
        return pod.node
    if pod.pinned and pod.recorded and not pod.is_gated:
        return pod.recorded.node
    return pod.kept_on
