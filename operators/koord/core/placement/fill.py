"""How many pods of one shape go to which node: the greedy choice, without going pod by pod.

kube-scheduler would place each pod on the node that scores best at that moment. For equal pods the
same result comes out of a heap over the few nodes that can be chosen at all: of ``count`` pods none
can land outside the ``count`` nodes that score best for a first pod.
"""

import heapq
from dataclasses import dataclass

import numpy as np

from koord.core.placement.scoring import MAX_SCORE, Scoring, Strategy, Term, score_of
from koord.core.placement.snapshot import Snapshot
from koord.core.placement.table import Ints
from koord.core.pods import PodShape
from koord.core.units import CPU, MEMORY, PODS


@dataclass(frozen=True, slots=True)
class Share:
    """``count`` pods on one row."""

    row: int
    count: int


def fill(snapshot: Snapshot, shape: PodShape, count: int, scoring: Scoring) -> list[Share]:
    """Place up to ``count`` pods of a shape and return where; fewer when there is no room.

    Ties go to the node with fewer pods, then to the smaller name.
    """
    room = snapshot.room(shape)
    rows = np.flatnonzero(room)
    if rows.size == 0 or count <= 0:
        return []
    terms = score_terms(snapshot, shape, scoring)
    ranked = _best_rows(snapshot, rows, terms, count)
    shares = _spread(snapshot, ranked, room, terms, count)
    for share in shares:
        snapshot.place(shape, share.row, share.count)
    return shares


def score_terms(snapshot: Snapshot, shape: PodShape, scoring: Scoring) -> list[Term]:
    """Return what counts for this shape: CPU, memory, and configured resources that it asks for."""
    requests = dict(shape.requests)
    return [
        Term(snapshot.table.column(name), requests.get(name, 0), weighed.strategy, weighed.weight)
        for name, weighed in scoring.weights.items()
        if requests.get(name, 0) > 0 or name in {CPU, MEMORY}
    ]


def _best_rows(snapshot: Snapshot, rows: Ints, terms: list[Term], count: int) -> list[int]:
    """Return at most ``count`` rows, best first for one pod."""
    scores = _first_scores(snapshot, rows, terms)
    pods = snapshot.used[snapshot.table.column(PODS), rows]
    order = np.lexsort((snapshot.table.name_rank[rows], pods, -scores))
    best: list[int] = rows[order[:count]].tolist()
    return best


def _first_scores(snapshot: Snapshot, rows: Ints, terms: list[Term]) -> Ints:
    """Return :func:`score_of` with one more pod, for many rows at once."""
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
    return scores


def _spread(
    snapshot: Snapshot,
    ranked: list[int],
    room: Ints,
    terms: list[Term],
    count: int,
) -> list[Share]:
    """Hand out pods one at a time to the row that is best at that moment."""
    columns = [term.column for term in terms]
    used = snapshot.used[np.ix_(columns, ranked)].T.tolist()
    sizes = snapshot.table.allocatable[np.ix_(columns, ranked)].T.tolist()
    pods = snapshot.used[snapshot.table.column(PODS), ranked].tolist()
    limits = room[ranked].tolist()
    given = [0] * len(ranked)
    names = snapshot.table.name_rank[ranked].tolist()
    heap = [
        (-score_of(terms, used[at], sizes[at], 1), pods[at], names[at], at)
        for at in range(len(ranked))
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
        score = score_of(terms, used[at], sizes[at], given[at] + 1)
        heapq.heapreplace(heap, (-score, pods[at] + given[at], name, at))
    return [Share(row, n) for row, n in zip(ranked, given, strict=True) if n]
