"""Tries changes of a cluster for one thing that waits: edits, or others that have ended.

A change is planned by the same planner as everything, alone, and taken back. Which changes are
worth a trial is decided elsewhere.
"""

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import closing
from itertools import takewhile
from typing import Final, TypeAlias

from koord.answers.edits import Edit, EditError, TooManyChangesError, Trial
from koord.answers.explain import try_units
from koord.answers.pending import find_pending
from koord.answers.planned_units import plan_waiting
from koord.answers.reading import Reading, Target
from koord.answers.redaction import NameKind
from koord.answers.remedies import Remedy, Verified
from koord.core.engine.cycle import Cycle
from koord.core.engine.queue import unit_of
from koord.core.engine.reasons import Closed
from koord.core.engine.scoring import Scoring
from koord.core.engine.state import ClusterState
from koord.core.gang.quorum import Ready, demands
from koord.core.model.gangs import GangKey
from koord.core.model.plan import Placement, Unit
from koord.core.model.pods import Pod
from koord.core.model.reasons import Reason

MOST_CHANGES: Final = 1024
"""Objects that one trial changes."""
MOST_AHEAD: Final = 64
"""Units before the target that are planned, too; behind more of them it is tried alone."""


class RemedySearch:
    """Tries changes, and looks whether the target starts; ``is_over`` once it took too long."""

    def __init__(self, reading: Reading, target: Target, is_over: Callable[[], bool]) -> None:
        self.reading = reading
        self.state: ClusterState = reading.state
        self.trial = Trial(reading.state, MOST_CHANGES)
        self.target = target
        self.is_over = is_over
        self.gang = _gang_of(reading.state, target)

    def pods(self) -> tuple[Pod, ...]:
        """Return the pods that wait."""
        if self.gang:
            return tuple(self.state.gangs.tally(self.gang).plannable.values())
        pod = self.state.pod_by_key(self.target.key)
        return () if pod is None else (pod,)

    def units(self) -> tuple[Unit, ...]:
        """Return the units of the target, as the queue makes them."""
        gang = _gang_of(self.state, self.target)
        if gang:
            made = demands(self.state.gangs, gang)
            return made.units if isinstance(made, Ready) else ()
        return tuple(unit_of(pod) for pod in self.pods() if pod.is_plannable)

    def hide(self, name: str) -> str:
        """Return the name of something of others as the asker may see it."""
        return self.reading.sight.hide(NameKind.UNIT, name)

    # --- trials ----------------------------------------------------------------------------------

    def judge(self, *edits: Edit) -> Verified:
        """Return whether the target starts after edits, if there is time to see it."""
        if self.is_over():
            return Verified.NOT_TRIED
        try:
            return Verified.YES if self.starts_with(*edits) else Verified.NO
        except TooManyChangesError:
            return Verified.NOT_TRIED

    def starts_with(self, *edits: Edit) -> bool:
        """Whether the target starts, alone, after these edits; they are taken back.

        May raise ``TooManyChangesError``.
        """
        return self._try(edits, self._starts)

    def starts_in_order_with(self, *edits: Edit) -> bool:
        """Whether it starts after all that is before it in the queue, too, if anything is.

        False also if those are too many, or it takes too long.
        """
        try:
            return self._try(edits, self._starts_in_order)
        except TooManyChangesError:
            return False

    def _try(self, edits: Iterable[Edit], starts: Callable[[Cycle], bool]) -> bool:
        checkpoint = self.trial.checkpoint()
        try:
            for edit in edits:
                edit.apply(self.trial)
            self.state.refresh()
            with closing(self._open_cycle()) as cycle:
                return starts(cycle)
        except TooManyChangesError:
            raise
        except EditError:
            return False
        finally:
            self.trial.undo(checkpoint)

    def find_smallest(
        self, most: int, make: Callable[[int], tuple[Edit, ...]], guess: int = 1
    ) -> tuple[int | None, Verified]:
        """Return an amount with which it starts, and with one less it does not; None for none."""
        try:
            return self._find_least(most, lambda count: self.starts_with(*make(count)), guess)
        except TooManyChangesError:
            return None, Verified.NOT_TRIED

    def find_first_endings(self, groups: Sequence[Sequence[Pod]]) -> tuple[int | None, Verified]:
        """Return how many of the first groups of pods have to end so that it starts."""
        self.state.refresh()
        with closing(self._open_cycle()) as cycle:

            def starts(count: int) -> bool:
                mark = cycle.checkpoint()
                try:
                    cycle.remove(pod for pods in groups[:count] for pod in pods)
                    return self._starts(cycle)
                finally:
                    cycle.rollback(mark)

            return self._find_least(len(groups), starts)

    def _find_least(
        self, most: int, starts: Callable[[int], bool], guess: int = 1
    ) -> tuple[int | None, Verified]:
        if most < 1:
            return None, Verified.NO
        low, high = 0, min(max(guess, 1), most)
        while not self.is_over():
            if starts(high):
                break
            if high == most:
                return None, Verified.NO
            low, high = high, min(2 * high, most)
        while high - low > 1 and not self.is_over():
            middle = (low + high) // 2
            # The guess is most often exact: then one trial below it is enough.
            middle = high - 1 if low == 0 and high == guess else middle
            if starts(middle):
                high, guess = middle, 0
            else:
                low = middle
        return (None, Verified.NOT_TRIED) if self.is_over() else (high, Verified.YES)

    def _open_cycle(self) -> Cycle:
        return self.state.open_cycle(lambda: find_pending(self.state))

    def _starts(self, cycle: Cycle) -> bool:
        units = self.units()
        if not units:
            return False
        outcome = try_units(cycle, units, Scoring())
        return _are_placed(units, outcome.placements)

    def _starts_in_order(self, cycle: Cycle) -> bool:
        units, pending = self.units(), find_pending(self.state)
        own = {unit.key for unit in units}
        ahead = list(takewhile(lambda unit: unit.key not in own, pending))
        is_behind = 0 < len(ahead) < len(pending)
        if not is_behind or len(ahead) > MOST_AHEAD or self.is_over():
            return False
        planned = plan_waiting(cycle, self.state, [*ahead, *units], Scoring(), self.is_over)
        return _are_placed(units, planned.placements)


def _are_placed(units: Sequence[Unit], placements: Iterable[Placement]) -> bool:
    """Whether of each unit as many pods get nodes as have to."""
    placed = Counter[str]()
    for placement in placements:
        placed[placement.unit] += len(placement.assignments)
    return all(placed[unit.key] >= max(unit.required, 1) for unit in units)


def _gang_of(state: ClusterState, target: Target) -> GangKey:
    if not target.is_planned_alone:
        return target.key
    pod = state.pod_by_key(target.key)
    return pod.gang.key if pod is not None and pod.gang is not None else ""


ClosedNodes: TypeAlias = tuple[Closed, ...]
RemedyFinder: TypeAlias = Callable[[RemedySearch, Reason, ClosedNodes], Iterator[Remedy]]
"""Yields what is worth a trial for a reason, with what was seen."""
