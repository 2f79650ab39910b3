"""What the pods of each quota ask and use, added up and kept so as pods come and go.

Pods are counted by quota, shape and state, so that thousands of equal pods are one product. A pod
is known by its uid: a new one of the same name is another pod.
"""

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import TypeAlias

from koord.core.pods import PodShape
from koord.core.quota.devices import count_devices
from koord.core.quota.model import NO_USAGE, QuotaName, QuotaRules, Usage


@dataclass(frozen=True, slots=True)
class PodUse:
    """How one live pod counts. ``is_ready``: nothing but room is missing for it to start.

    ``is_used`` says that it has a node, or is about to be bound; ``is_fixed`` that it must not be
    evicted (label ``preemptible: "false"``).
    """

    uid: str
    quota: QuotaName
    shape: PodShape
    is_used: bool = False
    is_ready: bool = True
    is_fixed: bool = False


_Kind: TypeAlias = tuple[PodShape, bool, bool, bool]


class UsageBook:
    """Quota -> what its own pods ask and use. The same pods give the same sums in any order."""

    def __init__(self, rules: QuotaRules, pods: Iterable[PodUse] = ()) -> None:
        self._rules = rules
        self._pods: dict[str, PodUse] = {}
        self._counts: dict[QuotaName, Counter[_Kind]] = {}
        self._usage: dict[QuotaName, Usage] = {}
        self._stale: set[QuotaName] = set()
        for pod in pods:
            self.upsert(pod)

    def get(self, uid: str) -> PodUse | None:
        """Return how a pod counts now."""
        return self._pods.get(uid)

    def upsert(self, pod: PodUse) -> None:
        """Count a pod, instead of how it counted before."""
        before = self._pods.get(pod.uid)
        if before == pod:
            return
        if before is not None:
            self._count(before, -1)
        self._pods[pod.uid] = pod
        self._count(pod, 1)

    def remove(self, uid: str) -> None:
        """Count a pod no more: it is gone or over."""
        pod = self._pods.pop(uid, None)
        if pod is not None:
            self._count(pod, -1)

    def usage(self) -> Mapping[QuotaName, Usage]:
        """Return the sums; a quota of which nothing changed keeps its very object."""
        if self._stale:
            usage = dict(self._usage)
            for quota in self._stale:
                counts = self._counts.get(quota)
                if counts:
                    usage[quota] = _add_up(counts, self._rules)
                else:
                    usage.pop(quota, None)
                    self._counts.pop(quota, None)
            self._usage = usage
            self._stale = set()
        return self._usage

    def of(self, quota: QuotaName) -> Usage:
        """Return the sums of one quota's own pods."""
        return self.usage().get(quota, NO_USAGE)

    def _count(self, pod: PodUse, by: int) -> None:
        kind = (pod.shape, pod.is_used, pod.is_ready, pod.is_fixed)
        counts = self._counts.setdefault(pod.quota, Counter())
        counts[kind] += by
        if not counts[kind]:
            del counts[kind]
        self._stale.add(pod.quota)


def sum_pods(pods: Iterable[PodUse], rules: QuotaRules) -> dict[QuotaName, Usage]:
    """Add up pods without keeping them."""
    counts: dict[QuotaName, Counter[_Kind]] = {}
    for pod in pods:
        mine = counts.get(pod.quota)
        if mine is None:
            mine = counts[pod.quota] = Counter()
        mine[pod.shape, pod.is_used, pod.is_ready, pod.is_fixed] += 1
    return {quota: _add_up(mine, rules) for quota, mine in counts.items()}


def _add_up(counts: Counter[_Kind], rules: QuotaRules) -> Usage:
    submitted: Counter[str] = Counter()
    demand: Counter[str] = Counter()
    used: Counter[str] = Counter()
    fixed_demand: Counter[str] = Counter()
    fixed_used: Counter[str] = Counter()
    for (shape, is_used, is_ready, is_fixed), count in counts.items():
        sums = [submitted]
        if is_used or is_ready:
            sums += [demand, fixed_demand] if is_fixed else [demand]
        if is_used:
            sums += [used, fixed_used] if is_fixed else [used]
        for key, amount in count_devices(dict(shape.requests), rules).items():
            for total in sums:
                total[key] += amount * count
    return Usage(*map(_clamp, (submitted, demand, used, fixed_demand, fixed_used)))


def _clamp(amounts: Counter[str]) -> dict[str, int]:
    return {key: max(0, amount) for key, amount in sorted(amounts.items())}
