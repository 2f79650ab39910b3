"""The search for moves against brute force (``python -m tests.defrag.soak --count 2000``)."""

from __future__ import annotations

import argparse
import time
from collections import Counter

from tests.defrag.brute_force import NOW, find_best, make_scene, replay

from koord.core.defrag.model import MovePlan
from koord.core.defrag.search import plan_moves
from koord.core.eviction.search import PreemptionContext


def check(seed: int) -> str:
    """Compare the search with brute force on one cluster; return what came out."""
    scene = make_scene(seed)
    answer = plan_moves(
        scene.cluster.state, scene.unit, context=PreemptionContext(NOW, scene.budgets)
    )
    best = find_best(scene)
    if best is None:
        assert not isinstance(answer, MovePlan), f"seed {seed}: {answer}"
        return type(answer).__name__
    assert isinstance(answer, MovePlan), f"seed {seed}: {answer}, and {best} is possible"
    cost = answer.cost.cost
    levels = (answer.cost.pods, cost.gangs, cost.priority, cost.work, cost.jobs)
    assert levels == best, f"seed {seed}: {levels}, and {best} is possible"
    assert answer.proof.is_fewest, f"seed {seed}: unproven"
    assert answer.proof.is_cheapest, f"seed {seed}: unproven"
    if answer.steps:
        replay(scene, [[(m.pod.name, m.target) for m in step.moves] for step in answer.steps])
    return f"{min(len(answer.moves), 5)} moves"


def compare(first: int, count: int) -> None:
    """Compare with brute force on ``count`` clusters."""
    outcomes: Counter[str] = Counter()
    start = time.monotonic()
    for seed in range(first, first + count):
        outcomes[check(seed)] += 1
    seconds = time.monotonic() - start
    print(f"{count} clusters in {seconds:.0f} s: {dict(sorted(outcomes.items()))}")


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--first", type=int, default=0)
    parser.add_argument("--count", type=int, default=2000)
    options = parser.parse_args()
    compare(options.first, options.count)
