"""Random clusters with queues: two to eight nodes in blocks, one to three quotas, what comes."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from hypothesis import strategies as st

from koord.core.queue.counted_room import CountedNode
from koord.core.queue.room import UnitAsk
from koord.core.queue.settings import Policy, QueueSettings
from koord.core.queue.simulation import SimulatedQuota, Simulation, TraceUnit

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from random import Random

LONGEST = 60


@dataclass(frozen=True)
class Scene:
    nodes: Sequence[CountedNode]
    quotas: Sequence[SimulatedQuota]
    units: Sequence[TraceUnit]
    settings: QueueSettings

    def make(self, **options: Any) -> Simulation:
        return Simulation(
            self.nodes,
            self.quotas,
            lambda _: self.settings,
            **{"least_gain": 1, "least_remainder": 60, **options},
        )

    def play(
        self,
        watch: Callable[[Simulation], None] = lambda _: None,
        events: Mapping[int, Callable[[Simulation], None]] | None = None,
        **options: Any,
    ) -> Simulation:
        """Play to the end; ``watch`` looks on after each round of turns."""
        simulation = self.make(**options)
        decide = simulation.decide

        def look() -> Mapping[str, int]:
            idle = decide()
            watch(simulation)
            return idle

        simulation.decide = look  # type: ignore[method-assign]
        simulation.play(
            self.units,
            {at: lambda event=event: event(simulation) for at, event in (events or {}).items()},
        )
        return simulation

    def under(self, **changes: Any) -> Scene:
        return replace(self, settings=replace(self.settings, **changes))


def scenes(**kinds: Any) -> st.SearchStrategy[Scene]:
    """Return scenes of one seed each: to draw piece by piece takes longer than to play."""
    return st.randoms(use_true_random=True).map(lambda dice: draw_scene(dice, **kinds))


def draw_scene(
    dice: Random,
    *,
    limited: bool = True,
    quotas: int = 3,
    priorities: Sequence[int] = (0,),
    policies: Sequence[Policy] = (Policy.STRICT, Policy.BACKFILL),
) -> Scene:
    """With ``limited`` all units say when they have ended for certain."""
    size = dice.randint(2, 8)
    nodes = [CountedNode(f"n{at}", 8, f"b{at // 2}") for at in range(size)]
    names = [f"q{at}" for at in range(dice.randint(1, quotas))]
    most = 8 * size
    made = [SimulatedQuota(name, most // len(names), most, dice.randint(8, most)) for name in names]
    units = []
    for at in range(dice.randint(1, 10)):
        duration = dice.randint(1, LONGEST)
        limit = dice.randint(duration, LONGEST) if limited or dice.random() < 0.5 else None
        job = UnitAsk(
            f"u{at}",
            dice.choice(names),
            dice.randint(1, 8),
            dice.choice([1, 2, 4, 8]),
            limit,
            gathers=dice.random() < 0.5,
        )
        priority = dice.choice(priorities)
        units.append(TraceUnit(job, dice.randint(0, 40), duration, priority))
    settings = QueueSettings(
        policy=dice.choice(policies),
        protect_after=dice.choice([0, 0, 5]),
        reserve_depth=dice.choice([1, 1, 2, 16]),
        short_limit=dice.choice([0, 5]),
        max_idle_share=dice.choice([20, 100]),
    )
    return Scene(nodes, made, units, settings)
