"""How many pods of one shape go to which node: the greedy choice.

kube-scheduler would place each pod on the node that scores best at that moment. For equal pods that
do not matter to each other the same result comes out of a heap over the few nodes that can be
chosen at all: of ``count`` pods none can land outside the ``count`` nodes that score best for a
first pod. Pods that do matter to each other are placed one by one.
"""

import heapq
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final, TypeVar

import numpy as np

from koord.core.framework.arrays import Ints
from koord.core.framework.cycle import Cycle, Place
from koord.core.framework.plugin import Scale
from koord.core.framework.scoring import MAX_SCORE, Scoring, ScoringStrategy, Term, score_of
from koord.core.pods import Pod, PodShape
from koord.core.units import CPU, MEMORY, PODS

_BITS: Final = 21
"""Enough for the rank of a node, and for the pods on one."""
_Number = TypeVar("_Number", int, Ints)
_FULL: Final = int(np.iinfo(np.int64).max)
"""The key of a row without room."""


@dataclass(frozen=True, slots=True)
class RowShare:
    """``count`` pods on one row."""

    row: int
    count: int


@dataclass(slots=True)
class _Ranking:
    """How good each row is for one more pod of a shape: the less ``keys`` says, the better.

    ``bonus`` is what is added to the score of resources. It holds for one ``version`` of the
    cycle.
    """

    shape: PodShape
    terms: list[Term]
    room: Ints
    keys: Ints
    bonus: Ints | None
    version: int

    def choose(self, count: int) -> Ints:
        """Return the rows that ``count`` pods may go to, in any order."""
        if count >= self.keys.size:
            return np.flatnonzero(self.room)
        if count == 1:
            best = np.array([self.keys.argmin()])
        else:
            best = np.argpartition(self.keys, count - 1)[:count]
        chosen: Ints = best[self.room[best] > 0]
        return chosen


class Allocator:
    """Puts pods of one shape after another on a cycle.

    Ties go to the node with fewer pods, then to the smaller name. Jobs and single pods of one shape
    come in numbers: how good the nodes are for it is kept until something else is placed.
    """

    def __init__(self, cycle: Cycle, scoring: Scoring) -> None:
        self._cycle = cycle
        self._scoring = scoring
        self._known: _Ranking | None = None

    def fill(self, shape: PodShape, count: int) -> list[RowShare]:
        """Place up to ``count`` pods of a shape and return where; fewer when there is no room."""
        cycle = self._cycle
        ranking = self._known_of(shape)
        if ranking is None and cycle.is_reactive(shape):
            return _fill_one_by_one(cycle, shape, count, self._terms_of(shape))
        if count <= 0:
            return []
        ranking = ranking or self._rank(shape)
        chosen = ranking.choose(count)
        if chosen.size == 0:
            return []
        given, keys = _hand_out(cycle, ranking, chosen, count)
        shares = [RowShare(row, n) for row, n in zip(chosen.tolist(), given, strict=True) if n]
        cycle.place_each(shape, {share.row: share.count for share in shares})
        ranking.room[chosen] -= given
        ranking.keys[chosen] = keys
        ranking.version = cycle.version
        self._known = ranking if _is_plain(cycle, ranking) else None
        return shares

    def reserve(self, shape: PodShape, pods: Sequence[Pod]) -> list[tuple[Pod, Place]]:
        """Place pods of a shape one by one, each reserved exactly on the best row.

        A row on which that fails is passed over for the rest of them. After each pod,
        only the rows that it changed are asked again.
        """
        cycle, terms = self._cycle, self._terms_of(shape)
        every = np.arange(len(cycle.table.nodes))
        room, placed = cycle.bounds(shape, every), list[tuple[Pod, Place]]()
        for pod in pods:
            found = self._reserve_one(shape, pod, terms, room)
            if not isinstance(found, tuple):
                break
            place, since = found
            placed.append((pod, place))
            changed = every if cycle.is_reactive(shape) else cycle.touched(since)
            room[changed] = cycle.bounds(shape, changed)
        return placed

    def _reserve_one(
        self, shape: PodShape, pod: Pod, terms: list[Term], room: Ints
    ) -> tuple[Place, int] | None:
        """Return where a pod was reserved, and the version before; clear rows that failed."""
        cycle = self._cycle
        while (rows := np.flatnonzero(room)).size:
            scores = _first_scores(cycle, rows, terms, _preferences(cycle, shape, rows))
            row = int(rows[_keys_of(cycle, rows, scores).argmin()])
            since = cycle.version
            found = cycle.reserve(pod, shape, row)
            if isinstance(found, Place):
                return found, since
            if found.ends_unit:
                return None
            room[row] = 0
        return None

    def _known_of(self, shape: PodShape) -> _Ranking | None:
        """Return what is kept of a shape, if it still holds: confinement changes no version."""
        known, cycle = self._known, self._cycle
        if known is None or known.shape is not shape or cycle.is_restricted:
            return None
        return known if known.version == cycle.version else None

    def _rank(self, shape: PodShape) -> _Ranking:
        cycle, terms = self._cycle, self._terms_of(shape)
        room = cycle.room(shape)
        rows = np.flatnonzero(room)
        keys = np.full(room.size, _FULL)
        bonus = None
        if rows.size:
            liked = _preferences(cycle, shape, rows)
            keys[rows] = _keys_of(cycle, rows, _first_scores(cycle, rows, terms, liked))
            if liked is not None:
                bonus = np.zeros_like(room)
                bonus[rows] = liked
        return _Ranking(shape, terms, room, keys, bonus, cycle.version)

    def _terms_of(self, shape: PodShape) -> list[Term]:
        return score_terms(self._cycle, shape, self._scoring)


def _is_plain(cycle: Cycle, ranking: _Ranking) -> bool:
    """Whether a pod that is placed changes nothing for the next one but on its own node.

    What is liked is scaled by what other nodes have, ports and the company of others are more than
    amounts, and who is confined is offered but some of the nodes.
    """
    shape = ranking.shape
    return ranking.bonus is None and cycle.is_plain(shape) and not cycle.is_restricted


def _preferences(cycle: Cycle, shape: PodShape, rows: Ints) -> Ints | None:
    """Sum the points that sessions give to feasible rows; None if the rows do not differ."""
    total: Ints | None = None
    for score in cycle.scores(shape, rows):
        points = score.values
        if score.scale is not Scale.ABSOLUTE:
            most = int(points.max(initial=0))
            points = points * MAX_SCORE // most if most else points
        if score.scale is Scale.BY_MAX_REVERSED:
            points = MAX_SCORE - points
        total = score.weight * points if total is None else total + score.weight * points
    return total


def score_terms(cycle: Cycle, shape: PodShape, scoring: Scoring) -> list[Term]:
    """Return what counts for this shape: CPU, memory, and configured resources that it asks for."""
    requests = dict(shape.requests)
    return [
        Term(cycle.table.column(name), requests.get(name, 0), weighed.strategy, weighed.weight)
        for name, weighed in scoring.weights.items()
        if requests.get(name, 0) > 0 or name in {CPU, MEMORY}
    ]


def _fill_one_by_one(
    cycle: Cycle, shape: PodShape, count: int, terms: list[Term]
) -> list[RowShare]:
    """Place each pod on the best row that those before it leave.

    What a placement changes about resources it changes on one row; the rules on other pods are
    asked again for all.
    """
    capacity = cycle.capacity(shape)
    scores = np.zeros_like(capacity)
    rows = np.flatnonzero(capacity)
    scores[rows] = _first_scores(cycle, rows, terms, None)
    given: Counter[int] = Counter()
    for _ in range(count):
        room = capacity
        for _, limits in cycle.limits(shape):
            room = np.minimum(room, limits)
        rows = np.flatnonzero(room)
        if rows.size == 0:
            break
        liked = _preferences(cycle, shape, rows)
        total = scores[rows] if liked is None else scores[rows] + liked
        row = int(rows[_keys_of(cycle, rows, total).argmin()])
        cycle.place(shape, row)
        given[row] += 1
        capacity[row] -= 1
        scores[row] = _first_scores(cycle, np.array([row]), terms, None)[0]
    return [RowShare(row, pods) for row, pods in given.items()]


def _keys_of(cycle: Cycle, rows: Ints, scores: Ints) -> Ints:
    """Return :func:`_key_of` of many rows."""
    pods = cycle.used[cycle.table.column(PODS), rows]
    return _key_of(scores, pods, cycle.table.name_rank[rows])


def _key_of(score: _Number, pods: _Number, name_rank: _Number) -> _Number:
    """Return the key of one row or many: the least has the best score, fewest pods, first name."""
    return ((-score << _BITS) + pods << _BITS) + name_rank


def _first_scores(cycle: Cycle, rows: Ints, terms: list[Term], liked: Ints | None) -> Ints:
    """Return :func:`score_of` with one more pod, for many rows at once, and what is liked."""
    total = np.zeros(rows.size, dtype=np.int64)
    weights = np.zeros(rows.size, dtype=np.int64)
    for term in terms:
        size = cycle.table.allocatable[term.column, rows]
        after = np.minimum(cycle.used[term.column, rows] + term.request, size)
        part = size - after if term.strategy is ScoringStrategy.LEAST_ALLOCATED else after
        counts = size > 0
        total += np.where(counts, term.weight * (part * MAX_SCORE // np.maximum(size, 1)), 0)
        weights += np.where(counts, term.weight, 0)
    scores: Ints = total // np.maximum(weights, 1)
    return scores if liked is None else scores + liked


def _hand_out(
    cycle: Cycle, ranking: _Ranking, chosen: Ints, count: int
) -> tuple[list[int], list[int]]:
    """Hand out pods one at a time to the row that is best at that moment.

    Returns for each of the chosen rows how many it is given, and its key after that.
    """
    terms, table = ranking.terms, cycle.table
    columns = [term.column for term in terms]
    used = _look_up(cycle.used, columns, chosen)
    sizes = _look_up(table.allocatable, columns, chosen)
    pods = cycle.used[table.column(PODS), chosen].tolist()
    names = table.name_rank[chosen].tolist()
    limits = ranking.room[chosen].tolist()
    bonus = [0] * len(limits) if ranking.bonus is None else ranking.bonus[chosen].tolist()
    keys = ranking.keys[chosen].tolist()
    given = [0] * len(limits)
    heap = [(key, at) for at, key in enumerate(keys)]
    heapq.heapify(heap)
    for _ in range(min(count, sum(limits))):
        _, at = heap[0]
        given[at] += 1
        if given[at] == limits[at]:
            keys[at] = _FULL
            heapq.heappop(heap)
            continue
        score = score_of(terms, used[at], sizes[at], given[at] + 1) + bonus[at]
        keys[at] = _key_of(score, pods[at] + given[at], names[at])
        heapq.heapreplace(heap, (keys[at], at))
    return given, keys


def _look_up(amounts: Ints, columns: list[int], rows: Ints) -> list[list[int]]:
    """Return per row the amounts in these columns, as numbers that Python is quick with."""
    per_column = [amounts[column, rows].tolist() for column in columns]
    return [list(row) for row in zip(*per_column, strict=True)] or [[] for _ in rows]
