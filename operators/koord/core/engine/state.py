"""The state of the cluster: turns observed objects into what the planner needs.

The owner of a ``ClusterState`` applies all changes from one event loop. A pod that was assigned but
whose binding has not been observed counts as being on its node (*assumed*) until the watch confirms
the binding or the API server rejects it. Nothing here decides or blocks.
"""

from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from dataclasses import replace
from typing import TypeVar

from koord.core.engine.cycle import Cycle, Place
from koord.core.engine.node_table import NodeTable
from koord.core.engine.plugin import Plugin, in_order, overriding
from koord.core.eviction.protection import is_evictable
from koord.core.gang.cache import GangCache
from koord.core.gang.quorum import find_quorum
from koord.core.gang.reasons import Reached
from koord.core.model.changes import Changes, Feed
from koord.core.model.gangs import GangKey
from koord.core.model.nodes import Node
from koord.core.model.plan import ObjectWrite, Placement, Plan, Unit, UnitKey
from koord.core.model.pod_charge import PodCharge, charge_of
from koord.core.model.pods import Allocation, Handling, Pod, PodShape
from koord.core.model.units import Amounts
from koord.core.plugins.inter_pod import InterPod
from koord.core.plugins.nominations import Nominations
from koord.core.plugins.pod_index import NOWHERE
from koord.core.plugins.volumes import VolumeCache, Volumes
from koord.core.quota.cache import QuotaCache
from koord.core.quota.ledger import Ledger
from koord.core.quota.model import add_up
from koord.core.quota.plugin import Quotas
from koord.core.quota.profile import ProfileCache
from koord.core.reservation.plugin import Reservations
from koord.core.topology.cache import TopologyCache
from koord.core.topology.plugin import Topologies

P = TypeVar("P")


class ClusterState:
    """Pods, nodes, PodGroups and what domains need of the cluster."""

    def __init__(self, plugins: Iterable[Plugin], *, compat: bool = False) -> None:
        self.pods: dict[str, Pod] = {}
        """uid -> pod as planning sees it: an assumed pod carries its assumed node."""
        self.eviction_pending: set[str] = set()
        """uids of pods that are marked for eviction and not deleted yet."""
        self.reclaimed: set[str] = set()
        """uids of pods that are evicted because their quota uses too much, and still there."""
        self.protected: set[str] = set()
        """uids of pods that disruption budgets keep from being evicted for that reason."""
        self.preempted: set[str] = set()
        """uids of pods that are marked for preemption and still there."""
        self.evictable: Counter[int] = Counter()
        """Priority -> how many pods of it run and may be evicted at some time."""
        self.now = 0.0
        """As of the last :meth:`advance`; 0 before it."""
        self.table = NodeTable()
        self.gangs = GangCache(compat=compat)
        self.plugins = in_order(tuple(plugins))
        self._plugin_of: dict[type, Plugin] = {}
        for plugin in self.plugins:
            plugin.attach(self)
        self.hinting = overriding(self.plugins, "queueing_hint")
        """Those that say which units are worth another attempt."""
        self._charging = overriding(self.plugins, "charge")
        self._completing = overriding(self.plugins, "complete")
        self._observing = overriding(self.plugins, "observe")
        self._pre_binding = overriding(self.plugins, "pre_bind")
        self._limiting = overriding(self.plugins, "time_limit")
        self._absorbing = overriding(self.plugins, "absorb")
        self._advancing = overriding(self.plugins, "advance")
        self._giving_turns = overriding(self.plugins, "has_turn")
        self._timing = overriding(self.plugins, "take_due")
        self._sorter = _find_sorter(self.plugins)
        self._observed: dict[str, Pod] = {}
        self._uid_of: dict[str, str] = {}
        self._assumed: dict[str, str] = {}
        self._allocated: dict[str, tuple[Allocation, ...]] = {}
        """Uid of an assumed pod -> what plugins gave it."""
        self._assumed_until_release: set[str] = set()
        """uids of pods whose assumption ends when the watch shows their release."""
        self._charges: dict[str, PodCharge] = {}
        self._on_node: dict[str, set[str]] = {}
        """Node -> uids of the pods that are charged to it."""
        self._changes = Changes()
        self._feeds: list[Feed] = []
        self.followers: dict[type, object] = {}
        """What follows the changes of this state and is made once for all who ask, by its class."""

    def follower(self, kind: type[P], make: Callable[[], P]) -> P:
        """Return the follower of a class; ``make`` is called for who asks first."""
        follower = self.followers.get(kind)
        if not isinstance(follower, kind):
            follower = self.followers[kind] = make()
        return follower

    def plugin(self, kind: type[P]) -> P:
        plugin = self._plugin_of.get(kind)
        if not isinstance(plugin, kind):  # not asked for before
            plugin = next(plugin for plugin in self.plugins if isinstance(plugin, kind))
            self._plugin_of[kind] = plugin
        return plugin

    @property
    def quotas(self) -> QuotaCache:
        return self.plugin(Quotas).cache

    @property
    def profiles(self) -> ProfileCache:
        return self.plugin(Quotas).profiles

    @property
    def nominations(self) -> Nominations:
        return self.plugin(Nominations)

    @property
    def topologies(self) -> TopologyCache:
        return self.plugin(Topologies).cache

    @property
    def volumes(self) -> VolumeCache:
        return self.plugin(Volumes).cache

    @property
    def assumed(self) -> dict[str, str]:
        """Pod uid -> node, for assignments that no watch event has confirmed yet."""
        return self._assumed

    @property
    def allocated(self) -> Mapping[str, tuple[Allocation, ...]]:
        """Pod uid -> what plugins gave an assumed pod."""
        return self._allocated

    def observed(self, uid: str) -> Pod | None:
        """Return a pod as last observed, without assumptions."""
        return self._observed.get(uid)

    def pod_by_key(self, key: str) -> Pod | None:
        """Return the current pod with the key ``namespace/name``."""
        uid = self._uid_of.get(key)
        return None if uid is None else self.pods.get(uid)

    @property
    def sorter(self) -> Plugin | None:
        """The plugin that orders units now."""
        return self._sorter if self._sorter is not None and self._sorter.is_ordering else None

    def is_ordered_by(self, plugin: object) -> bool:
        """Whether a plugin is the one that orders units now."""
        return self.sorter is plugin

    def advance(self, now: float) -> set[str]:
        """Set the time, in seconds since the epoch; return the nodes with more room by now.

        The owner hands in the same clock each time, before it plans; nothing here reads one.
        """
        self.now = now
        return {node for plugin in self._advancing for node in plugin.advance(now)}

    def next_due(self) -> float | None:
        """Return when :meth:`advance` is to be called, at the latest; None for never."""
        dues = [plugin.next_due() for plugin in self.plugins]
        return min((due for due in dues if due is not None), default=None)

    def has_turn(self, pod: Pod) -> bool:
        return any(plugin.has_turn(pod) for plugin in self._giving_turns)

    def take_due(self) -> set[UnitKey]:
        """Return the units that plugins want tried again although nothing has changed."""
        return {key for plugin in self._timing for key in plugin.take_due()}

    def refresh(self) -> None:
        """Let every plugin absorb the changes; required before a cycle is opened."""
        for plugin in self._absorbing:
            plugin.absorb()

    def open_cycle(
        self,
        pending: Callable[[], Iterable[Unit]] = tuple,
        *,
        without: Collection[str] = (),
        at: float | None = None,
        is_deciding: bool = False,
    ) -> Cycle:
        """Return a planning cycle on the cluster as of the last :meth:`refresh`.

        ``at`` is another time than now, for what would be if nothing else changed until then.

        What ``is_deciding`` is carried out; the others are questions. ``pending`` returns the
        complete waiting units in order. Plugins named in ``without`` open
        no session.
        """
        plugins = [plugin for plugin in self.plugins if plugin.name not in without]
        return Cycle(
            self.table,
            plugins,
            now=self.now if at is None else at,
            find_place=self._find_place,
            pending=pending,
            is_deciding=is_deciding,
        )

    def open_ledger(self) -> Ledger:
        """Return the limits and usage of every quota; what pods use of reservations counts once."""
        self.plugin(Reservations).absorb()
        quotas = self.plugin(Quotas)
        quotas.update()
        return quotas.open_ledger()

    def note_plan(self, cycle: Cycle, plan: Plan) -> None:
        """Tell every plugin that a plan is carried out."""
        by_name = {plugin.name: plugin for plugin in self.plugins}
        for session in cycle.sessions:
            by_name[session.name].note_plan(session, plan)

    def writes_before(self, placement: Placement) -> dict[str, list[ObjectWrite]]:
        """Return pod uid -> what has to be written to other objects before the pod is bound."""
        writes = {
            assignment.pod.uid: [
                write for plugin in self._pre_binding for write in plugin.pre_bind(assignment)
            ]
            for assignment in (placement.assignments if self._pre_binding else ())
        }
        return {uid: changes for uid, changes in writes.items() if changes}

    def time_limits(self, placement: Placement) -> dict[str, int]:
        """Return pod uid -> after how many seconds its kubelet is to end it."""
        pods = [assignment.pod for assignment in placement.assignments]
        limits = (
            (pod.uid, limit)
            for plugin in self._limiting
            for pod in pods
            if (limit := plugin.time_limit(pod)) is not None
        )
        return dict(limits)

    def _find_place(self, uid: str) -> Place | None:
        charge = self._charges.get(uid)
        row = None if charge is None else self.table.row_of.get(charge.load.node)
        return None if charge is None or row is None else Place(row)

    def used_on(self, node: str) -> Amounts:
        """Return what pods use on a node, also if it is gone."""
        row = self.table.row_of.get(node)
        if row is None:
            return add_up(dict(shape.requests) for shape in self._shapes_on(node))
        return {
            key: int(self.table.used[column, row]) for key, column in self.table.columns.items()
        }

    def is_complete(self, gang: GangKey) -> bool:
        """Whether a gang and all gangs of its group have their quorum."""
        return isinstance(find_quorum(self.gangs, gang), Reached)

    def pods_on(self, node: str) -> list[Pod]:
        """Return the pods that are charged to a node."""
        return [self.pods[uid] for uid in self._on_node.get(node, ()) if uid in self.pods]

    def pods_on_nodes(self) -> Iterator[tuple[Pod, int]]:
        """Yield the pods on nodes that inter-pod rules see, with their rows, sorted by key."""
        for pod in sorted(self.pods.values(), key=lambda pod: pod.key):
            charge = self._charges.get(pod.uid)
            row = None if charge is None else self.table.row_of.get(charge.load.node)
            if charge is not None and row is not None:
                yield pod, row

    def feed(self) -> Feed:
        """Return a new reader of changes; it starts with all known objects."""
        feed = Feed(self.publish)
        feed.note(self.everything())
        self._feeds.append(feed)
        return feed

    def everything(self) -> Changes:
        """Return the changes from an empty state to the current one."""
        singles = {uid for uid, pod in self.pods.items() if pod.gang is None}
        return Changes(set(self.table.row_of), set(self.gangs.keys()), singles)

    @property
    def has_readers(self) -> bool:
        """Whether there are readers of changes. Without readers, :meth:`publish` drops changes."""
        return bool(self._feeds)

    def publish(self) -> None:
        """Pass the changes since the last call to every reader."""
        self._changes.gangs |= self.gangs.touched()
        if self._changes:
            for feed in self._feeds:
                feed.note(self._changes)
            self._changes = Changes()

    def upsert_pod(self, pod: Pod) -> None:
        """Apply an observed pod. Another uid under the same name replaces the old pod."""
        for plugin in self._completing:
            pod = plugin.complete(pod)
        other = self._uid_of.get(pod.key)
        if other is not None and other != pod.uid:
            self.remove_pod(other)
        before = self._observed.get(pod.uid)
        self._observed[pod.uid] = pod
        if before is not None and before == pod:
            self._requeue_stale_condition(before, pod)
            return
        self._uid_of[pod.key] = pod.uid
        for plugin in self._observing:
            plugin.observe(before, pod)
        (self.eviction_pending.add if pod.is_eviction_pending else self.eviction_pending.discard)(
            pod.uid
        )
        (self.reclaimed.add if pod.is_reclaimed else self.reclaimed.discard)(pod.uid)
        (self.protected.add if pod.protected else self.protected.discard)(pod.uid)
        (self.preempted.add if pod.preempted_by else self.preempted.discard)(pod.uid)
        if pod.node or not pod.is_alive or pod.handling is Handling.NOT_OURS:
            # Bound, terminated, or released for kube-scheduler to bind: the assumption is obsolete.
            self._drop_assumption(pod.uid)
        elif pod.uid in self._assumed_until_release and not pod.is_gated:
            self._drop_assumption(pod.uid)
        self._refresh(pod.uid)

    def _requeue_stale_condition(self, before: Pod, pod: Pod) -> None:
        """Requeue a pod whose waiting condition is stale."""
        if pod.is_waiting or pod.wait_reason == before.wait_reason:
            return
        self._refresh(pod.uid)
        if pod.gang is not None:
            self._changes.gangs.add(pod.gang.key)

    def remove_pod(self, uid: str) -> None:
        pod = self._observed.pop(uid, None)
        if pod is None:
            return
        if self._uid_of.get(pod.key) == uid:
            del self._uid_of[pod.key]
        for plugin in self._observing:
            plugin.forget(uid)
        self.eviction_pending.discard(uid)
        self.reclaimed.discard(uid)
        self.protected.discard(uid)
        self.preempted.discard(uid)
        self._drop_assumption(uid)
        self._count_evictable(self.pods.pop(uid, None), None)
        self.plugin(Topologies).attraction.note(uid, "", "")
        self._discharge(uid, is_free=True)
        self.gangs.remove_pod(uid)
        if pod.gang is None:
            self._changes.singles.add(uid)

    def upsert_node(self, node: Node) -> None:
        row = self.table.row_of.get(node.name)
        before = None if row is None else self.table.nodes[row]
        if before == node:
            return
        epoch = self.table.epoch
        row = self.table.upsert(node, self._shapes_on)
        for plugin in self.plugins:
            plugin.upsert_node(row, node)
        if before is None:
            self._charge_row(node.name, row)
        self._changes.freed.add(node.name)
        self._changes.is_relabelled |= self.table.epoch != epoch

    def remove_node(self, name: str) -> None:
        """Remove a node; its pods stay known until they are removed themselves."""
        row = self.table.row_of.get(name)
        if row is None:
            return
        for uid in self._on_node.get(name, ()):
            self._move(self._charges[uid], row, NOWHERE)
        self.table.remove(name)
        for plugin in self.plugins:
            plugin.remove_node(row, name)
        self._changes.removed.add(name)
        self._changes.is_relabelled = True

    def note_freed(self, nodes: Iterable[str]) -> None:
        """Have units that wait for room tried again on these nodes."""
        self._changes.freed.update(nodes)

    def note_claims(self, claims: Iterable[str]) -> None:
        """Have units that wait for volume claims (``namespace/name``) tried again."""
        self._changes.claims.update(claims)

    def note_relabelled(self) -> None:
        """Have all units tried again whose rules are about labels of nodes or namespaces."""
        self._changes.is_relabelled = True

    def labels_of_namespace(self, namespace: str) -> Mapping[str, str]:
        return self.plugin(InterPod).namespaces.get(namespace, {})

    def assume(self, uid: str, node: str, allocations: tuple[Allocation, ...] = ()) -> None:
        """Charge a waiting pod to ``node``, ahead of its binding."""
        if uid in self._observed:
            self._assumed[uid] = node
            if allocations:
                self._allocated[uid] = allocations
            self._assumed_until_release.discard(uid)
            self._refresh(uid)

    def forget(self, uid: str) -> None:
        """Drop an assumption: the API server has rejected the binding."""
        if self._drop_assumption(uid) and uid in self._observed:
            self._refresh(uid)

    def forget_once_released(self, uid: str) -> None:
        """Drop the assumption about a pod that was released and pinned, but not bound.

        Its own scheduler may bind it at any moment, so its node stays charged: as assumed until
        the watch shows the release, as pinned from then on.
        """
        pod = self._observed.get(uid)
        if pod is not None and pod.is_gated:
            self._assumed_until_release.add(uid)
        else:
            self.forget(uid)

    def _drop_assumption(self, uid: str) -> bool:
        self._assumed_until_release.discard(uid)
        self._allocated.pop(uid, None)
        return self._assumed.pop(uid, None) is not None

    def _refresh(self, uid: str) -> None:
        """Recompute everything derived from one pod."""
        observed = self._observed[uid]
        before = self.pods.get(uid)
        assumed = self._assumed.get(uid)
        pod = observed if assumed is None else self._as_assumed(observed, assumed)
        self.pods[uid] = pod
        self._count_evictable(before, pod)
        if pod.attraction:
            node = "" if pod.phase.is_terminal else pod.node
            self.plugin(Topologies).attraction.note(uid, pod.attraction, node)
        self._recharge(pod)
        if pod.gang is None or (before is not None and before.gang is None):
            self._changes.singles.add(uid)
        if pod.gang is None:
            self.gangs.remove_pod(uid)
        else:
            self.gangs.upsert_pod(pod)

    def _as_assumed(self, pod: Pod, node: str) -> Pod:
        allocations = self._allocated.get(pod.uid, pod.allocations)
        return replace(pod, node=node, allocations=allocations)

    def _count_evictable(self, before: Pod | None, pod: Pod | None) -> None:
        if before is not None and is_evictable(before):
            self.evictable[before.priority] -= 1
            if not self.evictable[before.priority]:
                del self.evictable[before.priority]
        if pod is not None and is_evictable(pod):
            self.evictable[pod.priority] += 1

    def _recharge(self, pod: Pod) -> None:
        charge = charge_of(pod)
        before = self._charges.get(pod.uid)
        if charge == before:
            return
        is_same_load = charge is not None and before is not None and charge.load == before.load
        self._discharge(pod.uid, is_free=not is_same_load)
        if charge is None:
            return
        node = charge.load.node
        self._on_node.setdefault(node, set()).add(pod.uid)
        self._charges[pod.uid] = charge
        self._count(self.table.row_of.get(node, NOWHERE), charge, 1)
        self._changes.arrived.add(charge.profile)

    def _discharge(self, uid: str, *, is_free: bool) -> None:
        """Remove the charge of a pod; ``is_free``: the node has more room now."""
        charge = self._charges.pop(uid, None)
        if charge is None:
            return
        node = charge.load.node
        uids = self._on_node[node]
        uids.discard(uid)
        if not uids:
            del self._on_node[node]
        self._count(self.table.row_of.get(node, NOWHERE), charge, -1)
        self._changes.left.add((charge.profile, charge.constraints))
        self._changes.claims.update(use.key for use in charge.claims)
        if is_free:
            self._changes.freed.add(node)

    def _count(self, row: int, charge: PodCharge, count: int) -> None:
        """Add ``count`` times a charge to a row; plugins also count pods on unknown nodes."""
        if row != NOWHERE:
            self.table.charge(row, charge.shape, count)
        for plugin in self._charging:
            plugin.charge(row, charge, count)

    def _move(self, charge: PodCharge, before: int, after: int) -> None:
        self._count(before, charge, -1)
        self._count(after, charge, 1)

    def _shapes_on(self, node: str) -> Iterator[PodShape]:
        return (self._charges[uid].shape for uid in self._on_node.get(node, ()))

    def _charge_row(self, node: str, row: int) -> None:
        """Charge pods that were observed before their node."""
        for uid in sorted(self._on_node.get(node, ())):
            self._move(self._charges[uid], NOWHERE, row)


def _find_sorter(plugins: Iterable[Plugin]) -> Plugin | None:
    """Return the plugin that orders units; two orders cannot hold at once."""
    sorters = overriding(plugins, "order")
    sorters = [plugin for plugin in sorters if not plugin.orders_by_default] or sorters
    if len(sorters) > 1:
        names = ", ".join(plugin.name for plugin in sorters)
        raise ValueError(f"only one plugin may order units: {names}")
    return sorters[0] if sorters else None
