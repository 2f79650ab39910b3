"""How much quotas may lose: what they are guaranteed, in the search for victims.

What quotas are guaranteed is not preempted by units of other quotas. A unit of another quota is a
victim only as far as its quota, and every quota above that is not above the preemptor too, keeps
its guarantee. Extended resources decide where the preemptor requests them: a little CPU that is
guaranteed keeps no GPUs that are not. Within one quota priority alone decides. With Koordinator's
rules guarantees do not count, and pods of the default quota are spared.
"""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import Final, TypeAlias

from koord.core.engine.state import ClusterState
from koord.core.eviction.model import VictimUnit
from koord.core.eviction.reasons import GuaranteeKept
from koord.core.model.plan import Unit
from koord.core.model.units import is_extended
from koord.core.quota.ledger import Ledger, mask
from koord.core.quota.model import DEFAULT, QuotaName
from koord.core.quota.usage import count_devices

Key: TypeAlias = tuple[QuotaName, str]
"""A quota and a resource."""
Charges: TypeAlias = Mapping[Key, int]
_NOTHING: Charges = {}
MOST_NAMED: Final = 3
"""Quotas that are named which keep what they are guaranteed."""


class Guarantees:
    """How much each quota may lose."""

    def __init__(self, state: ClusterState, unit: Unit, *, is_reclaim: bool = False) -> None:
        self._state = state
        self.is_on = is_reclaim or (state.quotas.is_in_use and not state.gangs.compat)
        is_compatible = state.quotas.is_in_use and state.gangs.compat
        self._spares_default = is_compatible and state.quotas.rules.spares_default_quota
        self._ledger: Ledger | None = state.open_ledger() if self.is_on else None
        self._own = {
            name for pod in unit.pods for name in self._path_of(state.quotas.quota_of(pod))
        }
        self._scarce = frozenset() if is_reclaim else _scarce_requests(state, unit)
        self._spare: dict[Key, int] = {}
        self._charges: dict[str, Charges] = {}

    def allows(self, units: Iterable[VictimUnit]) -> bool:
        """Whether all of these units may go together."""
        if not self.is_on:
            return not self._spares_default or not any(map(self._is_default, units))
        lost: Counter[Key] = Counter()
        for unit in units:
            lost.update(self.charges_of(unit))
        return self.covers(lost)

    def covers(self, lost: Charges) -> bool:
        """Whether quotas may lose as much."""
        return all(amount <= self._spare_of(key) for key, amount in lost.items())

    def explain(self, units: Iterable[VictimUnit]) -> tuple[GuaranteeKept, ...]:
        """Return which quotas keep units that may not go even alone, those of most pods first."""
        kept: dict[Key, list[VictimUnit]] = {}
        for unit in units:
            charges = sorted(self.charges_of(unit).items())
            exceeded = (key for key, amount in charges if amount > self._spare_of(key))
            if (key := next(exceeded, None)) is not None:
                kept.setdefault(key, []).append(unit)
        guarantees = [self._make_kept(key, kept_units) for key, kept_units in sorted(kept.items())]
        return tuple(sorted(guarantees, key=lambda guarantee: -guarantee.pods)[:MOST_NAMED])

    def _make_kept(self, key: Key, units: Sequence[VictimUnit]) -> GuaranteeKept:
        (quota, resource), ledger = key, self._ledger
        used = 0 if ledger is None else ledger.account(quota).used.get(resource, 0)
        return GuaranteeKept(
            quota=quota,
            resource=resource,
            used=used,
            guaranteed=used - self._spare_of(key),
            least=min(self.charges_of(unit)[key] for unit in units),
            pods=len({pod.uid for unit in units for pod in unit.pods}),
        )

    def shares_quota(self, unit: VictimUnit) -> bool:
        """Whether evicting a unit relieves a quota of the preemptor."""
        return self.is_on and any(
            name in self._own
            for pod in unit.pods
            for name in self._path_of(self._state.quotas.quota_of(pod))
        )

    def charges_of(self, unit: VictimUnit) -> Charges:
        """Return what a unit uses of each quota that is not the preemptor's, by resource."""
        if self._ledger is None:
            return _NOTHING
        charges = self._charges.get(unit.key)
        if charges is None:
            charges = self._charges[unit.key] = self._add_up(unit, self._ledger)
        return charges

    def _add_up(self, unit: VictimUnit, ledger: Ledger) -> Charges:
        charges: Counter[Key] = Counter()
        quotas = self._state.quotas
        for pod in unit.pods:
            path = [name for name in self._path_of(quotas.quota_of(pod)) if name not in self._own]
            if not path:
                continue
            requests = count_devices(dict(quotas.requests_of(pod)), quotas.rules)
            for key, amount in mask(requests, ledger.account(path[0])).items():
                charges.update({(name, key): amount for name in path})
        charged = {key: amount for key, amount in charges.items() if amount > 0}
        return {key: n for key, n in charged.items() if key[1] in self._scarce} or charged

    def _is_default(self, unit: VictimUnit) -> bool:
        return any(self._state.quotas.quota_of(pod) == DEFAULT for pod in unit.pods)

    def _spare_of(self, key: Key) -> int:
        spare = self._spare.get(key)
        if spare is None and self._ledger is not None:
            name, resource = key
            used = self._ledger.account(name).used.get(resource, 0)
            solution = self._ledger.solution(name)
            kept = (solution.minimum(name), solution.guaranteed(name))
            least = max(amounts.get(resource, 0) for amounts in kept)
            # Without a guarantee everything may go, also what is not counted yet.
            spare = self._spare[key] = used - least if least else 1 << 62
        return spare or 0

    def _path_of(self, name: QuotaName) -> tuple[QuotaName, ...]:
        account = self._ledger.find(name) if self._ledger is not None else None
        return () if account is None else account.path


def _scarce_requests(state: ClusterState, unit: Unit) -> frozenset[str]:
    """Return the extended resources that a unit requests, by all names that quotas count."""
    requests = (dict(state.quotas.requests_of(pod)) for pod in unit.pods)
    counted = (count_devices(request, state.quotas.rules) for request in requests)
    return frozenset(
        key for amounts in counted for key, n in amounts.items() if n and is_extended(key)
    )
