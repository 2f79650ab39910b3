"""Leftover shares that no quota can use, pooled for the longest-waiting unit that they can start.

Fair shares are whole units of a resource, but a gang of sixteen GPUs can use sixteen or none. Two
quotas that each get eight, and each want one such gang, would both wait for ever. So:

1. All units that fit into the share of their quota are counted as started, in queue order.
2. What then is left of the shares is too small for the next unit of any quota. The first unit of
   each quota that its share blocks may use it, if everything counted so far and this unit together
   stay within what there is to divide, at every level of the tree.

The order of those units: the quota that has waited longest, counted from its last such grant; then
the one that lacks least. So of two quotas of equal weight one runs after the other. Max, and min
for non-preemptible pods, hold all the same; a quota that does not lend keeps its entitlement.
"""

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from math import inf

from koord.core.model.units import Amounts
from koord.core.quota.admission import (
    Balance,
    check_hooks,
    check_non_preemptible,
    find_blocking_reason,
    try_charge,
)
from koord.core.quota.ledger import Account, Ledger, mask
from koord.core.quota.model import NOTHING, ROOT, QuotaCharge, QuotaName, QuotaSpec, TreeId


@dataclass(frozen=True, slots=True)
class PendingUnit:
    """A complete pending unit. ``since`` is when it became complete, seconds since the epoch."""

    key: str
    charges: tuple[QuotaCharge, ...]
    since: float = 0.0


@dataclass(frozen=True)
class Leftovers:
    """Units that may exceed the share of their quota, and what all others are promised above."""

    granted: tuple[str, ...] = ()
    promised: Mapping[QuotaName, Amounts] | None = None

    def try_charge(self, ledger: Ledger, key: str, charges: Sequence[QuotaCharge]) -> bool:
        if key not in self.granted or len(charges) != 1 or self.promised is None:
            return False
        if not _Leftovers(ledger, self.promised).can_take(charges[0]):
            return False
        ledger.charge(charges[0])
        return True


def grant_leftovers(
    ledger: Ledger,
    pending: Iterable[PendingUnit],
    last_grants: Mapping[QuotaName, float],
    excluded: Collection[QuotaName] = (),
) -> Leftovers:
    """Return which units may exceed their share, given when each quota was last granted leftovers.

    Quotas that are ``excluded`` get nothing: others wait for what is being reclaimed from them.
    """
    if not ledger.rules.grants_leftovers or not ledger.rules.limits_by_share:
        return Leftovers()
    mark = ledger.checkpoint()
    blocked = [
        unit
        for unit in _heads(ledger, pending)
        if unit.charges[0].quota not in excluded and _is_any_left(ledger, unit)
    ]
    if not blocked:
        ledger.rollback(mark)
        return Leftovers()
    promised = {name: ledger.account(name).charges_above() for name in ledger.names()}
    leftovers = _Leftovers(ledger, promised)
    granted = []
    for unit in sorted(blocked, key=lambda unit: _order(ledger, unit, last_grants)):
        if leftovers.can_take(unit.charges[0]):
            leftovers.take(unit.charges[0])
            granted.append(unit.key)
    ledger.rollback(mark)
    return Leftovers(tuple(granted), promised)


def _heads(ledger: Ledger, pending: Iterable[PendingUnit]) -> list[PendingUnit]:
    """Charge the units that fit; return the first unit of each quota that its share blocks."""
    heads: dict[QuotaName, PendingUnit] = {}
    refused: set[tuple[QuotaName, tuple[tuple[str, int], ...]]] = set()
    for unit in pending:
        if len(unit.charges) != 1:
            try_charge(ledger, unit.charges)
            continue
        charge = unit.charges[0]
        request = (charge.quota, tuple(charge.request.items()))
        if request in refused:
            continue  # less is left than when the same was refused
        reason = try_charge(ledger, unit.charges)
        if reason is not None and reason.can_use_leftovers:
            heads.setdefault(charge.quota, unit)
            refused.add(request)
    return list(heads.values())


def _is_any_left(ledger: Ledger, unit: PendingUnit) -> bool:
    """Whether a tree as a whole has enough left for a unit: in a full cluster none has."""
    charge = unit.charges[0]
    solution = ledger.solution(charge.quota)
    top = solution.inputs.tree.children(ROOT)
    return all(
        amount <= solution.inputs.total.get(key, 0) - ledger.used_by(top, key)
        for key, amount in mask(charge.request, ledger.account(charge.quota)).items()
        if amount > 0
    )


def _order(
    ledger: Ledger, unit: PendingUnit, last_grants: Mapping[QuotaName, float]
) -> tuple[float, float, Fraction, QuotaName]:
    charge = unit.charges[0]
    account = ledger.account(charge.quota)
    missing = max(
        (
            Fraction(account.used.get(key, 0) + amount - account.share.get(key, 0), amount)
            for key, amount in mask(charge.request, account).items()
            if amount > 0
        ),
        default=Fraction(0),
    )
    last = last_grants.get(charge.quota, -inf)
    return (max(unit.since, last), last, missing, charge.quota)


class _Leftovers:
    """What is left at each level once every quota has what it is promised."""

    def __init__(self, ledger: Ledger, promised: Mapping[QuotaName, Amounts]) -> None:
        self._ledger = ledger
        self._promised = promised
        self._levels: dict[tuple[TreeId, QuotaName, str], int] = {}
        """(tree, parent, resource) -> the part of the parent's share that is used or promised."""

    def can_take(self, charge: QuotaCharge) -> bool:
        """Whether shares alone block a unit, and leftovers are enough for it."""
        account = self._ledger.find(charge.quota)
        reason = find_blocking_reason(self._ledger, charge)
        if account is None or reason is None or not reason.can_use_leftovers:
            return False
        request = mask(charge.request, account)
        non_preemptible = mask(charge.non_preemptible, account)
        if check_non_preemptible(account, non_preemptible) or check_hooks(self._ledger, charge):
            return False
        accounts = [self._ledger.account(name) for name in account.path]
        if any(Balance(account.spec.max, account.used, request).exceeded() for account in accounts):
            return False
        return all(
            self._has_room(account, key, amount) for key, amount in request.items() if amount > 0
        )

    def take(self, charge: QuotaCharge) -> None:
        account = self._ledger.account(charge.quota)
        path = [self._ledger.account(name) for name in account.path]
        keys = mask(charge.request, account)
        before = [(account, key, self._reserved(account, key)) for account in path for key in keys]
        self._ledger.charge(charge)
        for above, key, had in before:
            level = (above.spec.tree_id, above.spec.parent, key)
            if level in self._levels:
                self._levels[level] += self._reserved(above, key) - had

    def _has_room(self, account: Account, key: str, amount: int) -> bool:
        """Whether there is enough above the highest quota on the path that exceeds its share.

        Below that quota the parent has what it is granted, so only promises to siblings could
        block, which are part of the parent's. Above it all quotas are within their shares, but
        leftovers granted to others may have used up the shares.
        """
        accounts = [self._ledger.account(name) for name in account.path]
        sharing = [account for account in accounts if key in account.share]
        over = [at for at, account in enumerate(sharing) if self._exceeds(account, key, amount)]
        return all(
            self._is_left(account, key, amount) for account in sharing[max(over, default=0) :]
        )

    def _exceeds(self, account: Account, key: str, amount: int) -> bool:
        return account.used.get(key, 0) + amount > account.share[key]

    def _is_left(self, account: Account, key: str, amount: int) -> bool:
        """Whether the parent of a quota has enough left for what that quota would take."""
        solution = self._ledger.solution(account.spec.name)
        row = solution.inputs.tree.layout.row_of[account.spec.parent]
        total = solution.share_at(key, row)
        more = self._reserved(account, key, amount) - self._reserved(account, key)
        return total is not None and self._level(account.spec, key) + more <= total

    def _level(self, child: QuotaSpec, key: str) -> int:
        """Return what the parent of a quota and all of its children use or are promised."""
        level = (child.tree_id, child.parent, key)
        if level not in self._levels:
            tree = self._ledger.solution(child.name).inputs.tree
            children = [self._ledger.account(name) for name in tree.children(child.parent)]
            own = 0
            if child.parent != ROOT:
                parent = self._ledger.account(child.parent)
                own = self._has(parent, key) - sum(self._has(child, key) for child in children)
            reserved = sum(self._reserved(child, key) for child in children)
            self._levels[level] = reserved + max(0, own)
        return self._levels[level]

    def _reserved(self, account: Account, key: str, amount: int = 0) -> int:
        has = self._has(account, key) + amount
        lends = self._ledger.rules.lends(account.spec)
        return has if lends else max(has, account.share.get(key, 0))

    def _has(self, account: Account, key: str) -> int:
        promised = self._promised.get(account.spec.name, NOTHING)
        return max(account.charged_above(key), promised.get(key, 0))
