"""Which pods of a quota have to go, so that it uses no more than it may.

1. From the least important on, units go until the rest is within the limit.
2. From the most important of those on, units come back that fit after all.

A unit is what may go without anything else: a pod on its own, a member that its gang can do without
(*surplus*), or all that is then left of the gang (its *core*). Surplus goes before the core, the
last part first, and does not stay without it. What must not be evicted is not touched, nor a unit
that uses nothing of what is short. Source: Koordinator's over-use revoke, which takes single pods,
and of any resources.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from koord.core.quota.model import QuotaRules
from koord.core.units import Amounts


@dataclass(frozen=True, slots=True)
class RunningUnit:
    """Pods that use a quota and go together. ``started`` is seconds since the epoch.

    ``part`` 0 is the core of ``gang``, the others are surplus; units of a gang have one priority
    and one start. ``gang`` is empty for a pod on its own.
    """

    key: str
    request: Amounts
    priority: int = 0
    started: float = 0.0
    is_fixed: bool = False
    gang: str = ""
    part: int = 0


def choose_revoked(
    units: Iterable[RunningUnit], used: Amounts, limit: Amounts, rules: QuotaRules
) -> tuple[RunningUnit, ...]:
    """Return the units to evict, most important first; ``limit`` names what is limited.

    If all that may go is not enough, all of it goes that uses something of what is short.
    """
    left = dict(used)
    cut: list[RunningUnit] = []
    spared: list[RunningUnit] = []
    for unit in sorted((one for one in units if not one.is_fixed), key=_least_important_first):
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
    cut.sort(key=_least_important_first, reverse=True)
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


def _least_important_first(unit: RunningUnit) -> tuple[int, float, str, int]:
    return (unit.priority, -unit.started, unit.gang or unit.key, -unit.part)


def _short(used: Amounts, limit: Amounts) -> list[str]:
    return [key for key, most in limit.items() if used.get(key, 0) > most]


def _subtract(left: dict[str, int], amounts: Amounts) -> None:
    for key, amount in amounts.items():
        left[key] = left.get(key, 0) - amount
