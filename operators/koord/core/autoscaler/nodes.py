"""What a node says of its coming and going, and whether one like it could hold a pod.

Taints and labels of Kubernetes, cluster autoscalers and clouds; only administrators and their
controllers write them. Knows no other node, no pods on it, and nothing of autoscalers' settings.
"""

from collections.abc import Iterable
from typing import Final

from koord.core.engine.labels import is_tolerated
from koord.core.model.nodes import Node, Taint
from koord.core.model.pods import PodShape
from koord.core.model.selectors import SelectorTerm, is_selected

YOUNG_SECONDS: Final = 300.0
"""A node that is not ready after so long does not count as one that is coming."""
CANDIDATE: Final = "DeletionCandidateOfClusterAutoscaler"
"""Soft: a node that gets pods is kept."""
_LEAVING: Final = frozenset(
    {
        "ToBeDeletedByClusterAutoscaler",
        "karpenter.sh/disrupted",
        "karpenter.sh/disruption",
        "aws-node-termination-handler/spot-itn",
        "aws-node-termination-handler/rebalance-recommendation",
        "aws-node-termination-handler/asg-lifecycle-termination",
        "aws-node-termination-handler/scheduled-maintenance",
        "cloud.google.com/impending-node-termination",
        "node.cloudprovider.kubernetes.io/shutdown",
        "node.kubernetes.io/out-of-service",
    }
)
_STARTING: Final = frozenset(
    {
        "node.kubernetes.io/not-ready",
        "node.kubernetes.io/network-unavailable",
        "node.cloudprovider.kubernetes.io/uninitialized",
        "node.cluster.x-k8s.io/uninitialized",
        "karpenter.sh/unregistered",
        "node.cilium.io/agent-not-ready",
        "ebs.csi.aws.com/agent-not-ready",
        "efs.csi.aws.com/agent-not-ready",
    }
)
_STARTING_PREFIXES: Final = (
    "startup-taint.cluster-autoscaler.kubernetes.io/",
    "ignore-taint.cluster-autoscaler.kubernetes.io/",
)
_PASSING: Final = frozenset(
    {
        "node.kubernetes.io/unschedulable",
        "node.kubernetes.io/unreachable",
        "node.kubernetes.io/disk-pressure",
        "node.kubernetes.io/memory-pressure",
        "node.kubernetes.io/pid-pressure",
        CANDIDATE,
    }
)
_INSTANCE_TYPE: Final = "node.kubernetes.io/instance-type"
_KARPENTER_POOL: Final = "karpenter.sh/nodepool"
_KARPENTER_READY: Final = "karpenter.sh/initialized"


def find_end(node: Node) -> str:
    """Return the taint by which a node is about to go; empty if there is none."""
    return next((taint.key for taint in node.taints if taint.key in _LEAVING), "")


def may_end(node: Node) -> bool:
    """Whether an autoscaler is about to take a node, or thinks of it."""
    return any(taint.key in _LEAVING or taint.key == CANDIDATE for taint in node.taints)


def is_starting(node: Node, now: float) -> bool:
    """Whether a node has come and cannot be used yet, as it says itself."""
    if not may_start(node, now):
        return False
    waits = _KARPENTER_POOL in node.labels and node.labels.get(_KARPENTER_READY) != "true"
    return waits or any(map(_is_of_start, node.taints))


def may_start(node: Node, now: float) -> bool:
    """Whether a node is as new as nodes that cannot be used yet, and is to stay."""
    return is_young(node, now) and not node.is_terminating and not find_end(node)


def is_young(node: Node, now: float) -> bool:
    return -YOUNG_SECONDS < now - node.created < YOUNG_SECONDS


def type_of(node: Node) -> str:
    """Return what nodes of one kind of machine share; empty if nobody says it."""
    return node.labels.get(_INSTANCE_TYPE, "")


def could_hold(node: Node, shape: PodShape) -> bool:
    """Whether an empty node like this one, ready and new, takes a pod of a shape.

    Rules about other pods are not looked at.
    """
    have = node.allocatable
    return (
        all(have.get(name, 0) >= n for name, n in shape.requests)
        and all(node.labels.get(key) == value for key, value in shape.node_selector)
        and (shape.terms is None or any(_matches(node, term) for term in shape.terms))
        and tolerates_new(shape, node.taints)
    )


def tolerates_new(shape: PodShape, taints: Iterable[Taint]) -> bool:
    """Whether pods of a shape tolerate what a new node has of the taints of another one."""
    return all(
        is_tolerated(taint, shape.tolerations)
        for taint in taints
        if taint.effect != "PreferNoSchedule" and not _passes(taint)
    )


def find_lasting_taints(node: Node) -> tuple[Taint, ...]:
    """Return the taints of a node that new ones like it have, too."""
    return tuple(taint for taint in node.taints if not _passes(taint))


def _matches(node: Node, term: SelectorTerm) -> bool:
    # A new node has another name.
    return bool(term.expressions) and not term.fields and is_selected(node.labels, term.expressions)


def _is_of_start(taint: Taint) -> bool:
    return taint.key in _STARTING or taint.key.startswith(_STARTING_PREFIXES)


def _passes(taint: Taint) -> bool:
    return taint.key in _LEAVING or taint.key in _PASSING or _is_of_start(taint)
