"""What is known of the cluster: the single place where objects turn into a planner's view.

One writer: whoever owns a ``ClusterState`` applies changes from one event loop. A pod that was
assigned but whose binding has not been seen counts as being on its node (*assumed*) until the watch
confirms it or the API's answer says that it did not happen. Nothing here decides or waits.
"""

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from dataclasses import replace
from typing import TypeVar

from koord.core.changes import Changes, Feed
from koord.core.framework.cycle import Cycle, Place
from koord.core.framework.node_table import NodeTable
from koord.core.framework.plugin import Plugin
from koord.core.gang.cache import GangCache
from koord.core.gang.model import GangKey, PodGroup
from koord.core.gang.quorum import find_quorum
from koord.core.gang.reasons import Reached
from koord.core.nodes import Node
from koord.core.plan import Plan, Unit
from koord.core.plugins.inter_pod import InterPod
from koord.core.plugins.pod_index import NOWHERE
from koord.core.plugins.volumes import StorageClass, Volume, VolumeCache, VolumeClaim, Volumes
from koord.core.pod_charge import PodCharge, charge_of
from koord.core.pods import Handling, Pod, PodShape
from koord.core.quota.cache import QuotaCache
from koord.core.quota.catalog import QuotaKey, key_of
from koord.core.quota.hooks import Hooks
from koord.core.quota.ledger import Ledger
from koord.core.quota.model import KOORDINATOR, QuotaRules, QuotaSpec
from koord.core.quota.plugin import Quotas
from koord.core.quota.profile_cache import ProfileCache
from koord.core.registry import make_plugins
from koord.core.topology.cache import Topology, TopologyCache
from koord.core.topology.plugin import Topologies
from koord.core.units import Amounts

P = TypeVar("P", bound=Plugin)


class ClusterState:
    """Pods, nodes and PodGroups, with what is used where."""

    def __init__(
        self,
        *,
        compat: bool = False,
        limits_by_share: bool = True,
        hooks: Hooks | None = None,
        more_plugins: Iterable[Plugin] = (),
    ) -> None:
        self.pods: dict[str, Pod] = {}
        """uid -> pod as planning sees it: an assumed pod carries its assumed node."""
        self.doomed: set[str] = set()
        """uids of pods that carry our mark and are yet to be evicted."""
        self.table = NodeTable()
        self.gangs = GangCache(compat=compat)
        self.profiles = ProfileCache()
        rules = replace(KOORDINATOR if compat else QuotaRules(), limits_by_share=limits_by_share)
        self.plugins = (*make_plugins(self.gangs, rules, hooks), *more_plugins)
        self._charging = [one for one in self.plugins if type(one).charge is not Plugin.charge]
        self._observed: dict[str, Pod] = {}
        self._uid_of: dict[str, str] = {}
        self._assumed: dict[str, str] = {}
        self._fading: set[str] = set()
        """Assumed only until their release is seen."""
        self._charges: dict[str, PodCharge] = {}
        self._on_node: dict[str, set[str]] = {}
        """Node -> uids of the pods that hold a place on it."""
        self._keeping: dict[str, set[str]] = {}
        """Node -> uids of pods that wait for it, and for which it keeps room if it can."""
        self._changes = Changes()
        self._feeds: list[Feed] = []
        self._plugin_feeds: dict[str, Feed] = {}

    def plugin(self, kind: type[P]) -> P:
        """Return the plugin of one domain."""
        return next(one for one in self.plugins if isinstance(one, kind))

    @property
    def quotas(self) -> QuotaCache:
        return self.plugin(Quotas).cache

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

    def observed(self, uid: str) -> Pod | None:
        """Return a pod as the API server last showed it, without assumptions."""
        return self._observed.get(uid)

    def pod_by_key(self, key: str) -> Pod | None:
        """Return the pod now called ``namespace/name``."""
        uid = self._uid_of.get(key)
        return None if uid is None else self.pods.get(uid)

    def refresh(self, now: float = 0.0) -> None:
        """Bring every plugin up to date with what changed; to be done before a cycle is opened."""
        for plugin in self.plugins:
            if plugin.is_in_use:
                self._refresh_plugin(plugin, now)

    def _refresh_plugin(self, plugin: Plugin, now: float = 0.0) -> None:
        feed = self._plugin_feeds.get(plugin.name)
        if feed is None:
            feed = self._plugin_feeds[plugin.name] = self.feed()
        plugin.absorb(self, feed.drain(), now)

    def open_cycle(
        self,
        pending: Callable[[], Iterable[Unit]] = tuple,
        *,
        without: Collection[str] = (),
    ) -> Cycle:
        """Return the cluster as of the last :meth:`refresh`, for a planner to try things on.

        ``pending`` returns the complete units that wait, in order. Plugins named in ``without``
        take no part.
        """
        plugins = [one for one in self.plugins if one.name not in without]
        return Cycle(self.table, plugins, find_place=self._find_place, pending=pending)

    def open_ledger(self) -> Ledger:
        """Return what every quota may use and uses now."""
        plugin = self.plugin(Quotas)
        self._refresh_plugin(plugin)
        return plugin.open_ledger()

    def note_plan(self, cycle: Cycle, plan: Plan) -> None:
        """Have plugins remember what a plan that is carried out means for later cycles."""
        by_name = {plugin.name: plugin for plugin in self.plugins}
        for session in cycle.sessions:
            by_name[session.name].note_plan(session, plan)

    def _find_place(self, uid: str) -> Place | None:
        charge = self._charges.get(uid)
        row = None if charge is None else self.table.row_of.get(charge.load.node)
        return None if charge is None or row is None else Place(row, is_seen=charge.is_there)

    def used_on(self, node: str) -> Amounts:
        """Return what pods use on a node."""
        row = self.table.row_of[node]
        return {
            key: int(self.table.used[column, row]) for key, column in self.table.columns.items()
        }

    def is_complete(self, gang: GangKey) -> bool:
        """Whether a gang and all gangs of its group have their quorum."""
        return isinstance(find_quorum(self.gangs, gang), Reached)

    def pods_on_nodes(self) -> Iterator[tuple[Pod, int]]:
        """Yield the pods that others see on a node, each with the node's row, by their keys."""
        for pod in sorted(self.pods.values(), key=lambda pod: pod.key):
            charge = self._charges.get(pod.uid)
            row = None if charge is None else self.table.row_of.get(charge.load.node)
            if charge is not None and charge.is_there and row is not None:
                yield pod, row

    def feed(self) -> Feed:
        """Return a new reader of changes; it starts with everything that is known now."""
        feed = Feed(self.publish)
        feed.note(self.everything())
        self._feeds.append(feed)
        return feed

    def everything(self) -> Changes:
        """Return what a reader sees that has seen nothing yet."""
        singles = {uid for uid, pod in self.pods.items() if pod.gang is None}
        return Changes(set(self.table.row_of), set(self.gangs.keys()), singles)

    @property
    def is_followed(self) -> bool:
        """Whether anybody reads the changes; if nobody does, they have to be published away."""
        return bool(self._feeds)

    def publish(self) -> None:
        """Hand what has changed to every reader."""
        self._changes.gangs |= self.gangs.touched()
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
        if before is not None and before == pod:
            self._hear_late_word(before, pod)
            return
        self._uid_of[pod.key] = pod.uid
        (self.doomed.add if pod.is_doomed else self.doomed.discard)(pod.uid)
        self._keep(before, pod)
        if pod.node or not pod.is_alive or pod.handling is Handling.NOT_OURS:
            # Bound, over, or released for kube-scheduler to bind: no assumption of ours any more.
            self._drop_assumption(pod.uid)
        elif pod.uid in self._fading and not pod.is_gated:
            self._drop_assumption(pod.uid)
        self._refresh(pod.uid)

    def _hear_late_word(self, before: Pod, pod: Pod) -> None:
        """Have it looked at that a pod is said to wait and does not: that has to be taken back."""
        if pod.is_waiting or pod.wait_reason == before.wait_reason:
            return
        self._refresh(pod.uid)
        if pod.gang is not None:
            self._changes.gangs.add(pod.gang.key)

    def remove_pod(self, uid: str) -> None:
        """Forget a pod that is gone."""
        pod = self._observed.pop(uid, None)
        if pod is None:
            return
        if self._uid_of.get(pod.key) == uid:
            del self._uid_of[pod.key]
        self._keep(pod, None)
        self.doomed.discard(uid)
        self._drop_assumption(uid)
        self.pods.pop(uid, None)
        self.plugin(Topologies).attraction.note(uid, "", "")
        self._discharge(uid, is_free=True)
        self.gangs.remove_pod(uid)
        if pod.gang is None:
            self._changes.singles.add(uid)

    def upsert_node(self, node: Node) -> None:
        """Take in a node as observed."""
        row = self.table.row_of.get(node.name)
        before = None if row is None else self.table.nodes[row]
        if before == node:
            return
        self.profiles.upsert_node(node)
        epoch = self.table.epoch
        row = self.table.upsert(node)
        for plugin in self.plugins:
            plugin.upsert_node(row, node)
        if before is None:
            self._settle(node.name, row)
        self._changes.freed.add(node.name)
        self._changes.is_regrouped |= self.table.epoch != epoch
        if before is None or before.allocatable != node.allocatable:
            self._refresh_keeping(node.name)

    def remove_node(self, name: str) -> None:
        """Forget a node that is gone; its pods stay on the books until they are gone too."""
        self.profiles.remove_node(name)
        row = self.table.row_of.get(name)
        if row is None:
            return
        for uid in self._on_node.get(name, ()):
            self._move(self._charges[uid], row, NOWHERE)
        self.table.remove(name)
        for plugin in self.plugins:
            plugin.remove_node(row, name)
        self._changes.is_regrouped = True
        self._refresh_keeping(name)

    def upsert_pod_group(self, pod_group: PodGroup) -> None:
        """Take in a PodGroup as observed."""
        self.gangs.upsert_pod_group(pod_group)

    def remove_pod_group(self, key: GangKey) -> None:
        """Forget a PodGroup that is gone."""
        self.gangs.remove_pod_group(key)

    def upsert_quota(self, quota: QuotaSpec) -> None:
        """Take in an ElasticQuota as observed."""
        before = self.quotas.book.written.get(key_of(quota))
        self.quotas.book.upsert(quota)
        if quota.selector != (before and before.selector):
            self._changes.is_regrouped = True

    def remove_quota(self, key: QuotaKey) -> None:
        """Forget an ElasticQuota that is gone."""
        self.quotas.book.remove(key)

    def upsert_topology(self, topology: Topology) -> None:
        """Take in a network topology as observed."""
        if self.topologies.upsert(topology):
            self._note_domains()

    def remove_topology(self, name: str) -> None:
        """Forget a network topology that is gone."""
        if self.topologies.remove(name):
            self._note_domains()

    def _note_domains(self) -> None:
        """Have everybody look again who waits for domains: all nodes are in others."""
        self._changes.freed.update(self.table.row_of)
        self._changes.is_regrouped = True

    def upsert_namespace(self, name: str, labels: Mapping[str, str]) -> None:
        """Take in a namespace as observed."""
        namespaces = self.plugin(InterPod).namespaces
        if namespaces.get(name) != labels:
            namespaces[name] = labels
            self._changes.is_regrouped = True

    def remove_namespace(self, name: str) -> None:
        """Forget a namespace that is gone."""
        if self.plugin(InterPod).namespaces.pop(name, None) is not None:
            self._changes.is_regrouped = True

    def upsert_claim(self, claim: VolumeClaim) -> None:
        """Take in a volume claim as observed."""
        if self.volumes.claims.get(claim.key) != claim:
            self.volumes.upsert_claim(claim)
            self._changes.claims.add(claim.key)

    def remove_claim(self, key: str) -> None:
        """Forget a volume claim that is gone."""
        self.volumes.remove_claim(key)
        self._changes.claims.add(key)

    def upsert_volume(self, volume: Volume) -> None:
        """Take in a volume as observed."""
        if self.volumes.volumes.get(volume.name) != volume:
            self.volumes.volumes[volume.name] = volume
            self._changes.claims |= self.volumes.claims_of(volume.name)

    def remove_volume(self, name: str) -> None:
        """Forget a volume that is gone."""
        if self.volumes.volumes.pop(name, None) is not None:
            self._changes.claims |= self.volumes.claims_of(name)

    def upsert_storage_class(self, storage_class: StorageClass) -> None:
        """Take in a storage class as observed."""
        if self.volumes.classes.get(storage_class.name) != storage_class:
            self.volumes.classes[storage_class.name] = storage_class
            self._changes.claims |= self.volumes.claims_in(storage_class.name)

    def remove_storage_class(self, name: str) -> None:
        """Forget a storage class that is gone."""
        if self.volumes.classes.pop(name, None) is not None:
            self._changes.claims |= self.volumes.claims_in(name)

    def assume(self, uid: str, node: str) -> None:
        """Count a waiting pod as being on ``node`` from now on."""
        if uid in self._observed:
            self._assumed[uid] = node
            self._fading.discard(uid)
            self._refresh(uid)

    def forget(self, uid: str) -> None:
        """Take back an assumption: the API's answer says that the pod was not bound."""
        if self._drop_assumption(uid) and uid in self._observed:
            self._refresh(uid)

    def forget_once_released(self, uid: str) -> None:
        """Take back an assumption about a pod that was released and pinned, but not bound.

        Its own scheduler may bind it at any moment, so its place stays taken throughout: as assumed
        until the watch shows the release, as pinned from then on.
        """
        pod = self._observed.get(uid)
        if pod is not None and pod.is_gated:
            self._fading.add(uid)
        else:
            self.forget(uid)

    def _drop_assumption(self, uid: str) -> bool:
        self._fading.discard(uid)
        return self._assumed.pop(uid, None) is not None

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
        """Take a pod off its node; ``is_free`` says that the node may take more for it."""
        charge = self._charges.pop(uid, None)
        if charge is None:
            return
        node = charge.load.node
        residents = self._on_node[node]
        residents.discard(uid)
        if not residents:
            del self._on_node[node]
        self._count(self.table.row_of.get(node, NOWHERE), charge, -1)
        self._changes.left.add((charge.profile, charge.constraints))
        self._changes.claims.update(use.key for use in charge.claims)
        if is_free:
            self._changes.freed.add(node)

    def _count(self, row: int, charge: PodCharge, count: int) -> None:
        """Charge a pod to a row, or take it off; plugins also learn of pods on unknown nodes."""
        if row != NOWHERE:
            self.table.charge(row, charge.shape, count)
        for plugin in self._charging:
            plugin.charge(row, charge, count)

    def _move(self, charge: PodCharge, before: int, after: int) -> None:
        self._count(before, charge, -1)
        self._count(after, charge, 1)

    def _settle(self, node: str, row: int) -> None:
        """Charge the pods of a node that has come to its row."""
        for uid in sorted(self._on_node.get(node, ())):
            self._move(self._charges[uid], NOWHERE, row)
