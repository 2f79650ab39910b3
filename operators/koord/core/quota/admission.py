"""Whether a unit may start: what it asks has to fit into its quota and all above, or nothing of it.

The checks, in order, for each quota that the unit asks of:

* the quota takes pods and is in force;
* used and asked stay within the limit (fair share, or max);
* of what must not be evicted, used and asked stay within min, as written;
* what others have registered as checks;
* the same limit for every quota above, from below.

Only resources that are asked for are looked at (Koordinator looks at all of them at the lowest
level). Nothing is charged unless everything passes.
"""

from collections.abc import Iterable
from dataclasses import replace
from typing import NamedTuple, TypeAlias

from koord.core.quota.assign import takes_pods
from koord.core.quota.ledger import Account, Ledger, mask
from koord.core.quota.model import QuotaCharge, QuotaName, QuotaRules
from koord.core.quota.reasons import (
    AncestorInsufficient,
    InsufficientEntitlement,
    InsufficientMax,
    NonPreemptibleOverMin,
    QuotaCheckFailed,
    QuotaIsParent,
    QuotaShortage,
)
from koord.core.units import Amounts

QuotaRefusal: TypeAlias = (
    InsufficientEntitlement
    | InsufficientMax
    | AncestorInsufficient
    | NonPreemptibleOverMin
    | QuotaCheckFailed
    | QuotaIsParent
)


class Balance(NamedTuple):
    """What is compared: what a quota may use, uses, and is asked for."""

    limit: Amounts
    used: Amounts
    request: Amounts

    def excess(self, *, only_asked: bool = True) -> tuple[str, ...]:
        """Return the resources of which too much would be used, by name.

        With ``only_asked`` those that are not asked for stay out of it, however much is used.
        """
        return tuple(
            key
            for key, most in sorted(self.limit.items())
            if self._is_compared(key, only_asked=only_asked)
            and self.used.get(key, 0) + self.request.get(key, 0) > most
        )

    def _is_compared(self, key: str, *, only_asked: bool) -> bool:
        if only_asked:
            return self.request.get(key, 0) > 0
        return key in self.used or key in self.request


def try_charge(
    ledger: Ledger, charges: Iterable[QuotaCharge], *, is_repair: bool = False
) -> QuotaRefusal | None:
    """Charge all that a unit asks, or say what is in the way and charge nothing.

    A repair is limited by max alone: its gang was let through as a whole before, and a share that
    others have taken since must not leave a part of it.
    """
    rules = replace(ledger.rules, limits_by_share=False) if is_repair else ledger.rules
    mark = ledger.checkpoint()
    for charge in charges:
        refusal = _find_refusal(ledger, charge, rules)
        if refusal is not None:
            ledger.rollback(mark)
            return refusal
        ledger.charge(charge)
    return None


def find_refusal(ledger: Ledger, charge: QuotaCharge) -> QuotaRefusal | None:
    """Return the first check that a charge does not pass; an unknown quota refuses nothing."""
    return _find_refusal(ledger, charge, ledger.rules)


def _find_refusal(ledger: Ledger, charge: QuotaCharge, rules: QuotaRules) -> QuotaRefusal | None:
    account = ledger.find(charge.quota)
    if account is None:
        return None
    if not takes_pods(account.spec, rules):
        return QuotaIsParent(charge.quota)
    request, fixed = mask(charge.request, account), mask(charge.fixed, account)
    return (
        check_limit(account, request, rules)
        or check_fixed(account, fixed)
        or check_others(ledger, charge)
        or _check_above(ledger, account, request, rules)
    )


def check_limit(
    account: Account, request: Amounts, rules: QuotaRules
) -> InsufficientEntitlement | InsufficientMax | None:
    """Check what is used and asked against the limit of the quota itself.

    Max is not to blame for a resource of which there is nothing at all.
    """
    balance = Balance(account.limit(rules), account.used, request)
    keys = balance.excess(only_asked=not rules.checks_unasked)
    if not keys:
        return None
    topo = (account.spec.name,)
    numbers = _numbers(balance, keys, account.capacity)
    beyond = Balance(account.spec.max, account.used, request).excess()
    if any(account.capacity is None or account.capacity.get(key, 0) > 0 for key in beyond):
        return InsufficientMax(topo, *numbers)
    return InsufficientEntitlement(topo, *numbers)


def check_fixed(account: Account, fixed: Amounts) -> NonPreemptibleOverMin | None:
    """Check what must not be evicted against min, which is its budget whatever the share."""
    balance = Balance(account.spec.min, account.fixed_used, fixed)
    keys = balance.excess()
    if not keys:
        return None
    return NonPreemptibleOverMin((account.spec.name,), *_numbers(balance, keys))


def check_ancestor(
    topo: tuple[QuotaName, ...], balance: Balance, capacity: Amounts | None = None
) -> AncestorInsufficient | None:
    """Check a request against a quota above; ``topo`` leads from there down to the pod's quota."""
    keys = balance.excess()
    return AncestorInsufficient(topo, *_numbers(balance, keys, capacity)) if keys else None


def check_others(ledger: Ledger, charge: QuotaCharge) -> QuotaCheckFailed | None:
    """Ask the checks that others have registered."""
    for name, check in ledger.checks.items():
        error = check(charge)
        if error:
            return QuotaCheckFailed(name, error)
    return None


def _check_above(
    ledger: Ledger, account: Account, request: Amounts, rules: QuotaRules
) -> AncestorInsufficient | None:
    if not rules.checks_ancestors:
        return None
    for depth, name in enumerate(account.path[1:], start=1):
        above = ledger.account(name)
        topo = tuple(reversed(account.path[: depth + 1]))
        balance = Balance(above.limit(rules), above.used, request)
        refusal = check_ancestor(topo, balance, above.capacity)
        if refusal is not None:
            return refusal
    return None


_Amounts: TypeAlias = tuple[tuple[str, int], ...]


def _numbers(
    balance: Balance, keys: Iterable[str], capacity: Amounts | None = None
) -> tuple[tuple[QuotaShortage, ...], _Amounts, _Amounts, _Amounts]:
    """Return the fields of a refusal after its ``topo``."""
    limit, used, request = balance
    short = []
    for key in keys:
        needed = used.get(key, 0) + request.get(key, 0)
        most = None if capacity is None else capacity.get(key, 0)
        offered = most if most is not None and most < needed else None
        asked = request.get(key, 0)
        short.append(QuotaShortage(key, limit[key], used.get(key, 0), asked, offered))
    return tuple(short), _sorted(limit), _sorted(used), _sorted(request)


def _sorted(amounts: Amounts) -> _Amounts:
    return tuple(sorted(amounts.items()))
