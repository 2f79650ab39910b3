"""How other schedulers order turns, in the terms of our simulation.

What is not order, such as what a blocked job keeps others from, is a matter of settings: the table
of ``queue_policies`` says which go together.
"""

from __future__ import annotations

from collections import defaultdict
from fractions import Fraction
from typing import TYPE_CHECKING

from koord.core.queue.order import OrderTerms, QueueQuota, Tournament, Waiting, lines_of

if TYPE_CHECKING:
    from collections.abc import Iterable
    from typing import Any

    from koord.core.queue.settings import Across


class ByPriority:
    """All units in one line: by priority, then time; quotas play no part."""

    def __init__(
        self, quotas: Iterable[QueueQuota], units: Iterable[Waiting], terms: OrderTerms
    ) -> None:
        del quotas, terms
        self._left = sorted(units, key=_rank, reverse=True)

    def offer(self) -> Waiting | None:
        return self._left[-1] if self._left else None

    def take(self, *, starts: bool) -> Waiting:
        del starts
        return self._left.pop()


class ByShareAfter(Tournament):
    """The share with the ask comes first, as in fair sharing of Kueue."""

    def __init__(
        self, quotas: Iterable[QueueQuota], units: Iterable[Waiting], terms: OrderTerms
    ) -> None:
        super().__init__(quotas, lines_of(units, terms), terms)

    def _rank_of_child(self, _: Across, name: str, unit: Waiting) -> tuple[Any, ...]:
        return (
            self.is_over(name, unit),
            _share(self._quotas[name], self._used[name], unit),
            -unit.priority,
            unit.since,
            name,
        )


class OneHeadEach:
    """Cycles in which each queue offers one unit, the lowest share after its ask first.

    As in Kueue with BestEffortFIFO: who does not fit is parked until something changes.
    """

    def __init__(
        self, quotas: Iterable[QueueQuota], units: Iterable[Waiting], terms: OrderTerms
    ) -> None:
        del terms
        self._quotas = {quota.name: quota for quota in quotas}
        self._used = {name: dict(quota.used) for name, quota in self._quotas.items()}
        self._lines: dict[str, list[Waiting]] = defaultdict(list)
        for unit in sorted(units, key=_rank, reverse=True):
            self._lines[unit.queue].append(unit)
        self._cycle: list[Waiting] = []

    def offer(self) -> Waiting | None:
        if not self._cycle:
            self._cycle = [line.pop() for line in self._lines.values() if line]
        return min(self._cycle, key=self._rank_in_cycle, default=None)

    def take(self, *, starts: bool) -> Waiting:
        unit = self.offer()
        if unit is None:
            raise LookupError("all had their turns")
        self._cycle.remove(unit)
        used = self._used[unit.queue]
        for key, amount in unit.ask.items() if starts else ():
            used[key] = used.get(key, 0) + amount
        return unit

    def _rank_in_cycle(self, unit: Waiting) -> tuple[Any, ...]:
        quota, used = self._quotas[unit.queue], self._used[unit.queue]
        borrows = any(used.get(key, 0) + ask > quota.min[key] for key, ask in unit.ask.items())
        return (borrows, _share(quota, used, unit), *_rank(unit))


class ByQueueShare(Tournament):
    """Queues by share of what they deserve; those above it are left out, as in Volcano."""

    def __init__(
        self, quotas: Iterable[QueueQuota], units: Iterable[Waiting], terms: OrderTerms
    ) -> None:
        quotas = list(quotas)
        deserved = {quota.name: quota.runtime for quota in quotas}
        used = {quota.name: quota.used for quota in quotas}
        within = (
            unit
            for unit in units
            if all(used[unit.queue].get(key, 0) < deserved[unit.queue][key] for key in unit.ask)
        )
        super().__init__(quotas, lines_of(within, terms), terms)

    def _rank_of_child(self, _: Across, name: str, unit: Waiting) -> tuple[Any, ...]:
        return (self._load(name), *_rank(unit))


class AdmittedByQuota:
    """By priority and time, of those that the quota admits: a misfit blocks its own quota.

    As in Koord-Queue with Block, which looks at no nodes: what is admitted waits for them.
    """

    def __init__(self) -> None:
        self._admitted: set[str] = set()

    def __call__(
        self, quotas: Iterable[QueueQuota], units: Iterable[Waiting], terms: OrderTerms
    ) -> ByPriority:
        left = {
            quota.name: {key: quota.runtime[key] - quota.used.get(key, 0) for key in quota.runtime}
            for quota in quotas
        }
        units = sorted(units, key=_rank)
        self._admitted &= {unit.key for unit in units}
        for unit in units:
            if unit.key in self._admitted:
                _charge(left[unit.queue], unit)
        blocked: set[str] = set()
        for unit in units:
            room = left[unit.queue]
            if unit.key in self._admitted or unit.queue in blocked:
                continue
            if all(room[key] >= ask for key, ask in unit.ask.items()):
                self._admitted.add(unit.key)
                _charge(room, unit)
            else:
                blocked.add(unit.queue)
        return ByPriority((), (unit for unit in units if unit.key in self._admitted), terms)


def _charge(left: dict[str, int], unit: Waiting) -> None:
    for key, ask in unit.ask.items():
        left[key] -= ask


def _share(quota: QueueQuota, used: dict[str, int], unit: Waiting) -> Fraction:
    return max(
        Fraction(used.get(key, 0) + ask, max(quota.runtime[key], 1))
        for key, ask in unit.ask.items()
    )


def _rank(unit: Waiting) -> tuple[int, int, str]:
    return (-unit.priority, unit.since, unit.key)
