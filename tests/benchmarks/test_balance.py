"""The simulation of a week, on a small cluster: what must hold of every one."""

from __future__ import annotations

import pytest
from benchmarks.balance import simulate


@pytest.mark.parametrize("seed", [1])
def test_balancing_halves_hot_hours_and_keeps_its_laws(seed: int) -> None:
    without, balanced = simulate(20, 1, seed)
    assert balanced.hot_hours <= without.hot_hours / 2
    assert balanced.moves
    assert balanced.most_per_pod_and_hour == 1
    assert balanced.returns == 0
    assert balanced.below_minimum == 0
    assert balanced.heated <= balanced.moves / 10


def test_the_same_seed_gives_the_same_week() -> None:
    first, second = simulate(5, 1, 3)[1], simulate(5, 1, 3)[1]
    assert (first.hot_hours, first.moves) == (second.hot_hours, second.moves)
