"""How many pods of one shape go to which node: the greedy choice.

kube-scheduler would place each pod on the node that scores best at that moment. For equal pods that
do not matter to each other the same result comes out of a heap over the few nodes that can be
chosen at all: of ``count`` pods none can land outside the ``count`` nodes that score best for a
first pod. Pods that do matter to each other are placed one by one.
"""

import heapq
from collections import Counter
from dataclasses import dataclass
from typing import Final

import numpy as np

from koord.core.placement.arrays import Ints
from koord.core.placement.preference import prefer
from koord.core.placement.scoring import MAX_SCORE, Scoring, Strategy, Term, score_of
from koord.core.placement.snapshot import Snapshot
from koord.core.pods import PodShape
from koord.core.units import CPU, MEMORY, PODS

_BITS: Final = 21
"""Enough for the rank of a node, and for the pods on one."""


@dataclass(frozen=True, slots=True)
class Share:
    """``count`` pods on one row."""

    row: int
    count: int


def fill(snapshot: Snapshot, shape: PodShape, count: int, scoring: Scoring) -> list[Share]:
    """Place up to ``count`` pods of a shape and return where; fewer when there is no room.

    Ties go to the node with fewer pods, then to the smaller name.
    """
    terms = score_terms(snapshot, shape, scoring)
    if snapshot.is_reactive(shape):
        return _fill_one_by_one(snapshot, shape, count, terms)
    room = snapshot.room(shape)
    rows = np.flatnonzero(room)
    if rows.size == 0 or count <= 0:
        return []
    liked = prefer(snapshot, shape, rows)
    ranked = _best_of(snapshot, rows, _first_scores(snapshot, rows, terms, liked), count)
    bonus = [0] * ranked.size if liked is None else liked[ranked].tolist()
    chosen = rows[ranked]
    shares = _spread(snapshot, terms, count, _Ranked(chosen.tolist(), room[chosen].tolist(), bonus))
    snapshot.place_each(shape, {share.row: share.count for share in shares})
    return shares


def score_terms(snapshot: Snapshot, shape: PodShape, scoring: Scoring) -> list[Term]:
    """Return what counts for this shape: CPU, memory, and configured resources that it asks for."""
    requests = dict(shape.requests)
    return [
        Term(snapshot.table.column(name), requests.get(name, 0), weighed.strategy, weighed.weight)
        for name, weighed in scoring.weights.items()
        if requests.get(name, 0) > 0 or name in {CPU, MEMORY}
    ]


def _fill_one_by_one(
    snapshot: Snapshot, shape: PodShape, count: int, terms: list[Term]
) -> list[Share]:
    """Place each pod on the best row that those before it leave.

    What a placement changes about resources it changes on one row; the rules on other pods are
    asked again for all.
    """
    capacity = snapshot.capacity(shape)
    scores = np.zeros_like(capacity)
    rows = np.flatnonzero(capacity)
    scores[rows] = _first_scores(snapshot, rows, terms, None)
    given: Counter[int] = Counter()
    for _ in range(count):
        room = capacity
        for _, limits in snapshot.limits(shape):
            room = np.minimum(room, limits)
        rows = np.flatnonzero(room)
        if rows.size == 0:
            break
        liked = prefer(snapshot, shape, rows)
        total = scores[rows] if liked is None else scores[rows] + liked
        row = int(rows[_best_of(snapshot, rows, total, 1)[0]])
        snapshot.place(shape, row)
        given[row] += 1
        capacity[row] -= 1
        scores[row] = _first_scores(snapshot, np.array([row]), terms, None)[0]
    return [Share(row, pods) for row, pods in given.items()]


def _best_of(snapshot: Snapshot, rows: Ints, scores: Ints, count: int) -> Ints:
    """Return the positions in ``rows`` of the best ones, at most ``count``, best first."""
    pods = snapshot.used[snapshot.table.column(PODS), rows]
    keys = ((-scores << _BITS) + pods << _BITS) + snapshot.table.name_rank[rows]
    if count == 1:
        return np.array([keys.argmin()])
    return np.argsort(keys)[:count]


def _first_scores(snapshot: Snapshot, rows: Ints, terms: list[Term], liked: Ints | None) -> Ints:
    """Return :func:`score_of` with one more pod, for many rows at once, and what is liked."""
    total = np.zeros(rows.size, dtype=np.int64)
    weights = np.zeros(rows.size, dtype=np.int64)
    for term in terms:
        size = snapshot.table.allocatable[term.column, rows]
        after = np.minimum(snapshot.used[term.column, rows] + term.request, size)
        part = size - after if term.strategy is Strategy.LEAST_ALLOCATED else after
        counts = size > 0
        total += np.where(counts, term.weight * (part * MAX_SCORE // np.maximum(size, 1)), 0)
        weights += np.where(counts, term.weight, 0)
    scores: Ints = total // np.maximum(weights, 1)
    return scores if liked is None else scores + liked


@dataclass(frozen=True, slots=True)
class _Ranked:
    """Rows in order, how many pods each may take, and what is added to its score."""

    rows: list[int]
    limits: list[int]
    bonus: list[int]


def _spread(snapshot: Snapshot, terms: list[Term], count: int, ranked: _Ranked) -> list[Share]:
    """Hand out pods one at a time to the row that is best at that moment."""
    rows, limits, bonus = ranked.rows, ranked.limits, ranked.bonus
    columns = [term.column for term in terms]
    used = snapshot.used[np.ix_(columns, rows)].T.tolist()
    sizes = snapshot.table.allocatable[np.ix_(columns, rows)].T.tolist()
    pods = snapshot.used[snapshot.table.column(PODS), rows].tolist()
    given = [0] * len(rows)
    names = snapshot.table.name_rank[rows].tolist()
    heap = [
        (-score_of(terms, used[at], sizes[at], 1) - bonus[at], pods[at], names[at], at)
        for at in range(len(rows))
    ]
    heapq.heapify(heap)
    left = min(count, sum(limits))
    while left:
        _, _, name, at = heap[0]
        given[at] += 1
        left -= 1
        if given[at] == limits[at]:
            heapq.heappop(heap)
            continue
        score = score_of(terms, used[at], sizes[at], given[at] + 1) + bonus[at]
        heapq.heapreplace(heap, (-score, pods[at] + given[at], name, at))
    return [Share(row, n) for row, n in zip(rows, given, strict=True) if n]
