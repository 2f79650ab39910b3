"""One question of the search: all that its methods look at."""

from collections.abc import Collection, Sequence
from dataclasses import dataclass, field

from koord.core.eviction.cost import Costs, Price
from koord.core.eviction.guarantees import Guarantees
from koord.core.eviction.model import Cost, VictimUnit
from koord.core.eviction.room import Room
from koord.core.eviction.trial import Trials
from koord.core.model.plan import Placement


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
