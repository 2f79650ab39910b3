"""Minimality: units are put back, the dearest first, until none of them can be spared.

Three tests for a unit, the quickest first: whether it fits beside the pods that took its room;
whether bounds say that it is needed; and what the planner says without it.
"""

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from koord.core.eviction.model import VictimUnit
from koord.core.eviction.room import Load, Want
from koord.core.eviction.victim_search import VictimSearch, VictimSet
from koord.core.model.plan import Placement


def reprieve(search: VictimSearch, solution: VictimSet) -> VictimSet:
    """Return a solution in which no unit can be spared, unless the steps are used up."""
    return _Minimizer(search, solution).run()


class _Minimizer:
    def __init__(self, search: VictimSearch, solution: VictimSet) -> None:
        self._search = search
        self._position = {unit.key: at for at, unit in enumerate(search.units)}
        self._best = solution

    def run(self) -> VictimSet:
        bounds = self._bounds()
        if not all(bounds.is_needed(self._position[victim.key]) for victim in self._best.victims):
            self._try(self._fit_beside())
            bounds = self._bounds()
        is_changed, is_complete = True, True
        while is_changed and is_complete:
            is_changed, is_complete = self._pass(bounds)
            bounds = self._bounds() if is_changed else bounds
        return replace(self._best, is_minimal=is_complete)

    def _bounds(self) -> "_Needed":
        return _Needed(self._search, [self._position[victim.key] for victim in self._best.victims])

    def _pass(self, bounds: "_Needed") -> tuple[bool, bool]:
        """Try to spare each unit; return whether one was, and whether all were tried."""
        is_changed = False
        for victim in self._dearest_first():
            if bounds.is_needed(self._position[victim.key]):
                continue
            if self._search.trials.is_over:
                return is_changed, False
            if self._try([other for other in self._best.victims if other is not victim]):
                bounds.spare(self._position[victim.key])
                is_changed = True
        return is_changed, True

    def _try(self, victims: Sequence[VictimUnit]) -> bool:
        if len(victims) == len(self._best.victims):
            return False
        solution = self._search.solve_with(victims)
        if solution is not None:
            self._best = solution
        return solution is not None

    def _fit_beside(self) -> list[VictimUnit]:
        """Return the units that do not fit beside the pods that took their room."""
        search, victims = self._search, self._best.victims
        cycle, left = search.trials.cycle, list[VictimUnit]()
        mark = cycle.checkpoint()
        unit = search.trials.unit
        removed = {victim.key: cycle.remove(victim.pods) for victim in victims}
        placement = search.trials.place(())
        if isinstance(placement, Placement):
            if unit.required == len(unit.pods):
                # The order matters: each that is put back takes room from those after it.
                left = [
                    victim
                    for victim in self._dearest_first()
                    if not cycle.restore(removed[victim.key])
                ]
            else:
                left = list(victims)
        cycle.rollback(mark)
        keep = {victim.key for victim in left}
        return [victim for victim in victims if victim.key in keep]

    def _dearest_first(self) -> list[VictimUnit]:
        return sorted(self._best.victims, key=lambda victim: -self._position[victim.key])


class _Needed:
    """Tells of units whether bounds prove that the waiting unit does not fit with them."""

    def __init__(self, search: VictimSearch, victims: Sequence[int]) -> None:
        self._room = search.room
        self._freed = self._room.freed(victims)
        self._totals = [self._room.sum(want, self._freed) for want in self._room.wants]
        self._losses_of: dict[tuple[Load, ...], tuple[int, ...]] = {}

    def is_needed(self, unit: int) -> bool:
        losses = zip(self._room.wants, self._totals, self._losses(unit), strict=True)
        return any(total - loss < want.count for want, total, loss in losses)

    def spare(self, unit: int) -> None:
        """Take note that a unit stays."""
        losses = zip(self._totals, self._losses(unit), strict=True)
        self._totals = [total - loss for total, loss in losses]
        for row, amounts in self._room.loads[unit]:
            self._freed[:, row] -= amounts
        self._losses_of.clear()

    def _losses(self, unit: int) -> tuple[int, ...]:
        """Return, per shape, how many pods less fit if a unit stays."""
        loads = self._room.loads[unit]
        losses = self._losses_of.get(loads)
        if losses is None:
            losses = tuple(self._lose(want, loads) for want in self._room.wants)
            self._losses_of[loads] = losses
        return losses

    def _lose(self, want: Want, loads: Sequence[Load]) -> int:
        room, loss = self._room, 0
        for row in {row for row, _ in loads}:
            used = np.sum([amounts for at, amounts in loads if at == row], axis=0)
            free = room.free[:, row] + self._freed[:, row]
            now = room.copies_at(want, row, free.tolist())
            loss += now - room.copies_at(want, row, (free - used).tolist())
        return loss
