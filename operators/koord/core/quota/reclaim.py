"""Reclaim: which quotas use more than they are entitled to, and which of their pods to evict.

A quota is entitled to its fair share, and to its guarantee (as scaled) even where it does not ask
for all of it. Over-use is no fault: idle capacity was lent, and its owner wants it back, or a share
fell. It says from which quotas something may be reclaimed, not that anything should be: dividing in
whole units is not monotone, so a share may fall by some units although there is more to divide
(``is_rounding``).

Units to evict are chosen in two steps (``choose_victims``):

1. From the least important on, units go until the rest is within the limit.
2. From the most important of those on, units come back that fit after all.

A unit is what can be evicted without anything else: a single pod, a member above the minimum of its
gang (*surplus*), or all that is then left of the gang (its *core*). Surplus goes before the core,
the last part first, and does not stay without it. Non-preemptible units stay, and units that use
none of what is short. Source: Koordinator's over-use revoke, which takes single pods, and of any
resources.
"""

from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Final

from koord.core.model.units import Amounts, format_amount
from koord.core.quota.ledger import Ledger
from koord.core.quota.model import QuotaName, QuotaRules
from koord.core.quota.reasons import write_amounts
from koord.core.quota.solve import solve

MOST_ROUNDED: Final = 8
"""Maximum of units that rounding may cost a quota; at most two were ever found on a level."""


@dataclass(frozen=True, slots=True)
class Overuse:
    """A quota that uses more of a resource than it is entitled to."""

    quota: QuotaName
    resource: str
    used: int
    entitled: int

    @property
    def over(self) -> int:
        return self.used - self.entitled


def find_entitlement(ledger: Ledger, name: QuotaName) -> dict[str, int]:
    """Return what may not be reclaimed from a quota, of the resources that its max names."""
    minimum = ledger.solution(name).minimum(name)
    return {
        key: max(share, minimum.get(key, 0)) for key, share in ledger.account(name).share.items()
    }


def find_overuse(ledger: Ledger) -> tuple[Overuse, ...]:
    """Return all over-use, by quota and resource."""
    overuses = []
    for name in ledger.names():
        account = ledger.account(name)
        if any(used > account.share.get(key, used) for key, used in account.used.items()):
            entitled = find_entitlement(ledger, name)
            overuses += [
                Overuse(name, key, account.used.get(key, 0), most)
                for key, most in sorted(entitled.items())
                if account.used.get(key, 0) > most
            ]
    return tuple(overuses)


def is_rounding(ledger: Ledger, over: Overuse) -> bool:
    """Whether a slightly smaller total would entitle a quota to all it uses."""
    if over.over > MOST_ROUNDED:
        return False
    solution = ledger.solution(over.quota)
    inputs = solution.inputs
    total = inputs.total.get(over.resource, 0)
    for less in range(1, MOST_ROUNDED + 1):
        fewer = {**inputs.total, over.resource: total - less}
        smaller = solve(replace(inputs, total=fewer), solution)
        if smaller.share(over.quota).get(over.resource, 0) >= over.used:
            return True
    return False


class OveruseTimer:
    """Tracks since when each quota has been over, to act once that exceeds ``seconds``.

    Times are monotonic seconds, given by the caller. The timer of a quota that was due restarts.
    """

    def __init__(self, seconds: float) -> None:
        self._seconds = seconds
        self._since: dict[QuotaName, float] = {}

    def note(self, over: Collection[QuotaName], now: float) -> list[QuotaName]:
        """Record the quotas that are over now; return those that are due, sorted."""
        self._since = {name: self._since.get(name, now) for name in over}
        due = sorted(name for name, at in self._since.items() if now - at > self._seconds)
        self._since |= dict.fromkeys(due, now)
        return due


@dataclass(frozen=True, slots=True)
class RunningUnit:
    """Pods that use a quota and are evicted together. ``started`` is seconds since the epoch.

    ``part`` 0 is the core of ``gang``, the others are surplus; units of a gang have one priority
    and one start. ``gang`` is empty for a pod on its own.
    """

    key: str
    request: Amounts
    priority: int = 0
    started: float = 0.0
    is_non_preemptible: bool = False
    gang: str = ""
    part: int = 0


def choose_victims(
    units: Iterable[RunningUnit], used: Amounts, limit: Amounts, rules: QuotaRules
) -> tuple[RunningUnit, ...]:
    """Return the units to evict, most important first; ``limit`` names the limited resources.

    If all preemptible units are not enough, all of them go that use any of what is short.
    """
    left = dict(used)
    cut: list[RunningUnit] = []
    spared: list[RunningUnit] = []
    for unit in sorted(
        (unit for unit in units if not unit.is_non_preemptible), key=least_important_first
    ):
        short = _short(left, limit)
        if not short:
            break
        helps = rules.checks_unasked or any(unit.request.get(key, 0) > 0 for key in short)
        (cut if helps else spared).append(unit)
        if helps:
            _subtract(left, unit.request)
    cores = {unit.gang for unit in cut if unit.gang and not unit.part}
    for unit in spared:
        if unit.gang in cores:
            _subtract(left, unit.request)
            cut.append(unit)
    cut.sort(key=least_important_first, reverse=True)
    if _short(left, limit):
        return tuple(cut)
    return tuple(_without_spared(cut, left, limit))


def _without_spared(
    cut: Sequence[RunningUnit], left: dict[str, int], limit: Amounts
) -> Iterable[RunningUnit]:
    gone: set[str] = set()
    """Gangs whose core goes."""
    for unit in cut:
        with_it = {key: left.get(key, 0) + unit.request.get(key, 0) for key in limit}
        if unit.gang in gone or _short(with_it, limit):
            if unit.gang and not unit.part:
                gone.add(unit.gang)
            yield unit
        else:
            left.update(with_it)


def least_important_first(unit: RunningUnit) -> tuple[int, float, str, int]:
    return (unit.priority, -unit.started, unit.gang or unit.key, -unit.part)


def _short(used: Amounts, limit: Amounts) -> list[str]:
    return [key for key, most in limit.items() if used.get(key, 0) > most]


def _subtract(left: dict[str, int], amounts: Amounts) -> None:
    for key, amount in amounts.items():
        left[key] = left.get(key, 0) - amount


def write_overuse(over: Sequence[Overuse], *, compat: bool) -> str:
    """Write how much one quota uses and is entitled to; ``compat`` adds Koordinator's words."""
    uses = "; ".join(
        f"{format_amount(overuse.resource, overuse.used)} {overuse.resource} but is entitled to "
        f"{format_amount(overuse.resource, overuse.entitled)}"
        for overuse in over
    )
    text = f"quota {over[0].quota} uses {uses}"
    if not compat:
        return text
    used = write_amounts(tuple((overuse.resource, overuse.used) for overuse in over))
    runtime = write_amounts(tuple((overuse.resource, overuse.entitled) for overuse in over))
    return f"{text} (runtime: {runtime}, used: {used})"


def write_reclaim(delay: float | None) -> str:
    """Write what follows from over-use that lasts for ``delay`` seconds; None: no evictions."""
    if delay is None:
        return (
            "no further pods start until it uses less; over-use is not reclaimed: that needs "
            "elasticQuota.reclaim and enableRuntimeQuota"
        )
    return (
        f"no further pods start until it uses less; after {delay:g}s its pods are evicted if a "
        "pending unit is entitled to what they use and could then start, or if its max is "
        "exceeded; pods labelled preemptible=false stay"
    )
