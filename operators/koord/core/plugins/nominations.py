"""Nominated pods: their room is kept while the pods that were preempted for them terminate.

As in kube-scheduler, a nominated pod counts as being on its node for other pods of the same or a
lower priority; pods of a higher one do not see it. Victims that are still there are counted only as
far as they use more. Whoever nominates a unit ends its nomination; nothing here reads a clock.
"""

from collections import Counter
from collections.abc import Hashable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TypeAlias, cast

import numpy as np
from typing_extensions import override

from koord.core.engine.arrays import NO_LIMIT, Ints, Rows
from koord.core.engine.cause import Cause
from koord.core.engine.cycle import Cycle
from koord.core.engine.plugin import Admission, Admitting, FilterReach, Plugin
from koord.core.model.plan import Assignment, Unit, UnitKey
from koord.core.model.pods import Pod, PodShape
from koord.core.plugins.causes import NodeCause

_Applied: TypeAlias = tuple[int, ...]
"""Positions of the nominations that count for a pod."""
_Extra: TypeAlias = Mapping[int, Mapping[str, int]]
"""Row -> what nominated pods need there beyond what is used now."""


@dataclass(frozen=True, slots=True)
class Nomination:
    """A unit, where its pods go, and the pods that make room for them; it began at ``since``."""

    plan_id: str
    unit: UnitKey
    assignments: tuple[Assignment, ...]
    victims: tuple[Pod, ...] = ()
    since: float = 0.0

    @property
    def priority(self) -> int:
        return min((assignment.pod.priority for assignment in self.assignments), default=0)

    @property
    def pods(self) -> tuple[Pod, ...]:
        return tuple(assignment.pod for assignment in self.assignments)


class Nominations(Plugin):
    """The nominations in the cluster, by unit."""

    name = "nominations"

    def __init__(self) -> None:
        self._by_unit: dict[UnitKey, Nomination] = {}

    def __iter__(self) -> Iterator[Nomination]:
        return iter(tuple(self._by_unit.values()))

    def __len__(self) -> int:
        return len(self._by_unit)

    def begin(self, nomination: Nomination) -> None:
        """Keep room for a unit; an earlier nomination of it ends."""
        self._by_unit[nomination.unit] = nomination

    def end(self, unit: UnitKey) -> frozenset[str]:
        """End a nomination; return the nodes on which it kept room."""
        ended = self._by_unit.pop(unit, None)
        return frozenset() if ended is None else frozenset(a.node for a in ended.assignments)

    def find(self, unit: UnitKey) -> Nomination | None:
        return self._by_unit.get(unit)

    @override
    def open(self, cycle: Cycle) -> "NominationsSession | None":
        return NominationsSession(cycle, tuple(self)) if self._by_unit else None


class NominationsSession(Admitting):
    """The nominations in one cycle."""

    name = Nominations.name
    reach = FilterReach.ROW

    def __init__(self, cycle: Cycle, nominations: Sequence[Nomination]) -> None:
        self._cycle = cycle
        self._nominations = nominations
        self._own = {
            pod.uid: at for at, nomination in enumerate(nominations) for pod in nomination.pods
        }
        self._extra: dict[_Applied, _Extra] = {}
        self._extra_at = -1
        self._kept: list[Pod] = []

    @override
    def ask(self, pod: Pod, shape: PodShape) -> Hashable | None:
        own = self._own.get(pod.uid)
        applied = tuple(
            at
            for at, nomination in enumerate(self._nominations)
            if at != own and nomination.priority >= pod.priority
        )
        return applied or None

    @override
    def pre_filter(self, unit: Unit) -> Admission:
        """Keep the quota of nominated pods from the unit, as far as it is not used yet."""
        self._kept = []
        pods = unit.pods
        if not pods or not self._cycle.is_charging_holds:
            return Admission(unit)
        applied = cast("_Applied | None", self.ask(pods[0], pods[0].shape)) or ()
        for pod in (pod for at in applied for pod in self._nominations[at].pods):
            if not self._cycle.is_charged(pod.uid) and self._cycle.hold(pod, 1):
                self._kept.append(pod)
        return Admission(unit)

    @override
    def settle(self, unit: Unit, placed: Sequence[Pod]) -> None:
        for pod in self._kept:
            self._cycle.hold(pod, -1)
        self._kept = []

    @override
    def filter(self, shape: PodShape, rows: Rows) -> Iterable[tuple[Cause, Ints]]:
        applied = cast("_Applied | None", shape.ask_of(self.name))
        if applied is None:
            return
        table, used = self._cycle.table, self._cycle.used
        limits = np.full(used.shape[1], NO_LIMIT, dtype=np.int64)
        vector = self._cycle.vector(shape)
        for row, extra in self._find_extra(applied).items():
            limits[row] = min(
                max(0, int(table.allocatable[column, row] - used[column, row]) - extra[key])
                // amount
                if key in extra
                else NO_LIMIT
                for key, column, amount in vector.items()
            )
        yield NodeCause.NOMINATED, limits[rows]

    def _find_extra(self, applied: _Applied) -> _Extra:
        if self._extra_at != self._cycle.version:
            self._extra_at = self._cycle.version
            self._extra.clear()
        extra = self._extra.get(applied)
        if extra is None:
            extra = self._extra[applied] = self._sum_up(applied)
        return extra

    def _sum_up(self, applied: _Applied) -> _Extra:
        """Return what will be used more than now; victims may be removed within the cycle."""
        cycle, row_of = self._cycle, self._cycle.table.row_of
        needed: dict[int, Counter[str]] = {}
        for nomination in (self._nominations[at] for at in applied):
            for assignment in nomination.assignments:
                row = row_of.get(assignment.node)
                if row is not None and not cycle.is_charged(assignment.pod.uid):
                    needed.setdefault(row, Counter()).update(dict(assignment.pod.shape.requests))
        victims = {pod.uid: pod for at in applied for pod in self._nominations[at].victims}
        for uid, pod in victims.items():
            row = row_of.get(pod.node)
            if row is not None and row in needed and cycle.is_charged(uid):
                needed[row].subtract(dict(pod.shape.requests))
        return {row: +amounts for row, amounts in needed.items() if +amounts}
