"""Shares of GPUs: the search against all orders and nodes, each tried with the planner."""

from __future__ import annotations

import random
from contextlib import closing
from typing import TYPE_CHECKING

import numpy as np
import pytest
from benchmarks.defrag import NOW, RandomFill
from tests.builders import make_pod
from tests.cluster import SCORING, make_unit

from koord.core.defrag.model import MovePlan
from koord.core.defrag.movable import make_copies
from koord.core.defrag.search import plan_moves
from koord.core.engine.planner import plan
from koord.core.eviction.search import PreemptionContext

if TYPE_CHECKING:
    from koord.core.engine.cycle import Cycle
    from koord.core.model.plan import Unit
    from koord.core.model.pods import Pod

SCENES = 16


def fewest(cycle: Cycle, unit: Unit, pods: list[Pod], most: int) -> int | None:
    """Return the fewest moves after which the unit fits, up to ``most``; None if there are none."""
    for count in range(most + 1):
        if can(cycle, unit, pods, count):
            return count
    return None


def can(cycle: Cycle, unit: Unit, pods: list[Pod], count: int) -> bool:
    mark = cycle.checkpoint()
    if not count:
        is_placed = bool(plan(cycle, (unit,), SCORING).placements)
        cycle.rollback(mark)
        return is_placed
    for pod in pods:
        (copy,) = make_copies((pod,))
        shape = cycle.shape_of(copy)
        for name, row in cycle.table.live_rows():
            allowed = np.arange(len(cycle.table.nodes)) == row
            if name == pod.node:
                continue
            with cycle.only({shape: allowed}):
                outcome = plan(cycle, (make_unit(copy.uid, [copy]),), SCORING)
            if outcome.placements:
                cycle.remove((pod,))
                if can(cycle, unit, [other for other in pods if other is not pod], count - 1):
                    cycle.rollback(mark)
                    return True
            cycle.rollback(mark)
    return False


@pytest.mark.parametrize("seed", range(SCENES))
def test_fewest_moves_of_shares_and_whole_gpus(seed: int) -> None:
    chance = random.Random(seed)
    filler = RandomFill(3, seed)
    for node in filler.free:
        for _ in range(chance.randint(1, 2)):
            filler.put(node, chance.choice((25, 50, 100, 200, 400)))
    state = filler.cluster.state
    unit = make_unit("job", [make_pod("w").gpu(chance.choice((6, 7, 8)))])
    answer = plan_moves(state, unit, context=PreemptionContext(NOW))
    with closing(state.open_cycle()) as cycle:
        best = fewest(cycle, unit, list(state.pods.values()), 3)
    if best is None:
        assert not isinstance(answer, MovePlan) or len(answer.moves) > 3
        return
    assert isinstance(answer, MovePlan), answer
    assert len(answer.moves) == best
    assert answer.proof.is_fewest
