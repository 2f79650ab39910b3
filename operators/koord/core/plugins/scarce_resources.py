"""Keeps pods that do not need a scarce resource away from the nodes that have it.

Source: Koordinator's ScarceResourceAvoidance, whose formula is that of :func:`score_by_names`. Ours
counts classes: GPUs appear under many names (cards, cores, memory), and the score should depend
neither on their number nor on what else a node has.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

import numpy as np
from typing_extensions import override

from koord.core.engine.arrays import Ints, Mask
from koord.core.engine.cycle import Cycle
from koord.core.engine.node_table import NodeTable
from koord.core.engine.plugin import Plugin, Score, Session
from koord.core.engine.scoring import MAX_SCORE
from koord.core.model.pods import PodShape
from koord.core.model.units import PODS


@dataclass(frozen=True, slots=True)
class ScarceRules:
    """Which resources are scarce, and the weight of the score.

    ``class_of``: resource -> class of names for the same thing; None: Koordinator's formula.
    """

    resources: frozenset[str] = frozenset()
    weight: int = 1
    class_of: Mapping[str, str] | None = None


class ScarceResources(Plugin):
    """Scores nodes by the scarce resources that a pod would leave unused there."""

    name = "scarce-resources"

    def __init__(self, rules: ScarceRules) -> None:
        self._rules = rules

    @override
    def open(self, cycle: Cycle) -> "ScarceResourcesSession":
        return ScarceResourcesSession(self._rules, cycle.table)


class ScarceResourcesSession(Session):
    """The scores of one cycle, during which nodes do not change."""

    name = ScarceResources.name

    def __init__(self, rules: ScarceRules, table: NodeTable) -> None:
        self._rules = rules
        self._table = table
        self._scores: dict[PodShape, Ints | None] = {}
        """Shape -> scores of all rows; None if they do not differ."""

    @override
    def score(self, shape: PodShape, rows: Ints) -> Iterable[Score]:
        if shape not in self._scores:
            scores = score_nodes(self._rules, self._table, shape)
            is_equal = np.ptp(scores[self._table.is_live]) == 0 if len(self._table) else True
            self._scores[shape] = None if is_equal else scores
        points = self._scores[shape]
        if points is not None:
            yield Score(points[rows], self._rules.weight)


def score_nodes(rules: ScarceRules, table: NodeTable, shape: PodShape) -> Ints:
    """Return the score of each row for pods of a shape, from 0 to 100."""
    names = [name for name in table.columns if name != PODS]
    has = table.allocatable[[table.columns[name] for name in names]] > 0
    requested = {name for name, amount in shape.requests if amount > 0}
    if rules.class_of is None:
        return score_by_names(names, has, requested, rules.resources)
    class_of = rules.class_of
    return score_by_classes(
        [class_of.get(name, name) for name in names],
        has,
        {class_of.get(name, name) for name in requested},
        {class_of.get(name, name) for name in rules.resources},
    )


def score_by_names(
    names: list[str], has: Mask, requested: Iterable[str], scarce: Iterable[str]
) -> Ints:
    """Return which part of what a pod does not ask for is not scarce; ``has`` is names by nodes."""
    unused = has & ~np.isin(names, list(requested))[:, None]
    count = unused.sum(axis=0)
    wasted = (unused & np.isin(names, list(scarce))[:, None]).sum(axis=0)
    scores: Ints = (count - wasted) * MAX_SCORE // np.maximum(count, 1)
    return np.where(wasted, scores, MAX_SCORE)


def score_by_classes(
    classes: list[str], has: Mask, requested: Iterable[str], scarce: Iterable[str]
) -> Ints:
    """Return which part of the scarce classes of a node a pod asks for; 100 if it has none."""
    wanted = set(requested)
    count = np.zeros(has.shape[1], dtype=np.int64)
    used = np.zeros_like(count)
    for name in scarce:
        is_there = has[np.equal(classes, name)].any(axis=0)
        count += is_there
        if name in wanted:
            used += is_there
    scores: Ints = used * MAX_SCORE // np.maximum(count, 1)
    return np.where(count, scores, MAX_SCORE)
