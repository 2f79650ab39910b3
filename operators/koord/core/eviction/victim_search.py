"""One search for victims: all that its methods look at, and its trials on the planner.

A trial says whether the waiting unit fits without some running units. It changes nothing: the cycle
is rolled back. Trials are remembered, and counted in steps.
"""

from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Final

from koord.core.engine.cycle import Cycle
from koord.core.engine.planner import plan
from koord.core.engine.scoring import Scoring
from koord.core.eviction.cost import Costs, Price
from koord.core.eviction.limits import Guarantees
from koord.core.eviction.model import Cost, VictimUnit
from koord.core.eviction.room import Room
from koord.core.model.plan import Placement, Unit
from koord.core.model.pods import Pod
from koord.core.model.reasons import Reason

TRIAL_STEPS: Final = 200
"""Array operations that take as long as a trial on a small cluster."""
REMOVAL_STEPS: Final = 10
"""The same, for taking one pod off its node and putting it back."""


def pods_of(victims: Iterable[VictimUnit]) -> dict[str, Pod]:
    """Return all pods of some units by uid."""
    return {pod.uid: pod for victim in victims for pod in victim.pods}


class Trials:
    """Plans one unit on one cycle, again and again."""

    def __init__(self, cycle: Cycle, unit: Unit, scoring: Scoring, most_steps: int) -> None:
        self.cycle = cycle
        self.unit = unit
        self._scoring = scoring
        self._most = cycle.steps.taken + most_steps
        self._outcomes: dict[frozenset[str], Placement | Reason] = {}

    @property
    def is_over(self) -> bool:
        """Whether the steps are used up."""
        return self.cycle.steps.taken > self._most

    def remove_for_good(self, pods: Iterable[Pod]) -> None:
        """Take pods out of all later trials."""
        self.cycle.remove(pods)
        self._outcomes.clear()

    def fits(self, victims: Collection[VictimUnit]) -> bool:
        """Whether the unit fits without these units."""
        return isinstance(self.plan(victims), Placement)

    def fits_without(self, pods: Collection[Pod]) -> bool:
        """Whether the unit fits without these pods."""
        mark = self.cycle.checkpoint()
        self.cycle.steps.take(0, TRIAL_STEPS + REMOVAL_STEPS * len(pods))
        self.cycle.remove(pods)
        outcome = plan(self.cycle, (self.unit,), self._scoring)
        self.cycle.rollback(mark)
        return bool(outcome.placements)

    def plan(self, victims: Collection[VictimUnit]) -> Placement | Reason:
        """Return where the pods go without these units, or why they do not fit."""
        key = frozenset(victim.key for victim in victims)
        outcome = self._outcomes.get(key)
        if outcome is None:
            mark = self.cycle.checkpoint()
            outcome = self._outcomes[key] = self.place(victims)
            self.cycle.rollback(mark)
        return outcome

    def place(self, victims: Collection[VictimUnit]) -> Placement | Reason:
        """Remove units and place the unit in their stead; the caller rolls back."""
        pods = pods_of(victims)
        self.cycle.steps.take(0, TRIAL_STEPS + REMOVAL_STEPS * len(pods))
        self.cycle.remove(pods.values())
        outcome = plan(self.cycle, (self.unit,), self._scoring)
        return outcome.placements[0] if outcome.placements else outcome.refusals[0].reason


@dataclass(frozen=True, slots=True)
class VictimSet:
    """Units without which the waiting unit fits, where its pods go then, and the cost."""

    victims: tuple[VictimUnit, ...]
    placement: Placement
    cost: Cost
    is_minimal: bool = False


@dataclass(frozen=True, slots=True)
class VictimSearch:
    """Running ``units``, the cheapest first, and what decides about them.

    ``room`` numbers units by their positions in ``units``.
    """

    units: Sequence[VictimUnit]
    trials: Trials
    room: Room
    costs: Costs
    guarantees: Guarantees
    prices: Sequence[Price] = field(init=False)
    """What each unit costs by itself."""

    def __post_init__(self) -> None:
        object.__setattr__(self, "prices", [self.costs.price_of(unit) for unit in self.units])

    def is_legal(self, victims: Collection[VictimUnit]) -> bool:
        """Whether the units may go together: guarantees are kept, and no unit is there twice."""
        whole = {victim.group for victim in victims if victim.gangs}
        is_twice = whole and any(victim.group in whole and not victim.gangs for victim in victims)
        return not is_twice and self.guarantees.allows(victims)

    def solve_with(self, victims: Sequence[VictimUnit]) -> VictimSet | None:
        """Return the solution with these victims; None if it is none."""
        if not self.is_legal(victims):
            return None
        placement = self.trials.plan(victims)
        if not isinstance(placement, Placement):
            return None
        return VictimSet(tuple(victims), placement, self.costs.of(victims))
