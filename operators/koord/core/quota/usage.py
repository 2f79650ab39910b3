"""Requests and usage of the pods of each quota, kept up to date as pods come and go.

Pods are counted by quota, shape and state, so that thousands of equal pods are one product. A pod
is identified by its uid: a new one of the same name is another pod.

One GPU has several names, and a quota may name any of them (``count_devices``). Cards
(``nvidia.com/gpu``) are whole devices, shares (``koordinator.sh/gpu-core`` and others) hundredths
of one. Two halves are one where they are counted in shares; in cards, the share of each pod is
rounded up. Memory in bytes has no other name: it depends on the model. Koordinator counts each name
by itself, so a quota in cards does not see shares.

Pods that are being deleted stop counting when they are gone, or before. Source of these rules:
Koordinator's gates ElasticQuotaIgnoreTerminatingPod and
ElasticQuotaImmediateIgnoreTerminatingPod.
"""

from collections.abc import Callable, Collection, Hashable, Iterable, Mapping
from typing import NamedTuple, TypeAlias, TypeVar

from koord.caches import MIB, BoundedCache, size_of
from koord.core.model.device_names import (
    CARDS,
    CURRENT_NAME,
    GPU_CORE,
    GPU_MEMORY_RATIO,
    KOORD_GPU,
    OLD_PREFIX,
    PREFIX,
    WHOLE,
)
from koord.core.model.pods import Pod, PodShape
from koord.core.model.units import Amounts
from koord.core.quota.model import NO_USAGE, QuotaName, QuotaRules, TerminatingUse, Usage, add_up


class PodUse(NamedTuple):
    """How one live pod counts.

    ``is_used``: it has a node, or is about to be bound. ``is_ready``: it lacks nothing but room to
    start. ``is_non_preemptible``: it must not be evicted (label ``preemptible: "false"``).
    ``is_foreign``: another scheduler placed it. ``counted``, if it is not empty, counts instead of
    the requests of its shape. ``node`` is where a pod that is used is, or will be bound.
    """

    uid: str
    quota: QuotaName
    shape: PodShape
    is_used: bool = False
    is_ready: bool = True
    is_non_preemptible: bool = False
    is_foreign: bool = False
    counted: tuple[tuple[str, int], ...] = ()
    node: str = ""


_State: TypeAlias = tuple[bool, bool, bool, bool]
"""Whether pods are used, ready, non-preemptible, foreign."""
_Requests: TypeAlias = tuple[tuple[str, int], ...]
_Kind: TypeAlias = tuple[_Requests, _State]
K = TypeVar("K", bound=Hashable)


class _Counted:
    """The amounts that count; computed once per request."""

    def __init__(self, rules: QuotaRules) -> None:
        self._rules = rules
        self._cached: BoundedCache[_Requests, _Requests] = BoundedCache(4 * MIB)

    def of(self, requests: _Requests) -> _Requests:
        counted = self._cached.get(requests)
        if counted is None:
            counted = tuple(count_devices(dict(requests), self._rules).items())
            self._cached.keep(requests, counted, 2 * size_of(counted))
        return counted


class UsageTracker:
    """Quota -> usage of its own pods. The same pods give the same sums in any order."""

    def __init__(
        self,
        rules: QuotaRules,
        pods: Iterable[PodUse] = (),
        on_change: Callable[[PodUse | None, PodUse | None], None] | None = None,
    ) -> None:
        self._on_change = on_change
        """Called with how a pod counted before, and counts now."""
        self._counted = _Counted(rules)
        self._pods: dict[str, PodUse] = {}
        self._counts: dict[QuotaName, dict[_Kind, int]] = {}
        self._usage: dict[QuotaName, Usage] = {}
        self._stale: set[QuotaName] = set()
        self._on_nodes: dict[str, dict[tuple[QuotaName, _Requests], int]] = {}
        """Node -> how many pods of equal requests use it, by quota."""
        self._touched: set[str] = set()
        for pod in pods:
            self.upsert(pod)

    def get(self, uid: str) -> PodUse | None:
        return self._pods.get(uid)

    def counted_of(self, requests: _Requests) -> _Requests:
        """Return what counts of a request."""
        return self._counted.of(requests)

    def upsert(self, pod: PodUse) -> None:
        before = self._pods.get(pod.uid)
        if before == pod:
            return
        if before is not None:
            self._count(before, -1)
        self._pods[pod.uid] = pod
        self._count(pod, 1)
        if self._on_change is not None:
            self._on_change(before, pod)

    def remove(self, uid: str) -> None:
        """Stop counting a pod: it is deleted or has ended."""
        pod = self._pods.pop(uid, None)
        if pod is not None:
            self._count(pod, -1)
            if self._on_change is not None:
                self._on_change(pod, None)

    def usage(self) -> Mapping[QuotaName, Usage]:
        """Return the sums; a quota without a change keeps the same object."""
        if self._stale:
            usage = dict(self._usage)
            for quota in self._stale:
                counts = self._counts.get(quota)
                if counts:
                    usage[quota] = _add_up(counts, self._counted)
                else:
                    usage.pop(quota, None)
                    self._counts.pop(quota, None)
            self._usage = usage
            self._stale = set()
        return self._usage

    def of(self, quota: QuotaName) -> Usage:
        return self.usage().get(quota, NO_USAGE)

    def count(self, quota: QuotaName) -> int:
        """Return how many pods a quota has, running or waiting."""
        return sum(self._counts.get(quota, {}).values())

    def nodes(self) -> Collection[str]:
        """Return the nodes that pods use, whether or not there are such nodes."""
        return self._on_nodes.keys()

    def nodes_of(self, quotas: Collection[QuotaName]) -> set[str]:
        """Return the nodes that pods of any of these quotas use."""
        return {
            node
            for node, counts in self._on_nodes.items()
            if any(quota in quotas for quota, _ in counts)
        }

    def on_node(self, name: str) -> dict[QuotaName, dict[str, int]]:
        """Return what the pods of each quota use of a node; the same pods as in ``used``."""
        usage: dict[QuotaName, dict[str, int]] = {}
        for (quota, requests), count in self._on_nodes.get(name, {}).items():
            total = usage.setdefault(quota, {})
            for key, amount in self._counted.of(requests):
                total[key] = total.get(key, 0) + amount * count
        return usage

    def take_touched(self) -> set[str]:
        """Return the nodes of which pods use more or less since the last call."""
        touched, self._touched = self._touched, set()
        return touched

    def _count(self, pod: PodUse, by: int) -> None:
        kind = _kind_of(pod)
        _add_count(self._counts.setdefault(pod.quota, {}), kind, by)
        self._stale.add(pod.quota)
        if pod.is_used:
            on_node = self._on_nodes.setdefault(pod.node, {})
            _add_count(on_node, (pod.quota, kind[0]), by)
            if not on_node:
                del self._on_nodes[pod.node]
            self._touched.add(pod.node)


def sum_pods(pods: Iterable[PodUse], rules: QuotaRules) -> dict[QuotaName, Usage]:
    counts: dict[QuotaName, dict[_Kind, int]] = {}
    for pod in pods:
        mine = counts.get(pod.quota)
        if mine is None:
            mine = counts[pod.quota] = {}
        kind = _kind_of(pod)
        mine[kind] = mine.get(kind, 0) + 1
    counted = _Counted(rules)
    return {quota: _add_up(mine, counted) for quota, mine in counts.items()}


def _add_count(counts: dict[K, int], key: K, by: int) -> None:
    count = counts.get(key, 0) + by
    if count:
        counts[key] = count
    else:
        del counts[key]


def _kind_of(pod: PodUse) -> _Kind:
    requests = pod.counted or pod.shape.requests
    return (requests, (pod.is_used, pod.is_ready, pod.is_non_preemptible, pod.is_foreign))


def _add_up(counts: Mapping[_Kind, int], counted: _Counted) -> Usage:
    by_state: dict[_State, dict[str, int]] = {}
    for (requests, state), count in counts.items():
        total = by_state.get(state)
        if total is None:
            total = by_state[state] = {}
        for key, amount in counted.of(requests):
            total[key] = total.get(key, 0) + amount * count
    return Usage(
        submitted=_join(by_state, lambda _: True),
        demand=_join(by_state, _is_demand),
        used=_join(by_state, lambda state: state[0]),
        non_preemptible_demand=_join(by_state, lambda state: state[2] and _is_demand(state)),
        non_preemptible_used=_join(by_state, lambda state: state[2] and state[0]),
        foreign_used=_join(by_state, lambda state: state[3] and state[0]),
    )


def _is_demand(state: _State) -> bool:
    is_used, is_ready, *_ = state
    return is_used or is_ready


def _join(
    by_state: Mapping[_State, Mapping[str, int]], is_counted: Callable[[_State], bool]
) -> dict[str, int]:
    total = add_up(amounts for state, amounts in by_state.items() if is_counted(state))
    return {key: max(0, amount) for key, amount in sorted(total.items())}


def count_devices(request: Amounts, rules: QuotaRules) -> Amounts:
    if not rules.counts_device_shares or not any(_is_device(key) for key in request):
        return request
    counted = dict(request)
    for old, name in CURRENT_NAME.items():
        if old in request:
            counted.setdefault(name, request[old])
    cards = sum(counted.get(name, 0) for name in CARDS)
    whole = max(counted.get(KOORD_GPU, 0), WHOLE * cards)
    shares = {name: counted.get(name, whole) for name in (GPU_CORE, GPU_MEMORY_RATIO)}
    shares[KOORD_GPU] = max(whole, *shares.values())
    counted |= {name: share for name, share in shares.items() if share}
    if not cards and shares[KOORD_GPU]:
        # The vendor is unknown before the pod has its node: shares count as cards of any.
        counted |= dict.fromkeys(CARDS, -(-shares[KOORD_GPU] // WHOLE))
    return counted


def _is_device(key: str) -> bool:
    return key in CARDS or key.startswith((PREFIX, OLD_PREFIX))


class TerminatingPods:
    """Pods that do not count any more, and those that will not; times are seconds of the epoch."""

    def __init__(self, use: TerminatingUse) -> None:
        self.now = 0.0
        self.ignored: set[str] = set()
        """uids of pods that have stopped counting, and are still there."""
        self._use = use
        self._until: dict[str, float] = {}
        """Uid of a pod that still counts -> when its grace period ends."""

    def note(self, pod: Pod) -> bool:
        """Take in a pod; return whether it has stopped counting."""
        if self._use is TerminatingUse.UNTIL_GONE:
            return False
        self.forget(pod.uid)
        if not pod.gone_by:
            return False
        if self._use is TerminatingUse.FOR_GRACE_PERIOD and pod.gone_by > self.now:
            self._until[pod.uid] = pod.gone_by
            return False
        self.ignored.add(pod.uid)
        return True

    def forget(self, uid: str) -> None:
        self.ignored.discard(uid)
        self._until.pop(uid, None)

    def clear(self) -> None:
        self.ignored.clear()
        self._until.clear()

    def take_due(self) -> list[str]:
        """Return the uids of pods whose grace period has ended; they are to be noted again."""
        due = [uid for uid, until in self._until.items() if until <= self.now]
        for uid in due:
            del self._until[uid]
        return due

    def next_due(self) -> float | None:
        return min(self._until.values(), default=None)
