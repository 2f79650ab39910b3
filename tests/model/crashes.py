"""Crashes: the operators crash at one write of a scenario, and the next process must recover.

A crash point is a write of a scenario, counted from the start of the operators, and whether the
server carried it out. A scenario runs once to count its writes, and then once per crash point. The
oracle judges the end state from objects and answers of the API.
"""

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field

from tests.model.network import CrashPoint
from tests.model.oracle import Oracle
from tests.model.scenarios import Scenario
from tests.model.steps import Step, Story, quiet
from tests.model.world import World, open_world
from tests.support.laws import sample

CONVERGED_SECONDS = 10.0
"""This long after a start and after the last change by others, all placements are done."""


@dataclass(slots=True)
class Tally:
    """Counts of scenarios and crash points, and the failures."""

    scenarios: int = 0
    points: int = 0
    writes: Counter[str] = field(default_factory=Counter)
    """Crash points by kind of write."""
    slowest: float = 0.0
    """Longest time to the last placement, in seconds."""
    broken: list[tuple[Story, list[str]]] = field(default_factory=list)


def points_of(scenario: Scenario) -> Iterator[tuple[Story, str]]:
    """Yield a story for every crash point, with the kind of write."""
    with quiet(), open_world(scenario.story.seed) as world:
        for step in scenario.story.steps:
            step.take(world)
        world.settle()
        kinds = list(world.network.kinds_of_writes[0])
    for at, kind in enumerate(kinds, start=1):
        for is_before in (True, False):
            crash = Step(0.0, "crash_at", (CrashPoint(at, is_before),))
            yield Story(scenario.story.seed, (crash, *scenario.story.steps)), kind


def try_all(scenario: Scenario, tally: Tally, most: int | None = None) -> None:
    """Run a scenario without a crash, and once per crash point, or for so many of them."""
    tally.scenarios += 1
    judge(scenario.story, tally)
    points = list(points_of(scenario))
    for story, kind in points if most is None else sample(points, most):
        tally.points += 1
        tally.writes[kind] += 1
        judge(story, tally, processes=2)


def judge(story: Story, tally: Tally, processes: int = 1) -> None:
    """Run one story to its end; at least ``processes`` processes must have led."""
    with quiet(), open_world(story.seed) as world:
        for step in story.steps:
            step.take(world)
        world.settle()
        Oracle(world).judge()
        if len(world.processes) < processes:
            world.ledger.blame("the operators did not reach the crash point")
        seconds = _measure(world)
        tally.slowest = max(tally.slowest, seconds)
        if seconds > CONVERGED_SECONDS:
            world.ledger.blame(f"placed something {seconds:.1f} s after the last change")
        if world.ledger.violations:
            tally.broken.append((story, world.ledger.violations))


def _measure(world: World) -> float:
    return max(0.0, world.ledger.last_placement - world.last_change)
