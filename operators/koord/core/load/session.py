"""Load-aware placement in one cycle: what pods are charged, and which nodes are refused.

A pod is charged in the columns that limit it. What it adds to columns that limit only others is
charged by its count (``apply``): that of pods of DaemonSets, and between pods of class prod and
others where these have thresholds of their own.
"""

from collections.abc import Hashable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import ClassVar, Final

import numpy as np
from typing_extensions import override

from koord.core.engine.arrays import NO_LIMIT, Ints, Rows
from koord.core.engine.cause import Cause
from koord.core.engine.cycle import Cycle
from koord.core.engine.plugin import Charging, FilterReach, Relieving
from koord.core.engine.scoring import DominantTerms, ScoreTerm, ScoreTerms, ScoringStrategy
from koord.core.load.causes import EXPIRED
from koord.core.load.columns import LoadColumns
from koord.core.load.model import NAME, NO_HINTS, hints_of
from koord.core.load.numbers import Family
from koord.core.load.usage import Vector
from koord.core.model.koordinator_class import KoordinatorClass
from koord.core.model.plan import Unit
from koord.core.model.pods import Allocation, Pod, PodShape

_FIRST: Final = 1000
"""The weight of a score that decides, whatever the others say."""


@dataclass(frozen=True, slots=True)
class LoadAsk:
    """What a pod is estimated to use, if that is not what its requests alone say.

    A pod that ``is_exempt`` is refused nowhere, and counts all the same. One that ``is_relieved``
    is refused by outdated reports alone.
    """

    estimate: Vector
    is_prod: bool = True
    is_exempt: bool = False
    is_relieved: bool = False


class LoadSession(Charging, Relieving):
    """The load of all nodes in one cycle."""

    name: ClassVar = NAME
    reach: ClassVar = FilterReach.ROW

    def __init__(self, columns: LoadColumns, cycle: Cycle) -> None:
        self._columns, self._cycle, self._options = columns, cycle, columns.options
        self._has_prod, self._is_mixed = columns.has_prod_limits, columns.is_mixed
        self._resources = range(len(columns.options.resources))
        self._asks: dict[PodShape, LoadAsk] = {}
        self.relieved: set[str] = set()
        """uids of pods that no threshold limits."""

    # --- what pods ask for -----------------------------------------------------------------------

    @override
    def ask(self, pod: Pod, shape: PodShape) -> Hashable | None:
        hints = hints_of(pod)
        is_exempt = any(owner.is_daemon_set for owner in pod.owners)
        is_relieved = pod.uid in self.relieved
        if hints is NO_HINTS and not is_exempt and not is_relieved:
            return None
        estimate = self._columns.estimate_of(shape, hints)
        is_prod = hints.koordinator_class is KoordinatorClass.PROD
        is_usual = is_prod and estimate == self._columns.estimate_of(shape, NO_HINTS)
        if is_usual and not is_exempt and not is_relieved:
            return None
        return LoadAsk(estimate, is_prod, is_exempt, is_relieved)

    @override
    def ask_all(self, pods: Sequence[Pod]) -> Sequence[Hashable | None] | None:
        relieved = self.relieved
        if not relieved and not any(pod.extensions or pod.owners for pod in pods):
            return None
        asks = [
            self.ask(pod, pod.shape)
            if pod.extensions or pod.owners or pod.uid in relieved
            else None
            for pod in pods
        ]
        return asks if any(asks) else None

    def _ask_of(self, shape: PodShape) -> LoadAsk:
        ask = self._asks.get(shape)
        if ask is None:
            given = shape.ask_of(self.name)
            usual = LoadAsk(self._columns.estimate_of(shape, NO_HINTS))
            ask = self._asks[shape] = given if isinstance(given, LoadAsk) else usual
        return ask

    # --- amounts ---------------------------------------------------------------------------------

    def _limiting(self, ask: LoadAsk) -> Family | None:
        """Return the columns that limit a pod."""
        return None if ask.is_exempt or ask.is_relieved else self._family_of(ask)

    def _family_of(self, ask: LoadAsk) -> Family:
        return Family.PROD if ask.is_prod and self._has_prod else Family.GENERAL

    def _counting(self, ask: LoadAsk) -> Iterator[Family]:
        """Yield the columns that a pod is charged in, and that limit nothing."""
        if self._options.scores and self._columns.splits_score:
            yield Family.SCORE
        if self._options.scores_prod and ask.is_prod:
            yield Family.PROD_SCORE

    def _affected(self, ask: LoadAsk, row: int) -> Iterator[Family]:
        """Yield the columns in which a pod counts on a row, though others are limited by them."""
        limiting = self._limiting(ask)
        if limiting is not Family.GENERAL:
            yield Family.GENERAL
        if self._has_prod and limiting is not Family.PROD:
            node = self._cycle.table.node_at(row).name
            if ask.is_prod or not self._columns.thresholds_of(node).has_prod:
                yield Family.PROD

    @override
    def demand(self, shape: PodShape) -> Iterable[tuple[int, int]]:
        ask = self._ask_of(shape)
        limiting = self._limiting(ask)
        families = (*(() if limiting is None else (limiting,)), *self._counting(ask))
        for family in families:
            for at, amount in enumerate(ask.estimate):
                if amount:
                    yield self._columns.column(family, at), amount

    @override
    def concerns(self, shape: PodShape) -> bool:
        ask = self._ask_of(shape)
        if ask.is_exempt or ask.is_relieved:
            return True
        return self._has_prod and (ask.is_prod or self._is_mixed)

    @override
    def apply(self, shape: PodShape, row: int, count: int) -> None:
        ask = self._ask_of(shape)
        for family in self._affected(ask, row):
            for at, amount in enumerate(ask.estimate):
                self._cycle.used[self._columns.column(family, at), row] += amount * count

    # --- pods that leave -------------------------------------------------------------------------

    @override
    def release(self, pod: Pod, row: int) -> Sequence[Allocation]:
        self._keep_measured(pod, row, 1)
        return ()

    @override
    def adopt(self, pod: Pod, row: int, allocations: Sequence[Allocation]) -> None:
        self._keep_measured(pod, row, -1)

    def _keep_measured(self, pod: Pod, row: int, count: int) -> None:
        """Charge what stays in the report about a node when a pod has gone.

        With its shape all of its estimate is taken back. But what is measured is measured until the
        next report, so nobody is evicted for it.
        """
        node = self._cycle.table.node_at(row).name
        if self._columns.pods.node_of(pod.uid) != node:
            return  # this cycle has placed it there
        ask = self._ask_of(self._cycle.shape_of(pod))
        families = {*self._counting(ask), *self._affected(ask, row), self._limiting(ask)}
        for family in families:
            if family is None:
                continue
            freed = self._columns.freed_by(pod.uid, node, family)
            for at, amount in enumerate(ask.estimate):
                left = amount - freed[at]
                if left:
                    self._cycle.charge(row, self._columns.column(family, at), count * left)

    # --- nodes -----------------------------------------------------------------------------------

    @override
    def filter(self, shape: PodShape, rows: Rows) -> Iterable[tuple[Cause, Ints]]:
        ask = self._ask_of(shape)
        limiting = self._limiting(ask)
        if self._columns.expired and self._options.refuses_expired and not ask.is_exempt:
            yield EXPIRED, self._expired_limits(self._family_of(ask))[rows]
        if limiting is None:
            return
        # Amounts of nothing are no demand, but nodes above the threshold are refused all the same.
        table = self._cycle.table
        for at in self._columns.limited:
            if not ask.estimate[at]:
                column = self._columns.column(limiting, at)
                is_above = self._cycle.used[column, rows] > table.allocatable[column, rows]
                yield table.causes[column], np.where(is_above, 0, NO_LIMIT)

    def _expired_limits(self, limiting: Family) -> Ints:
        table = self._cycle.table
        limits = np.full(len(table.nodes), NO_LIMIT)
        for name, thresholds in self._columns.expired.items():
            row = table.row_of.get(name)
            is_prod = limiting is Family.PROD and thresholds.has_prod
            limited = thresholds.prod if is_prod else thresholds.general
            if row is not None and any(limited.values()):
                limits[row] = 0
        return limits

    @override
    def score_terms(self, shape: PodShape) -> Iterable[ScoreTerms]:
        columns, options = self._columns, self._options
        ask = self._ask_of(shape)
        if ask.is_relieved:
            yield self._most_left(ask)
        if not options.scores:
            return
        family = Family.SCORE if columns.splits_score else Family.GENERAL
        if options.scores_prod and ask.is_prod:
            family = Family.PROD_SCORE
        terms = tuple(
            ScoreTerm(
                columns.column(family, at),
                ask.estimate[at],
                ScoringStrategy.LEAST_ALLOCATED,
                options.weights.get(options.resources[at], 0),
                columns.column(Family.CAPACITY, at),
            )
            for at in self._resources
            if options.dominant or options.weights.get(options.resources[at], 0)
        )
        if options.dominant or not all(term.request for term in terms):
            yield DominantTerms(terms, dominant=options.dominant)
        else:  # the same, faster
            yield ScoreTerms(terms)

    # --- units that only thresholds keep waiting -------------------------------------------------

    @override
    def relieve(self, unit: Unit) -> bool:
        uids = {pod.uid for pod in unit.pods} - self.relieved
        if not self._options.relieves or not uids:
            return False
        self._cycle.undo.push(self.relieved.difference_update, uids)
        self.relieved |= uids
        return True

    def _most_left(self, ask: LoadAsk) -> DominantTerms:
        """Return a score that decides: by the resource of which least is left."""
        terms = tuple(
            ScoreTerm(
                self._columns.column(Family.GENERAL, at),
                ask.estimate[at],
                ScoringStrategy.LEAST_ALLOCATED,
                0,
                self._columns.column(Family.CAPACITY, at),
            )
            for at in self._columns.limited
        )
        return DominantTerms(terms, _FIRST, dominant=1)

    def excess_of(self, pod: Pod, row: int) -> tuple[str, ...]:
        """Return what a node uses beyond its thresholds with a pod that is there, for people."""
        columns, node = self._columns, self._cycle.table.node_at(row)
        family = self._family_of(self._ask_of(self._cycle.shape_of(pod)))
        used, most = self._cycle.used, self._cycle.table.allocatable
        return tuple(
            columns.describe(node, family, at, int(used[column, row]))
            for at in columns.limited
            if used[column := columns.column(family, at), row] > most[column, row]
        )

    @override
    def explain(self, cause: Cause, shape: PodShape, row: int) -> str:
        columns, node = self._columns, self._cycle.table.node_at(row)
        if cause is EXPIRED:
            return columns.describe_age(node.name, self._cycle.now)
        ask = self._ask_of(shape)
        limiting = self._limiting(ask)
        if limiting is None:
            return ""
        for at in self._resources:
            column = columns.column(limiting, at)
            if self._cycle.table.causes[column] == cause:
                used = int(self._cycle.used[column, row]) + ask.estimate[at]
                return columns.describe(node, limiting, at, used)
        return ""
