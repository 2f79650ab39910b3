"""Quotas in one planning cycle: a unit is admitted and charged, or refused.

The session knows from the cache which quota a pod belongs to, and tries units on a ledger of the
cycle. Which nodes are chosen is not known here.
"""

from collections import Counter, defaultdict
from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import replace
from typing import Final, TypeAlias

from typing_extensions import override

from koord.core.engine.plugin import Admission, Admitting, FilterReach
from koord.core.model.plan import Unit, UnitKey, Unplaced
from koord.core.model.pods import Allocation, Pod, PodShape
from koord.core.model.reasons import InternalError, Reason
from koord.core.model.units import Amounts
from koord.core.quota.admission import find_blocking_reason, has_more_room, try_charge
from koord.core.quota.cache import QuotaCache, is_used
from koord.core.quota.ledger import Ledger
from koord.core.quota.leftovers import Leftovers, PendingUnit, grant_leftovers
from koord.core.quota.model import BUILT_IN, NOTHING, QuotaCharge, QuotaName, TreeId, add_up
from koord.core.quota.profile import restrict_terms
from koord.core.quota.reasons import (
    PriorityNotAllowed,
    QuotaExceeded,
    QuotaGone,
    QuotaNotInForce,
    QuotasNotServed,
)

MOST_REMEMBERED: Final = 1024
"""Units that are remembered beyond twice those that wait."""


QuotaKind: TypeAlias = tuple[QuotaName, tuple[tuple[str, int], ...], bool]
"""Quota, amounts, and whether it is non-preemptible: what pods that are charged alike share."""


class QuotaSession(Admitting):
    """Quotas in one cycle; charges are on the undo log of the cycle.

    ``pending`` returns all complete units that wait, in order: leftovers are those of all.
    """

    name = "quota"
    after = ("budgets",)  # what a budget leaves out is not charged
    reach = FilterReach.NOTHING

    def __init__(
        self,
        cache: QuotaCache,
        ledger: Ledger,
        pending: Callable[[], Iterable[Unit]],
    ) -> None:
        self._over_share: dict[UnitKey, QuotaName] = {}
        """Unit -> the quota that exceeds its share for it."""
        self._repaired: set[str] = set()
        """Groups of which a unit was let through beyond its share."""
        self._cache = cache
        self._ledger = ledger
        self._pending = pending
        self._leftovers: Leftovers | None = None
        self._newest = 0.0
        self._charges: dict[QuotaKind, QuotaCharge] = {}
        self._pools = cache.pools()
        self._confined: dict[tuple[TreeId, PodShape], PodShape] = {}

    @override
    def narrow(self, pod: Pod, shape: PodShape) -> PodShape:
        """Keep a pod on the nodes of the tree that its quota is in."""
        if not self._pools:
            return shape
        spec = self._cache.catalog.registry.get(self._cache.quota_of(pod))
        if spec is None or spec.tree_id not in self._pools:
            return shape
        key = (spec.tree_id, shape)
        confined = self._confined.get(key)
        if confined is None:
            terms = restrict_terms(shape.terms, *self._pools[spec.tree_id])
            confined = self._confined[key] = replace(shape, terms=terms)
        return confined

    @override
    def pre_filter(self, unit: Unit) -> Admission | Unplaced:
        """Charge a unit, with as much of its surplus as its quotas allow, or refuse it."""
        required = _required(unit)
        over_share, reason = self._charge_required(unit, required)
        if reason is not None:
            return Unplaced(unit.key, unit.pods, reason)
        surplus = _without(unit.pods, required) if len(required) < len(unit.pods) else ()
        left, left_reason = self._charge_surplus(surplus)
        if left and len(left) == len(unit.pods) and left_reason is not None:
            return Unplaced(unit.key, unit.pods, left_reason)
        if over_share:
            self._over_share[unit.key] = over_share
        return Admission(_reduce(unit, left) if left else unit, left, left_reason)

    @override
    def settle(self, unit: Unit, placed: Sequence[Pod]) -> None:
        if len(placed) == len(unit.pods):
            return
        for charge in self._charges_of(_without(unit.pods, placed)):
            self._ledger.charge(_times(charge, -1))

    @override
    def release(self, pod: Pod, row: int) -> Sequence[Allocation]:
        self._count(pod, -1)
        return ()

    @override
    def adopt(self, pod: Pod, row: int, allocations: Sequence[Allocation]) -> None:
        self._count(pod, 1)

    def kinds_of(self, pods: Iterable[Pod]) -> Counter[QuotaKind]:
        """Count what is charged for pods, for :meth:`count_all`."""
        return Counter(map(self._kind_of, pods))

    def count_all(self, kinds: Counter[QuotaKind], times: int) -> None:
        """Charge pods (1), or take their charges back (-1)."""
        self.charge_all(self.add_up(kinds), times)

    def add_up(self, kinds: Counter[QuotaKind]) -> Sequence[QuotaCharge]:
        """Return what pods are charged for, one charge for each quota."""
        requests: defaultdict[QuotaName, Counter[str]] = defaultdict(Counter)
        non_preemptible: defaultdict[QuotaName, Counter[str]] = defaultdict(Counter)
        for kind, count in kinds.items():
            charge = self._charge_of(kind)
            for total, amounts in (
                (requests[charge.quota], charge.request),
                (non_preemptible[charge.quota], charge.non_preemptible),
            ):
                for key, amount in amounts.items():
                    total[key] += amount * count
        return [QuotaCharge(name, requests[name], non_preemptible[name]) for name in requests]

    def charge_all(self, charges: Iterable[QuotaCharge], times: int) -> None:
        """Count charges so many times."""
        for charge in charges:
            self._ledger.charge(_times(charge, times))

    def _count(self, pod: Pod, count: int) -> None:
        self._ledger.charge(_times(self._charge_of(self._kind_of(pod)), count))

    @override
    def hold(self, pod: Pod, count: int) -> bool:
        """Charge kept room up to max, like a repair; a pod that counts as used has paid already."""
        use = self._cache.usage.get(pod.uid)
        if use is not None and use.is_used:
            return True
        charge = _times(self._charge_of(self._kind_of(pod)), count)
        if count > 0 and find_blocking_reason(self._ledger, charge, is_repair=True) is not None:
            return False
        self._ledger.charge(charge, is_kept=True)
        return True

    def _kind_of(self, pod: Pod) -> QuotaKind:
        return self._cache.quota_of(pod), self._cache.requests_of(pod), pod.is_non_preemptible

    @property
    def ledger(self) -> Ledger:
        """What all quotas use and may use, with what was started here."""
        return self._ledger

    def ask_of(self, unit: Unit) -> Amounts:
        """Return what a unit asks at least of the quota of its first pod."""
        name = self._cache.quota_of(unit.pods[0])
        charges = self._charges_of(_required(unit) or unit.pods)
        return next((charge.request for charge in charges if charge.quota == name), NOTHING)

    def leftovers_given(self, placed: Collection[UnitKey]) -> dict[QuotaName, float]:
        """Return the quotas that were given leftovers for these units, and when."""
        return {quota: self._newest for unit, quota in self._over_share.items() if unit in placed}

    @property
    def granted(self) -> Collection[UnitKey]:
        """The units that may exceed the share of their quota; none until one has needed it."""
        return () if self._leftovers is None else self._leftovers.granted

    def is_relieved(self, unit: Unit, reason: Reason) -> bool:
        """Whether a unit that quotas refused is worth another try."""
        if isinstance(reason, QuotaExceeded):
            may_use_leftovers = reason.can_use_leftovers
            return has_more_room(reason, self._ledger) or (
                may_use_leftovers and (unit.is_repair or unit.key in self._find_leftovers().granted)
            )
        return self._find_blocking_reason(_required(unit) or unit.pods) != reason

    def _charge_required(self, unit: Unit, pods: Sequence[Pod]) -> tuple[QuotaName, Reason | None]:
        reason = self._find_blocking_reason(pods)
        if reason is not None:
            return "", reason
        charges = self._charges_of(pods)
        exceeded = try_charge(self._ledger, charges)
        is_share = exceeded is not None and exceeded.can_use_leftovers
        if is_share and self._repair(unit, charges):
            return "", None
        if is_share and self._find_leftovers().try_charge(self._ledger, unit.key, charges):
            return charges[0].quota, None
        return "", exceeded

    def _repair(self, unit: Unit, charges: Sequence[QuotaCharge]) -> bool:
        """Charge one unit of each gang that has lost members, whatever its share is by now.

        The next cycle knows how much it then lacks.
        """
        if not unit.is_repair or unit.group in self._repaired:
            return False
        if try_charge(self._ledger, charges, is_repair=True) is not None:
            return False
        self._repaired.add(unit.group)
        return True

    def _charge_surplus(self, pods: Sequence[Pod]) -> tuple[tuple[Pod, ...], Reason | None]:
        may_start = self._find_blocking_reason(pods) is None
        if may_start and try_charge(self._ledger, self._charges_of(pods)) is None:
            return (), None
        left: list[Pod] = []
        first: Reason | None = None
        for pod in pods:
            reason = self._find_blocking_reason((pod,)) or try_charge(
                self._ledger, self._charges_of((pod,))
            )
            if reason is not None:
                left.append(pod)
                first = first or reason
        return tuple(left), first

    def _find_blocking_reason(self, pods: Sequence[Pod]) -> Reason | None:
        """Return why pods cannot start in their quota at all, however much it has."""
        catalog, refused = self._cache.catalog, self._cache.exceeding_submissions
        for pod in pods if refused else ():
            if pod.uid in refused:
                return refused[pod.uid]
        names = sorted({self._cache.quota_of(pod) for pod in pods})
        for pod in pods if self._cache.has_blocked_pods else ():
            reason = self._cache.reason_of(pod)
            if reason is not None:
                return reason
        for name in names:
            failure = self._cache.failure_of(name)
            if failure is not None:
                return InternalError(type(failure).__name__, name)
            if name not in catalog.registry.specs and catalog.is_written(name):
                problem = catalog.problem_of(name)
                if problem is not None:
                    return QuotaNotInForce(problem)
        lost = self._find_lost(pods) if catalog.gone or catalog.is_missing else None
        return lost or (self._find_priority(pods) if catalog.registry.limits_priority else None)

    def _find_priority(self, pods: Iterable[Pod]) -> Reason | None:
        """Return the refusal of a pod whose priority is too high; released ones go on."""
        registry = self._cache.catalog.registry
        highest: dict[QuotaName, int] = {}
        for pod in pods:
            if not is_used(pod):
                name = self._cache.quota_of(pod)
                highest[name] = max(pod.priority, highest.get(name, pod.priority))
        for name, priority in sorted(highest.items()):
            limit = registry.find_priority_limit(name)
            if limit is not None and priority > limit[1]:
                return PriorityNotAllowed(limit[0], priority, limit[1])
        return None

    def _find_lost(self, pods: Iterable[Pod]) -> Reason | None:
        """Return what keeps pods from starting whose quota has been lost; released ones go on."""
        catalog = self._cache.catalog
        for name in sorted({self._cache.quota_of(pod) for pod in pods if not is_used(pod)}):
            if catalog.is_missing and name in catalog.known_names and name not in BUILT_IN:
                return QuotasNotServed(name)
            if name in catalog.gone:
                return QuotaGone(name)
        return None

    def _find_leftovers(self) -> Leftovers:
        if self._leftovers is None:
            units = list(self._pending())
            if len(self._cache.pending_units) > 2 * len(units) + MOST_REMEMBERED:
                self._cache.pending_units.clear()
            pending = [self._as_pending(unit) for unit in units]
            self._newest = max((unit.since for unit in pending), default=0.0)
            self._leftovers = grant_leftovers(
                self._ledger, pending, self._cache.leftovers_given, self._cache.without_leftovers
            )
        return self._leftovers

    def _as_pending(self, unit: Unit) -> PendingUnit:
        unit_and_pending = self._cache.pending_units.get(unit.key)
        if unit_and_pending is None or unit_and_pending[0] is not unit:
            pods = _required(unit) or unit.pods[:1]
            pending = PendingUnit(unit.key, tuple(self._charges_of(pods)), unit.since)
            unit_and_pending = self._cache.pending_units[unit.key] = (unit, pending)
        return unit_and_pending[1]

    def _charges_of(self, pods: Iterable[Pod]) -> list[QuotaCharge]:
        """Return what pods ask of each quota; those that were released are counted already."""
        counts: dict[QuotaKind, int] = {}
        for pod in pods:
            if pod.recorded is None or pod.is_gated:
                kind = self._kind_of(pod)
                counts[kind] = counts.get(kind, 0) + 1
        if len(counts) == 1:
            ((kind, count),) = counts.items()
            return [_times(self._charge_of(kind), count)]
        charges: dict[QuotaName, list[QuotaCharge]] = {}
        for kind, count in counts.items():
            charges.setdefault(kind[0], []).append(_times(self._charge_of(kind), count))
        return [
            QuotaCharge(
                name,
                add_up(charge.request for charge in charges_of_quota),
                add_up(charge.non_preemptible for charge in charges_of_quota),
            )
            for name, charges_of_quota in sorted(charges.items())
        ]

    def _charge_of(self, kind: QuotaKind) -> QuotaCharge:
        charge = self._charges.get(kind)
        if charge is None:
            quota, requests, is_non_preemptible = kind
            request = dict(self._cache.usage.counted_of(requests))
            charge = self._charges[kind] = QuotaCharge(
                quota, request, request if is_non_preemptible else {}
            )
        return charge


def _times(charge: QuotaCharge, count: int) -> QuotaCharge:
    if count == 1:
        return charge
    return QuotaCharge(
        charge.quota,
        {key: amount * count for key, amount in charge.request.items()},
        {key: amount * count for key, amount in charge.non_preemptible.items()},
    )


def _required(unit: Unit) -> tuple[Pod, ...]:
    return tuple(pod for demand in unit.demands for pod in demand.pods[: demand.required])


def _without(pods: Sequence[Pod], excluded: Sequence[Pod]) -> tuple[Pod, ...]:
    uids = {pod.uid for pod in excluded}
    return tuple(pod for pod in pods if pod.uid not in uids)


def _reduce(unit: Unit, left: Sequence[Pod]) -> Unit:
    demands = (replace(demand, pods=_without(demand.pods, left)) for demand in unit.demands)
    return replace(unit, demands=tuple(demand for demand in demands if demand.pods))
