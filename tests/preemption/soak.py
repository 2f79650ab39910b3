"""Random clusters (``python -m tests.preemption.soak``).

The search against all sets of victims, and arrivals with preemption until nothing changes.
"""

from __future__ import annotations

import argparse
import random
import time
from collections import Counter

from tests.preemption.brute_force import NOW, find_best, fits_without, levels_of, make_scene
from tests.preemption.simulation import Simulation

from koord.core.eviction.model import Preemption
from koord.core.eviction.search import PreemptionContext, plan_preemption

TELL_STATES = 5000
"""How often the simulation says how far it is."""


def check(seed: int) -> str:
    """Compare the search with brute force on one cluster; return what came out."""
    scene = make_scene(seed)
    answer = plan_preemption(
        scene.cluster.state, scene.unit, context=PreemptionContext(NOW, scene.budgets)
    )
    best = find_best(scene)
    if best is None:
        assert not isinstance(answer, Preemption), f"seed {seed}: {answer}"
        return type(answer).__name__
    assert isinstance(answer, Preemption), f"seed {seed}: {answer}"
    assert fits_without(scene, answer.victims), f"seed {seed}: the plan does not hold"
    levels = levels_of(scene, answer.victims)
    assert levels == best, f"seed {seed}: {levels}, and {best} is possible"
    assert levels == (
        answer.cost.violations,
        answer.cost.gangs,
        answer.cost.priority,
        answer.cost.work,
    )
    assert answer.certificate.is_cheapest, f"seed {seed}: unproven"
    check_minimal(seed, scene, answer)
    return f"{min(len(answer.victims), 5)} victims"


def check_minimal(seed: int, scene, answer: Preemption) -> None:
    """Nobody can be spared."""
    assert answer.certificate.is_minimal, f"seed {seed}: not minimal"
    for victim in answer.victims:
        remaining = [other for other in answer.victims if other is not victim]
        assert not fits_without(scene, remaining), f"seed {seed}: {victim.name} can be spared"


def compare(first: int, count: int) -> None:
    """Compare with brute force on ``count`` clusters."""
    outcomes: Counter[str] = Counter()
    start = time.monotonic()
    for seed in range(first, first + count):
        outcomes[check(seed)] += 1
    took = time.monotonic() - start
    print(f"{count} clusters, {took:.0f} s: {dict(sorted(outcomes.items()))}", flush=True)


def simulate(first: int, least: int) -> None:
    """Simulate clusters until there were ``least`` states; print how far it is."""
    seed, states, preemptions, start = first, 0, 0, time.monotonic()
    last = 0
    while states < least:
        simulation = Simulation(random.Random(seed))
        simulation.run(arrivals=20)
        seed, states, preemptions = (
            seed + 1,
            states + simulation.states,
            preemptions + simulation.preemptions,
        )
        if states - last >= TELL_STATES or states >= least:
            last, took = states, time.monotonic() - start
            print(
                f"{seed - first} simulations, {took:.0f} s: {states} states, "
                f"{preemptions} preemptions",
                flush=True,
            )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--count", type=int, default=6000)
    parser.add_argument("--states", type=int, default=100_000)
    options = parser.parse_args()
    if options.count:
        compare(options.seed, options.count)
    simulate(options.seed, options.states)


if __name__ == "__main__":
    main()
