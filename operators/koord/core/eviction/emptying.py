"""The search where amounts do not tell what fits: parts of devices, reservations, quotas.

Rows are emptied on the planner's cycle to count what fits there. If that is of no use either, units
go in the order of their cost.
"""

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from koord.core.eviction.model import VictimUnit
from koord.core.eviction.problem import VictimSearch, VictimSet
from koord.core.eviction.room import Want
from koord.core.eviction.trial import REMOVAL_STEPS, pods_of


@dataclass(frozen=True, slots=True)
class _EmptyRow:
    """Units of one row, how many more pods fit without them, and what that costs per pod."""

    units: tuple[VictimUnit, ...]
    gain: int
    price: tuple[int, ...]


def empty_rows(search: VictimSearch) -> VictimSet | None:
    """Empty the rows where that costs least, for units with pods of one shape."""
    if len(search.room.wants) != 1:
        return None
    (want,) = search.room.wants
    offers = sorted(_empty_each(search, want), key=lambda empty_row: empty_row.price)
    need, tried = want.count, 0
    while tried < len(offers) and not search.trials.is_over:
        chosen = _take(offers, need)
        if len(chosen) > tried:
            solution = search.solve_with([unit for empty_row in chosen for unit in empty_row.units])
            if solution is not None:
                return solution
        tried, need = max(tried, len(chosen)), 2 * need
    return None


def grow(search: VictimSearch) -> VictimSet | None:
    """Try the cheapest units, twice as many each time; then those that share a quota; the dearest.

    Units that must not go together with those before them are left out.
    """
    shares = search.guarantees.shares_quota
    units = search.units
    for order in (
        units,
        sorted(units, key=lambda victim_unit: not shares(victim_unit)),
        units[::-1],
    ):
        going = _find_legal(search, order)
        count = 1
        while not search.trials.is_over:
            solution = search.solve_with(going[:count])
            if solution is not None:
                return solution
            if count >= len(going):
                break
            count = min(2 * count, len(going))
    return None


def _find_legal(search: VictimSearch, units: Sequence[VictimUnit]) -> list[VictimUnit]:
    """Return units in their order, without those that must not go with the ones before."""
    spent: Counter[tuple[str, str]] = Counter()
    whole: set[str] = set()
    parts: set[str] = set()
    going: list[VictimUnit] = []
    for unit in units:
        if unit.group in whole or (unit.gangs and unit.group in parts):
            continue
        charges = search.guarantees.charges_of(unit)
        more = {key: spent[key] + amount for key, amount in charges.items()}
        if search.guarantees.covers(more):
            spent.update(charges)
            going.append(unit)
            if unit.group:
                (whole if unit.gangs else parts).add(unit.group)
    return going


def _take(offers: Sequence[_EmptyRow], need: int) -> Sequence[_EmptyRow]:
    for at, offer in enumerate(offers, start=1):
        need -= offer.gain
        if need <= 0:
            return offers[:at]
    return offers


def _empty_each(search: VictimSearch, want: Want) -> Iterator[_EmptyRow]:
    """Empty each row by itself, and count the pods that fit there."""
    cycle = search.trials.cycle
    by_row: dict[int, list[int]] = {}
    for at, loads in enumerate(search.room.loads):
        if loads and not search.units[at].gangs:
            by_row.setdefault(loads[0][0], []).append(at)
    for row, units in by_row.items():
        if search.trials.is_over:
            return
        victims = tuple(search.units[at] for at in units)
        pods, only = pods_of(victims).values(), np.array([row])
        cycle.steps.take(0, REMOVAL_STEPS * len(pods))
        before = int(cycle.fit(want.shape, want.like, only, want.count)[0])
        mark = cycle.checkpoint()
        cycle.remove(pods)
        gain = int(cycle.fit(want.shape, want.like, only, want.count)[0]) - before
        cycle.rollback(mark)
        if gain > 0:
            prices = [search.prices[at] for at in units]
            price = (
                sum(price.violations for price in prices),
                max(price.priority for price in prices),
                sum(price.doubts for price in prices) * _SHARES // gain,
                sum(price.work for price in prices) * _SHARES // gain,
                len(units) * _SHARES // gain,
            )
            yield _EmptyRow(victims, gain, price)
