"""What may be reclaimed from over-used quotas: the limits of the search for victims in reclaim.

A unit may go only if its quota, and every quota above that is not above the beneficiary too, still
uses more than it is entitled to without the victims before it. So at most the last victim of a
quota reaches below the entitlement: a gang goes as a whole or not at all.
"""

from collections import Counter, defaultdict
from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING

from typing_extensions import override

from koord.core.engine.state import ClusterState
from koord.core.eviction.guarantees import Charges, Guarantees, Key
from koord.core.eviction.model import VictimUnit
from koord.core.model.plan import Unit
from koord.core.model.pods import Pod
from koord.core.model.units import Amounts
from koord.core.quota.ledger import Ledger, mask
from koord.core.quota.model import QuotaName
from koord.core.quota.reclaim import find_entitlement
from koord.core.quota.usage import count_devices

if TYPE_CHECKING:
    from koord.core.eviction.reclaim_need import Selection


class Reclaimable(Guarantees):
    """The over-use of quotas, of the resources that the beneficiary requests.

    ``requests`` are the quota and the amounts of units by key; of others the pods are counted.
    """

    def __init__(
        self,
        state: ClusterState,
        unit: Unit,
        over: Mapping[Key, int],
        requests: Mapping[str, tuple[QuotaName, Amounts]],
    ) -> None:
        super().__init__(state, unit, is_reclaim=True)
        self._over = over
        self._requests = requests
        self._largest: Counter[Key] = Counter()

    @override
    def allows(self, units: Iterable[VictimUnit]) -> bool:
        """Whether all of these units may go together."""
        lost: dict[Key, int] = {}
        largest: dict[Key, int] = {}
        for unit in units:
            charges = self.charges_of(unit)
            if not any(self._over[key] > 0 for key in charges):
                return False
            for key, amount in charges.items():
                lost[key] = lost.get(key, 0) + amount
                largest[key] = max(largest.get(key, 0), amount)
        return self._is_over_before_last(lost, largest)

    @override
    def covers(self, lost: Charges) -> bool:
        """Whether units may go that use this, if one of them is the largest of all."""
        return self._is_over_before_last(lost, self._largest)

    @override
    def _add_up(self, unit: VictimUnit, ledger: Ledger) -> Charges:
        quota_and_request = self._requests.get(unit.key)
        if quota_and_request is None:
            amounts = super()._add_up(unit, ledger)
        else:
            name, request = quota_and_request
            path = [quota for quota in ledger.account(name).path if quota not in self._own]
            amounts = {(name, key): n for name in path for key, n in request.items() if n > 0}
        charges = {key: amount for key, amount in amounts.items() if key in self._over}
        self._largest |= Counter(charges)
        return charges

    def _is_over_before_last(self, lost: Charges, largest: Mapping[Key, int]) -> bool:
        left: defaultdict[QuotaName, list[int]] = defaultdict(list)
        for key, amount in lost.items():
            left[key[0]].append(self._over[key] - amount + largest[key])
        return all(max(amounts_left) > 0 for amounts_left in left.values())


def find_reclaimable(
    state: ClusterState,
    ledger: Ledger,
    selections: Sequence["Selection"],
    going: Iterable[Pod],
    keys: Collection[str],
) -> dict[Key, int]:
    """Return how far quotas, and those above, are over without pods that leave or are ``going``.

    Only ``keys`` are counted, and no quota is over that is by rounding alone.
    """
    gone: Counter[Key] = Counter()
    for pod in (*going, *(pod for selection in selections for pod in selection.terminating)):
        account = ledger.account(state.quotas.quota_of(pod))
        requests = count_devices(dict(state.quotas.requests_of(pod)), state.quotas.rules)
        for key, amount in mask(requests, account).items():
            gone.update({(name, key): amount for name in account.path})
    reclaimable: dict[Key, int] = {}
    for selection in selections:
        counted = {over.resource for over in selection.over}
        for name in ledger.account(selection.quota).path:
            used = ledger.account(name).used
            for key, entitled in find_entitlement(ledger, name).items():
                is_over = name != selection.quota or key in counted
                if key in keys:
                    reclaimable[name, key] = is_over * (
                        used.get(key, 0) - gone[name, key] - entitled
                    )
    return reclaimable
