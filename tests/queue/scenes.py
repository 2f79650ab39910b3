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


@st.composite
def scenes(
    draw: Any,
    *,
    limited: bool = True,
    quotas: int = 3,
    priorities: Sequence[int] = (0,),
    policies: Sequence[Policy] = (Policy.STRICT, Policy.BACKFILL),
) -> Scene:
    """With ``limited`` all units say when they have ended for certain."""
    size = draw(st.integers(2, 8))
    nodes = [CountedNode(f"n{at}", 8, f"b{at // 2}") for at in range(size)]
    names = [f"q{at}" for at in range(draw(st.integers(1, quotas)))]
    most = 8 * size
    made = [
        SimulatedQuota(name, most // len(names), most, draw(st.integers(8, most))) for name in names
    ]
    units = []
    for at in range(draw(st.integers(1, 10))):
        duration = draw(st.integers(1, LONGEST))
        limit = draw(st.integers(duration, LONGEST)) if limited or draw(st.booleans()) else None
        job = UnitAsk(
            f"u{at}",
            draw(st.sampled_from(names)),
            draw(st.integers(1, 8)),
            draw(st.sampled_from([1, 2, 4, 8])),
            limit,
            gathers=draw(st.booleans()),
        )
        priority = draw(st.sampled_from(priorities))
        units.append(TraceUnit(job, draw(st.integers(0, 40)), duration, priority))
    settings = QueueSettings(
        policy=draw(st.sampled_from(policies)),
        protect_after=draw(st.sampled_from([0, 0, 5])),
        reserve_depth=draw(st.sampled_from([1, 1, 2, 16])),
        short_limit=draw(st.sampled_from([0, 5])),
        max_idle_share=draw(st.sampled_from([20, 100])),
    )
    return Scene(nodes, made, units, settings)
