"""NodeResourcesFit scoring: how good a node is for one more pod, from 0 to 100.

Source: the kube-scheduler plugin NodeResourcesFit (LeastAllocated, MostAllocated), with one
strategy per resource as Koordinator's NodeResourcesFitPlus has it. Integers, rounded down.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum

from koord.core.units import ACCELERATOR, CPU, MEMORY

MAX_SCORE = 100


class ScoringStrategy(StrEnum):
    """Use all nodes evenly, or pack onto few."""

    LEAST_ALLOCATED = "LeastAllocated"
    MOST_ALLOCATED = "MostAllocated"


@dataclass(frozen=True, slots=True)
class Weighed:
    """How one resource counts."""

    strategy: ScoringStrategy
    weight: int = 1


DEFAULT_WEIGHTS: Mapping[str, Weighed] = {
    CPU: Weighed(ScoringStrategy.LEAST_ALLOCATED, 1),
    MEMORY: Weighed(ScoringStrategy.LEAST_ALLOCATED, 1),
    ACCELERATOR: Weighed(ScoringStrategy.MOST_ALLOCATED, 2),
}


@dataclass(frozen=True, slots=True)
class Scoring:
    """Which resources count, how, and with what weight.

    CPU and memory always count; another resource counts for pods that ask for it. Packing
    accelerators by default keeps whole nodes free for the jobs that need whole nodes.
    """

    weights: Mapping[str, Weighed] = field(default_factory=lambda: dict(DEFAULT_WEIGHTS))


@dataclass(frozen=True, slots=True)
class Term:
    """How one resource contributes to the score of one shape."""

    column: int
    request: int
    strategy: ScoringStrategy
    weight: int


def score_of(terms: list[Term], used: list[int], allocatable: list[int], pods: int) -> int:
    """Score a node with ``pods`` more pods; the lists are parallel to ``terms``."""
    total = weights = 0
    for term, taken, size in zip(terms, used, allocatable, strict=True):
        if size <= 0:
            continue
        after = min(taken + pods * term.request, size)
        part = size - after if term.strategy is ScoringStrategy.LEAST_ALLOCATED else after
        total += term.weight * (part * MAX_SCORE // size)
        weights += term.weight
    return total // weights if weights else 0
