"""Quotas of the model: how users write them, and what may start and be evicted under them.

Judged from objects alone: charged is what bound and released pods request. Shares are not computed
here, so the rules are those that hold whatever the shares are. Knows no network.
"""

from bisect import bisect_right
from collections import Counter, deque
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from typing import Final

from tests.model.objects import (
    GPU,
    NAMESPACE,
    allocatable_of,
    gang_of,
    gpus_of,
    has_ended,
    is_open,
    name_of,
    node_of,
    quota_of,
    uid_of,
)
from tests.model.store import NODES, PODS, QUOTAS, Event, Obj

from koord.api.keys import quota as keys

PATH: Final = f"/apis/scheduling.sigs.k8s.io/v1alpha1/namespaces/{NAMESPACE}/elasticquotas"
ROOT: Final = "q"
PARENTS: Final = {"qa": ROOT, "qb": ROOT}
"""Quota of pods -> the quota above it."""
GUARANTEED: Final = 8
"""``min`` of the root, always: that of its children is never more in sum."""
LIMITS: Final = {
    ROOT: ((GUARANTEED, 16), (GUARANTEED, 32), (GUARANTEED, 64)),
    **dict.fromkeys(PARENTS, ((0, 4), (0, 8), (4, 4), (4, 8), (0, 16), (4, 32))),
}
"""Quota -> pairs of ``min`` and ``max`` that are valid with all pairs of the others."""
RECLAIM_AFTER: Final = "1s"
"""Over-use is reclaimed after this time."""
_MEMORY: Final = 4096
_MEMORY_SECONDS: Final = 30.0
"""Victims are chosen at most this long before they are marked, also when answers are slow."""


def make_quota(name: str, least: int, most: int, labels: dict[str, str]) -> Obj:
    """Return an ElasticQuota to create; labels without their prefix."""
    return {
        "apiVersion": "scheduling.sigs.k8s.io/v1alpha1",
        "kind": "ElasticQuota",
        "metadata": {
            "name": name,
            "namespace": NAMESPACE,
            "labels": {f"{keys.PREFIX}{key}": value for key, value in labels.items()},
        },
        "spec": {"min": {GPU: str(least)}, "max": {GPU: str(most)}},
    }


def make_quota_of_tree(name: str, least: int, most: int) -> Obj:
    """Return a quota of the tree of ``PARENTS``."""
    is_root = name == ROOT
    labels = {"is-parent": "true"} if is_root else {"parent": PARENTS[name]}
    return make_quota(name, least, most, labels)


def chain_of(pod: Obj) -> tuple[str, ...]:
    """Return the quota of a pod and the one above it; empty for none."""
    name = quota_of(pod)
    return (name, PARENTS[name]) if name in PARENTS else ()


@dataclass(frozen=True, slots=True)
class _Charge:
    pod: Obj
    foreign_at: int
    """The revision at which somebody else bound it; 0: the operators started it."""


@dataclass(slots=True)
class QuotaRules:
    """Keeps what is charged to each quota, and the limits over time.

    ``clock`` returns seconds. Rules for evictions hold as long as the nodes have what is
    guaranteed, for quotas whose use was within that for some time.
    """

    blame: Callable[[str], None]
    clock: Callable[[], float]
    _limits: dict[str, list[tuple[int, int, int]]] = field(default_factory=dict)
    """Quota -> (revision, min, max) from that revision on."""
    _charges: dict[str, _Charge] = field(default_factory=dict)
    _nodes: dict[str, Obj] = field(default_factory=dict)
    _sizes: dict[str, list[tuple[int, int]]] = field(default_factory=dict)
    """Node -> (revision, what it has) from that revision on."""
    _pods: dict[str, Obj] = field(default_factory=dict)
    _borrowed: dict[str, deque[tuple[float, int]]] = field(default_factory=dict)
    """Quota -> how much more than its ``min`` it used, and when."""
    _chosen: dict[str, tuple[str, str, int]] = field(default_factory=dict)
    """Pods chosen for eviction since limits changed or something started -> quota, unit, GPUs."""

    def note(self, event: Event) -> None:
        """Take a change in; starts are judged by :meth:`start`."""
        name = name_of(event.obj)
        if event.kind == QUOTAS and name in LIMITS:
            spec = event.obj["spec"]
            limits = event.revision, int(spec["min"][GPU]), int(spec["max"][GPU])
            self._limits.setdefault(name, []).append(limits)
            self._chosen.clear()
        elif event.kind == NODES:
            self._nodes.pop(name, None)
            size = 0
            if event.type != "DELETED":
                self._nodes[name] = event.obj
                size = allocatable_of(event.obj)
            self._sizes.setdefault(name, []).append((event.revision, size))
        elif event.kind == PODS:
            self._note_pod(event)
        if len(self._limits) == len(LIMITS):
            self._note_borrowing()

    def _note_pod(self, event: Event) -> None:
        pod, uid = event.obj, uid_of(event.obj)
        self._pods.pop(uid, None)
        is_over = event.type == "DELETED" or has_ended(pod)
        if not is_over:
            self._pods[uid] = pod
        if is_over or (not node_of(pod) and "deletionTimestamp" in pod["metadata"]):
            self._charges.pop(uid, None)
        elif node_of(pod) and uid not in self._charges:
            self._charge(pod, event.revision)

    def _charge(self, pod: Obj, foreign_at: int) -> None:
        self._charges[uid_of(pod)] = _Charge(pod, foreign_at)
        self._chosen.clear()

    def start(self, pod: Obj, seen: dict[str, int]) -> None:
        """Charge a pod that the operators release or bind, decided with what they had seen."""
        uid = uid_of(pod)
        is_known = uid in self._charges and not self._charges[uid].foreign_at
        if not self._limits or is_known or has_ended(pod):
            return
        self._charge(pod, 0)
        for quota in chain_of(pod):
            # What others bind after the decision is no fault of the operators.
            used = self._used_at_least(quota, seen)
            most = max(limit for _, _, limit in self._limits_since(quota, seen.get(QUOTAS, 0)))
            if used > most:
                self.blame(f"{name_of(pod)} starts in {quota}, which then uses {used} of {most}")

    def judge_eviction(self, pod: Obj, mates: Iterable[Obj]) -> None:
        """Check a pod that goes with ``mates``, itself included.

        One of their quotas has used more than its ``min``, and would without any other victim.
        """
        self._note_borrowing()
        began = self.clock() - _MEMORY_SECONDS
        mates = list(mates)
        # The name of a gang stays the same when members that were chosen with it are gone.
        unit = min(gang_of(one) or uid_of(one) for one in mates)
        self._chosen[uid_of(pod)] = quota_of(pod), unit, gpus_of(pod)
        for quota in {quota_of(one) for one in mates} & self._borrowed.keys():
            units: Counter[str] = Counter()
            for its, key, gpus in self._chosen.values():
                units[key] += gpus * (its == quota)
            others = units.total() - min((+units).values(), default=0)
            if others < max(more for at, more in self._borrowed[quota] if at >= began):
                return
        self.blame(f"{name_of(pod)} is evicted, and its quota is within its min without")

    def spare(self, pod: Obj) -> None:
        """Note that a pod that was chosen stays after all."""
        self._chosen.pop(uid_of(pod), None)

    def is_ample(self) -> bool:
        """Whether there is enough for all that the pods of the quotas ask for: all may start."""
        asked = dict.fromkeys(LIMITS, 0)
        for pod in self._pods.values():
            for quota in chain_of(pod):
                asked[quota] += gpus_of(pod)
        most = {quota: limits[-1][2] for quota, limits in self._limits.items()}
        return asked[ROOT] <= self._capacity() and all(
            asked[quota] <= most.get(quota, 0) for quota in LIMITS
        )

    def _note_borrowing(self) -> None:
        is_scarce = self._capacity() < GUARANTEED
        for name in PARENTS:
            more = self._used(name) - (0 if is_scarce else self._limits[name][-1][1])
            self._borrowed.setdefault(name, deque(maxlen=_MEMORY)).append((self.clock(), more))

    def _capacity(self) -> int:
        """Return what the nodes have for quotas, at least."""
        others = sum(gpus_of(one.pod) for one in self._charges.values() if not chain_of(one.pod))
        return sum(allocatable_of(one) for one in self._nodes.values() if is_open(one, "")) - others

    def _used(self, quota: str) -> int:
        return sum(gpus_of(one.pod) for one in self._charges.values() if quota in chain_of(one.pod))

    def _used_at_least(self, quota: str, seen: dict[str, int]) -> int:
        """Return the use that a decision had to count.

        Not what others bound after it, nor more of what they bound than its node has had since:
        such pods use no more than that, and nothing on a node that is gone.
        """
        total = 0
        for charge in self._charges.values():
            if quota not in chain_of(charge.pod) or charge.foreign_at > seen.get(PODS, 0):
                continue
            gpus = gpus_of(charge.pod)
            if charge.foreign_at:
                gpus = min(gpus, self._least_size(node_of(charge.pod), seen.get(NODES, 0)))
            total += gpus
        return total

    def _least_size(self, node: str, revision: int) -> int:
        sizes = self._sizes.get(node, [(0, 0)])
        at = max(0, bisect_right(sizes, (revision, 1 << 60)) - 1)
        return min(size for _, size in sizes[at:])

    def _limits_since(self, quota: str, revision: int) -> Iterator[tuple[int, int, int]]:
        limits = self._limits[quota]
        yield from limits[max(0, bisect_right(limits, (revision, 1 << 60, 0)) - 1) :]
