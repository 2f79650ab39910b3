"""Admission: whether a unit may start, and how much may be submitted to a quota.

A unit is charged as a whole or not at all: its requests must fit into its quota and into all quotas
above. The checks, in order, for each quota that the unit is charged to:

* the quota takes pods and is in force;
* usage plus request stay within the limit (fair share, or max);
* of non-preemptible pods, usage plus request stay within min, as written;
* the checks that hooks have registered;
* the same limit for every ancestor, from below.

Only requested resources are compared (Koordinator compares all of them at the lowest level).

The submission limit bounds what may wait and run in a quota together, so it bounds the demand, not
the usage: pods above it stay pending and are no demand. Running pods count first, then older ones.
Source: Koordinator's annotation ``quota.scheduling.koordinator.sh/admission``.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from types import MappingProxyType
from typing import NamedTuple, TypeAlias

from koord.core.model.units import Amounts
from koord.core.quota.ledger import Account, Ledger, mask
from koord.core.quota.model import BUILT_IN, QuotaCharge, QuotaName, QuotaRules, QuotaSpec, add_up
from koord.core.quota.reasons import (
    AncestorInsufficient,
    InsufficientEntitlement,
    InsufficientMax,
    NonPreemptibleOverMin,
    QuotaCheckFailed,
    QuotaExceeded,
    QuotaIsParent,
    QuotaShortage,
    RequestAboveMax,
    SubmissionExceeded,
)
from koord.core.quota.registry import takes_pods

AdmissionReason: TypeAlias = (
    InsufficientEntitlement
    | InsufficientMax
    | AncestorInsufficient
    | NonPreemptibleOverMin
    | QuotaCheckFailed
    | QuotaIsParent
)


class Balance(NamedTuple):
    """What is compared: the limit of a quota, its usage (of it ``kept``), and a request."""

    limit: Amounts
    used: Amounts
    request: Amounts
    kept: Amounts = MappingProxyType({})

    def exceeded(self, *, only_requested: bool = True) -> tuple[str, ...]:
        return tuple(
            key
            for key, most in sorted(self.limit.items())
            if self._is_compared(key, only_requested=only_requested)
            and self.used.get(key, 0) + self.request.get(key, 0) > most
        )

    def _is_compared(self, key: str, *, only_requested: bool) -> bool:
        if only_requested:
            return self.request.get(key, 0) > 0
        return key in self.used or key in self.request


def try_charge(
    ledger: Ledger, charges: Iterable[QuotaCharge], *, is_repair: bool = False
) -> AdmissionReason | None:
    """Charge all requests of a unit, or return what refuses it and charge nothing.

    A repair is limited by max alone: its gang was admitted as a whole before, and must not lose a
    part of it to a share that has shrunk since.
    """
    mark = ledger.checkpoint()
    for charge in charges:
        reason = find_blocking_reason(ledger, charge, is_repair=is_repair)
        if reason is not None:
            ledger.rollback(mark)
            return reason
        ledger.charge(charge)
    return None


def find_blocking_reason(
    ledger: Ledger, charge: QuotaCharge, *, is_repair: bool = False
) -> AdmissionReason | None:
    """Return the first check that a charge fails; an unknown quota refuses nothing."""
    rules = replace(ledger.rules, limits_by_share=False) if is_repair else ledger.rules
    account = ledger.find(charge.quota)
    if account is None:
        return None
    if not takes_pods(account.spec, rules):
        return QuotaIsParent(charge.quota)
    request, non_preemptible = mask(charge.request, account), mask(charge.non_preemptible, account)
    short = check_limit(account, request, rules)
    if isinstance(short, InsufficientEntitlement) and rules.checks_ancestors:
        # The share follows from what is above: what is never given there is said first.
        short = _find_max_above(ledger, account, request) or short
    return (
        short
        or check_non_preemptible(account, non_preemptible)
        or check_hooks(ledger, charge)
        or _check_ancestors(ledger, account, request, rules)
    )


def check_limit(
    account: Account, request: Amounts, rules: QuotaRules
) -> InsufficientEntitlement | InsufficientMax | None:
    """Check usage plus request against the limit of the quota itself.

    The refusal names max only if the tree has any of the resource at all.
    """
    balance = Balance(account.limit(rules), account.used, request, account.kept)
    keys = balance.exceeded(only_requested=not rules.checks_unasked)
    if not keys:
        return None
    topo = (account.spec.name,)
    numbers = _numbers(balance, keys, account.capacity)
    most = account.spec.max
    beyond = Balance(most, account.used, request).exceeded()
    if any(account.capacity is None or account.capacity.get(key, 0) > 0 for key in beyond):
        named = (
            replace(shortage, max=most[shortage.resource])
            if shortage.resource in beyond and shortage.limit < most[shortage.resource]
            else shortage
            for shortage in numbers[0]
        )
        kind = RequestAboveMax if _asks_for_more(most, request) else InsufficientMax
        return kind(topo, tuple(named), *numbers[1:])
    return InsufficientEntitlement(topo, *numbers)


def _asks_for_more(most: Amounts, request: Amounts) -> bool:
    """Whether a request would exceed ``max`` even if nothing was used."""
    return bool(Balance(most, {}, request).exceeded())


def check_non_preemptible(
    account: Account, non_preemptible: Amounts
) -> NonPreemptibleOverMin | None:
    """Check non-preemptible pods against min, which is their budget whatever the share."""
    balance = Balance(account.spec.min, account.non_preemptible_used, non_preemptible)
    keys = balance.exceeded()
    if not keys:
        return None
    return NonPreemptibleOverMin((account.spec.name,), *_numbers(balance, keys))


def check_ancestor(
    topo: tuple[QuotaName, ...], balance: Balance, capacity: Amounts | None = None
) -> AncestorInsufficient | None:
    """Check a request against an ancestor; ``topo`` leads from it down to the pod's quota."""
    keys = balance.exceeded()
    return AncestorInsufficient(topo, *_numbers(balance, keys, capacity)) if keys else None


def check_hooks(ledger: Ledger, charge: QuotaCharge) -> QuotaCheckFailed | None:
    for name, check in ledger.checks.items():
        error = check(charge)
        if error:
            return QuotaCheckFailed(name, error)
    return None


def _find_max_above(ledger: Ledger, account: Account, request: Amounts) -> RequestAboveMax | None:
    """Return that a request exceeds the max of a quota above, whatever is used there."""
    for depth, name in enumerate(account.path[1:], start=1):
        above = ledger.account(name)
        if _asks_for_more(above.spec.max, request):
            topo = tuple(reversed(account.path[: depth + 1]))
            balance = Balance(above.spec.max, above.used, request, above.kept)
            return RequestAboveMax(topo, *_numbers(balance, balance.exceeded(), above.capacity))
    return None


def _check_ancestors(
    ledger: Ledger, account: Account, request: Amounts, rules: QuotaRules
) -> AncestorInsufficient | RequestAboveMax | None:
    if not rules.checks_ancestors:
        return None
    never = _find_max_above(ledger, account, request)
    if never is not None:
        return never
    for depth, name in enumerate(account.path[1:], start=1):
        above = ledger.account(name)
        topo = tuple(reversed(account.path[: depth + 1]))
        balance = Balance(above.limit(rules), above.used, request, above.kept)
        reason = check_ancestor(topo, balance, above.capacity)
        if reason is not None:
            return reason
    return None


_Amounts: TypeAlias = tuple[tuple[str, int], ...]


def _numbers(
    balance: Balance, keys: Iterable[str], capacity: Amounts | None = None
) -> tuple[tuple[QuotaShortage, ...], _Amounts, _Amounts, _Amounts]:
    limit, used, request, kept = balance
    short = []
    for key in keys:
        needed = used.get(key, 0) + request.get(key, 0)
        most = None if capacity is None else capacity.get(key, 0)
        offered = most if most is not None and most < needed else None
        requested = request.get(key, 0)
        now = used.get(key, 0)
        short.append(QuotaShortage(key, limit[key], now, requested, offered, kept.get(key, 0)))
    return tuple(short), _sorted(limit), _sorted(used), _sorted(request)


def _sorted(amounts: Amounts) -> _Amounts:
    return tuple(sorted(amounts.items()))


def has_more_room(reason: QuotaExceeded, ledger: Ledger) -> bool:
    """Queueing hint: whether a refused unit is worth another try.

    It is when the quota that refused has more room for some resource that it was short of; for one
    that asks for more than ``max``, when that is enough. A deleted quota limits nothing, nor is a
    resource limited that it no longer names.
    """
    account = ledger.find(reason.quota)
    if account is None:
        return True
    if isinstance(reason, RequestAboveMax):
        most = account.spec.max
        return all(
            shortage.resource not in most or shortage.requested <= most[shortage.resource]
            for shortage in reason.shortages
        )
    limit, used = account.limit(ledger.rules), account.used
    if isinstance(reason, NonPreemptibleOverMin):
        limit, used = account.spec.min, account.non_preemptible_used
    return any(
        shortage.resource not in limit
        or limit[shortage.resource] - used.get(shortage.resource, 0)
        > shortage.limit - shortage.used
        for shortage in reason.shortages
    )


@dataclass(frozen=True, slots=True)
class Submitted:
    """A pending or running pod; ``created`` in seconds."""

    uid: str
    request: Amounts
    created: float
    is_used: bool = False

    @property
    def order(self) -> tuple[bool, float, str]:
        return (not self.is_used, self.created, self.uid)


def find_exceeding_submissions(
    spec: QuotaSpec, pods: Iterable[Submitted]
) -> dict[str, SubmissionExceeded]:
    exceeding: dict[str, SubmissionExceeded] = {}
    taken: Mapping[str, int] = {}
    for pod in sorted(pods, key=lambda submission: submission.order):
        reason = None if pod.is_used else check_submission(spec, taken, pod.request)
        if reason is None:
            taken = add_up((taken, pod.request))
        else:
            exceeding[pod.uid] = reason
    return exceeding


def check_submission(
    spec: QuotaSpec, submitted: Amounts, request: Amounts
) -> SubmissionExceeded | None:
    """Check the request of a new pod against the submission limit, given earlier submissions."""
    if spec.name in BUILT_IN:
        return None
    limit = spec.admission or spec.max
    short = tuple(
        QuotaShortage(key, limit[key], submitted.get(key, 0), amount)
        for key, amount in sorted(request.items())
        if amount > 0
        and key in limit
        and key in spec.max
        and submitted.get(key, 0) + amount > limit[key]
    )
    return SubmissionExceeded(f"{spec.namespace}/{spec.name}", short) if short else None
