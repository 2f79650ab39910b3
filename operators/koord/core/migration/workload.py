"""How many pods of a workload may be away at once.

A number is written as a whole number or a percentage of the replicas, or is computed from them.
Pods are away if they are not ready, or are being moved; the pod in question never counts.
"""

import math
import re
from collections.abc import Collection
from dataclasses import dataclass
from typing import Final

_PERCENT: Final = re.compile(r"(\d{1,9})%")
_MANY: Final = 10
_SOME: Final = 4


def limit_of(written: str, replicas: int, *, compat: bool = False) -> int:
    """Return what a written number means for so many replicas; "" computes it.

    A percentage that is less than one pod means one. An explicit 0 means none; with ``compat``
    one, as Koordinator has it.
    """
    percent = _PERCENT.fullmatch(written)
    if not written:
        number = _compute(replicas)
    elif percent is None:
        number = int(written)
    else:
        number = math.floor(replicas * int(percent[1]) / 100)
    is_none = written in {"0", "0%"} and not compat
    least = 0 if is_none else 1
    return min(max(number, least), replicas)


def _compute(replicas: int) -> int:
    if replicas > _MANY:
        return replicas // 10
    return 2 if replicas >= _SOME else 1


@dataclass(frozen=True, slots=True)
class Workload:
    """What makes a pod and its like: ``unready`` are the uids of its pods that are not there.

    ``replicas`` 0: it is unknown how many there should be.
    """

    uid: str
    name: str
    replicas: int = 0
    unready: frozenset[str] = frozenset()


@dataclass(frozen=True, slots=True)
class WorkloadLimits:
    """How many pods of one workload may be moved, and may be away, at once."""

    most_migrating: int
    most_unavailable: int


def limits_of(
    replicas: int, migrating: str, unavailable: str, *, compat: bool = False
) -> WorkloadLimits:
    return WorkloadLimits(
        limit_of(migrating, replicas, compat=compat),
        limit_of(unavailable, replicas, compat=compat),
    )


def has_expected_replicas(replicas: int, limits: WorkloadLimits) -> bool:
    """Whether some pods remain while as many are moved as may be."""
    return replicas > 1 and replicas not in {limits.most_migrating, limits.most_unavailable}


def count_away(pod: str, unready: Collection[str], migrating: Collection[str]) -> int:
    """Return how many pods besides one (uid) are not ready or are being moved."""
    return len({*unready, *migrating} - {pod})


def is_full(pod: str, workload: Workload, migrating: Collection[str], most: int) -> bool:
    """Whether as many pods besides one are away as may be."""
    return count_away(pod, workload.unready, migrating) >= most


def replicas_of_job(parallelism: int, completions: int | None, succeeded: int) -> int:
    """Return how many pods a Job runs now: as many as it still needs, at most its parallelism."""
    left = parallelism if completions is None else completions
    return max(min(parallelism, left - succeeded), 0)
