"""Why nodes refuse pods, and why a unit does not fit on the nodes, in kube-scheduler's words."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import ClassVar, Final

from koord.core.reasons import MAX_SENTENCES, Reason
from koord.core.text import MAX_LISTED, cut, named, plural
from koord.core.units import PODS, format_amount


class NodeRefusal(StrEnum):
    """Why one node does not take a pod of one shape. Order is the order of the checks."""

    UNSCHEDULABLE = "NodeUnschedulable"
    TAINT = "UntoleratedTaint"
    SELECTOR = "NodeAffinity"
    HOST_PORT = "NodePorts"
    RESOURCE = "Insufficient"
    VOLUME_IN_USE = "VolumeRestrictions"
    VOLUME_AFFINITY = "VolumeBinding"
    VOLUME_ZONE = "VolumeZone"
    SPREAD_LABEL = "PodTopologySpreadLabel"
    SPREAD = "PodTopologySpread"
    POD_AFFINITY = "PodAffinity"
    POD_ANTI_AFFINITY = "PodAntiAffinity"
    EXISTING_ANTI_AFFINITY = "ExistingPodAntiAffinity"

    def text(self, resource: str = "", detail: str = "") -> str:
        """Return why a node does not take a pod, in the words of kube-scheduler."""
        if self is NodeRefusal.TAINT:
            return f"node(s) had untolerated taint {{{cut(detail)}}}"
        if self is NodeRefusal.RESOURCE:
            return "Too many pods" if resource == PODS else f"Insufficient {resource}"
        return _REFUSALS[self]


_REFUSALS: Final = {
    NodeRefusal.UNSCHEDULABLE: "node(s) were unschedulable",
    NodeRefusal.SELECTOR: "node(s) didn't match Pod's node affinity/selector",
    NodeRefusal.HOST_PORT: "node(s) didn't have free ports for the requested pod ports",
    NodeRefusal.VOLUME_IN_USE: (
        "node(s) unavailable due to PersistentVolumeClaim with ReadWriteOncePod access mode "
        "already in-use by another pod"
    ),
    NodeRefusal.VOLUME_AFFINITY: "node(s) didn't match PersistentVolume's node affinity",
    NodeRefusal.VOLUME_ZONE: "node(s) had no available volume zone",
    NodeRefusal.SPREAD_LABEL: (
        "node(s) didn't match pod topology spread constraints (missing required label)"
    ),
    NodeRefusal.SPREAD: "node(s) didn't match pod topology spread constraints",
    NodeRefusal.POD_AFFINITY: "node(s) didn't match pod affinity rules",
    NodeRefusal.POD_ANTI_AFFINITY: "node(s) didn't match pod anti-affinity rules",
    NodeRefusal.EXISTING_ANTI_AFFINITY: "node(s) didn't satisfy existing pods anti-affinity rules",
}
_NODE_CONDITIONS: Final = "{node.kubernetes.io/"
"""How taints begin that Kubernetes puts on nodes whose conditions are bad."""
_OPENING: Final = {
    NodeRefusal.TAINT: "Tolerate the taint {detail} in the pods, or take it off the nodes: it "
    "closes {nodes}.",
    NodeRefusal.UNSCHEDULABLE: "Uncordon {nodes}.",
    NodeRefusal.SELECTOR: "Relax node selector and affinity of the pods, or label nodes to match: "
    "that leaves out {nodes}.",
    NodeRefusal.HOST_PORT: "Drop the host port, or end the pods that have it on {nodes}.",
    NodeRefusal.VOLUME_IN_USE: "End the pod that uses the claim, or give each pod its own: that "
    "leaves out {nodes}.",
    NodeRefusal.VOLUME_AFFINITY: "Use volumes that are not bound to other nodes: that leaves out "
    "{nodes}.",
    NodeRefusal.VOLUME_ZONE: "Use volumes of the same zone, or have nodes in theirs: that leaves "
    "out {nodes}.",
    NodeRefusal.SPREAD_LABEL: "Give the nodes the label over which the pods are to be spread: "
    "that leaves out {nodes}.",
    NodeRefusal.SPREAD: "Make room in the domains with the fewest such pods, or raise maxSkew: "
    "that leaves out {nodes}.",
    NodeRefusal.POD_AFFINITY: "Relax the pod affinity, or start the pods that it looks for: that "
    "leaves out {nodes}.",
    NodeRefusal.POD_ANTI_AFFINITY: "Relax the anti-affinity of the pods, or end those it means: "
    "that leaves out {nodes}.",
    NodeRefusal.EXISTING_ANTI_AFFINITY: "End the pods whose anti-affinity means these: that leaves "
    "out {nodes}.",
}


@dataclass(frozen=True, slots=True)
class RefusedNodes:
    """How many nodes refuse for one cause; ``resource`` is set for ``RESOURCE`` only."""

    refusal: NodeRefusal
    nodes: int
    resource: str = ""
    detail: str = ""

    def text(self) -> str:
        """Return the cause with its count, as kube-scheduler does: ``3 Insufficient cpu``."""
        return f"{self.nodes} {self.refusal.text(self.resource, self.detail)}"


@dataclass(frozen=True, slots=True)
class Closed:
    """Nodes that have room for a pod, and the one cause that keeps it away from them."""

    refusal: NodeRefusal
    detail: str
    nodes: tuple[str, ...]

    def advice(self) -> str:
        nodes = f"{plural(len(self.nodes), 'node')} with room ({named(self.nodes)})"
        if self.refusal is NodeRefusal.TAINT and self.detail.startswith(_NODE_CONDITIONS):
            return f"See what is wrong with {nodes}, tainted {self.detail}."
        return _OPENING[self.refusal].format(detail=self.detail, nodes=nodes)


@dataclass(frozen=True, slots=True)
class InsufficientNodes(Reason):
    """The pods of a unit do not all fit.

    ``want`` pods must be placed, ``fit`` of them could be now, of a cluster of ``nodes`` nodes.
    ``refused`` says what the nodes lack for the first member that does not fit, ``first``.
    ``resource`` is the scarcest one (empty: none is short), ``request`` what one pod asks of it,
    ``more_nodes`` how many more nodes, empty and as large as the largest here, would close the gap
    (0: no node here takes such a pod even when empty; None: it depends on other pods or volumes).
    """

    code: ClassVar = "InsufficientNodes"
    is_capacity: ClassVar = True
    is_unschedulable: ClassVar = True
    rests_on: ClassVar = frozenset({"nodes"})
    want: int
    fit: int
    nodes: int
    refused: tuple[RefusedNodes, ...]
    first: str
    resource: str = ""
    request: int = 0
    more_nodes: int | None = 0

    @property
    def culprit(self) -> str:
        return self.first

    @property
    def amount(self) -> str:
        """What one pod asks of the scarcest resource, ``8 nvidia.com/gpu``; empty if none is."""
        if self.resource in {"", PODS}:
            return ""
        return f"{format_amount(self.resource, self.request)} {self.resource}"

    def fit_error(self) -> str:
        """Return what kube-scheduler writes for the first pod that does not fit."""
        if not self.nodes:
            return "no nodes available to schedule pods."
        causes = sorted(self.refused, key=lambda refused: -refused.nodes)
        texts = sorted(refused.text() for refused in causes[:MAX_LISTED])
        if len(causes) > MAX_LISTED:
            texts.append(f"{len(causes) - MAX_LISTED} more causes")
        head = f"0/{self.nodes} nodes are available"
        return f"{head}: {', '.join(texts)}." if texts else f"{head}."

    def _text(self) -> str:
        parts = [] if self.want == 1 else [f"{self.fit} of {self.want} pods fit"]
        if self.amount:
            first = f"the next, {self.first}," if self.fit else self.first
            parts.append(f"{first} asks for {self.amount}")
        else:
            parts.append(f"{self.first} is the first without a place")
        if self.more_nodes:
            nodes = plural(self.more_nodes, "more node")
            parts.append(f"{nodes} like the largest here, empty, would do")
        elif self.nodes and self.more_nodes is not None:
            parts.append("no node here could take it even when empty")
        return f"{self.fit_error()} {'; '.join(parts)}."

    def advice(self, closed: Sequence[Closed] = ()) -> tuple[str, ...]:
        """Return what would help; ``closed`` are nodes with room that are closed to ``first``."""
        opening = [one.advice() for one in closed[: MAX_SENTENCES - 1]]
        # Nodes that are there and have room are nearer than new ones, if they are enough.
        is_enough = sum(len(one.nodes) for one in closed) >= (self.more_nodes or 0)
        sentences = [*opening, *self._advice()] if is_enough else [*self._advice(), *opening]
        return tuple(sentences[:MAX_SENTENCES])

    def _advice(self) -> Iterable[str]:
        if not self.nodes:
            return ["Add nodes: there are none."]
        if self.more_nodes:
            nodes = plural(self.more_nodes, "node")
            return [f"Add {nodes} as large as the largest here, or free as much on those in use."]
        if self.resource == PODS:
            return ["Add nodes that may run more pods."]
        if self.amount:
            node = f"No node that {self.first} may use has {self.amount} even when empty"
            return [f"{node}: ask for less, or add a larger node."]
        return []
