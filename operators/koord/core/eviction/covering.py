"""The quick search: rows are emptied where that costs least, until bounds say that it is enough.

The amounts decide which units go together on a row (a *bundle* makes room for at least one more
pod); the planner confirms. First the dearest units are left out of account as a whole, as far as
the others are enough: those that a disruption budget protects, gangs, the highest priorities.

A unit whose pods differ much is looked at as if they were of a few sizes: the planner confirms, and
what was too much is spared later.

Where amounts do not tell what fits (parts of devices, reservations, quotas), rows are emptied on
the planner's cycle to count what fits there. If that is of no use either, units go in the order of
their cost.
"""

import heapq
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from operator import add, sub
from typing import Final, TypeAlias

import numpy as np

from koord.core.engine.arrays import Ints, Mask
from koord.core.eviction.model import Price, VictimUnit
from koord.core.eviction.trials import (
    REMOVAL_STEPS,
    Key,
    Load,
    Room,
    VictimSearch,
    VictimSet,
    Want,
    pods_of,
)

_MOST_SIZES: Final = 8
"""Shapes of pods that are looked at one by one."""
BUNDLE_STEPS: Final = 5
"""Array operations that take as long as finding what to evict on one row for one shape."""
_SHARES: Final = 5040
"""Divisible by all small numbers of pods: costs per pod are compared as integers."""
_Price: TypeAlias = tuple[int, ...]
_Amounts: TypeAlias = tuple[int, ...]
_Pattern: TypeAlias = tuple[tuple[_Amounts, _Amounts], int, _Amounts, tuple[_Amounts, ...]]


@dataclass(frozen=True, slots=True)
class _Bundle:
    """Units of one row, and how many more pods fit without them."""

    units: tuple[int, ...]
    gain: int
    price: _Price


def find_cover(
    search: VictimSearch, pool: Sequence[int], rows: Mask | None = None
) -> VictimSet | None:
    """Return victims out of ``pool`` (positions, the cheapest first), or None.

    With ``rows``, room is made there only.
    """
    wants = search.room.wants
    sizes = _group_by_size(wants)
    for shapes in (wants,) if len(sizes) == len(wants) else (sizes, wants):
        solution = _find_cover(search, pool, rows, shapes)
        if solution is not None or search.trials.is_over:
            return solution
    return None


def _group_by_size(wants: Sequence[Want]) -> Sequence[Want]:
    """Return a few sizes for many shapes: each as large as the largest of its shapes.

    A size counts the larger pods, too: what makes room for these must not be counted twice.
    """
    if len(wants) <= _MOST_SIZES or len({want.columns for want in wants}) > 1:
        return wants
    ordered = sorted(wants, key=lambda want: want.amounts, reverse=True)
    each, sizes, count = -(-len(ordered) // _MOST_SIZES), list[Want](), 0
    for at in range(0, len(ordered), each):
        alike = ordered[at : at + each]
        count += sum(want.count for want in alike)
        amounts = tuple(map(max, zip(*(want.amounts for want in alike), strict=True)))
        limits = np.maximum.reduce([want.limits for want in alike])
        sizes.append(replace(alike[0], count=count, amounts=amounts, limits=limits))
    return sizes


def _find_cover(
    search: VictimSearch, pool: Sequence[int], rows: Mask | None, wants: Sequence[Want]
) -> VictimSet | None:
    extra, before = 0, None
    while True:
        chosen = choose_cover(search, pool, rows, extra, wants)
        if chosen is None or chosen == before:
            return None
        solution = search.solve_with([search.units[at] for at in chosen])
        if solution is not None or search.trials.is_over:
            return solution
        extra, before = 2 * extra + 1, chosen  # bounds were too high: make more room


def choose_cover(
    search: VictimSearch,
    pool: Sequence[int],
    rows: Mask | None,
    extra: int = 0,
    wants: Sequence[Want] | None = None,
) -> list[int] | None:
    """Return victims that are enough as far as bounds tell; ``extra`` pods more."""
    shapes = _group_by_size(search.room.wants) if wants is None else wants
    chosen = _Cover(search, pool, rows).choose(shapes, extra)
    return None if chosen is None else sorted(chosen)


class _Cover:
    def __init__(self, search: VictimSearch, pool: Sequence[int], rows: Mask | None) -> None:
        self._search = search
        self._room = search.room
        self._rows = rows
        self._divisions: dict[_Pattern, list[tuple[list[int], int]]] = {}
        """Bundles of rows with equal amounts."""
        self._whole = [at for at in pool if search.units[at].gangs]
        self._by_row: dict[int, list[int]] = {}
        for at in pool:
            loads = self._room.loads[at]
            if search.units[at].gangs or not loads:
                continue
            row = loads[0][0]
            if rows is None or rows[row]:
                self._by_row.setdefault(row, []).append(at)
        self._groups = {search.units[at].group for units in self._by_row.values() for at in units}
        # The highest priority is that of the pool, whoever is chosen: what counts next is work.
        for units in self._by_row.values():
            units.sort(key=lambda at: _rank(search.prices[at]))

    def choose(self, wants: Sequence[Want], extra: int) -> set[int] | None:
        """Return units that make room for all pods, and for ``extra`` more of each shape."""
        chosen: set[int] = set()
        freed = self._room.nothing()
        spent: Counter[Key] = Counter()
        for want in sorted(wants, key=lambda want: want.amounts, reverse=True):
            if self._search.trials.is_over:
                return None
            need = want.count + extra - self._sum(want, freed)
            need = self._add_gangs(want, need, chosen, freed)
            if need > 0:
                need = self._add_bundles(want, need, chosen, freed, spent)
            if need > extra:
                return None
        return chosen

    def _sum(self, want: Want, freed: Ints) -> int:
        return self._room.sum(want, freed, self._rows)

    def _add_gangs(self, want: Want, need: int, chosen: set[int], freed: Ints) -> int:
        """Choose whole gangs, the most helpful first, until the others can do the rest."""
        left = sorted(at for at in self._whole if at not in chosen)
        if not left:
            return need
        local = self._local(chosen)
        while left:
            most, now = self._sum(want, freed + local), self._sum(want, freed)
            if most >= now + need:
                break
            gains = self._room.gains(want, freed + local, left, self._rows)
            best = int(np.minimum(gains, now + need - most).argmax())
            if gains[best] <= 0:
                break
            gang = left.pop(best)
            chosen.add(gang)
            freed += self._room.freed([gang])
            need -= self._sum(want, freed) - now
            if self._drop_surplus(self._search.units[gang].group):
                local = self._local(chosen)
        return need

    def _local(self, chosen: set[int]) -> Ints:
        """Return what units of single rows free that are not chosen yet."""
        units = (at for units in self._by_row.values() for at in units)
        return self._room.freed([at for at in units if at not in chosen])

    def _drop_surplus(self, group: str) -> bool:
        """Leave out units of a group that goes; return whether there are any."""
        if group not in self._groups:
            return False
        self._groups.discard(group)
        for row, units in self._by_row.items():
            self._by_row[row] = [at for at in units if self._search.units[at].group != group]
        return True

    def _add_bundles(
        self, want: Want, need: int, chosen: set[int], freed: Ints, spent: Counter[Key]
    ) -> int:
        """Choose the cheapest bundles of all rows, one after the other."""
        cycle = self._search.trials.cycle
        cycle.steps.take(0, BUNDLE_STEPS * len(self._by_row))
        ranks = cycle.table.name_rank
        bundles = {row: self._bundles(want, row, chosen, freed) for row in self._by_row}
        heap: list[tuple[_Price, int, int, _Bundle]] = []
        for row, row_bundles in bundles.items():
            if (first := next(row_bundles, None)) is not None:
                heap.append((first.price, int(ranks[row]), row, first))
        heapq.heapify(heap)
        while heap and need > 0:
            _, rank, row, bundle = heapq.heappop(heap)
            if self._spend(bundle, spent):
                chosen.update(bundle.units)
                for at in bundle.units:
                    for there, amounts in self._room.loads[at]:
                        freed[:, there] += amounts
                need -= bundle.gain
            if (after := next(bundles[row], None)) is not None:
                price = max(after.price, bundle.price)
                heapq.heappush(heap, (price, rank, row, after))
        return need

    def _spend(self, bundle: _Bundle, spent: Counter[Key]) -> bool:
        """Charge a bundle to the guarantees of quotas; False if they do not allow it."""
        guarantees = self._search.guarantees
        if not guarantees.is_on:
            return True
        more = spent.copy()
        for at in bundle.units:
            more.update(guarantees.charges_of(self._search.units[at]))
        if not guarantees.covers(more):
            return False
        spent.update(more - spent)
        return True

    def _bundles(self, want: Want, row: int, chosen: set[int], freed: Ints) -> Iterator[_Bundle]:
        """Yield bundles of one row, each on top of those before."""
        room = self._room
        units = [at for at in self._by_row[row] if at not in chosen]
        free = tuple((room.free[:, row] + freed[:, row]).tolist())
        # The units of a row have all their pods there.
        amounts = tuple(_add_up(room.loads[at]) for at in units)
        key = ((want.columns, want.amounts), int(want.limits[row]), free, amounts)
        divisions = self._divisions.get(key)
        if divisions is None:
            divisions = self._divisions[key] = list(_divide(room, want, row, free, amounts))
        for positions, gain in divisions:
            yield self._make([units[at] for at in positions], gain)

    def _make(self, going: Sequence[int], gain: int) -> _Bundle:
        prices = [self._search.prices[at] for at in going]
        price = (
            sum(price.violations for price in prices),
            sum(price.doubts for price in prices) * _SHARES // gain,
            sum(price.work for price in prices) * _SHARES // gain,
            len(going) * _SHARES // gain,
            max(price.priority for price in prices),
        )
        return _Bundle(tuple(going), gain, price)


def _rank(price: Price) -> tuple[int, int, int]:
    return price.violations, price.doubts, price.work


def _divide(
    room: Room, want: Want, row: int, free: _Amounts, amounts: Sequence[_Amounts]
) -> Iterator[tuple[list[int], int]]:
    """Yield which units of a row go together, by position, and how many more pods fit then."""
    copies = room.copies_at(want, row, free)
    going: list[int] = []
    for at, more in enumerate(amounts):
        going.append(at)
        free = tuple(map(add, free, more))
        gained = room.copies_at(want, row, free) - copies
        if gained <= 0:
            continue
        for spared in reversed(going[:-1]):
            less = tuple(map(sub, free, amounts[spared]))
            if room.copies_at(want, row, less) == copies + gained:
                going.remove(spared)
                free = less
        yield going, gained
        copies, going = copies + gained, []


def _add_up(loads: Sequence[Load]) -> _Amounts:
    if len(loads) == 1:
        return loads[0][1]
    return tuple(map(sum, zip(*(amounts for _, amounts in loads), strict=True)))


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
    offers = sorted(_empty_each(search, want), key=lambda offer: offer.price)
    need, tried = want.count, 0
    while tried < len(offers) and not search.trials.is_over:
        chosen = _take(offers, need)
        if len(chosen) > tried:
            solution = search.solve_with([unit for offer in chosen for unit in offer.units])
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
