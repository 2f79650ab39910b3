"""What the pods of each quota ask and use, added up and kept so as pods come and go.

Pods are counted by quota, shape and state, so that thousands of equal pods are one product. A pod
is known by its uid: a new one of the same name is another pod.
"""

from collections.abc import Callable, Iterable, Mapping
from typing import NamedTuple, TypeAlias

from koord.core.pods import PodShape
from koord.core.quota.capacity import add_up
from koord.core.quota.devices import count_devices
from koord.core.quota.model import NO_USAGE, QuotaName, QuotaRules, Usage


class PodUse(NamedTuple):
    """How one live pod counts. ``is_ready``: nothing but room is missing for it to start.

    ``is_used`` says that it has a node, or is about to be bound; ``is_fixed`` that it must not be
    evicted (label ``preemptible: "false"``), ``is_foreign`` that somebody else placed it.
    """

    uid: str
    quota: QuotaName
    shape: PodShape
    is_used: bool = False
    is_ready: bool = True
    is_fixed: bool = False
    is_foreign: bool = False


_State: TypeAlias = tuple[bool, bool, bool, bool]
"""Whether pods are used, ready, fixed, foreign."""
_Kind: TypeAlias = tuple[PodShape, _State]


class _Counted:
    """What each shape counts as; worked out once for each."""

    def __init__(self, rules: QuotaRules) -> None:
        self._rules = rules
        self._known: dict[PodShape, tuple[tuple[str, int], ...]] = {}

    def of(self, shape: PodShape) -> tuple[tuple[str, int], ...]:
        known = self._known.get(shape)
        if known is None:
            known = tuple(count_devices(dict(shape.requests), self._rules).items())
            self._known[shape] = known
        return known


class UsageTracker:
    """Quota -> what its own pods ask and use. The same pods give the same sums in any order."""

    def __init__(
        self,
        rules: QuotaRules,
        pods: Iterable[PodUse] = (),
        tell: Callable[[PodUse | None, PodUse | None], None] | None = None,
    ) -> None:
        self._tell = tell
        """Is told how a pod counted and counts now."""
        self._counted = _Counted(rules)
        self._pods: dict[str, PodUse] = {}
        self._counts: dict[QuotaName, dict[_Kind, int]] = {}
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
        if self._tell is not None:
            self._tell(before, pod)

    def remove(self, uid: str) -> None:
        """Count a pod no more: it is gone or over."""
        pod = self._pods.pop(uid, None)
        if pod is not None:
            self._count(pod, -1)
            if self._tell is not None:
                self._tell(pod, None)

    def usage(self) -> Mapping[QuotaName, Usage]:
        """Return the sums; a quota of which nothing changed keeps its very object."""
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
        """Return the sums of one quota's own pods."""
        return self.usage().get(quota, NO_USAGE)

    def _count(self, pod: PodUse, by: int) -> None:
        kind = _kind_of(pod)
        counts = self._counts.setdefault(pod.quota, {})
        count = counts.get(kind, 0) + by
        if count:
            counts[kind] = count
        else:
            del counts[kind]
        self._stale.add(pod.quota)


def sum_pods(pods: Iterable[PodUse], rules: QuotaRules) -> dict[QuotaName, Usage]:
    """Add up pods without keeping them."""
    counts: dict[QuotaName, dict[_Kind, int]] = {}
    for pod in pods:
        mine = counts.get(pod.quota)
        if mine is None:
            mine = counts[pod.quota] = {}
        kind = _kind_of(pod)
        mine[kind] = mine.get(kind, 0) + 1
    counted = _Counted(rules)
    return {quota: _add_up(mine, counted) for quota, mine in counts.items()}


def _kind_of(pod: PodUse) -> _Kind:
    return (pod.shape, (pod.is_used, pod.is_ready, pod.is_fixed, pod.is_foreign))


def _add_up(counts: Mapping[_Kind, int], counted: _Counted) -> Usage:
    by_state: dict[_State, dict[str, int]] = {}
    for (shape, state), count in counts.items():
        total = by_state.get(state)
        if total is None:
            total = by_state[state] = {}
        for key, amount in counted.of(shape):
            total[key] = total.get(key, 0) + amount * count
    return Usage(
        submitted=_join(by_state, lambda _: True),
        demand=_join(by_state, _is_demand),
        used=_join(by_state, lambda state: state[0]),
        fixed_demand=_join(by_state, lambda state: state[2] and _is_demand(state)),
        fixed_used=_join(by_state, lambda state: state[2] and state[0]),
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
