"""The few fields of API objects that the demo looks at, and what it makes of them."""

from dataclasses import replace
from typing import Final

import msgspec

from koord.api.keys import gang as keys
from koord.demo.observed import Condition, SeenGang, SeenNode, SeenPod, has_ended

GPU: Final = "nvidia.com/gpu"
NODES: Final = "/api/v1/nodes"
PODS: Final = "/api/v1/pods"
POD_GROUPS: Final = "/apis/scheduling.sigs.k8s.io/v1alpha1/podgroups"


class Meta(msgspec.Struct):
    """The metadata of any object."""

    name: str
    uid: str
    labels: dict[str, str] = {}


class WireObject(msgspec.Struct):
    """Any object."""

    metadata: Meta


class _Condition(msgspec.Struct):
    type: str
    status: str
    reason: str = ""
    message: str = ""


class _Status(msgspec.Struct):
    phase: str = ""
    conditions: list[_Condition] = []
    allocatable: dict[str, str] = {}


class _Resources(msgspec.Struct):
    requests: dict[str, str] = {}


class _Container(msgspec.Struct):
    resources: _Resources = msgspec.field(default_factory=_Resources)


class _PodSpec(msgspec.Struct, rename="camel"):
    containers: list[_Container]
    node_name: str = ""


class _GroupSpec(msgspec.Struct, rename="camel"):
    min_member: int


class WireNode(WireObject):
    """A node."""

    status: _Status = msgspec.field(default_factory=_Status)


class WirePodGroup(WireObject):
    """A PodGroup."""

    spec: _GroupSpec
    status: _Status = msgspec.field(default_factory=_Status)


class WirePod(WireObject):
    """A pod."""

    spec: _PodSpec
    status: _Status = msgspec.field(default_factory=_Status)


def see_node(node: WireNode, _before: SeenNode | None, _now: float) -> SeenNode:
    """Return what a node looks like now."""
    return SeenNode(node.metadata.name, int(node.status.allocatable.get(GPU, "0")))


def see_gang(group: WirePodGroup, _before: SeenGang | None, _now: float) -> SeenGang:
    """Return what a PodGroup looks like now."""
    status = group.status
    return SeenGang(group.metadata.name, group.spec.min_member, status.phase, _see(status))


def see_pod(pod: WirePod, before: SeenPod | None, now: float) -> SeenPod:
    """Return what a pod looks like now, with the moments of before."""
    phase, node = pod.status.phase, pod.spec.node_name
    seen = before or SeenPod(
        name=pod.metadata.name,
        gang=pod.metadata.labels.get(keys.POD_GROUP, ""),
        gpus=sum(int(one.resources.requests.get(GPU, "0")) for one in pod.spec.containers),
        created_at=now,
    )
    return replace(
        seen,
        phase=phase,
        node=node,
        conditions=_see(pod.status),
        bound_at=now if node and seen.bound_at is None else seen.bound_at,
        ended_at=now if has_ended(phase) and seen.ended_at is None else seen.ended_at,
    )


def lose_pod(pod: SeenPod, now: float) -> SeenPod:
    """Return what remains of a pod that was deleted."""
    return pod if pod.ended_at is not None else replace(pod, ended_at=now)


def _see(status: _Status) -> tuple[Condition, ...]:
    return tuple(
        Condition(one.type, one.status == "True", one.reason, one.message)
        for one in status.conditions
    )
