"""How good a node is for one more pod, from 0 to 100, by what is left of its resources.

Source: the kube-scheduler plugin NodeResourcesFit (LeastAllocated, MostAllocated) with one strategy
per resource, and Koordinator's NodeResourcesFitPlus. Integers, rounded down.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from itertools import groupby
from typing import Final

import numpy as np
from typing_extensions import override

from koord.core.engine.arrays import Ints
from koord.core.model.units import ACCELERATOR, CPU, MEMORY

MAX_SCORE = 100
_ONE: Final = np.ones(1, dtype=np.int64)


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

    def combine(self, parts: Ints, sizes: Ints) -> Ints | int:
        """Return the score that parts make, without ``weight``; the first axis are the terms.

        A resource that a node does not have counts only if the pods ask for it, as 0.
        """
        terms = self.terms
        if not terms:
            return MAX_SCORE
        total = _add_up(terms, parts)
        weights: Ints | int = sum(term.weight for term in terms) or 1
        if not sizes.all() and not all(term.request for term in terms):  # seldom
            counts = (
                term.weight if term.request else term.weight * (size > 0)
                for term, size in zip(terms, sizes, strict=True)
            )
            weights = np.maximum(sum(counts, np.zeros_like(sizes[0])), 1)
        total //= weights
        return total


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
    def combine(self, parts: Ints, sizes: Ints) -> Ints | int:
        weights = self._weights
        if not weights:
            return 0
        lowest = parts.min(axis=0, initial=MAX_SCORE)
        total = _add_up(self.terms, parts)
        total += self.dominant * lowest
        total //= weights
        return total

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


class Scorer:
    """All scores of a shape, of which many nodes are given the sum at once.

    Arrays are terms x nodes, or terms x nodes x numbers of pods: one operation for everything.
    """

    def __init__(self, scores: Sequence[ScoreTerms]) -> None:
        self.scores = tuple(scores)
        terms = [term for score in scores for term in score.terms]
        self._columns = _array([column for score in scores for column in score.columns])
        self._size_columns = _array([at for score in scores for at in score.size_columns])
        self._requests = _array([term.request for term in terms])[:, np.newaxis]
        by_strategy = groupby(enumerate(terms), lambda item: item[1].strategy)
        runs = ((strategy, [at for at, _ in run]) for strategy, run in by_strategy)
        self._least = [
            slice(run[0], run[-1] + 1)
            for strategy, run in runs
            if strategy is ScoringStrategy.LEAST_ALLOCATED
        ]

    def first(self, used: Ints, allocatable: Ints, rows: Ints) -> Ints:
        """Return the score of each row with one more pod."""
        return self.after(used, allocatable, rows, _ONE)[:, 0]

    def after(self, used: Ints, allocatable: Ints, rows: Ints, pods: Ints) -> Ints:
        """Return the score of each row with each of these numbers of pods more."""
        taken = _take(used, self._columns, rows)
        sizes = _take(allocatable, self._size_columns, rows)
        parts = np.minimum(taken + self._requests * pods, sizes)
        for run in self._least:
            np.subtract(sizes[run], parts[run], out=parts[run])
        parts *= MAX_SCORE
        parts //= np.maximum(sizes, 1)
        total: Ints = np.zeros(parts.shape[1:], dtype=np.int64)
        at = 0
        for score in self.scores:
            end = at + len(score.terms)
            points = score.combine(parts[at:end], sizes[at:end])
            total += points if score.weight == 1 else score.weight * points
            at = end
        return total


def _add_up(terms: Sequence[ScoreTerm], parts: Ints) -> Ints:
    """Return the sum of the parts, each as often as its term counts."""
    total: Ints = np.zeros(parts.shape[1:], dtype=np.int64)
    for term, part in zip(terms, parts, strict=True):
        total += part if term.weight == 1 else term.weight * part
    return total


def _take(amounts: Ints, columns: Ints, rows: Ints) -> Ints:
    """Return the amounts as columns x rows x 1; the same as by index, but faster."""
    taken: Ints = amounts.take(columns * amounts.shape[1] + rows)
    return taken[:, :, np.newaxis]


def _array(numbers: list[int]) -> Ints:
    """Return numbers with an axis for rows."""
    return np.array(numbers, dtype=np.int64)[:, np.newaxis]
