"""The pods that are assigned to nodes, and what they add to the reports about these.

Every sum is kept current pod by pod, so that a placement costs one addition and a report one look
at the pods of its node. Which sum counts is decided elsewhere.
"""

from collections.abc import Iterator

from koord.core.load.model import NodeLoad
from koord.core.load.usage import AssignedPod, Counted, Share, Vector, add, share_of


class NodePods:
    """The pods of one node with their shares, and the sums of these."""

    __slots__ = ("counted", "full", "node", "pods", "prod", "report", "shares")

    def __init__(self, counted: Counted) -> None:
        nothing: Vector = (0,) * len(counted.resources)
        self.counted = counted
        self.report: NodeLoad | None = None
        self.pods: dict[str, AssignedPod] = {}
        self.shares: dict[str, Share] = {}
        self.node = self.prod = self.full = nothing
        """The sums: what the report does not show, what prod pods use, and of all estimates."""

    def put(self, uid: str, pod: AssignedPod) -> None:
        self.drop(uid)
        self.pods[uid] = pod
        self.full = add(self.full, pod.estimate)
        self._add_share(uid, pod)

    def drop(self, uid: str) -> None:
        pod = self.pods.pop(uid, None)
        if pod is None:
            return
        self.full = _subtract(self.full, pod.estimate)
        share = self.shares.pop(uid, None)
        if share is not None:
            self.node, self.prod = (
                _subtract(self.node, share.node),
                _subtract(self.prod, share.prod),
            )

    def apply(self, report: NodeLoad | None, counted: Counted) -> None:
        """Compute every share again, for another report or other resources."""
        self.report, self.counted = report, counted
        self.shares.clear()
        self.node = self.prod = (0,) * len(counted.resources)
        for uid, pod in self.pods.items():
            self._add_share(uid, pod)

    def _add_share(self, uid: str, pod: AssignedPod) -> None:
        share = share_of(pod, self.report, self.counted)
        if share is not None:
            self.shares[uid] = share
            self.node, self.prod = add(self.node, share.node), add(self.prod, share.prod)


class AssignedPods:
    """The assigned pods of all nodes; a node without pods and report is not kept."""

    def __init__(self, counted: Counted) -> None:
        self.counted = counted
        self._nodes: dict[str, NodePods] = {}
        self._node_of: dict[str, str] = {}

    def __len__(self) -> int:
        return len(self._node_of)

    def node_of(self, uid: str) -> str | None:
        """Return where a pod is assigned; None: nowhere."""
        return self._node_of.get(uid)

    def on(self, node: str) -> NodePods:
        """Return the pods of a node, to look at."""
        return self._nodes.get(node) or NodePods(self.counted)

    def put(self, uid: str, node: str, pod: AssignedPod) -> None:
        before = self._node_of.get(uid)
        if before is not None and before != node:
            self.drop(uid)
        self._node_of[uid] = node
        self._at(node).put(uid, pod)

    def drop(self, uid: str) -> str | None:
        """Forget a pod; return where it was."""
        node = self._node_of.pop(uid, None)
        if node is not None:
            self._nodes[node].drop(uid)
            self._tidy(node)
        return node

    def apply(self, node: str, report: NodeLoad | None) -> None:
        self._at(node).apply(report, self.counted)
        self._tidy(node)

    def count(self, counted: Counted) -> None:
        """Have other resources counted from now on."""
        self.counted = counted
        for pods in self._nodes.values():
            pods.apply(pods.report, counted)

    def __iter__(self) -> Iterator[str]:
        yield from self._nodes

    def _at(self, node: str) -> NodePods:
        pods = self._nodes.get(node)
        if pods is None:
            pods = self._nodes[node] = NodePods(self.counted)
        return pods

    def _tidy(self, node: str) -> None:
        pods = self._nodes[node]
        if not pods.pods and pods.report is None:
            del self._nodes[node]


def _subtract(first: Vector, second: Vector) -> Vector:
    return tuple(a - b for a, b in zip(first, second, strict=True))
