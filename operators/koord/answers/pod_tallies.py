"""What answers count of all pods of a state, brought up to date by the pods that have changed.

Of 50,000 pods a few change in a second, and several answers need the same counts each time. Who has
a state for one question counts once. Decides nothing.
"""

from collections import Counter
from collections.abc import Hashable, Iterable
from typing import TYPE_CHECKING, TypeVar

from koord.answers.gpus import measure_gpus
from koord.core.engine.state import ClusterState
from koord.core.model.pod_charge import node_charged
from koord.core.model.pods import Handling, Pod, PodShape, hold_owner_of
from koord.core.quota.cache import QuotaCache

if TYPE_CHECKING:
    from koord.core.model.gangs import GangKey
    from koord.core.quota.model import QuotaName

K = TypeVar("K", bound=Hashable)


class PodTallies:
    """Counts of the pods of one state; ``tally_pods`` returns them as of now."""

    def __init__(self, state: ClusterState) -> None:
        self.namespaces: Counter[str] = Counter()
        """How many pods there are in each."""
        self.quotas: Counter[tuple[str, QuotaName]] = Counter()
        """How many pods of a namespace count for a quota."""
        self.ending: dict[str, Pod] = {}
        """By uid, pods on nodes that have to be gone at some time."""
        self.reserving: dict[str, Pod] = {}
        """By uid, what stands for reserved room."""
        self.holding: Counter[int] = Counter()
        """How many pods hold room, by the identity of their shape: thousands share one."""
        self.shapes: dict[int, PodShape] = {}
        """The shapes of those by their identity."""
        self.milli_gpus: Counter[str] = Counter()
        """Node -> thousandths of GPUs that pods hold there, those of reservations left out."""
        self.used_of: Counter[str] = Counter()
        """What is reserved, by uid -> thousandths of GPUs of it that pods use."""
        self._feed = state.feed()
        self._pods: dict[str, Pod] = {}
        """Those that are counted, as they were then."""
        self._members: dict[GangKey, set[str]] = {}
        """Gang -> uids of its pods that are counted."""
        self._quota_of: dict[str, tuple[str, QuotaName]] = {}
        self._bindings: object = None

    def follow(self, state: ClusterState) -> None:
        """Count what has changed since the last time."""
        changes, pods, before = self._feed.drain(), state.pods, self._pods
        uids = set(changes.singles)
        for gang in changes.gangs:
            members = state.gangs.members(gang) if gang in state.gangs else {}
            uids.update(members, self._members.pop(gang, ()))
            if members:
                self._members[gang] = set(members)
        changed = []
        for uid in uids:
            pod, old = pods.get(uid), before.get(uid)
            if pod is old:
                continue
            if old is not None:
                self._forget(old)
            if pod is None:
                del before[uid]
                self._forget_quota(uid)
            else:
                before[uid] = pod
                self._add(pod)
                changed.append(pod)
        self._follow_quotas(state.quotas, changed)

    def _add(self, pod: Pod) -> None:
        self.namespaces[pod.namespace] += 1
        if pod.node and pod.gone_by:
            self.ending[pod.uid] = pod
        if pod.handling is Handling.RESERVE:
            self.reserving[pod.uid] = pod
        elif node_charged(pod):
            self.holding[id(pod.shape)] += 1
            self.shapes[id(pod.shape)] = pod.shape
        if _holds(pod):
            amount, hold = measure_gpus(pod).amount, hold_owner_of(pod.allocations)
            self.milli_gpus[pod.node] += amount
            if hold:
                self.used_of[hold] += amount

    def _forget(self, pod: Pod) -> None:
        _subtract(self.namespaces, pod.namespace)
        self.ending.pop(pod.uid, None)
        self.reserving.pop(pod.uid, None)
        shape = id(pod.shape)
        if pod.handling is not Handling.RESERVE and node_charged(pod):
            _subtract(self.holding, shape)
            if shape not in self.holding:
                del self.shapes[shape]
        if _holds(pod):
            amount, hold = measure_gpus(pod).amount, hold_owner_of(pod.allocations)
            _subtract(self.milli_gpus, pod.node, amount)
            if hold:
                _subtract(self.used_of, hold, amount)

    def _follow_quotas(self, cache: QuotaCache, changed: Iterable[Pod]) -> None:
        bindings = cache.bindings_version, cache.catalog.bindings
        if bindings != self._bindings:
            self._bindings = bindings
            self._quota_of.clear()
            self.quotas.clear()
            changed = self._pods.values()
        for pod in changed:
            self._forget_quota(pod.uid)
            use = cache.usage.get(pod.uid)
            pair = pod.namespace, cache.quota_of(pod) if use is None else use.quota
            self.quotas[pair] += 1
            self._quota_of[pod.uid] = pair

    def _forget_quota(self, uid: str) -> None:
        pair = self._quota_of.pop(uid, None)
        if pair is not None:
            _subtract(self.quotas, pair)


def _holds(pod: Pod) -> bool:
    """Whether a pod has what it holds, and not what is held for others."""
    is_counted = pod.handling not in {Handling.RESERVE, Handling.STAND_IN}
    return bool(pod.node) and is_counted and not pod.phase.is_terminal


def _subtract(counts: Counter[K], key: K, amount: int = 1) -> None:
    counts[key] -= amount
    if not counts[key]:
        del counts[key]


def tally_pods(state: ClusterState) -> PodTallies:
    """Return the counts of a state as of now; nobody may change them."""
    tallies = state.follower(PodTallies, lambda: PodTallies(state))
    tallies.follow(state)
    return tallies
