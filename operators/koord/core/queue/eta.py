"""When waiting units are expected to start: the planner run forward in virtual time.

At each expected end the room of what ends is free, and the planner decides the units that wait, in
the order that they have now: with its own placement, quotas, devices and reserved room. What is
expected is no promise: arrivals of higher order are not predicted. Everything happens in one cycle,
which is rolled back: nobody else sees it.

Nothing here reads a clock, and texts are made elsewhere.
"""

from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from heapq import heapify, heappop, heappush
from itertools import groupby
from typing import Final

import numpy as np

from koord.core.engine.cycle import Cycle
from koord.core.engine.planner import plan
from koord.core.engine.scoring import Scoring
from koord.core.model.plan import Placement, Plan, Unit
from koord.core.model.pods import Pod, PodShape
from koord.core.model.reasons import Reason, WakesOn
from koord.core.queue.run_time import Knowledge, RunTime
from koord.core.quota.reasons import QuotaExceeded
from koord.core.quota.session import QuotaSession

_MOST_PODS: Final = 1 << 20
MOST_UNITS: Final = 100
"""Units of a quota tree that are looked ahead for; later ones are not worth the time."""


@dataclass(frozen=True, slots=True)
class Ending:
    """Pods that leave their nodes together; ``name`` is what people call them."""

    name: str
    pods: tuple[Pod, ...]
    end: float | None
    """When they are expected to have ended, in seconds since the epoch; None: nobody knows."""
    level: Knowledge = Knowledge.NONE
    """How well that is known."""
    is_whole: bool = True
    """Whether these are all pods of a unit."""
    bound: float | None = None
    """By when they have ended, as far as is known; None: when they are expected to."""

    @property
    def latest(self) -> float:
        """When they have ended at the latest, as far as is known."""
        return max(self.end or 0.0, self.bound or 0.0)


@dataclass(frozen=True, slots=True)
class Forecast:
    """What was seen of one unit."""

    start: float | None = None
    """When it is expected to start; None: not within what is known."""
    level: Knowledge = Knowledge.DECLARED
    """The least that is known of what it waits for."""
    waits_for: tuple[Ending, ...] = ()
    """What has to end first, in order of time: on its nodes, or in its quotas."""
    refusal: Reason | None = None
    """Why it does not start, after all that is known to end."""
    never: Reason | None = None
    """Why it would not start even if nothing ran."""
    bound: float | None = None
    """By when it starts if all that it waits for ends as late as its own bound says."""


_BEST_FIRST: Final = tuple(Knowledge)


def choose_first(
    units: Iterable[Unit], tree_of: Callable[[Unit], str], most: int = MOST_UNITS
) -> list[Unit]:
    """Return the first units of each quota tree, in order."""
    counts: Counter[str] = Counter()
    chosen = []
    for unit in units:
        tree = tree_of(unit)
        counts[tree] += 1
        if counts[tree] <= most:
            chosen.append(unit)
    return chosen


def worst_of(levels: Iterable[Knowledge]) -> Knowledge:
    """Return how well the least known of several is known."""
    return max(levels, key=_BEST_FIRST.index, default=Knowledge.DECLARED)


@dataclass
class Outlook:
    """One look ahead: ``expected_time`` returns what is known of how long a unit runs.

    ``is_over`` tells when the time that a look may take is used up.
    """

    cycle: Cycle
    scoring: Scoring
    expected_time: Callable[[Unit], RunTime]
    is_over: Callable[[], bool] = lambda: False
    go_on: Callable[[Collection[str], Iterable[Pod]], None] = lambda *_: None
    """Called when time has passed: with the units that have started, and a pod of each that has
    ended since."""
    refusals: Mapping[str, Reason] = field(default_factory=dict)
    """Unit -> why it does not start now: what cannot have changed is not tried."""
    strict_queue_of: Callable[[Unit], str] = lambda _: ""
    """Returns the queue of a unit in which nobody may pass the first that waits; else nothing."""
    forecasts: dict[str, Forecast] = field(default_factory=dict)
    _ended: dict[int, list[Ending]] = field(default_factory=dict)
    """Row -> what has ended on it."""
    _all_ended: list[Ending] = field(default_factory=list)
    _started: list[Ending] = field(default_factory=list)
    _refusals: dict[str, Reason] = field(init=False)
    _likes: dict[str, tuple[Pod, ...]] = field(default_factory=dict)
    """Unit -> a pod of each shape that has to be placed."""
    _room: dict[PodShape, int] = field(default_factory=dict)
    """Shape -> an upper bound of how many of it fit, at this moment."""

    def __post_init__(self) -> None:
        self._quotas = self.cycle.find_session(QuotaSession)
        self._refusals = {
            key: reason for key, reason in self.refusals.items() if reason.is_capacity
        }

    def look(self, units: Sequence[Unit], running: Iterable[Ending]) -> Mapping[str, Forecast]:
        """Return what is expected of units, which are in order; the cycle stays as it is.

        Of those of which nothing is said there was no time to see it.
        """
        mark, now = self.cycle.checkpoint(), self.cycle.now
        running = tuple(running)
        try:
            left = self._play(list(units), running)
            self._judge(left, running)
        finally:
            self.cycle.rollback(mark)
            self.cycle.now = now
        return self.forecasts

    def _play(self, left: list[Unit], running: Sequence[Ending]) -> list[Unit]:
        """Let time pass until all have started, or nothing more is known to end."""
        ends = [
            (max(ending.end, self.cycle.now), at, ending)
            for at, ending in enumerate(running)
            if ending.end is not None
        ]
        heapify(ends)
        serial = len(running)
        while left and not self._has_to_end():
            for unit, ending in self._start(left):
                left.remove(unit)
                self._started.append(ending)
                if ending.end is not None:
                    heappush(ends, (ending.end, serial, ending))
                    serial += 1
            if not ends:
                return left
            self.cycle.now = ends[0][0]
            ended = []
            while ends and ends[0][0] <= self.cycle.now:
                ended.append(heappop(ends)[2])
                self._end(ended[-1])
            self.go_on(
                [key for key, seen in self.forecasts.items() if seen.start is not None],
                [ending.pods[0] for ending in ended if ending.is_whole],
            )
        return left

    def _has_to_end(self) -> bool:
        return self.cycle.steps.is_over or self.is_over()

    def _end(self, ending: Ending) -> None:
        rows = {place.row for pod in ending.pods if (place := self.cycle.place_of(pod)) is not None}
        self.cycle.remove(ending.pods)
        for row in rows:
            self._ended.setdefault(row, []).append(ending)
        self._all_ended.append(ending)

    def _start(self, left: Sequence[Unit]) -> list[tuple[Unit, Ending]]:
        """Plan what may fit by now; return what starts, and how each of them ends."""
        self._room.clear()
        started: list[tuple[Unit, Ending]] = []
        stopped: set[str] = set()
        for queue, units in groupby(left, self.strict_queue_of):
            if not queue:
                started += self._try([unit for unit in units if self._may_fit(unit)])
                continue
            for unit in units:
                if queue in stopped or self._has_to_end():
                    break
                starts = self._try([unit]) if self._may_fit(unit) else []
                started += starts
                if not starts and self._waits_for_room(unit):
                    stopped.add(queue)
        return started

    def _try(self, units: Sequence[Unit]) -> list[tuple[Unit, Ending]]:
        """Plan units; return those that start."""
        if not units:
            return []
        outcome = plan(self.cycle, units, self.scoring)
        self._note_refusals(outcome)
        by_key = {unit.key: unit for unit in units}
        return [
            (by_key[placement.unit], self._note_start(by_key[placement.unit], placement))
            for placement in outcome.placements
        ]

    def _waits_for_room(self, unit: Unit) -> bool:
        """Whether a unit keeps others waiting: what never fits delays nobody."""
        refusal = self._refusals.get(unit.key)
        if refusal is None or not refusal.is_capacity:
            return False
        shapes = Counter(pod.shape for demand in unit.demands for pod in demand.first_required())
        return not any(self._is_too_large(shape, count) for shape, count in shapes.items())

    def _is_too_large(self, shape: PodShape, count: int) -> bool:
        room = self.cycle.room_when_empty(shape)
        return room is not None and int(room.clip(0, count).sum()) < count

    def _note_refusals(self, outcome: Plan) -> None:
        started = {placement.unit for placement in outcome.placements}
        for refusal in outcome.refusals:
            if refusal.unit not in started:
                self._refusals[refusal.unit] = refusal.reason

    def _note_start(self, unit: Unit, placement: Placement) -> Ending:
        awaited = self._awaited(unit, placement)
        level = worst_of(ending.level for ending in awaited)
        now = self.cycle.now
        start_by = max((now, *(ending.latest for ending in awaited)))
        self.forecasts[unit.key] = Forecast(now, level, awaited, bound=start_by)
        own = self.expected_time(unit)
        return Ending(
            unit.group or unit.pods[0].title,
            tuple(assignment.pod for assignment in placement.assignments),
            None if own.expected is None else now + own.expected,
            worst_of((level, own.level)),
            bound=None if own.bound is None else start_by + own.bound,
        )

    def _awaited(self, unit: Unit, placement: Placement) -> tuple[Ending, ...]:
        """Return what had to end before: where it goes, and anywhere if not room was lacking."""
        refusal = self._refusals.get(unit.key)
        if refusal is None:
            return ()
        if refusal.wakes_on is WakesOn.DOMAIN:
            return tuple(self._all_ended)
        row_of = self.cycle.table.row_of
        rows = {row_of[assignment.node] for assignment in placement.assignments}
        here = {id(ending) for row in rows for ending in self._ended.get(row, ())}
        return tuple(ending for ending in self._all_ended if id(ending) in here)

    def _may_fit(self, unit: Unit) -> bool:
        """Whether a unit is worth a try: bounds of room are never too low."""
        refusal = self._refusals.get(unit.key)
        if refusal is None or unit.lease_seconds:
            return True
        if self._quotas is not None and isinstance(refusal, QuotaExceeded):
            return self._quotas.is_relieved(unit, refusal)
        like = self._likes.get(unit.key)
        if like is None:
            pods = {pod.shape: pod for demand in unit.demands for pod in demand.first_required()}
            like = self._likes[unit.key] = tuple(pods.values())
        if len(like) != 1:
            return True
        shape = self.cycle.shape_of(like[0])
        if shape not in self._room:
            rows = np.arange(self.cycle.used.shape[1])
            self._room[shape] = int(self.cycle.bounds(shape, rows).clip(0, _MOST_PODS).sum())
        return self._room[shape] >= unit.required

    def _judge(self, left: Sequence[Unit], running: Sequence[Ending]) -> None:
        """Tell those that nothing helps from those of which it is not known when they start."""
        if not left or self._has_to_end():
            return
        there = [
            pod
            for ending in (*running, *self._started)
            for pod in ending.pods
            if ending.end is None or ending.end > self.cycle.now
        ]
        # To see that a unit would start a few empty nodes are enough, and most would.
        rows = self._find_rows(left)
        unsure = left if rows is None else self._judge_without(left, self._on_rows(there, rows))
        self._judge_without(unsure, there, is_all=True)

    def _judge_without(
        self, left: Sequence[Unit], pods: Iterable[Pod], *, is_all: bool = False
    ) -> list[Unit]:
        """Judge units once pods are gone; return those that do not start then, unless all are."""
        unsure: list[Unit] = []
        if not left or self._has_to_end():
            return unsure
        self.cycle.remove(pods)
        # Alone a unit has all room: also what is reserved for those before it.
        self.go_on([*self.forecasts, *(unit.key for unit in left)], ())
        for unit in left:
            if self._has_to_end():
                break
            mark = self.cycle.checkpoint()
            alone = plan(self.cycle, (unit,), self.scoring)
            self.cycle.rollback(mark)
            if not alone.placements and not is_all:
                unsure.append(unit)
                continue
            refusal = self._refusals.get(unit.key)
            never = None if alone.placements else alone.refusals[0].reason
            self.forecasts[unit.key] = Forecast(None, Knowledge.NONE, (), refusal, never)
        return unsure

    def _find_rows(self, units: Iterable[Unit]) -> set[int] | None:
        """Return nodes that have room for each unit when empty; None if those are too many."""
        rows: set[int] = set()
        most = self.cycle.used.shape[1] // 4
        for shape, count in _count_shapes(units).items():
            room = self.cycle.room_when_empty(shape)
            if room is None:
                return None
            largest = np.argsort(-room, kind="stable")
            enough = np.searchsorted(room[largest].clip(0, count).cumsum(), count) + 1
            rows.update(largest[:enough].tolist())
            if len(rows) > most:
                return None
        return rows

    def _on_rows(self, pods: Iterable[Pod], rows: Collection[int]) -> Iterator[Pod]:
        nodes = {self.cycle.table.node_at(row).name for row in rows}
        for pod in pods:
            if pod.planned_node:
                is_there = pod.planned_node in nodes
            else:
                place = self.cycle.place_of(pod)
                is_there = place is not None and place.row in rows
            if is_there:
                yield pod


def _count_shapes(units: Iterable[Unit]) -> dict[PodShape, int]:
    """Return how many pods of each shape a unit needs at most."""
    most: dict[PodShape, int] = {}
    for unit in units:
        shapes = Counter(pod.shape for demand in unit.demands for pod in demand.first_required())
        for shape, count in shapes.items():
            most[shape] = max(count, most.get(shape, 0))
    return most
