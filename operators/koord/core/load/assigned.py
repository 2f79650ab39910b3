"""The pods that are assigned to nodes, and what they add to the reports about these.

Every sum is kept current pod by pod, so that a placement costs one addition and a report one look
at the pods of its node. Pods that were placed together are added when somebody looks at a node,
which need not be before they are bound. Which sum counts is decided elsewhere.
"""

from collections.abc import Iterator, KeysView, Sequence
from itertools import repeat

from koord.core.load.model import NodeLoad
from koord.core.load.usage import AssignedPod, Counted, Share, Vector, add, share_of, subtract
from koord.core.model.pods import Pod


class NodePods:
    """The pods of one node, and the sums of their shares."""

    __slots__ = ("counted", "node", "pods", "prod", "report")

    def __init__(self, counted: Counted) -> None:
        self.counted = counted
        self.report: NodeLoad | None = None
        self.pods: dict[str, AssignedPod] = {}
        self.node = self.prod = counted.nothing
        """The sums: what the report does not show, and what prod pods use."""

    @property
    def full(self) -> Vector:
        """The sum of all estimates, whatever is measured."""
        amounts = [pod.amount(self.report) for pod in self.pods.values()]
        return tuple(map(sum, zip(*amounts, strict=True))) or self.counted.nothing

    def share(self, uid: str) -> Share | None:
        """Return what a pod adds to the sums; None for nothing."""
        pod = self.pods.get(uid)
        return None if pod is None else share_of(pod, self.report, self.counted)

    def add(self, uid: str, pod: AssignedPod) -> None:
        """Add a pod that is not there."""
        self.pods[uid] = pod
        share = share_of(pod, self.report, self.counted)
        if share is not None:
            self.node = add(self.node, share.node)
            if share.prod is not self.counted.nothing:
                self.prod = add(self.prod, share.prod)

    def drop(self, uid: str) -> None:
        share = self.share(uid)
        del self.pods[uid]
        if share is not None:
            self.node, self.prod = subtract(self.node, share.node), subtract(self.prod, share.prod)

    def apply(self, report: NodeLoad | None, counted: Counted) -> None:
        """Compute the sums again, for another report or other resources."""
        self.report, self.counted = report, counted
        self.node = self.prod = counted.nothing
        for uid, pod in self.pods.items():
            self.add(uid, pod)


class AssignedPods:
    """The assigned pods of all nodes; a node without pods and report is not kept."""

    def __init__(self, counted: Counted) -> None:
        self.counted = counted
        self._nodes: dict[str, NodePods] = {}
        self._node_of: dict[str, str] = {}
        self._placed: dict[str, tuple[Pod, Vector, float]] = {}
        """uid -> what was placed, its estimate, and when: not among the pods of a node yet."""

    def __len__(self) -> int:
        return len(self._node_of)

    @property
    def uids(self) -> KeysView[str]:
        """Those of all pods that are assigned."""
        return self._node_of.keys()

    def node_of(self, uid: str) -> str | None:
        """Return where a pod is assigned; None: nowhere."""
        return self._node_of.get(uid)

    def on(self, node: str) -> NodePods:
        """Return the pods of a node, to look at."""
        self._sort_in()
        return self._nodes.get(node) or NodePods(self.counted)

    def add(self, uid: str, node: str, pod: AssignedPod) -> None:
        """Assign a pod that is assigned nowhere."""
        self._node_of[uid] = node
        pods = self._nodes.get(node)
        if pods is None:
            pods = self._nodes[node] = NodePods(self.counted)
        pods.add(uid, pod)

    def add_placed(
        self, nodes: dict[str, str], pods: Sequence[Pod], estimates: Sequence[Vector], now: float
    ) -> None:
        """Assign pods that say nothing of their load, and are assigned nowhere; by uid."""
        self._node_of |= nodes
        self._placed.update(zip(nodes, zip(pods, estimates, repeat(now)), strict=False))

    def _sort_in(self) -> None:
        placed, self._placed = self._placed, {}
        for uid, (pod, estimate, at) in placed.items():
            self.add(uid, self._node_of[uid], AssignedPod(pod.key, estimate, True, at))

    def drop(self, uid: str) -> str | None:
        """Forget a pod; return where it was."""
        node = self._node_of.pop(uid, None)
        if node is not None and self._placed.pop(uid, None) is None:
            self._nodes[node].drop(uid)
            self._tidy(node)
        return node

    def apply(self, node: str, report: NodeLoad | None) -> None:
        self._sort_in()
        pods = self._nodes.setdefault(node, NodePods(self.counted))
        pods.apply(report, self.counted)
        self._tidy(node)

    def count(self, counted: Counted) -> None:
        """Have other resources counted from now on."""
        self._sort_in()
        self.counted = counted
        for pods in self._nodes.values():
            pods.apply(pods.report, counted)

    def __iter__(self) -> Iterator[str]:
        self._sort_in()
        yield from self._nodes

    def _tidy(self, node: str) -> None:
        pods = self._nodes[node]
        if not pods.pods and pods.report is None:
            del self._nodes[node]
