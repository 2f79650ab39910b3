"""The worst inputs of `python -m benchmarks.hostile`, few of each on a small cluster.

What counts is cost in steps, and that others are placed; the benchmark has the sizes and the times.
"""

import pytest
from benchmarks.hostile import wait_for_ordinary_pod
from benchmarks.in_memory import World
from benchmarks.worst_inputs import INPUTS, Input

NODES = 16
FEW = 6


@pytest.mark.parametrize("one", INPUTS, ids=lambda one: one.name)
def test_no_input_takes_more_than_its_budget_or_keeps_others_waiting(one: Input) -> None:
    world = World()
    world.furnish(NODES)
    world.feed(one.make(min(one.size, FEW)))
    assert wait_for_ordinary_pod(world) < float("inf"), "an ordinary pod is placed"
    world.run(3)
    assert world.times.steps <= world.times.budget
    assert world.times.too_expensive <= 1
