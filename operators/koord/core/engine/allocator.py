"""Greedy allocation: how many pods of one shape go to each node.

kube-scheduler places each pod on the node with the best score at that moment. For independent equal
pods sorting gives the same result, and only needs the ``count`` nodes that score best for a first
pod: no other node can be chosen. Pods that affect each other are placed one by one.
"""

from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Final, TypeVar

import numpy as np

from koord.core.engine.arrays import Ints
from koord.core.engine.cycle import Cycle, Place
from koord.core.engine.plugin import Scale, Score
from koord.core.engine.scoring import (
    MAX_SCORE,
    Scorer,
    ScoreTerm,
    ScoreTerms,
    Scoring,
    Weighed,
)
from koord.core.model.pods import Pod, PodShape
from koord.core.model.units import CPU, MEMORY, PODS

_BITS: Final = 21
"""Enough for the rank of a node name and for the number of pods on a node."""
_Number = TypeVar("_Number", int, Ints)
_WIDTH: Final = 4
"""So many pods per row are looked at first, and some more for each that a row gets on average."""
_FULL: Final = int(np.iinfo(np.int64).max)
"""The key of a row without room."""


@dataclass(frozen=True, slots=True)
class RowShare:
    """``count`` pods on one row."""

    row: int
    count: int


@dataclass(slots=True)
class _Ranking:
    """The order of rows for one more pod of a shape: the lowest of ``keys`` is the best row.

    ``bonus`` is added to the score of resources. Valid for one ``version`` of the cycle.
    """

    shape: PodShape
    scorer: Scorer
    room: Ints
    keys: Ints
    bonus: Ints | None
    version: int

    def choose(self, count: int) -> Ints:
        """Return the rows that ``count`` pods may go to, in any order."""
        if count >= self.keys.size:
            return np.flatnonzero(self.room)
        best = np.argpartition(self.keys, count - 1)[:count]
        chosen: Ints = best[self.room[best] > 0]
        return chosen


class Allocator:
    """Places pods of one shape at a time on a cycle.

    Ties go to the node with fewer pods, then to the smaller name. Consecutive requests for one
    shape are frequent, so its ranking is cached until something else is placed.
    """

    def __init__(self, cycle: Cycle, scoring: Scoring) -> None:
        self._cycle = cycle
        self._scoring = scoring
        self._cached: _Ranking | None = None
        self._reserved: tuple[PodShape, int, Ints] | None = None
        """The shape last placed one by one, the version afterwards, and the keys of all rows."""

    def fill(self, shape: PodShape, count: int) -> list[RowShare]:
        """Place up to ``count`` pods of a shape and return where; fewer when there is no room."""
        cycle = self._cycle
        ranking = self._cached_ranking(shape)
        if ranking is None and cycle.is_reactive(shape):
            return _fill_one_by_one(cycle, shape, count, self._scorer_of(shape))
        if count <= 0:
            return []
        ranking = ranking or self._rank(shape)
        if count == 1:
            return self._fill_one(ranking)
        chosen = ranking.choose(count)
        if chosen.size == 0:
            return []
        given, keys = _hand_out(cycle, ranking, chosen, count)
        shares = [RowShare(row, n) for row, n in zip(chosen.tolist(), given, strict=True) if n]
        cycle.place_each(shape, {share.row: share.count for share in shares})
        ranking.room[chosen] -= given
        ranking.keys[chosen] = keys
        ranking.version = cycle.version
        self._cached = ranking if _is_plain(cycle, ranking) else None
        return shares

    def _fill_one(self, ranking: _Ranking) -> list[RowShare]:
        """Place one pod, with the numbers of its row alone: most units are single pods."""
        cycle, row = self._cycle, int(ranking.keys.argmin())
        if ranking.keys[row] == _FULL:
            return []
        cycle.place(ranking.shape, row)
        if _is_plain(cycle, ranking):
            ranking.room[row] -= 1
            ranking.keys[row] = _key_on(cycle, ranking.scorer, row) if ranking.room[row] else _FULL
            ranking.version = cycle.version
            self._cached = ranking
        else:
            self._cached = None
        return [RowShare(row, 1)]

    def reserve(self, shape: PodShape, pods: Sequence[Pod]) -> list[tuple[Pod, Place]]:
        """Place pods of a shape one by one, each reserved exactly on the best row.

        A row where reserving failed is skipped for the other pods. After each pod only the changed
        rows are evaluated again, unless the scores of the others depend on them.
        """
        cycle, placed = self._cycle, list[tuple[Pod, Place]]()
        keys, is_local = self._keys_for(shape)
        for pod in pods:
            reserved = self._reserve_one(shape, pod, keys)
            if reserved is None:
                break
            place, since = reserved
            placed.append((pod, place))
            changed = cycle.touched(since) if is_local else np.arange(keys.size)
            self._rank_rows(shape, changed, keys)
        is_valid = is_local and not cycle.is_restricted and len(placed) == len(pods)
        self._reserved = (shape, cycle.version, keys) if is_valid else None
        return placed

    def _keys_for(self, shape: PodShape) -> tuple[Ints, bool]:
        """Return the keys of all rows, and whether no key depends on other rows."""
        cycle = self._cycle
        if self._reserved is not None and not cycle.is_restricted:
            pod_shape, version, keys = self._reserved
            if pod_shape is shape and version == cycle.version:
                return keys, True
        rows = np.arange(len(cycle.table.nodes))
        keys = np.full(rows.size, _FULL)
        self._rank_rows(shape, rows, keys)
        return keys, not cycle.is_reactive(shape) and _is_local(cycle, shape, rows)

    def _rank_rows(self, shape: PodShape, rows: Ints, keys: Ints) -> None:
        """Write the keys of rows; those without room get the last one."""
        cycle = self._cycle
        keys[rows] = _FULL
        rows = rows[cycle.bounds(shape, rows) > 0]
        if rows.size:
            preferred = _preferences(cycle, shape, rows)
            scores = _first_scores(cycle, rows, self._scorer_of(shape), preferred)
            keys[rows] = rank_rows(cycle, rows, scores)

    def _reserve_one(self, shape: PodShape, pod: Pod, keys: Ints) -> tuple[Place, int] | None:
        """Reserve a pod on the best row; return its place and the version of the cycle before it.

        Rows where reserving fails get the last key.
        """
        while keys.size and keys[row := int(keys.argmin())] != _FULL:
            since = self._cycle.version
            place = self._cycle.reserve(pod, shape, row)
            if isinstance(place, Place):
                return place, since
            if place.ends_unit:
                return None
            keys[row] = _FULL
        return None

    def _cached_ranking(self, shape: PodShape) -> _Ranking | None:
        """Return the cached ranking if it is valid; a restriction does not change the version."""
        cached, cycle = self._cached, self._cycle
        if cached is None or cached.shape is not shape or cycle.is_restricted:
            return None
        return cached if cached.version == cycle.version else None

    def _rank(self, shape: PodShape) -> _Ranking:
        cycle, scorer = self._cycle, self._scorer_of(shape)
        room = cycle.room(shape)
        rows = np.flatnonzero(room)
        keys = np.full(room.size, _FULL)
        bonus = None
        if rows.size:
            preferred = _preferences(cycle, shape, rows)
            keys[rows] = rank_rows(cycle, rows, _first_scores(cycle, rows, scorer, preferred))
            if preferred is not None:
                bonus = np.zeros_like(room)
                bonus[rows] = preferred
        return _Ranking(shape, scorer, room, keys, bonus, cycle.version)

    def _scorer_of(self, shape: PodShape) -> Scorer:
        return Scorer(score_terms(self._cycle, shape, self._scoring))


def _is_plain(cycle: Cycle, ranking: _Ranking) -> bool:
    """Whether placing a pod changes the ranking of its own row only.

    Scores of plugins are normalised over all nodes, ports and inter-pod rules are more than
    amounts, and a restriction hides some of the nodes.
    """
    shape = ranking.shape
    return ranking.bonus is None and cycle.is_plain(shape) and not cycle.is_restricted


def _is_local(cycle: Cycle, shape: PodShape, rows: Ints) -> bool:
    """Whether no score of a row depends on other rows."""
    return all(score.scale is Scale.ABSOLUTE for score in cycle.scores(shape, rows))


def _preferences(cycle: Cycle, shape: PodShape, rows: Ints) -> Ints | None:
    """Sum the normalised scores of all sessions; None if the rows do not differ."""
    total: Ints | None = None
    for score in cycle.scores(shape, rows):
        points = points_of(score)
        total = points if total is None else total + points
    return total


def points_of(score: Score) -> Ints:
    """Return a score as points, with its weight."""
    points = score.values
    if score.scale is not Scale.ABSOLUTE:
        most = int(points.max(initial=0))
        points = points * MAX_SCORE // most if most else points
    if score.scale is Scale.BY_MAX_REVERSED:
        points = MAX_SCORE - points
    return score.weight * points


def score_terms(cycle: Cycle, shape: PodShape, scoring: Scoring) -> tuple[ScoreTerms, ...]:
    """Return scores by CPU, memory, configured resources that the shape requests, and plugins."""
    requests = dict(shape.requests)

    def make_terms(
        weights: Mapping[str, Weighed], always: Collection[str]
    ) -> tuple[ScoreTerm, ...]:
        return tuple(
            ScoreTerm(
                cycle.table.column(name), requests.get(name, 0), weighed.strategy, weighed.weight
            )
            for name, weighed in weights.items()
            if requests.get(name, 0) > 0 or name in always
        )

    first = ScoreTerms(make_terms(scoring.weights, (CPU, MEMORY)))
    more = cycle.score_terms(shape)
    if not scoring.plus:
        return first, *more
    return first, ScoreTerms(make_terms(scoring.plus, ()), scoring.plus_weight), *more


def _fill_one_by_one(cycle: Cycle, shape: PodShape, count: int, scorer: Scorer) -> list[RowShare]:
    """Place one pod after another, each on the row that is best then.

    Resources change on the row of the placed pod only; inter-pod limits are evaluated again for
    all rows.
    """
    capacity = cycle.capacity(shape)
    scores = np.zeros_like(capacity)
    rows = np.flatnonzero(capacity)
    scores[rows] = _first_scores(cycle, rows, scorer, None)
    given: Counter[int] = Counter()
    for _ in range(count):
        room = capacity
        for _, limits in cycle.limits(shape):
            room = np.minimum(room, limits)
        rows = np.flatnonzero(room)
        if rows.size == 0:
            break
        preferred = _preferences(cycle, shape, rows)
        total = scores[rows] if preferred is None else scores[rows] + preferred
        row = int(rows[rank_rows(cycle, rows, total).argmin()])
        cycle.place(shape, row)
        given[row] += 1
        capacity[row] -= 1
        scores[row] = _first_scores(cycle, np.array([row]), scorer, None)[0]
    return [RowShare(row, pods) for row, pods in given.items()]


def rank_rows(cycle: Cycle, rows: Ints, scores: Ints) -> Ints:
    """Return, of rows with these scores, the keys by which the lowest is taken first."""
    pods = cycle.used[cycle.table.column(PODS), rows]
    return _key_of(scores, pods, cycle.table.name_rank[rows])


def _key_of(score: _Number, pods: _Number, name_rank: _Number) -> _Number:
    """Return the sort key of one row or many: best score first, then fewest pods, then name."""
    return ((-score << _BITS) + pods << _BITS) + name_rank


def _key_on(cycle: Cycle, scorer: Scorer, row: int) -> int:
    """Return the key of one row for one more pod, without preferences."""
    used: list[int] = cycle.used[:, row].tolist()
    sizes: list[int] = cycle.table.allocatable[:, row].tolist()
    score = 0
    for terms in scorer.scores:
        taken = [used[column] for column in terms.columns]
        score += terms.weight * terms.score(taken, [sizes[at] for at in terms.size_columns], 1)
    table = cycle.table
    return _key_of(score, used[table.column(PODS)], int(table.name_rank[row]))


def _first_scores(cycle: Cycle, rows: Ints, scorer: Scorer, preferred: Ints | None) -> Ints:
    """Return the scores of many rows with one more pod, plus their preference scores."""
    scores = scorer.first(cycle.used, cycle.table.allocatable, rows)
    return scores if preferred is None else scores + preferred


def _hand_out(
    cycle: Cycle, ranking: _Ranking, chosen: Ints, count: int
) -> tuple[list[int], list[int]]:
    """Assign pods one at a time to the row that is best then.

    Returns, per chosen row, the number of its pods and its key afterwards.

    A row whose key gets better with a pod gets the next one at once. So the pods go to the lowest
    keys, where none counts as lower than an earlier one of its row; keys of two rows never tie.
    """
    limits = ranking.room[chosen]
    most, count = int(limits.max()), min(count, int(limits.sum()))
    width = min(most, _WIDTH + 4 * count // limits.size)
    while True:
        keys = _next_keys(cycle, ranking, chosen, width)
        order = np.maximum.accumulate(keys[:, :-1], axis=1)
        last = np.partition(order, count - 1, axis=None)[count - 1]
        given = (order <= last).sum(axis=1)
        surplus = int(given.sum()) - count
        if surplus:
            given[(order == last).any(axis=1)] -= surplus
        if width == most or not (given == width).any():
            return given.tolist(), keys[np.arange(limits.size), given].tolist()
        width = min(most, 4 * width)


def _next_keys(cycle: Cycle, ranking: _Ranking, rows: Ints, most: int) -> Ints:
    """Return the key of each row once it has got 0 to ``most`` pods."""
    table = cycle.table
    pods = np.arange(most + 1)
    scores = ranking.scorer.after(cycle.used, table.allocatable, rows, pods + 1)
    if ranking.bonus is not None:
        scores += ranking.bonus[rows, np.newaxis]
    before = cycle.used[table.column(PODS), rows, np.newaxis]
    keys = _key_of(scores, before + pods, table.name_rank[rows, np.newaxis])
    keys[pods >= ranking.room[rows, np.newaxis]] = _FULL
    return keys
