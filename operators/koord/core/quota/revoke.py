"""Which pods of a quota have to go, so that it uses no more than it may.

1. From the least important on, units go until the rest is within the limit.
2. From the most important of those on, units come back that fit after all.

A unit is a gang, or a pod on its own. What must not be evicted is not touched, nor a unit that
uses nothing of what is short. Source: Koordinator's over-use revoke, which takes single pods, and
of any resources.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from koord.core.quota.model import QuotaRules
from koord.core.units import Amounts


@dataclass(frozen=True, slots=True)
class RunningUnit:
    """A gang or pod that uses a quota. ``started`` is seconds since the epoch."""

    key: str
    request: Amounts
    priority: int = 0
    started: float = 0.0
    is_fixed: bool = False


def choose_revoked(
    units: Iterable[RunningUnit], used: Amounts, limit: Amounts, rules: QuotaRules
) -> tuple[RunningUnit, ...]:
    """Return the units to evict, most important first; ``limit`` names what is limited.

    If all that may go is not enough, all of it goes that uses something of what is short.
    """
    left = dict(used)
    cut: list[RunningUnit] = []
    for unit in sorted(units, key=_least_important_first):
        short = _short(left, limit)
        if not short:
            break
        helps = rules.checks_unasked or any(unit.request.get(key, 0) > 0 for key in short)
        if not unit.is_fixed and helps:
            _subtract(left, unit.request)
            cut.append(unit)
    cut.reverse()
    if _short(left, limit):
        return tuple(cut)
    return tuple(_without_spared(cut, left, limit))


def _without_spared(
    cut: Sequence[RunningUnit], left: dict[str, int], limit: Amounts
) -> Iterable[RunningUnit]:
    for unit in cut:
        with_it = {key: left.get(key, 0) + unit.request.get(key, 0) for key in limit}
        if _short(with_it, limit):
            yield unit
        else:
            left.update(with_it)


def _least_important_first(unit: RunningUnit) -> tuple[int, float, str]:
    return (unit.priority, -unit.started, unit.key)


def _short(used: Amounts, limit: Amounts) -> list[str]:
    return [key for key, most in limit.items() if used.get(key, 0) > most]


def _subtract(left: dict[str, int], amounts: Amounts) -> None:
    for key, amount in amounts.items():
        left[key] = left.get(key, 0) - amount
