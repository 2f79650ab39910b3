"""What counts as used on a node: a report, and what it does not show yet of the pods there.

A report is an average of the past. So the estimate of a pod that came after it, or at the end of
its time, counts as far as the measured use of that pod is below it.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Final, NamedTuple, TypeAlias

from koord.core.load.model import LoadSource, NodeLoad, PodLoad
from koord.core.load.options import PLAIN, Basis
from koord.core.model.koordinator_class import KoordinatorClass
from koord.core.model.units import Amounts

Vector: TypeAlias = tuple[int, ...]
"""Amounts, one for each resource that is looked at."""
_NO_USE: Final[Amounts] = {}


@dataclass(frozen=True, slots=True)
class AssignedPod:
    """A pod on a node: its estimate, since when it is there, and until when the estimate counts."""

    key: str
    estimate: Vector
    is_prod: bool
    scheduled: float
    deadline: float = 0.0


class Share(NamedTuple):
    """What a pod adds: to the use of the node, and to the use of prod pods."""

    node: Vector
    prod: Vector


class Counted(NamedTuple):
    """Which resources are looked at, and of which each pod's share is wanted."""

    resources: tuple[str, ...]
    has_prod: bool


def share_of(pod: AssignedPod, report: NodeLoad | None, counted: Counted) -> Share | None:
    """Return what a pod adds to what a report shows; None for nothing."""
    measured = report.pods.get(pod.key) if report is not None else None
    if measured is not None and not measured.usage:
        measured = None
    is_fresh = report is None or measured is None or _is_fresh(pod, report)
    if not is_fresh and not (counted.has_prod and pod.is_prod):
        return None
    used = _vector(measured.usage if measured is not None else _NO_USE, counted.resources)
    missing = tuple(max(0, e - m) for e, m in zip(pod.estimate, used, strict=True))
    nothing = (0,) * len(used)
    node = missing if is_fresh else nothing
    if not counted.has_prod or not pod.is_prod:
        return Share(node, nothing)
    if measured is not None and not _is_prod(measured, report):
        return Share(node, pod.estimate)
    return Share(node, tuple(a + b for a, b in zip(node, used, strict=True)))


def base_of(report: NodeLoad | None, basis: Basis, resources: Iterable[str]) -> Vector | None:
    """Return what a report shows of the node; None: it lacks what is asked for."""
    if report is None:
        return tuple(0 for _ in resources)
    usage = find_usage(report, basis)
    return None if usage is None else _vector(usage, resources)


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
    return tuple(a + b for a, b in zip(first, second, strict=True))


def _is_fresh(pod: AssignedPod, report: NodeLoad) -> bool:
    return pod.scheduled > report.updated - report.interval or pod.deadline > report.updated


def _is_prod(measured: PodLoad, report: NodeLoad | None) -> bool:
    """Whether a report counts a pod as prod; only Koordinator's agent says anything about that."""
    if report is not None and report.source is not LoadSource.NODE_METRIC:
        return True
    return measured.koordinator_class is KoordinatorClass.PROD


def _vector(amounts: Mapping[str, int], resources: Iterable[str]) -> Vector:
    return tuple(amounts.get(name, 0) for name in resources)
