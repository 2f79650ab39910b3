"""Queueing hints: whether changes may make a refused pod schedulable.

A hint may be wrong in one direction only: the planner decides about a requeued unit, but a unit
that is never requeued would wait forever.

A unit is concerned if one of its pods fits where there is more room than before. It may start if
all that it requires may fit on the nodes together, each shape counted as if it had them to itself,
and if no domain that places whole units is sure to refuse it.
"""

from collections import Counter
from collections.abc import Callable, Sequence
from enum import Enum, auto

import numpy as np

from koord.core.engine.arrays import Ints
from koord.core.engine.cycle import Cycle
from koord.core.engine.steps import MOST_PER_CALL
from koord.core.model.changes import Changes
from koord.core.model.constraints import PodSelector
from koord.core.model.plan import Demand, Unit
from koord.core.model.pods import Pod, PodShape
from koord.core.plugins.inter_pod import InterPodSession
from koord.core.plugins.pod_affinity import SelectorIndex


class Chance(Enum):
    """How much of a refused unit may fit by now."""

    NONE = auto()
    PART = auto()
    ALL = auto()


class _RoomOnNodes:
    """Of how many pods of a shape each node may have room.

    Apart from the hints, which keep checks that ask for it: a cycle goes at once when it is left.
    """

    def __init__(self, cycle: Cycle) -> None:
        self._cycle = cycle
        self._measured: dict[PodShape, Ints | None] = {}

    def of(self, shape: PodShape) -> Ints | None:
        """Return the room, by row; None if it cannot be told."""
        if shape not in self._measured:
            self._measured[shape] = self._measure(shape)
        return self._measured[shape]

    def _measure(self, shape: PodShape) -> Ints | None:
        if self._cycle.may_use_held_room(shape):
            return None  # beside what is free, and each hold in its own way
        if shape.constraints is None:
            return self._cycle.room(shape)
        if self._cycle.steps.taken > MOST_PER_CALL:
            return None
        return self._cycle.possible_room(shape)


class QueueingHints:
    """The effect of changes on refused pods; ``cycle`` is opened after the changes."""

    def __init__(self, changes: Changes, cycle: Cycle) -> None:
        self._changes = changes
        self._cycle = cycle
        self._pods = cycle.session(InterPodSession).state
        row_of = cycle.table.row_of
        self._rows = np.array(
            [row_of[name] for name in changes.freed if name in row_of], dtype=np.int64
        )
        self._moved = changes.arrived | {profile for profile, _ in changes.left}
        self._removed_anti_affinity = SelectorIndex()
        for _, constraints in changes.left:
            for term in () if constraints is None else constraints.anti_affinity:
                self._removed_anti_affinity.add(term.pods)
        self._has_room: dict[tuple[PodShape, bool], bool] = {}
        self._rooms = _RoomOnNodes(cycle)
        self._sums: dict[PodShape, float] = {}
        """Shape -> the sum of that."""
        checks = [session.room_check(self._rooms.of) for session in cycle.room_checking]
        self._checks = [check for check in checks if check is not None]
        self._free: dict[int, float] = {}
        """Column of the node table -> what is free of it on all nodes together."""
        self._touched: dict[PodSelector, bool] = {}

    @property
    def is_room_changed(self) -> bool:
        """Whether pods may fit that need nothing but room."""
        return bool(self._rows.size) or bool(self._removed_anti_affinity)

    def chance_of(self, unit: Unit, refused: Sequence[Pod]) -> Chance:
        """Return what the changes may have made possible for a unit with refused pods."""
        self._relieve(unit)
        if not any(map(self._may_fit, refused)):
            return Chance.NONE
        return Chance.ALL if self._has_room_for_all(unit, refused) else Chance.PART

    def may_start(self, unit: Unit, refused: Sequence[Pod]) -> bool:
        """Whether nodes may have room for all that a unit requires, whatever has changed."""
        self._relieve(unit)
        return self._has_room_for_all(unit, refused)

    def _relieve(self, unit: Unit) -> None:
        for session in self._cycle.relieving:
            session.relieve(unit)

    def _has_room_for_all(self, unit: Unit, refused: Sequence[Pod]) -> bool:
        if not _is_waiting(unit, refused):
            return True
        is_enough = all(
            self._has_room_for(demand, count)
            for count in (self._most_of, self._room_of)
            for demand in unit.demands
        )
        return is_enough and all(check(unit) for check in self._checks)

    def _has_room_for(self, demand: Demand, count_room: Callable[[PodShape], float]) -> bool:
        """Whether nodes may have room for as many pods of a demand as it requires.

        ``count_room`` returns of how many pods of a shape they may have room, or more.
        """
        if demand.required <= 1:
            return True
        coming = [pod for pod in demand.pods if not (pod.pinned and pod.recorded)]
        left: float = demand.required - (len(demand.pods) - len(coming))  # those have their nodes
        for shape, count in Counter(map(self._cycle.shape_of, coming)).items():
            if left <= 0:
                break
            left -= min(count, count_room(shape))
        return left <= 0

    def _most_of(self, shape: PodShape) -> float:
        """Return how many pods of a shape would fit if all that is free were on one node."""
        if self._cycle.may_use_held_room(shape):
            return float("inf")
        vector = self._cycle.vector(shape)
        return min(
            self._free_in(column) // amount
            for column, amount in zip(vector.columns, vector.amounts, strict=True)
        )

    def _free_in(self, column: int) -> float:
        free = self._free.get(column)
        if free is None:
            left = self._cycle.table.allocatable[column] - self._cycle.used[column]
            free = self._free[column] = float(np.maximum(left, 0).sum(dtype=np.float64))
        return free

    def _room_of(self, shape: PodShape) -> float:
        """Return how many pods of a shape fit on all nodes together, or more."""
        if shape not in self._sums:
            room = self._rooms.of(shape)
            self._sums[shape] = float("inf") if room is None else float(room.sum())
        return self._sums[shape]

    def _may_fit(self, pod: Pod) -> bool:
        """Whether a refused pod may fit now."""
        if pod.pinned and pod.recorded is not None:
            # It is charged to its node already, so free room is no measure.
            is_moved = pod.recorded.node in self._changes.freed
            return is_moved and self._cycle.can_stay(pod.shape, pod.recorded.node)
        if any(use.key in self._changes.claims for use in pod.claims):
            return True
        if pod.shape.constraints is not None and self._cycle.steps.taken > MOST_PER_CALL:
            return True  # to plan it takes no longer than to find out
        if self._are_related_pods_changed(pod):
            return self._fits(pod, anywhere=True)
        return bool(self._rows.size) and self._fits(pod, anywhere=False)

    def _fits(self, pod: Pod, *, anywhere: bool) -> bool:
        """Whether such a pod fits, on any node or on those with more room than before."""
        shape = self._cycle.shape_of(pod)
        fits = self._has_room.get((shape, anywhere))
        if fits is None:
            rows = np.arange(len(self._cycle.table.nodes)) if anywhere else self._rows
            fits = bool(self._cycle.bounds(shape, rows).any())
            self._has_room[shape, anywhere] = fits
        return fits

    def _are_related_pods_changed(self, pod: Pod) -> bool:
        """Whether pods that its inter-pod rules refer to were added or removed."""
        constraints = pod.shape.constraints
        if constraints is not None:
            if self._changes.is_relabelled:
                return True
            if any(map(self._is_touched, constraints.selectors)):
                return True
        if not self._removed_anti_affinity:
            return False
        return (
            next(self._pods.selecting(self._removed_anti_affinity, pod.profile), None) is not None
        )

    def _is_touched(self, pods: PodSelector) -> bool:
        """Whether a selector selects a pod that was added or removed."""
        is_touched = self._touched.get(pods)
        if is_touched is None:
            self._cycle.steps.take(0, len(self._moved))
            is_touched = self._touched[pods] = any(
                self._pods.selects(pods, pod_labels) for pod_labels in self._moved
            )
        return is_touched


def _is_waiting(unit: Unit, refused: Sequence[Pod]) -> bool:
    """Whether a unit starts with all that it requires, or not at all.

    Room is held for some members of a NonStrict unit, and surplus comes one by one.
    """
    return len(refused) == len(unit.pods) and not unit.lease_seconds
