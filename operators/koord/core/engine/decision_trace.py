"""What the nodes say to a unit right before it is planned: their scores, room and refusals.

For people who look for the reason of one decision. It only asks the cycle, in the way in which the
allocator does, and takes back the steps that this costs: the plan is the same with and without it.
"""

from collections import defaultdict
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

import numpy as np

from koord.core.engine.allocator import points_of, rank_rows, score_terms
from koord.core.engine.arrays import Ints
from koord.core.engine.cause import Cause
from koord.core.engine.cycle import Cycle
from koord.core.engine.scoring import Scorer, Scoring
from koord.core.model.plan import Unit
from koord.core.model.pods import Pod, PodShape

MOST_SCORES: Final = 1000
"""Nodes of one table."""
MOST_NAMES: Final = 200
"""Nodes of one cause that are named, and nodes of which the room is told."""
_FIT: Final = "node-resources-fit"
_FIT_PLUS: Final = "node-resources-fit-plus"


@dataclass(frozen=True, slots=True)
class NodeScore:
    """A node and its score; ``parts`` are in the order of the scorers, and add up to it."""

    node: str
    total: int
    parts: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class ScoreTable:
    """The best nodes for a pod (key), the first one first, of all that were ``feasible``."""

    pod: str
    feasible: int
    scorers: tuple[str, ...]
    nodes: tuple[NodeScore, ...]


@dataclass(frozen=True, slots=True)
class RefusingNodes:
    """Nodes that refuse a pod for one cause, which is the first that was checked.

    ``session`` is the one that has checked, empty for amounts. With ``may_help`` they would take
    the pod if they were empty. ``nodes`` are the first of so ``many``.
    """

    cause: Cause
    resource: str
    detail: str
    session: str
    may_help: bool
    nodes: tuple[str, ...]
    many: int

    @property
    def text(self) -> str:
        return self.cause.describe(self.resource, self.detail)


@dataclass(frozen=True, slots=True)
class DecisionTrace:
    """What was asked for about one unit; ``room`` is how many pods such as the first fit."""

    pod: Pod
    tables: tuple[ScoreTable, ...] = ()
    refusing: tuple[RefusingNodes, ...] = ()
    room: Mapping[str, int] | None = None


def trace(
    cycle: Cycle, unit: Unit, scoring: Scoring, *, scores: int = 0, shows_refusals: bool = False
) -> DecisionTrace:
    """Return the best ``scores`` nodes for the first pod of each demand, and who refuses it."""
    taken, pods = cycle.steps.taken, [demand.pods[0] for demand in unit.demands if demand.pods]
    try:
        tables = tuple(rank_nodes(cycle, pod, scoring, scores) for pod in pods if scores)
        first = unit.pods[0]
        if not shows_refusals:
            return DecisionTrace(first, tables)
        shape = cycle.shape_of(first)
        return DecisionTrace(first, tables, _find_refusing(cycle, shape), _find_room(cycle, shape))
    finally:
        cycle.steps.taken = taken


def rank_nodes(cycle: Cycle, pod: Pod, scoring: Scoring, most: int) -> ScoreTable:
    """Return the best nodes for one more pod, in the order in which the allocator takes them."""
    shape = cycle.shape_of(pod)
    rows = np.flatnonzero(cycle.bounds(shape, np.arange(len(cycle.table.nodes))))
    if not rows.size:
        return ScoreTable(pod.key, 0, (), ())
    parts = _score_by_name(cycle, shape, scoring, rows)
    scores = np.array(list(parts.values()))
    total = scores.sum(axis=0)
    best = np.argsort(rank_rows(cycle, rows, total))[: min(most, MOST_SCORES)]
    table = cycle.table
    nodes = tuple(
        NodeScore(table.node_at(int(rows[at])).name, int(total[at]), tuple(scores[:, at].tolist()))
        for at in best.tolist()
    )
    return ScoreTable(pod.key, int(rows.size), tuple(parts), nodes)


def _score_by_name(
    cycle: Cycle, shape: PodShape, scoring: Scoring, rows: Ints
) -> Mapping[str, Ints]:
    """Return the points of each scorer with its weight."""
    parts: dict[str, Ints] = {}
    own = (_FIT, *((_FIT_PLUS,) if scoring.plus else ()))
    names = (*own, *(name for name, _ in cycle.named_score_terms(shape)))
    terms = score_terms(cycle, shape, scoring)
    for name, term in zip(names, terms, strict=True):
        points = Scorer((term,)).first(cycle.used, cycle.table.allocatable, rows)
        parts[name] = parts[name] + points if name in parts else points
    for name, score in cycle.named_scores(shape, rows):
        points = points_of(score)
        parts[name] = parts[name] + points if name in parts else points
    return parts


def _find_refusing(cycle: Cycle, shape: PodShape) -> tuple[RefusingNodes, ...]:
    left = cycle.table.is_live.copy()
    empty = cycle.room_when_empty(shape)
    groups: dict[tuple[Cause, str, str, str, bool], list[int]] = defaultdict(list)
    for cause, resource, passes, session in cycle.named_checks(shape):
        for row in np.flatnonzero(left & ~passes).tolist():
            detail = cycle.detail(cause, shape, row) if cause.by_detail else ""
            may_help = empty is None or bool(empty[row])
            groups[cause, resource, detail, session, may_help].append(row)
        left &= passes
    return tuple(
        RefusingNodes(*group, _names_of(cycle, rows), len(rows)) for group, rows in groups.items()
    )


def _find_room(cycle: Cycle, shape: PodShape) -> Mapping[str, int]:
    room = cycle.room(shape)
    rows = np.flatnonzero(room)[:MOST_NAMES].tolist()
    return {cycle.table.node_at(row).name: int(room[row]) for row in rows}


def _names_of(cycle: Cycle, rows: list[int]) -> tuple[str, ...]:
    return tuple(sorted(cycle.table.node_at(row).name for row in rows)[:MOST_NAMES])
