"""What each node has, what of it is used, and by whom: for people. Decides nothing."""

from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import NamedTuple, TypedDict

from koord.answers.encoding import encode, encode_amounts
from koord.answers.gpus import count_gpus
from koord.core.engine.state import ClusterState
from koord.core.gang.done import count_needed
from koord.core.model.nodes import Node
from koord.core.model.pods import Pod
from koord.core.model.units import Amounts


@dataclass(frozen=True, slots=True)
class NodeUsage:
    """One node; ``pods`` are those that are charged to it, by key."""

    node: Node
    used: Amounts
    pods: tuple[Pod, ...] = field(repr=False)

    @property
    def state(self) -> str:
        """Return ``Ready``, ``NotReady``, ``Cordoned`` or ``Leaving``."""
        if self.node.has_failed:
            return "NotReady"
        if self.node.is_terminating:
            return "Leaving"
        return "Cordoned" if self.node.is_unschedulable else "Ready"

    @property
    def free(self) -> Mapping[str, int]:
        return {key: most - self.used.get(key, 0) for key, most in self.node.allocatable.items()}

    @property
    def tenants(self) -> tuple[str, ...]:
        """The namespaces of its pods."""
        return tuple(sorted({pod.namespace for pod in self.pods}))


def view_nodes(state: ClusterState) -> tuple[NodeUsage, ...]:
    on: dict[str, list[Pod]] = {}
    for pod in state.pods.values():
        if pod.planned_node and not pod.phase.is_terminal:
            on.setdefault(pod.planned_node, []).append(pod)
    return tuple(
        NodeUsage(
            state.table.node_at(row),
            state.used_on(name),
            tuple(sorted(on.get(name, ()), key=lambda pod: pod.key)),
        )
        for name, row in state.table.live_rows()
    )


class RunningGang(NamedTuple):
    """A gang with pods on nodes."""

    name: str
    bound: int
    minimum: int
    gpus: int


def find_running(state: ClusterState) -> Iterator[RunningGang]:
    """Yield gangs with pods on nodes, the largest first."""
    bound: Counter[str] = Counter()
    gpus: Counter[str] = Counter()
    for pod in state.pods.values():
        if pod.gang is not None and pod.node and not pod.phase.is_terminal:
            bound[pod.gang.key] += 1
            gpus[pod.gang.key] += count_gpus(dict(pod.shape.requests))
    for name in sorted(bound, key=lambda name: (-gpus[name], -bound[name], name)):
        yield RunningGang(name, bound[name], count_needed(state.gangs, name), gpus[name])


class NodeUsageDocument(TypedDict):
    """One node; ``tenants`` are the namespaces of its pods."""

    node: str
    state: str
    taints: list[str]
    allocatable: Mapping[str, str]
    used: Mapping[str, str]
    free: Mapping[str, str]
    podCount: int
    tenants: list[str]


@encode.register
def _(node_usage: NodeUsage) -> NodeUsageDocument:
    most, used = node_usage.node.allocatable, node_usage.used
    return {
        "node": node_usage.node.name,
        "state": node_usage.state,
        "taints": [f"{taint.key}={taint.value}:{taint.effect}" for taint in node_usage.node.taints],
        "allocatable": encode_amounts(most),
        "used": encode_amounts({key: used.get(key, 0) for key in most}),
        "free": encode_amounts(node_usage.free),
        "podCount": len(node_usage.pods),
        "tenants": list(node_usage.tenants),
    }


@dataclass(frozen=True, slots=True)
class PodUsage:
    """A pod that is charged to a node; ``requests`` are amounts as text."""

    pod: str
    pod_group: str | None
    quota: str | None
    gpus: int
    requests: Mapping[str, str]
    phase: str
    is_terminating: bool


def view_pod(state: ClusterState, pod: Pod) -> PodUsage:
    requests = dict(pod.shape.requests)
    return PodUsage(
        pod=pod.key,
        pod_group=pod.gang.key if pod.gang is not None else None,
        quota=(state.quotas.quota_of(pod) or None) if state.quotas.is_in_use else None,
        gpus=count_gpus(requests),
        requests=encode_amounts(requests),
        phase=str(pod.phase),
        is_terminating=pod.is_terminating,
    )
