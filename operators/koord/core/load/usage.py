"""What counts as used on a node: a report, and what it does not show yet of the pods there.

A report is an average of the past. So the estimate of a pod that came after it, or at the end of
its time, counts as far as the measured use of that pod is below it.

What a pod may use beyond its requests costs its owner nothing. So it counts only until a report
should show it: not for as long as the pod is not measured, such as one whose image does not exist,
nor for as long as its annotations say.
"""

import operator
from collections.abc import Iterable
from typing import NamedTuple, TypeAlias

from koord.core.load.model import LoadSource, NodeLoad, PodLoad
from koord.core.load.options import PLAIN, Basis
from koord.core.model.koordinator_class import KoordinatorClass
from koord.core.model.units import Amounts

Vector: TypeAlias = tuple[int, ...]
"""Amounts, one for each resource that is looked at."""


class AssignedPod(NamedTuple):
    """A pod on a node: its estimate, since when it is there, and until when the estimate counts.

    ``requested`` is the estimate by its requests alone, where its limits are higher; until
    ``own_deadline``, which its annotations say, that one counts.
    """

    key: str
    estimate: Vector
    is_prod: bool
    scheduled: float
    deadline: float = 0.0
    own_deadline: float = 0.0
    requested: Vector = ()

    def amount(self, report: NodeLoad | None) -> Vector:
        """Return what it is estimated to use beside a report."""
        is_new = self.is_new_to(report)
        return self.estimate if is_new or not self.requested else self.requested

    def is_new_to(self, report: NodeLoad | None) -> bool:
        """Whether a report cannot show yet, for a whole interval, what the pod uses."""
        if report is None:
            return True
        return self.scheduled > report.updated - report.interval or self.deadline > report.updated


class Share(NamedTuple):
    """What a pod adds: to the use of the node, and to the use of prod pods."""

    node: Vector
    prod: Vector


class Counted:
    """Which resources are looked at, and whether the use of prod pods is wanted by itself."""

    __slots__ = ("_latest", "has_prod", "nothing", "resources")

    def __init__(self, resources: tuple[str, ...], *, has_prod: bool) -> None:
        self.resources = resources
        self.has_prod = has_prod
        self.nothing: Vector = (0,) * len(resources)
        self._latest = Share(self.nothing, self.nothing)

    def all_of(self, amount: Vector, *, is_prod: bool) -> Share:
        """Return the share of a pod that no report shows; those of equal pods are one object."""
        prod, latest = amount if is_prod else self.nothing, self._latest
        if latest.node is not amount or latest.prod is not prod:
            latest = self._latest = Share(amount, prod)
        return latest


def share_of(pod: AssignedPod, report: NodeLoad | None, counted: Counted) -> Share | None:
    """Return what a pod adds to what a report shows; None for nothing."""
    counts_prod = counted.has_prod and pod.is_prod
    measured = report.pods.get(pod.key) if report is not None else None
    amount = pod.amount(report) if pod.requested else pod.estimate
    if report is None or measured is None or not measured.usage:
        return counted.all_of(amount, is_prod=counts_prod)
    is_fresh = pod.is_new_to(report) or pod.own_deadline > report.updated
    if not is_fresh and not counts_prod:
        return None
    if len(measured.usage) == 0:  # it cannot be read
        return counted.all_of(amount, is_prod=counts_prod)
    used = vector_of(measured.usage, counted.resources)
    node = counted.nothing
    if is_fresh:
        node = tuple(max(0, e - m) for e, m in zip(amount, used, strict=True))
    if not counts_prod:
        return Share(node, counted.nothing)
    return Share(node, add(node, used) if _is_prod(measured, report) else amount)


def base_of(report: NodeLoad | None, basis: Basis, resources: Iterable[str]) -> Vector | None:
    """Return what a report shows of the node; None: it lacks what is asked for."""
    if report is None:
        return tuple(0 for _ in resources)
    usage = find_usage(report, basis)
    return None if usage is None else vector_of(usage, resources)


def find_usage(report: NodeLoad, basis: Basis) -> Amounts | None:
    """Return the use of a node, or an aggregate of it; None if that one is not reported."""
    if basis == PLAIN or basis.aggregation is None:
        return report.usage
    by_seconds = report.aggregates.get(basis.aggregation, {})
    if basis.seconds:
        return by_seconds.get(basis.seconds)
    return by_seconds[max(by_seconds)] if by_seconds else report.usage


def most_used(threshold: int, capacity: int) -> int:
    """Return up to which use a node is below a threshold (percent), which is rounded first."""
    return ((2 * threshold + 1) * capacity - 1) // 200


def percent_of(used: int, capacity: int) -> int:
    """Return a share in percent, half rounded up."""
    return (200 * used + capacity) // (2 * capacity)


def add(first: Iterable[int], second: Iterable[int]) -> Vector:
    return tuple(map(operator.add, first, second))


def subtract(first: Iterable[int], second: Iterable[int]) -> Vector:
    return tuple(map(operator.sub, first, second))


def vector_of(amounts: Amounts, resources: Iterable[str]) -> Vector:
    return tuple([amounts.get(name, 0) for name in resources])


def _is_prod(measured: PodLoad, report: NodeLoad) -> bool:
    """Whether a report counts a pod as prod; only Koordinator's agent says anything about that."""
    if report.source is not LoadSource.NODE_METRIC:
        return True
    return measured.koordinator_class is KoordinatorClass.PROD
