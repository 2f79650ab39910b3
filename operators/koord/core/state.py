"""What is known of the cluster: the single place where objects turn into a planner's view.

One writer: whoever owns a ``ClusterState`` applies changes from one event loop. A pod that was
assigned but whose binding has not been seen counts as being on its node (*assumed*) until the watch
confirms it or the API's answer says that it did not happen. Nothing here decides or waits.
"""

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field, replace

from koord.core.gang.book import GangBook
from koord.core.gang.model import GangKey, PodGroup
from koord.core.nodes import Node
from koord.core.placement.ports import HostPorts
from koord.core.placement.quota_gate import QuotaGate
from koord.core.placement.quota_keeper import QuotaKeeper
from koord.core.placement.snapshot import Snapshot
from koord.core.placement.table import NodeTable
from koord.core.plan import Unit
from koord.core.pods import Handling, Pod, PodShape
from koord.core.quota.book import QuotaKey
from koord.core.quota.ledger import Ledger
from koord.core.quota.model import QuotaSpec
from koord.core.units import Amounts


@dataclass(slots=True)
class Changes:
    """What happened since the last look: the level-triggered input of the queue.

    ``freed`` holds nodes that may take more than before; ``gangs`` and ``singles`` (pod uids) those
    whose own members or settings changed.
    """

    freed: set[str] = field(default_factory=set)
    gangs: set[GangKey] = field(default_factory=set)
    singles: set[str] = field(default_factory=set)

    def __bool__(self) -> bool:
        return bool(self.freed or self.gangs or self.singles)


class Feed:
    """One reader's view of the changes; every reader drains its own."""

    def __init__(self, state: "ClusterState") -> None:
        self._state = state
        self._pending = Changes()

    def note(self, changes: Changes) -> None:
        """Add changes to what this reader has not seen yet."""
        self._pending.freed |= changes.freed
        self._pending.gangs |= changes.gangs
        self._pending.singles |= changes.singles

    def drain(self) -> Changes:
        """Return what changed since the last call."""
        self._state.publish()
        changes, self._pending = self._pending, Changes()
        return changes


@dataclass(frozen=True, slots=True)
class _Charge:
    node: str
    shape: PodShape


class ClusterState:
    """Pods, nodes and PodGroups, with what is used where."""

    def __init__(self) -> None:
        self.pods: dict[str, Pod] = {}
        """uid -> pod as planning sees it: an assumed pod carries its assumed node."""
        self.table = NodeTable()
        self.book = GangBook()
        self._observed: dict[str, Pod] = {}
        self._uid_of: dict[str, str] = {}
        self._assumed: dict[str, str] = {}
        self._charges: dict[str, _Charge] = {}
        self._on_node: dict[str, dict[str, PodShape]] = {}
        self._keeping: dict[str, set[str]] = {}
        """Node -> uids of pods that wait for it, and for which it keeps room if it can."""
        self.quotas = QuotaKeeper()
        self._quota_feed: Feed | None = None
        self._ports = HostPorts()
        self._changes = Changes()
        self._feeds: list[Feed] = []

    @property
    def assumed(self) -> dict[str, str]:
        """Pod uid -> node, for assignments that no watch event has confirmed yet."""
        return self._assumed

    def observed(self, uid: str) -> Pod | None:
        """Return a pod as the API server last showed it, without assumptions."""
        return self._observed.get(uid)

    def pod_by_key(self, key: str) -> Pod | None:
        """Return the pod now called ``namespace/name``."""
        uid = self._uid_of.get(key)
        return None if uid is None else self.pods.get(uid)

    def snapshot(self, pending: Callable[[], Iterable[Unit]] = tuple) -> Snapshot:
        """Return the cluster as it is now, for a planner to try things on.

        ``pending`` returns the complete units that wait, in order: they share out what is left
        over of quotas.
        """
        snapshot = Snapshot(self.table, self._ports)
        snapshot.quotas = self.quota_gate(pending)
        return snapshot

    def quota_gate(self, pending: Callable[[], Iterable[Unit]]) -> QuotaGate | None:
        """Return what quotas allow now; None without any quota."""
        if not self.quotas.is_in_use:
            return None
        return QuotaGate(self.quotas, self.open_ledger(), pending)

    def open_ledger(self) -> Ledger:
        """Return what every quota may use and uses now."""
        quotas = self.quotas
        if self._quota_feed is None:
            self._quota_feed = self.feed()
        changes = self._quota_feed.drain()
        moved = quotas.settle()
        for one in self.pods.values() if moved else ():
            if (one.quota, one.namespace) in moved:
                if one.gang is None:
                    changes.singles.add(one.uid)
                else:
                    changes.gangs.add(one.gang.key)
        quotas.count_gangs(changes.gangs, self.book)
        for uid in changes.singles:
            pod = self.pods.get(uid)
            if pod is None:
                quotas.usage.remove(uid)
            elif pod.gang is None:
                quotas.count_pod(pod)
        return Ledger(quotas.solve(self._used_on), quotas.rules)

    def note_served(self, snapshot: Snapshot) -> None:
        """Remember which quotas a plan has given leftovers to: others have their turn first."""
        if snapshot.quotas is not None:
            self.quotas.served |= snapshot.quotas.served

    def _used_on(self, node: str) -> Amounts:
        row = self.table.row_of[node]
        return {
            key: int(self.table.used[column, row]) for key, column in self.table.columns.items()
        }

    def feed(self) -> Feed:
        """Return a new reader of changes; it starts with everything that is known now."""
        feed = Feed(self)
        feed.note(self.everything())
        self._feeds.append(feed)
        return feed

    def everything(self) -> Changes:
        """Return what a reader sees that has seen nothing yet."""
        singles = {uid for uid, pod in self.pods.items() if pod.gang is None}
        return Changes(set(self.table.row_of), set(self.book.keys()), singles)

    @property
    def is_followed(self) -> bool:
        """Whether anybody reads the changes; if nobody does, they have to be published away."""
        return bool(self._feeds)

    def publish(self) -> None:
        """Hand what has changed to every reader."""
        self._changes.gangs |= self.book.touched()
        if self._changes:
            for feed in self._feeds:
                feed.note(self._changes)
            self._changes = Changes()

    def upsert_pod(self, pod: Pod) -> None:
        """Take in a pod as observed. Another uid under the same name replaces the old pod."""
        other = self._uid_of.get(pod.key)
        if other is not None and other != pod.uid:
            self.remove_pod(other)
        before = self._observed.get(pod.uid)
        self._observed[pod.uid] = pod
        if before == pod:
            return
        self._uid_of[pod.key] = pod.uid
        self._keep(before, pod)
        if pod.node or not pod.is_alive or pod.handling is Handling.NOT_OURS:
            # Bound, over, or released for kube-scheduler to bind: no assumption of ours any more.
            self._assumed.pop(pod.uid, None)
        self._refresh(pod.uid)

    def remove_pod(self, uid: str) -> None:
        """Forget a pod that is gone."""
        pod = self._observed.pop(uid, None)
        if pod is None:
            return
        if self._uid_of.get(pod.key) == uid:
            del self._uid_of[pod.key]
        self._keep(pod, None)
        self._assumed.pop(uid, None)
        self.pods.pop(uid, None)
        self._discharge(uid)
        self.book.remove_pod(uid)
        if pod.gang is None:
            self._changes.singles.add(uid)

    def upsert_node(self, node: Node) -> None:
        """Take in a node as observed."""
        row = self.table.row_of.get(node.name)
        before = None if row is None else self.table.nodes[row]
        if before == node:
            return
        self.quotas.upsert_node(node)
        row = self.table.upsert(node)
        if before is None:
            residents = self._on_node.get(node.name, {})
            self.table.recharge(row, residents.values())
            for shape in residents.values():
                if shape.host_ports:
                    self._ports.charge(row, shape.host_ports, 1)
        self._changes.freed.add(node.name)
        if before is None or before.allocatable != node.allocatable:
            self._refresh_keeping(node.name)

    def remove_node(self, name: str) -> None:
        """Forget a node that is gone; its pods stay on the books until they are gone too."""
        self.quotas.remove_node(name)
        row = self.table.remove(name)
        if row is not None:
            self._ports.clear(row)
            self._refresh_keeping(name)

    def upsert_pod_group(self, pod_group: PodGroup) -> None:
        """Take in a PodGroup as observed."""
        self.book.upsert_pod_group(pod_group)

    def remove_pod_group(self, key: GangKey) -> None:
        """Forget a PodGroup that is gone."""
        self.book.remove_pod_group(key)

    def upsert_quota(self, quota: QuotaSpec) -> None:
        """Take in an ElasticQuota as observed."""
        self.quotas.book.upsert(quota)

    def remove_quota(self, key: QuotaKey) -> None:
        """Forget an ElasticQuota that is gone."""
        self.quotas.book.remove(key)

    def assume(self, uid: str, node: str) -> None:
        """Count a waiting pod as being on ``node`` from now on."""
        if uid in self._observed:
            self._assumed[uid] = node
            self._refresh(uid)

    def forget(self, uid: str) -> None:
        """Take back an assumption: the API's answer says that the pod was not bound."""
        if self._assumed.pop(uid, None) is not None and uid in self._observed:
            self._refresh(uid)

    def _refresh(self, uid: str) -> None:
        """Bring everything derived from one pod in line with what is observed and assumed."""
        observed = self._observed[uid]
        before = self.pods.get(uid)
        assumed = self._assumed.get(uid)
        pod = observed if assumed is None else replace(observed, node=assumed)
        if pod.kept_on and not self._can_hold(pod.kept_on, pod.shape):
            # It waits in vain: what will never run there keeps nobody else away.
            pod = replace(pod, kept_on="")
        self.pods[uid] = pod
        self._recharge(pod)
        if pod.gang is None or (before is not None and before.gang is None):
            self._changes.singles.add(uid)
        if pod.gang is None:
            self.book.remove_pod(uid)
        else:
            self.book.upsert_pod(pod)

    def _keep(self, before: Pod | None, pod: Pod | None) -> None:
        if before is not None and before.kept_on:
            keeping = self._keeping[before.kept_on]
            keeping.discard(before.uid)
            if not keeping:
                del self._keeping[before.kept_on]
        if pod is not None and pod.kept_on:
            self._keeping.setdefault(pod.kept_on, set()).add(pod.uid)

    def _refresh_keeping(self, node: str) -> None:
        for uid in sorted(self._keeping.get(node, ())):
            self._refresh(uid)

    def _can_hold(self, node: str, shape: PodShape) -> bool:
        """Whether a node is large enough for a pod of a shape."""
        row = self.table.row_of.get(node)
        if row is None:
            return False
        vector = self.table.vector(shape)
        needed = zip(vector.columns, vector.amounts, strict=True)
        return all(self.table.allocatable[column, row] >= amount for column, amount in needed)

    def _recharge(self, pod: Pod) -> None:
        node = _node_charged(pod)
        charge = self._charges.get(pod.uid)
        if charge is not None and charge.node == node and _is_same_load(charge.shape, pod.shape):
            return
        self._discharge(pod.uid)
        if not node:
            return
        self._charges[pod.uid] = _Charge(node, pod.shape)
        self._on_node.setdefault(node, {})[pod.uid] = pod.shape
        self._apply(node, pod.shape, 1)

    def _discharge(self, uid: str) -> None:
        charge = self._charges.pop(uid, None)
        if charge is None:
            return
        residents = self._on_node[charge.node]
        del residents[uid]
        if not residents:
            del self._on_node[charge.node]
        self._apply(charge.node, charge.shape, -1)
        self._changes.freed.add(charge.node)

    def _apply(self, node: str, shape: PodShape, count: int) -> None:
        row = self.table.row_of.get(node)
        if row is None:
            return
        self.table.charge(row, shape, count)
        if shape.host_ports:
            self._ports.charge(row, shape.host_ports, count)


def _is_same_load(one: PodShape, other: PodShape) -> bool:
    """Whether two shapes take the same from a node, wherever they would be admitted."""
    return one is other or (one.requests == other.requests and one.host_ports == other.host_ports)


def _node_charged(pod: Pod) -> str:
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
