"""One tenant lies in all that he may say, all the time: others wait for no more than their turns.

He submits, deletes and submits again, holds and releases, says short limits and changes them, and
comes with floods of tiny jobs. Priorities are none of it: who may use them is for others to say.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from itertools import count
from typing import TYPE_CHECKING

from hypothesis import given, settings
from hypothesis import strategies as st
from tests.queue.scenes import LONGEST, Scene, draw_scene
from tests.support.laws import examples

from koord.core.queue.room import UnitAsk
from koord.core.queue.simulation import SimulatedQuota, Simulation, TraceUnit

if TYPE_CHECKING:
    from collections.abc import Callable
    from random import Random

LIAR, HONEST = "liar", "honest"
LIES_UNTIL = 2 * LONGEST
LIES = 20
FEWER = 10
"""Long scenes in every run."""


@dataclass
class Liar:
    """Does something to his jobs whenever he is asked."""

    dice: Random
    nodes: int

    def __post_init__(self) -> None:
        self._held: list[TraceUnit] = []
        self._numbers = count()

    def act(self, simulation: Simulation) -> None:
        mine = [unit for unit in simulation.waiting.values() if unit.job.quota == LIAR]
        self.dice.choice([self._submit, self._flood, self._submit_again, self._hold, self._change])(
            simulation, mine
        )

    def _make(self, pods: int, gpus: int, limit: int, now: int) -> TraceUnit:
        job = UnitAsk(f"l{next(self._numbers):04}", LIAR, pods, gpus, limit)
        return TraceUnit(job, now, min(limit, self.dice.randint(1, LONGEST)))

    def _submit(self, simulation: Simulation, _: list[TraceUnit]) -> None:
        limit = self.dice.choice([1, 2, LONGEST])
        pods = self.dice.randint(1, self.nodes)
        simulation.submit(self._make(pods, 8, limit, simulation.room.now))

    def _flood(self, simulation: Simulation, _: list[TraceUnit]) -> None:
        for _ in range(6):
            gpus, limit = self.dice.choice([1, 4, 8]), self.dice.randint(1, LONGEST)
            simulation.submit(self._make(1, gpus, limit, simulation.room.now))

    def _submit_again(self, simulation: Simulation, mine: list[TraceUnit]) -> None:
        for unit in mine[:2]:
            simulation.withdraw(unit.job.key)
            again = self._make(unit.job.pods, unit.job.amount, LONGEST, simulation.room.now)
            simulation.submit(again)

    def _hold(self, simulation: Simulation, mine: list[TraceUnit]) -> None:
        """Who is released has his place again."""
        released, self._held = self._held, mine[:3]
        for unit in self._held:
            simulation.withdraw(unit.job.key)
        for unit in released:
            simulation.submit(unit)

    def _change(self, simulation: Simulation, mine: list[TraceUnit]) -> None:
        for unit in mine[:2]:
            limit = self.dice.choice([1, LONGEST])
            changed = replace(unit, job=replace(unit.job, limit=limit), duration=limit)
            simulation.submit(changed)


def draw(dice: Random) -> tuple[Scene, dict[int, Callable[[Simulation], None]]]:
    """Return a cluster of two tenants of which one is honest, and what the other one does when."""
    scene = draw_scene(dice, quotas=1)
    most = 8 * len(scene.nodes)
    least = most // 2
    quotas = [SimulatedQuota(HONEST, least, most, most), SimulatedQuota(LIAR, least, most, most)]
    units = [
        replace(unit, job=replace(unit.job, quota=HONEST, gathers=False))
        for unit in scene.units[:4]
        if unit.job.total <= least
    ]
    liar = Liar(dice, len(scene.nodes))
    times = dice.sample(range(LIES_UNTIL), LIES)
    return replace(scene, quotas=quotas, units=units), dict.fromkeys(times, liar.act)


@given(st.randoms(use_true_random=True))
@settings(max_examples=examples(FEWER))
def test_who_lies_costs_others_no_more_than_their_turns(dice: Random) -> None:
    scene, lies = draw(dice)
    simulation = scene.play(events=lies)
    step = scene.settings.protect_after + LONGEST + scene.settings.short_limit
    ordered = sorted(scene.units, key=lambda unit: (unit.arrival, unit.job.key))
    for ahead, unit in enumerate(ordered):
        start = simulation.starts[unit.job.key]
        assert start <= unit.arrival + (ahead + 1) * step, unit
