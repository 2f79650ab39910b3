"""How good a node is for one more pod, from 0 to 100, by what is left of its resources.

Source: the kube-scheduler plugin NodeResourcesFit (LeastAllocated, MostAllocated) with one strategy
per resource, and Koordinator's NodeResourcesFitPlus. Integers, rounded down.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum

import numpy as np
from typing_extensions import override

from koord.core.engine.arrays import Ints
from koord.core.model.units import ACCELERATOR, CPU, MEMORY

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

    ``plus`` is a second score (NodeResourcesFitPlus), in which a resource counts for pods that ask
    for it, CPU and memory too. It is multiplied by ``plus_weight`` and added to the first.
    """

    weights: Mapping[str, Weighed] = field(default_factory=lambda: dict(DEFAULT_WEIGHTS))
    plus: Mapping[str, Weighed] = field(default_factory=dict)
    plus_weight: int = 1


@dataclass(frozen=True, slots=True)
class ScoreTerm:
    """How one resource contributes to the score of one shape.

    What is used of ``column`` is weighed against what is allocatable of the same column, or of that
    of ``size_column`` (negative: the same): a plugin's estimate of used CPU against the CPUs.
    """

    column: int
    request: int
    strategy: ScoringStrategy
    weight: int
    size_column: int = -1


@dataclass(frozen=True, slots=True)
class ScoreTerms:
    """One score of a shape: the weighted mean of its terms, multiplied by ``weight``."""

    terms: tuple[ScoreTerm, ...]
    weight: int = 1
    columns: list[int] = field(init=False)
    size_columns: list[int] = field(init=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "columns", [term.column for term in self.terms])
        sizes = [term.column if term.size_column < 0 else term.size_column for term in self.terms]
        object.__setattr__(self, "size_columns", sizes)

    def score(self, used: list[int], allocatable: list[int], pods: int) -> int:
        """Score a node with ``pods`` more pods, without ``weight``."""
        return score_of(self.terms, used, allocatable, pods)

    def score_rows(self, used: Sequence[Ints], allocatable: Sequence[Ints]) -> Ints | int:
        """Score many nodes with one more pod, without ``weight``."""
        return score_rows(self.terms, used, allocatable)


@dataclass(frozen=True, slots=True)
class DominantTerms(ScoreTerms):
    """A score in which the resource of which least is left has a weight of its own.

    Every term counts on every node: what the node lacks, or uses up, is worth 0. All of them count
    as LeastAllocated.
    """

    dominant: int = 0
    _weights: int = field(init=False, default=0)

    @override
    def score(self, used: list[int], allocatable: list[int], pods: int) -> int:
        total, lowest = 0, MAX_SCORE
        for term, taken, size in zip(self.terms, used, allocatable, strict=True):
            left = size - taken - pods * term.request
            part = left * MAX_SCORE // size if size > 0 and left > 0 else 0
            total += term.weight * part
            lowest = min(lowest, part)
        weights = self._weights
        return (total + self.dominant * lowest) // weights if weights else 0

    @override
    def score_rows(self, used: Sequence[Ints], allocatable: Sequence[Ints]) -> Ints | int:
        weights = self._weights
        if not weights:
            return 0
        total, lowest = np.zeros_like(used[0]), np.full_like(used[0], MAX_SCORE)
        for term, taken, size in zip(self.terms, used, allocatable, strict=True):
            left = np.maximum(size - taken - term.request, 0)
            part = np.where(size > 0, left * MAX_SCORE // np.maximum(size, 1), 0)
            total += term.weight * part
            np.minimum(lowest, part, out=lowest)
        scores: Ints = (total + self.dominant * lowest) // weights
        return scores

    def __post_init__(self) -> None:
        ScoreTerms.__post_init__(self)
        weights = sum(term.weight for term in self.terms) + self.dominant
        object.__setattr__(self, "_weights", weights)


def score_of(terms: Sequence[ScoreTerm], used: list[int], allocatable: list[int], pods: int) -> int:
    """Score a node with ``pods`` more pods; the lists are parallel to ``terms``.

    A resource that the node does not have counts only if the pods ask for it, as 0.
    """
    total = weights = 0
    for term, taken, size in zip(terms, used, allocatable, strict=True):
        if size <= 0:
            weights += term.weight if term.request else 0
            continue
        after = min(taken + pods * term.request, size)
        part = size - after if term.strategy is ScoringStrategy.LEAST_ALLOCATED else after
        total += term.weight * (part * MAX_SCORE // size)
        weights += term.weight
    if weights:
        return total // weights
    return 0 if terms else MAX_SCORE


def score_rows(
    terms: Sequence[ScoreTerm], used: Sequence[Ints], allocatable: Sequence[Ints]
) -> Ints | int:
    """Return :func:`score_of` with one more pod for many nodes; per term, an array over nodes."""
    if not terms:
        return MAX_SCORE
    total = np.zeros_like(used[0])
    weights: Ints | int = 0
    for term, taken, size in zip(terms, used, allocatable, strict=True):
        after = np.minimum(taken + term.request, size)
        part = size - after if term.strategy is ScoringStrategy.LEAST_ALLOCATED else after
        if size.all():  # the usual case needs fewer arrays
            total += term.weight * (part * MAX_SCORE // size)
            weights += term.weight
            continue
        is_there = size > 0
        total += np.where(is_there, term.weight * (part * MAX_SCORE // np.maximum(size, 1)), 0)
        weights += term.weight if term.request else np.where(is_there, term.weight, 0)
    scores: Ints = total // np.maximum(weights, 1)
    return scores
