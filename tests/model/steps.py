"""Steps of a scenario as data: they can be printed, replayed and shortened.

A step names a method of the world and its arguments. A story is a seed and steps: the same story
always takes the same course, so a failure is reported as one, and the shortest that still fails is
found by leaving steps out.
"""

import logging
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from tests.model.oracle import Oracle
from tests.model.world import World, open_world


@dataclass(frozen=True, slots=True)
class Step:
    """A call of a method of the world after ``wait`` seconds."""

    wait: float
    call: str
    args: tuple[Any, ...] = ()

    def take(self, world: World) -> None:
        if self.wait:
            world.advance(self.wait)
        world.actions += 1
        world.last_change = world.loop.time()
        if self.call == "rest":
            rest(world)
        else:
            getattr(world, self.call)(*self.args)


@dataclass(frozen=True, slots=True)
class Story:
    """Steps in order; at the end the world settles and the oracle judges it."""

    seed: int
    steps: tuple[Step, ...]

    def __str__(self) -> str:
        lines = "".join(f"    {step},\n" for step in self.steps)
        return f"Story(\n  seed={self.seed},\n  steps=(\n{lines}  ),\n)"


def rest(world: World) -> None:
    """Settle without faults, and judge."""
    injected = world.network.injected
    world.cancel_crash()
    world.settle()
    Oracle(world).judge()
    world.network.injected = injected


def play(story: Story) -> list[str]:
    """Return the rules that were broken first; empty if none was."""
    with quiet(), open_world(story.seed) as world:
        for step in story.steps:
            step.take(world)
            if world.ledger.violations:
                break
        else:
            rest(world)
        return world.ledger.violations


def shorten(story: Story, is_bad: Callable[[Story], bool], most_plays: int = 600) -> Story:
    """Remove every step without which the story still fails."""
    steps = list(story.steps)
    size, plays = max(1, len(steps) // 2), 0
    while plays < most_plays:
        at, before = 0, len(steps)
        while at < len(steps) and plays < most_plays:
            shorter = Story(story.seed, tuple(steps[:at] + steps[at + size :]))
            plays += 1
            if is_bad(shorter):
                steps = list(shorter.steps)
            else:
                at += size
        if size == 1 and len(steps) == before:
            break
        size = max(1, size // 2)
    return Story(story.seed, tuple(steps))


def is_same_kind(violations: Sequence[str], others: Sequence[str]) -> bool:
    """Whether two lists begin with the same rule, for any object."""
    return bool(others) and _kind_of(violations[0]) == _kind_of(others[0])


def _kind_of(violation: str) -> set[str]:
    return {word for word in violation.split() if word.isalpha()}


@contextmanager
def quiet() -> Iterator[None]:
    """Silence the logs of the operators."""
    logging.disable(logging.CRITICAL)
    try:
        yield
    finally:
        logging.disable(logging.NOTSET)
