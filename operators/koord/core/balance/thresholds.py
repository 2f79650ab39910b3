"""From percentages to amounts: what of a node is low, and what is too much.

Resources that are named in one map only are completed as in Koordinator; settings in which that
matters are refused before (``settings.py``), unless compatibility is wanted.
"""

from collections.abc import Iterable
from dataclasses import dataclass, replace
from math import floor
from typing import Final

from koord.core.balance.detectors import DetectorKind
from koord.core.balance.model import (
    BalanceNode,
    NodeClass,
    Percentages,
    Thresholds,
)
from koord.core.model.units import MEMORY, Amounts

_ALL: Final = 100.0


@dataclass(frozen=True, slots=True)
class LoadLimits:
    """Amounts of one node, and the percentages that they were made from."""

    low: Amounts
    high: Amounts
    percent: Percentages


@dataclass(frozen=True, slots=True)
class NodeLimits:
    """The limits of all that a node uses, and of what pods of class prod use."""

    total: LoadLimits
    prod: LoadLimits

    def of(self, kind: DetectorKind) -> LoadLimits:
        return self.prod if kind is DetectorKind.PROD else self.total


def complete(thresholds: Thresholds) -> Thresholds:
    """Fill in what is missing in the low maps; memory is always there."""
    names = {MEMORY, *thresholds.low, *thresholds.high}
    names |= {*thresholds.prod_low, *thresholds.prod_high}
    unlimited = 0.0 if thresholds.are_deviations else _ALL
    low, high = dict(thresholds.low), dict(thresholds.high)
    prod_low, prod_high = dict(thresholds.prod_low), dict(thresholds.prod_high)
    for name in names:
        if name not in low:
            low[name] = high[name] = unlimited
        if name not in prod_low:
            prod_low[name] = prod_high[name] = unlimited
    return replace(thresholds, low=low, high=high, prod_low=prod_low, prod_high=prod_high)


def amount_of(percent: float, capacity: int) -> int:
    """Return a share of a capacity; 29 % of 100 is 28, in floating point as in Koordinator."""
    return int(float(percent) * 0.01 * capacity)


def find_limits(thresholds: Thresholds, nodes: Iterable[BalanceNode]) -> dict[str, NodeLimits]:
    """Return the limits of each node; ``thresholds`` are complete."""
    nodes = tuple(nodes)
    averages: tuple[Percentages, Percentages] = ({}, {})
    if thresholds.are_deviations:
        averages = (
            _average(thresholds.low, [(node.measure(), node.capacity) for node in nodes]),
            _average(
                thresholds.prod_low,
                [(node.measure(only_prod=True), node.capacity) for node in nodes],
            ),
        )
    return {
        node.name: NodeLimits(
            _limits(thresholds, thresholds.low, thresholds.high, averages[0], node.capacity),
            _limits(
                thresholds, thresholds.prod_low, thresholds.prod_high, averages[1], node.capacity
            ),
        )
        for node in nodes
    }


def _average(names: Iterable[str], loads: Iterable[tuple[Amounts, Amounts]]) -> dict[str, float]:
    loads = tuple(loads)
    return {
        name: sum(percent_of(used.get(name, 0), capacity.get(name, 0)) for used, capacity in loads)
        / max(len(loads), 1)
        for name in names
    }


def percent_of(used: int, capacity: int) -> float:
    return 100.0 * used / capacity if capacity > 0 else 0.0


def _limits(
    thresholds: Thresholds,
    low: Percentages,
    high: Percentages,
    averages: Percentages,
    capacity: Amounts,
) -> LoadLimits:
    below, above, percent = {}, {}, {}
    for name in low:
        least, most = low[name], high.get(name, 0.0)
        if thresholds.are_deviations:
            if not least:  # not limiting
                least = most = _ALL
            else:
                least = _clamp(averages[name] - least)
                most = _clamp(averages[name] + most)
        below[name] = amount_of(least, capacity.get(name, 0))
        above[name] = amount_of(most, capacity.get(name, 0))
        percent[name] = most
    return LoadLimits(below, above, percent)


def _clamp(percent: float) -> float:
    return min(max(percent, 0.0), _ALL)


def lower(limits: LoadLimits, points: float, capacity: Amounts) -> Amounts:
    """Return the high amounts with so many percentage points less, not below the low ones.

    A resource that is not limited (100 %) stays so.
    """
    return {
        name: high
        if limits.percent[name] >= _ALL
        else max(limits.low[name], amount_of(limits.percent[name] - points, capacity.get(name, 0)))
        for name, high in limits.high.items()
    }


def is_under(used: Amounts, limits: LoadLimits) -> bool:
    """Whether no resource that has a value is above its low amount."""
    return all(used[name] <= low for name, low in limits.low.items() if name in used)


def find_over(used: Amounts, limits: LoadLimits) -> tuple[str, ...]:
    """Return the resources above their high amount, by name."""
    return tuple(
        sorted(name for name, high in limits.high.items() if name in used and used[name] > high)
    )


def classify(
    used: Amounts, prod: Amounts, limits: NodeLimits, *, is_schedulable: bool
) -> NodeClass:
    """Return what a node is: the first that holds, in the order of Koordinator."""
    prod_is_over = bool(find_over(prod, limits.prod))
    prod_is_under = is_schedulable and is_under(prod, limits.prod)
    if is_schedulable and is_under(used, limits.total):
        if prod_is_over:
            return NodeClass.PROD_HIGH
        return NodeClass.BOTH_LOW if prod_is_under else NodeClass.LOW
    if find_over(used, limits.total):
        return NodeClass.HIGH
    if prod_is_over:
        return NodeClass.PROD_HIGH
    return NodeClass.PROD_LOW if prod_is_under else NodeClass.NORMAL


def floor_percentages(used: Amounts, capacity: Amounts) -> dict[str, int]:
    """Return whole percentages of all that has a value."""
    return {name: floor(percent_of(used[name], capacity.get(name, 0))) for name in used}


@dataclass(frozen=True, slots=True)
class HotUsage:
    """Why a pod goes: what of its node is used above the threshold."""

    parts: tuple[tuple[str, float, float], ...]
    """Resource, percentage used, percentage allowed; by name of the resource."""
    is_prod: bool = False

    def text(self) -> str:
        subject = "prod" if self.is_prod else "node"
        parts = (
            f"{subject} {name} usage({used:.2f}%)>threshold({most:.2f}%)"
            for name, used, most in self.parts
        )
        return f"node is overutilized, {', '.join(parts)}"


def find_hot_usage(
    used: Amounts, limits: LoadLimits, capacity: Amounts, *, is_prod: bool = False
) -> HotUsage:
    return HotUsage(
        tuple(
            (name, percent_of(used[name], capacity.get(name, 0)), limits.percent[name])
            for name in find_over(used, limits)
        ),
        is_prod,
    )
