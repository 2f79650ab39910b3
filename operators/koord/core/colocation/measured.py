"""What counts on a node against batch and mid pods, added up once for all formulas.

Batch resources are what pods of class prod and mid leave. Pods of class batch and free never count.
A pod counts while it is on the node and has not ended, also while it is being deleted.
A pod whose use a report does not say counts as not measured, also where the report names the pod.
Amounts are milli-CPU and bytes.
"""

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Final

from koord.core.load.model import NodeLoad, PodLoad
from koord.core.model.koordinator_class import KoordinatorClass
from koord.core.model.units import CPU, MEMORY, Amounts

RESOURCES: Final = (CPU, MEMORY)
LOW: Final = frozenset({KoordinatorClass.BATCH, KoordinatorClass.FREE})
"""Classes that never count."""
_ABOVE_BATCH: Final = frozenset({KoordinatorClass.PROD, KoordinatorClass.MID})
_ABOVE_MID: Final = frozenset({KoordinatorClass.PROD})


@dataclass(frozen=True, slots=True)
class CountedPod:
    """A pod on the node. With ``is_exclusive`` its CPUs are never given to others (QoS LSE).

    ``requests`` are of CPU and memory; those of a mid pod are in mid resources, and are here, too.
    """

    key: str
    koordinator_class: KoordinatorClass
    requests: Amounts
    is_exclusive: bool = False
    is_accepted: bool = True
    """Whether its kubelet has accepted it; until then it counts only as far as there is room."""


@dataclass(frozen=True, slots=True)
class ColocatedNode:
    """A node as formulas see it; ``reserved`` is what its annotation keeps for the system.

    ``faster`` is how much its CPUs are worth, in percent; ``third_party`` are the batch resources
    that others use. ``report`` None: nobody reports what is used.
    """

    capacity: Amounts
    allocatable: Amounts
    """As the kubelet reports it: amplified CPUs are not in it."""
    pods: tuple[CountedPod, ...] = ()
    report: NodeLoad | None = None
    reserved: Amounts = field(default_factory=dict)
    faster: int = 100
    third_party: Amounts = field(default_factory=dict)


@dataclass(slots=True)
class HighPriorityUse:
    """What pods above batch use of one resource, and request."""

    used: int = 0
    exclusive: int = 0
    exclusive_beyond: int = 0
    """What pods with exclusive CPUs use beyond their requests."""
    unmeasured: int = 0
    """Requests of pods without a metric."""
    peak: int = 0
    """The larger of use and request of each pod with a metric."""
    requested: int = 0
    dangling: int = 0
    prod_requested: int = 0


@dataclass(frozen=True, slots=True)
class SystemUse:
    """What is used beside pods: measured, by host applications, and reserved beyond both."""

    measured: int
    host_applications: int
    reserved_beyond: int

    @property
    def total(self) -> int:
        return self.measured + self.host_applications + self.reserved_beyond


def add_up_pods(node: ColocatedNode) -> Mapping[str, HighPriorityUse]:
    """Return what counts by resource."""
    metrics: Mapping[str, PodLoad] = {} if node.report is None else node.report.pods
    counted: list[tuple[CountedPod, Amounts | None]] = []
    listed = set()
    left_out = _find_impossible(node)
    for pod in node.pods:
        listed.add(pod.key)
        if pod.koordinator_class not in LOW and pod.key not in left_out:
            metric = metrics.get(pod.key)
            counted.append((pod, None if metric is None else metric.usage))
    dangling = [
        metric.usage
        for key, metric in metrics.items()
        if key not in listed and metric.koordinator_class not in LOW
    ]
    return {resource: _add_up(resource, counted, dangling) for resource in RESOURCES}


def _find_impossible(node: ColocatedNode) -> set[str]:
    """Return the keys of pods that their kubelet has not accepted, and will not for lack of room.

    Whoever may create pods may have them name a node, and request what they like.
    """
    waiting = [pod for pod in node.pods if not pod.is_accepted]
    if not waiting:
        return set()
    room = {of: dict(node.allocatable) for of in (False, True)}  # mid pods have their own
    for pod in node.pods:
        if pod.is_accepted:
            _take(room[pod.koordinator_class is KoordinatorClass.MID], pod)
    impossible = set()
    for pod in waiting:
        free = room[pod.koordinator_class is KoordinatorClass.MID]
        if all(pod.requests.get(of, 0) <= max(0, free.get(of, 0)) for of in RESOURCES):
            _take(free, pod)
        else:
            impossible.add(pod.key)
    return impossible


def _take(room: dict[str, int], pod: CountedPod) -> None:
    for resource in RESOURCES:
        room[resource] = room.get(resource, 0) - pod.requests.get(resource, 0)


def _add_up(
    resource: str,
    counted: Iterable[tuple[CountedPod, Amounts | None]],
    dangling: Iterable[Amounts],
) -> HighPriorityUse:
    total = HighPriorityUse(dangling=sum(usage.get(resource, 0) for usage in dangling))
    for pod, usage in counted:
        used = None if usage is None else usage.get(resource)
        request = pod.requests.get(resource, 0)
        total.requested += request
        if pod.koordinator_class is KoordinatorClass.PROD:
            total.prod_requested += request
        if used is None:
            total.unmeasured += request
            continue
        total.peak += max(request, used)
        if pod.is_exclusive and resource == CPU:
            total.exclusive += request
            total.exclusive_beyond += max(0, used - request)
        else:
            total.used += used
    return total


def find_reserved(node: ColocatedNode, resource: str) -> int:
    """Return what the kubelet or the annotation reserves, whichever is more."""
    by_kubelet = node.capacity.get(resource, 0) - node.allocatable.get(resource, 0)
    return max(0, by_kubelet, node.reserved.get(resource, 0))


def find_system_use(node: ColocatedNode, resource: str, *, for_mid: bool) -> SystemUse:
    """Return what is used beside pods; host applications count if their class is higher."""
    report, above = node.report, _ABOVE_MID if for_mid else _ABOVE_BATCH
    measured = 0 if report is None else report.system.get(resource, 0)
    applications = 0 if report is None else _add_up_host(report, resource, above)
    beyond = max(0, find_reserved(node, resource) - measured - applications)
    return SystemUse(measured, applications, beyond)


def _add_up_host(report: NodeLoad, resource: str, above: Collection[KoordinatorClass]) -> int:
    return sum(
        application.usage.get(resource, 0)
        for application in report.host_applications
        if application.koordinator_class in above
    )
