"""Room in time as the planner sees it: what would fit when is found by planning it.

A later time is the cycle without the pods that have ended by then; the unit is planned on it as
any unit is, so topology, devices, volumes and quotas count, and all is rolled back.
"""

from bisect import bisect_right
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from typing import TYPE_CHECKING, Final, TypeAlias

import numpy as np

from koord.core.engine.arrays import Mask
from koord.core.engine.cycle import Cycle
from koord.core.model.plan import Placement, Unit, UnitKey, Unplaced
from koord.core.model.pods import Pod
from koord.core.queue.amounts_in_time import AmountsInTime
from koord.core.queue.ends import EndingPod, Ends
from koord.core.queue.reserved_limits import (
    PlannedStart,
    ReservedLimits,
    ReservedMoment,
    StartedHere,
    moments_of,
)
from koord.core.queue.room import FOREVER, Places, Reserved, UnitAsk
from koord.core.queue.run_time import Knowledge
from koord.core.queue.turns import Competition
from koord.core.quota.session import QuotaSession

if TYPE_CHECKING:
    from koord.core.queue.quotas_in_time import QuotasInTime

WHOLE: Final = 1_000_000
"""The capacity of a cluster: amounts of units are parts of it, in their dominant resource."""
MOST_TIMES: Final = 24
"""Starts that are tried beside other reserved room."""
TryPlan: TypeAlias = Callable[[Unit], Placement | Unplaced]
_LimitsKey: TypeAlias = tuple[int, tuple[tuple[int, tuple[int, ...]], ...]]
"""From when on, and by moment what is reserved then."""


class PlannedRoom:
    """What the rules of protection ask, answered by planning; see ``RoomInTime``."""

    def __init__(
        self,
        cycle: Cycle,
        ends: Ends,
        competition: Competition,
        levels_of: Callable[[str], Collection[Knowledge]],
    ) -> None:
        self.now = int(cycle.now)
        self.units: dict[UnitKey, Unit] = {}
        """What would have to start of each unit."""
        self.try_plan: TryPlan | None = None
        self.limits: ReservedLimits | None = None
        """What the unit that is planned has to leave to others."""
        self._kept: dict[_LimitsKey, tuple[ReservedLimits, tuple[int, int]]] = {}
        """Limits as of now -> with how many units started, after how many rollbacks."""
        self._depth = 0
        """How often the cycle is without some pods."""
        self.started = StartedHere(cycle.table)
        self.quotas: QuotasInTime | None = None
        self._cycle, self._ends, self._competition = cycle, ends, competition
        self._levels_of = levels_of
        self._refused: set[tuple[UnitKey, tuple[int, ...]]] = set()
        """Unit, reserved room -> it was tried beside it and did not fit."""
        self._capacity: dict[int, int] = {}

    # --- what is asked ---------------------------------------------------------------------------

    def fit(self, job: UnitAsk, reserved: Sequence[Reserved]) -> Places | None:
        key = (job.key, tuple(map(id, reserved)))
        if key in self._refused:
            return None
        with self.beside(reserved, self.now, job.end_from(self.now)):
            places = self._try(self.units[job.key])
        if places is None:
            self._refused.add(key)
        return None if places is None else places.places

    def note_refused(self, job: UnitAsk, reserved: Sequence[Reserved]) -> None:
        """Note that a unit does not fit beside this."""
        self._refused.add((job.key, tuple(map(id, reserved))))

    def find_start(
        self, job: UnitAsk, reserved: Sequence[Reserved], until: int = FOREVER, since: int = 0
    ) -> PlannedStart | None:
        runs = self._known_ends(job, min(until, FOREVER - 1))
        start = self._search(job, reserved, runs, None, max(since, self.now))
        return start if start is not None and start.start <= until else None

    def _known_ends(self, job: UnitAsk, until: int) -> list[EndingPod]:
        """Return what has certainly ended by then, in order; ``job`` tells what is certain."""
        levels = self._levels_of(job.quota)
        runs = [
            running
            for running in self._ends.all()
            if running.end <= until and running.level in levels
        ]
        started = [running for running in self.started.pods if running.end <= until]
        return sorted([*runs, *started], key=_end_of) if started else runs

    def hold_open(
        self, job: UnitAsk, reserved: Sequence[Reserved], held: Reserved | None
    ) -> PlannedStart | None:
        runs = self._expected_ends()
        kept = {} if held is None else held.places
        start = self._search(job, reserved, sorted(runs, key=_end_of), kept, self.now)
        if held is None or (start is not None and self.ready(start) >= self.ready(held)):
            return start
        # What is ready is not given up for what is only expected.
        return self._hold_again(job, reserved, held, runs) or start

    def _expected_ends(self) -> list[EndingPod]:
        return [
            replace(running, end=running.expected)
            for running in (*self._ends.all(), *self.started.pods)
            if running.expected < FOREVER
        ]

    def find_again(
        self, job: UnitAsk, beside: Sequence[Reserved], places: Places, latest: int | None
    ) -> PlannedStart | None:
        """Return what an earlier process has reserved, on these nodes, if it is still possible.

        ``latest`` is by when that was to start; None: it was held without a known time.
        """
        if latest is None:
            held = Reserved(job, self.now, FOREVER, places, is_open=True)
            return self._hold_again(job, beside, held, self._expected_ends())
        rows = self._find_rows(places)
        if rows is None or latest < self.now:
            return None
        mask, runs = self._mask_of(rows), self._known_ends(job, latest)
        times = sorted({self.now, latest, *(run.end for run in runs if mask[run.row])})
        times = [at for at in times if at >= self.now]

        def plan_at(at: int) -> PlannedStart | None:
            ended = runs[: bisect_right(runs, at, key=_end_of)]
            with self._at(ended, mask), self.beside(beside, at, job.end_from(at)):
                start = self._try(self.units[job.key], mask)
            return start and replace(start, job=job, start=at, end=job.end_from(at))

        low, high, best = 0, len(times), None
        while low < high:
            middle = (low + high) // 2
            start = plan_at(times[middle])
            if start is None:
                low = middle + 1
            else:
                best, high = start, middle
        return best

    def _find_rows(self, nodes: Iterable[str]) -> list[int] | None:
        """Return the rows of nodes; None if one of them is gone."""
        rows = [self._cycle.table.row_of.get(node, -1) for node in nodes]
        return None if -1 in rows else rows

    def _hold_again(
        self,
        job: UnitAsk,
        reserved: Sequence[Reserved],
        held: Reserved,
        runs: Sequence[EndingPod],
    ) -> PlannedStart | None:
        """Return what is held already, if it will do once all that can end there has ended."""
        rows = self._find_rows(held.places)
        if rows is None:
            return None
        mask = self._mask_of(rows)
        ended = [run for run in runs if mask[run.row]]
        with self._at(ended, mask), self.beside(reserved, self.now, FOREVER):
            start = self._try(self.units[job.key], mask)
        if start is None:
            return None
        return replace(start, job=job, start=self.now, end=FOREVER, is_open=True)

    def is_possible(self, reserved: Reserved, beside: Sequence[Reserved]) -> bool:
        rows = self._find_rows(reserved.places)
        if reserved.start < self.now or rows is None:
            return False
        job = reserved.job
        runs, mask = self._known_ends(job, reserved.start), self._mask_of(rows)
        end = job.end_from(reserved.start)
        with self._at(runs, mask), self.beside(beside, reserved.start, end):
            return self._try(self.units[job.key], mask) is not None

    def ready(self, reserved: Reserved, beside: Sequence[Reserved] = ()) -> int:
        table, used = self._cycle.table, self._cycle.used
        nodes = _planned(reserved).by_node()
        beside_nodes = [_planned(other).by_node() for other in beside]
        count = 0
        for node, assignments in nodes.items():
            row = table.row_of.get(node)
            if row is None:
                continue
            free = table.allocatable[:, row] - used[:, row]
            for pods in (other.get(node, ()) for other in beside_nodes):
                for assignment in pods:
                    vector = table.vector(assignment.pod.shape)
                    free[vector.columns] -= vector.amounts
            for assignment in assignments:
                vector = table.vector(assignment.pod.shape)
                if (free[vector.columns] >= vector.amounts).all():
                    free[vector.columns] -= vector.amounts
                    count += 1
        return min(count, reserved.job.pods) * reserved.job.amount

    def fits_ever(self, job: UnitAsk) -> bool:
        shapes: dict[object, int] = {}
        unit = self.units[job.key]
        if self.quotas is not None and not self.quotas.fits_alone(unit, job.quota):
            return False
        for pod in unit.pods:
            shapes[pod.shape] = shapes.get(pod.shape, 0) + 1
        likes = {pod.shape: pod for pod in unit.pods}
        for shape, like in likes.items():
            room = self._cycle.room_when_empty(self._cycle.shape_of(like))
            if room is not None and int(np.minimum(room, len(unit.pods)).sum()) < shapes[shape]:
                return False
        return True

    def gains_guarantee(self, job: UnitAsk, start: int, later: int) -> bool:
        quotas, unit = self.quotas, self.units[job.key]
        return quotas is not None and quotas.gains_guarantee(
            unit, job.quota, self.now, start, later
        )

    def competes(self, job: UnitAsk, other: UnitAsk) -> bool:
        competitors = self._competition.of
        return self._competition.competes(
            competitors(self.units[job.key]), competitors(self.units[other.key])
        )

    def capacity(self) -> int:
        return WHOLE

    def start(self, job: UnitAsk, places: Places, lender: str = "") -> None:
        raise NotImplementedError("the planner places units")

    # --- what others ask -------------------------------------------------------------------------

    def part_of(self, unit: Unit) -> int:
        """Return the largest part of a resource of the cluster that a pod of a unit requests."""
        table, part = self._cycle.table, 1
        for shape in {pod.shape for pod in unit.pods}:
            vector = table.vector(shape)
            for column, amount in zip(vector.columns, vector.amounts, strict=True):
                if column not in self._capacity:
                    self._capacity[column] = int(table.allocatable[column].sum())
                part = max(part, amount * WHOLE // max(self._capacity[column], 1))
        return part

    @contextmanager
    def beside(self, reserved: Sequence[Reserved], start: int, end: int) -> Iterator[None]:
        """Have units planned beside reserved room, as if they started and ended then."""
        before, now = self.limits, self._cycle.now
        self.set_limits(reserved, start, end)
        # Nodes that are to go out of service are judged by the time of the start.
        self._cycle.now = max(now, float(start))
        try:
            yield
        finally:
            self.limits, self._cycle.now = before, now

    def set_limits(self, reserved: Sequence[Reserved], start: int, end: int) -> None:
        """Have them planned so from now on."""
        if not reserved:
            self.limits = None
            return
        moments = moments_of([_planned(other) for other in reserved], start, end)
        self.limits = self._make_limits(moments, start) if moments else None

    def avoid(self, rows: Sequence[int]) -> None:
        """Have the unit that is planned use none of some rows."""
        limits = self.limits or self._make_limits((), self.now)
        self.limits = limits.without(self._mask_of(rows))

    def _make_limits(self, moments: Sequence[ReservedMoment], base: int) -> ReservedLimits:
        """Return limits: the same for all units that they are the same for."""
        if self._depth:
            return ReservedLimits(self._cycle, self._ends, self.started, moments, base)
        key = (base, tuple((moment.at, tuple(map(id, moment.active))) for moment in moments))
        stamp = (len(self.started.placed), self.started.rollbacks)
        limits, seen = self._kept.get(key, (None, (0, -1)))
        if limits is None or seen[1] != stamp[1]:
            limits = ReservedLimits(self._cycle, self._ends, self.started, moments, base)
        elif seen != stamp:
            limits = limits.with_started(self.started.since(seen[0]))
        self._kept[key] = (limits, stamp)
        return limits

    @property
    def version(self) -> int:
        """The number of the limits: of equal ones the same."""
        return 0 if self.limits is None else self.limits.number

    # --- the search ------------------------------------------------------------------------------

    def _search(
        self,
        job: UnitAsk,
        reserved: Sequence[Reserved],
        runs: Sequence[EndingPod],
        kept: Mapping[str, int] | None,
        since: int,
    ) -> PlannedStart | None:
        """Return the earliest start since then when these pods end; ``runs`` are in that order.

        ``kept``: ends are only expected, so room is held from now on, first of all on these nodes.
        """
        ends = [run.end for run in runs]
        releases = (other.end for other in reserved if other.end < FOREVER)
        times = sorted({since, *(at for at in (*ends, *releases) if at > since)})
        amounts = AmountsInTime(self._cycle, self.units[job.key], runs)
        first = amounts.first(times)

        def plan_at(at: int) -> PlannedStart | None:
            ended = runs[: bisect_right(ends, at)]
            rows = amounts.rows_with_room(at)
            with self._at(ended, rows), self.beside(reserved, at, job.end_from(at)):
                start = self._place_best(job, ended, kept)
            if start is None:
                return None
            if kept is not None:
                return replace(start, job=job, start=self.now, end=FOREVER, is_open=True)
            return replace(start, job=job, start=at, end=job.end_from(at))

        if reserved:
            candidates = times[first : first + MOST_TIMES]
            return next((start for at in candidates if (start := plan_at(at)) is not None), None)
        best, low, high = None, first, len(times)
        step = 1
        while low < high:
            # Amounts are mostly right, so the first guess is; otherwise room only grows with time.
            middle = low if best is None and step == 1 else (low + high) // 2
            step += 1
            start = plan_at(times[middle])
            if start is None:
                low = middle + 1
            else:
                best, high = start, middle
        return best

    def _place_best(
        self, job: UnitAsk, ended: Sequence[EndingPod], kept: Mapping[str, int] | None
    ) -> PlannedStart | None:
        """Place a unit as it is then, on the nodes that are to be used first."""
        unit = self.units[job.key]
        start = self._try(unit)
        if start is None:
            return None
        return self._with_first_rows(unit, self._rows_in_order(unit, ended, kept)) or start

    def _rows_in_order(
        self, unit: Unit, ended: Sequence[EndingPod], kept: Mapping[str, int] | None
    ) -> list[int]:
        """Return the rows that are feasible then, those first that are to be used.

        With unknown ends (``kept`` are the nodes so far) those that are ready now, then those that
        are expected first. Otherwise those that are idle for the shortest time before.
        """
        cycle = self._cycle
        ready_at: dict[int, int] = {}
        for run in ended:
            ready_at[run.row] = max(run.end, ready_at.get(run.row, 0))
        shapes = {pod.shape: pod for pod in unit.pods}
        every_row = np.arange(cycle.used.shape[1])
        room = sum(
            np.minimum(cycle.bounds(cycle.shape_of(pod), every_row), 1) for pod in shapes.values()
        )
        rows = np.flatnonzero(room).tolist()
        rank = cycle.table.name_rank
        if kept is not None:
            kept_rows = {cycle.table.row_of.get(node) for node in kept}
            return sorted(
                rows,
                key=lambda row: (
                    ready_at.get(row, 0) > self.now,
                    row not in kept_rows,
                    ready_at.get(row, 0),
                    rank[row],
                ),
            )
        return sorted(rows, key=lambda row: (-ready_at.get(row, 0), rank[row]))

    def _with_first_rows(self, unit: Unit, rows: Sequence[int]) -> PlannedStart | None:
        """Plan a unit on as few of the rows as are enough, from the first on."""
        cycle, counts = self._cycle, dict[object, int]()
        for pod in unit.pods:
            counts[pod.shape] = counts.get(pod.shape, 0) + 1
        likes = {pod.shape: pod for pod in unit.pods}
        order = np.array(rows, dtype=np.int64)
        sums = [np.cumsum(cycle.bounds(cycle.shape_of(pod), order)) for pod in likes.values()]
        least = max(
            int(np.searchsorted(total, counts[shape])) + 1
            for shape, total in zip(likes, sums, strict=True)
        )
        low, high, best = least, len(rows), None
        is_first = True
        while low < high:
            middle = low if is_first else (low + high) // 2
            is_first = False
            start = self._try(unit, self._mask_of(rows[:middle]))
            if start is None:
                low = middle + 1
            else:
                best, high = start, middle
        return best

    def _try(self, unit: Unit, allowed: Mask | None = None) -> PlannedStart | None:
        """Plan a unit, on some rows only, and take it back."""
        if self.try_plan is None:
            return None
        before, mark = self.limits, self._cycle.checkpoint()
        if allowed is not None:
            limits = before or self._make_limits((), self.now)
            self.limits = limits.within(allowed)
        try:
            outcome = self.try_plan(unit)
        finally:
            self._cycle.rollback(mark)
            self.limits = before
        if isinstance(outcome, Unplaced):
            return None
        places: dict[str, int] = {}
        for assignment in outcome.assignments:
            places[assignment.node] = places.get(assignment.node, 0) + 1
        nothing = UnitAsk(unit.key, "", 0, 0)
        return PlannedStart(
            nothing, self.now, FOREVER, places, assignments=tuple(outcome.assignments)
        )

    @contextmanager
    def _at(self, ended: Sequence[EndingPod], rows: Mask | None) -> Iterator[None]:
        """Have the cycle as it is without some pods, for a unit that may only go to these rows.

        On other rows only those pods are removed that matter to others elsewhere; all that is
        charged to quotas for the rest is taken back.
        """
        cycle = self._cycle
        mark = cycle.checkpoint()
        cycle.remove(run.pod for run in ended if rows is None or rows[run.row])
        if rows is not None:
            self._remove_far([run.pod for run in ended if not rows[run.row]])
        self._depth += 1
        try:
            yield
        finally:
            self._depth -= 1
            cycle.rollback(mark)

    def _remove_far(self, pods: Sequence[Pod]) -> None:
        cycle = self._cycle
        reaching = {pod.uid for pod in cycle.reaching_of(pods)}
        cycle.remove(pod for pod in pods if pod.uid in reaching)
        quotas = cycle.find_session(QuotaSession)
        if quotas is not None:
            left = (pod for pod in pods if pod.uid not in reaching)
            charged = (pod for pod in left if cycle.place_of(pod) is not None)
            quotas.count_all(quotas.kinds_of(charged), -1)

    def _mask_of(self, rows: Sequence[int]) -> Mask:
        mask = np.zeros(self._cycle.used.shape[1], dtype=np.bool_)
        mask[list(rows)] = True
        return mask


def _planned(reserved: Reserved) -> PlannedStart:
    assert isinstance(reserved, PlannedStart)  # noqa: S101 - for the type checker
    return reserved


def _end_of(running: EndingPod) -> int:
    return running.end
