"""Crashes: the operators end at one write of a scenario, and whoever comes next must make it good.

A crash point is a write of a scenario, counted from the start of the operators, and whether the
server acted on it before they ended. A scenario is played once to the end to count its writes, and
then once for every point. What must hold in the end is told from the API's objects and answers.
"""

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field

from tests.model.network import CrashPoint
from tests.model.oracle import Oracle
from tests.model.scenarios import Scenario
from tests.model.steps import Step, Story, quiet
from tests.model.world import World, open_world

CONVERGED_SECONDS = 10.0
"""After a start, and after the last change by others, nothing is placed any more."""


@dataclass(slots=True)
class Tally:
    """What has been tried, and what came of it."""

    scenarios: int = 0
    points: int = 0
    writes: Counter[str] = field(default_factory=Counter)
    """Points by the kind of write."""
    slowest: float = 0.0
    """Seconds until nothing was placed any more."""
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


def try_all(scenario: Scenario, tally: Tally) -> None:
    """Play a scenario without a crash, and with every one."""
    tally.scenarios += 1
    judge(scenario.story, tally)
    for story, kind in points_of(scenario):
        tally.points += 1
        tally.writes[kind] += 1
        judge(story, tally, lives=2)


def judge(story: Story, tally: Tally, lives: int = 1) -> None:
    """Play one story to its end, with at least so many lives of the operators."""
    with quiet(), open_world(story.seed) as world:
        for step in story.steps:
            step.take(world)
        world.settle()
        Oracle(world).judge()
        if len(world.lives) < lives:
            world.ledger.blame("the operators did not get as far as where they were to end")
        seconds = _measure(world)
        tally.slowest = max(tally.slowest, seconds)
        if seconds > CONVERGED_SECONDS:
            world.ledger.blame(f"placed something {seconds:.1f} s after the last change")
        if world.ledger.violations:
            tally.broken.append((story, world.ledger.violations))


def _measure(world: World) -> float:
    return max(0.0, world.ledger.last_placement - world.last_change)
